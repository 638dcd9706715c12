//! The thread that writes the frames sent to a port to a pcapng file.
//!
//! It writes whole blocks, many at once under load, and all available ones before it sleeps, so that a reader that
//! follows the file sees every frame. An existing file is continued with another section, never overwritten. Blocks
//! that cannot be written (the disk is full, say) are kept and retried; meanwhile the port is down.

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fabric::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::options::Options;
use super::pcapng::{self, Packet};
use super::slots::Slots;
use super::{PortState, Side};

/// Bytes written at once, about.
const CHUNK: usize = 256 << 10;
/// Pause before a failed write is retried.
const RETRY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Mode of a new file: only its owner and group may read the packets.
const MODE: u32 = 0o640;
/// The shortest block of pcapng.
const SHORTEST_BLOCK: u64 = 12;

/// A file that is ready for frames.
pub(super) struct Recording {
    file: File,
    path: PathBuf,
    snaplen: u32,
    /// End of its last whole block.
    whole: u64,
}

impl Recording {
    /// Opens the file and begins a section for the port `name`.
    pub(super) fn open(path: &Path, options: &Options, name: &str) -> Result<Self, String> {
        let shown = path.display();
        let failed = |error: std::io::Error| super::cannot("write", path, &error);
        // Non-blocking, so that opening a pipe does not wait for a reader; only regular files pass the check below.
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .custom_flags(libc::O_NONBLOCK)
            .open(path);
        let mut file = opened.map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(format!("{shown} is not a regular file; only regular files can be recorded to"));
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => {
                format!("{shown} is being written by another port or process; record to another file")
            }
            error => failed(error.into()),
        })?;
        let len = file.seek(SeekFrom::End(0)).map_err(failed)?;
        if len > 0 && !ends_whole(&file, len).map_err(failed)? {
            return Err(format!(
                "{shown} exists and is not a whole pcapng file, so it is not continued; move it away, or record to \
                 another file"
            ));
        }
        let access = options.access().map_err(|error| error.0)?;
        access.apply(path).map_err(|error| format!("cannot set mode, owner or group of {shown}: {error}"))?;

        let snaplen = options.snaplen.unwrap_or(0);
        let mut head = Vec::new();
        pcapng::section(&mut head, concat!("mswitch ", env!("CARGO_PKG_VERSION")));
        pcapng::interface(&mut head, name, "frames sent to the port", snaplen, None);
        if let Err(error) = file.write_all(&head) {
            // Half a header would make the file unreadable; if it stays, the next attempt to open the file reports it.
            let _ = file.set_len(len);
            return Err(failed(error));
        }
        Ok(Self { file, path: path.into(), snaplen, whole: len + head.len() as u64 })
    }
}

/// Returns whether a file begins as pcapng and its last block is whole.
fn ends_whole(file: &File, len: u64) -> std::io::Result<bool> {
    let word = |at: u64| -> std::io::Result<[u8; 4]> {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).map(|()| bytes)
    };
    let aligned = len >= SHORTEST_BLOCK && len.is_multiple_of(4);
    if !aligned || u32::from_le_bytes(word(0)?) != pcapng::SECTION_HEADER {
        return Ok(false);
    }
    let behind = word(len - 4)?;
    for block in [u32::from_le_bytes(behind), u32::from_be_bytes(behind)].map(u64::from) {
        if block >= SHORTEST_BLOCK
            && block.is_multiple_of(4)
            && block <= len
            && word(len - block + 4)? == behind
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Recording statistics.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl Recorded {
    /// Describes them for `port show`.
    pub(super) fn describe(&self) -> (String, String) {
        let (frames, bytes) = (self.frames.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        ("recorded".to_owned(), format!("{frames} frames, {bytes} bytes"))
    }
}

/// The recording thread. See the module's documentation.
pub(super) struct Recorder {
    pub(super) recording: Recording,
    pub(super) slots: Arc<Slots>,
    pub(super) recorded: Arc<Recorded>,
    /// Set, and `slots` woken, when no more frames will come.
    pub(super) stopped: Arc<AtomicBool>,
    /// Hears of an error that keeps frames from being written, and of its end.
    pub(super) port: Arc<PortState>,
}

/// Blocks that are not in the file yet.
#[derive(Default)]
struct Pending {
    blocks: Vec<u8>,
    /// Bytes of them that are in the file already.
    written: usize,
    frames: u64,
    bytes: u64,
}

impl Recorder {
    /// Writes frames until it is stopped and none are left.
    pub(super) fn run(mut self) {
        let (mut pending, mut frame, mut last) = (Pending::default(), Vec::new(), 0);
        let mut failing = false;
        loop {
            if !failing {
                self.gather(&mut pending, &mut frame, &mut last);
            }
            let stopped = self.stopped.load(Ordering::SeqCst);
            match self.write(&mut pending) {
                Ok(false) => {
                    if std::mem::take(&mut failing) {
                        self.port.report(Side::Record, None);
                    }
                    if stopped {
                        return;
                    }
                    if self.slots.arm() {
                        self.sleep(None);
                    }
                }
                Ok(true) => {}
                Err(error) => {
                    let path = self.recording.path.display();
                    if stopped {
                        let lost = pending.frames;
                        tracing::warn!("cannot write {path}: {error}; {lost} frames are lost");
                        // The file stays readable up to its last whole block.
                        let _ = self.recording.file.set_len(self.recording.whole);
                        return;
                    }
                    failing = true;
                    self.port.report(Side::Record, Some(format!("cannot write {path}: {error}")));
                    self.sleep(Some(&RETRY));
                }
            }
        }
    }

    /// Makes blocks from the available frames.
    fn gather(&self, pending: &mut Pending, frame: &mut Vec<u8>, last: &mut u64) {
        let (cycles, now) = (clock::cycles(), clock::since_epoch());
        while pending.blocks.len() < CHUNK {
            let Some((came, entries)) = self.slots.peek(frame) else { return };
            self.slots.release(entries);
            let mut at = time(came, cycles, now);
            // Two clock readings may differ by less than a frame takes; frames stay in order all the same.
            if at < *last && *last - at < 1_000_000 {
                at = *last;
            }
            *last = at;
            let length = frame.len() as u32;
            let cut = match self.recording.snaplen {
                0 => frame.len(),
                snaplen => frame.len().min(snaplen as usize),
            };
            let data = frame.get(..cut).unwrap_or_default();
            let packet = Packet { interface: 0, at, outbound: true, length, data, comment: "" };
            pcapng::packet(&mut pending.blocks, &packet);
            pending.frames += 1;
            pending.bytes += u64::from(length);
        }
    }

    /// Writes the pending blocks; returns whether there were any.
    fn write(&mut self, pending: &mut Pending) -> std::io::Result<bool> {
        if pending.blocks.is_empty() {
            return Ok(false);
        }
        while let Some(rest) = pending.blocks.get(pending.written..).filter(|rest| !rest.is_empty()) {
            match self.recording.file.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => pending.written += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.recording.whole += pending.blocks.len() as u64;
        self.recorded.frames.fetch_add(pending.frames, Ordering::Relaxed);
        self.recorded.bytes.fetch_add(pending.bytes, Ordering::Relaxed);
        pending.blocks.clear();
        (pending.written, pending.frames, pending.bytes) = (0, 0, 0);
        Ok(true)
    }

    /// Sleeps until frames are available, a wake-up comes, or `limit` has passed.
    fn sleep(&self, limit: Option<&Timespec>) {
        let signal = self.slots.signal();
        let mut ready = [PollFd::new(&signal, PollFlags::IN)];
        // An interruption is as good as a signal: the caller checks everything again.
        let _ = poll(&mut ready, limit);
        let mut count = [0; 8];
        let _ = rustix::io::read(signal, &mut count);
    }
}

/// Returns the time of day at which the cycle counter was `came`, given that it is `now` at `cycles`.
fn time(came: u64, cycles: u64, now: u64) -> u64 {
    let apart = |a: u64, b: u64| {
        let nanoseconds = u128::from(a.wrapping_sub(b)) * 1_000_000_000 / u128::from(clock::frequency());
        u64::try_from(nanoseconds).unwrap_or(0)
    };
    // The frame may have come after `cycles` was read.
    if came.wrapping_sub(cycles) < 1 << 63 {
        now.saturating_add(apart(came, cycles))
    } else {
        now.saturating_sub(apart(cycles, came))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<Recording, String> {
        Recording::open(path, &Options::default(), "rec")
    }

    #[test]
    fn only_whole_pcapng_is_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        drop(open(&path).unwrap());
        let first = std::fs::read(&path).unwrap();
        drop(open(&path).unwrap());
        let both = std::fs::read(&path).unwrap();
        assert_eq!(both, [first.clone(), first.clone()].concat());

        // Cut anywhere but after a block; last length invalid; first bytes of another format.
        let section = u32::from_le_bytes(*first[4..].first_chunk().unwrap()) as usize;
        for len in (1..first.len()).filter(|len| *len != section) {
            std::fs::write(&path, &first[..len]).unwrap();
            let error = open(&path).err().unwrap_or_else(|| panic!("continued at {len}"));
            assert!(
                error.contains("exists and is not a whole pcapng file, so it is not continued"),
                "{error}"
            );
            assert_eq!(std::fs::read(&path).unwrap().len(), len);
        }
        let mut last = first.clone();
        *last.last_mut().unwrap() = 0xff;
        std::fs::write(&path, &last).unwrap();
        assert!(open(&path).is_err());
        std::fs::write(&path, [b"text", &first[4..]].concat()).unwrap();
        assert!(open(&path).is_err());
        // In the other byte order.
        let big = [&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28][..], &[0; 16], &[0, 0, 0, 28]].concat();
        std::fs::write(&path, &big).unwrap();
        assert!(open(&path).is_ok());
    }

    #[test]
    fn a_file_has_one_recorder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let first = open(file.path()).unwrap();
        let error = open(file.path()).err().unwrap();
        assert!(
            error.ends_with("is being written by another port or process; record to another file"),
            "{error}"
        );
        drop(first);
        assert!(open(file.path()).is_ok());
    }

    #[test]
    fn cycles_become_the_time_of_day() {
        let (second, now) = (clock::frequency(), 1_700_000_000_000_000_000);
        for cycles in [10 * second, second / 2, u64::MAX - second] {
            let near = |time: u64, expected: u64| assert!(time.abs_diff(expected) < 10, "{time} {expected}");
            near(time(cycles, cycles, now), now);
            near(time(cycles.wrapping_sub(second), cycles, now), now - 1_000_000_000);
            near(time(cycles.wrapping_add(second), cycles, now), now + 1_000_000_000);
        }
    }
}
