//! The thread that reads a file and puts its frames in the [`FrameRing`] when they are due.
//!
//! It sleeps until the next frame is due, a page is free, or a control call wakes it; it never spins. A finished replay
//! costs nothing until it is started again. A broken file is checked periodically, and replayed from its beginning once
//! it has changed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fabric::rx::{MAX_PACKET, MIN_PACKET};

use super::frame_ring::{FrameRing, Page};
use super::pace::Pacer;
use super::reader::{Frame, Reader};
use super::speed::{Rounds, Speed};
use super::{PortState, Side};

/// Bytes of a file searched for its first frame when it is opened.
const FIRST: u64 = 16 << 20;
/// Interval of checks of a broken file.
const LOOK: Duration = Duration::from_secs(1);
/// Interval of checks whether the last frames are delivered.
const DELIVERY: Duration = Duration::from_millis(1);

/// An open capture file with a valid beginning.
pub(super) struct Capture {
    file: File,
    stamp: Stamp,
}

/// Identity of a file's contents: device, inode, size, and times of change.
type Stamp = Option<(u64, u64, u64, [i64; 4])>;

fn stamp(metadata: io::Result<std::fs::Metadata>) -> Stamp {
    let found = metadata.ok()?;
    let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    Some((found.dev(), found.ino(), found.len(), times))
}

impl Capture {
    /// Opens a file and reads up to its first frame, so that a file that is no Ethernet capture is refused at once.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let name = path.display();
        // Non-blocking, so that opening a pipe does not wait for a writer; only regular files pass the check below.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = file.map_err(|error| super::cannot("read", path, &error))?;
        let metadata = file.metadata().map_err(|error| format!("cannot read {name}: {error}"))?;
        if !metadata.is_file() {
            return Err(format!("{name} is not a regular file; only regular files can be replayed"));
        }
        let mut head = (&file).take(FIRST);
        let first = Reader::new(&mut head).and_then(|mut reader| reader.next(&mut Vec::new()));
        match first {
            // After the searched part the file may be valid.
            Err(error) if head.limit() > 0 => Err(format!("{name}: {error}")),
            _ => Ok(Self { file, stamp: stamp(Ok(metadata)) }),
        }
    }
}

/// Progress of a replay.
#[derive(Debug, Default)]
pub(super) struct Progress {
    phase: Mutex<Phase>,
    replayed: AtomicU64,
    skipped: AtomicU64,
    cut: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default)]
enum Phase {
    #[default]
    Waiting,
    Round(u64),
    Finished(u64),
    Broken,
}

impl Progress {
    fn set(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// Describes it for `port show`.
    pub(super) fn describe(&self, rounds: Rounds, halted: bool) -> Vec<(String, String)> {
        let paused = if halted { ", paused" } else { "" };
        let phase = match *self.phase.lock().unwrap_or_else(PoisonError::into_inner) {
            Phase::Waiting => format!("not started{paused}"),
            Phase::Round(round) => match rounds {
                Rounds::Forever => format!("round {round}, forever{paused}"),
                Rounds::Times(1) => format!("running{paused}"),
                Rounds::Times(times) => format!("round {round} of {times}{paused}"),
            },
            Phase::Finished(1) => "finished".into(),
            Phase::Finished(rounds) => format!("finished, {rounds} rounds"),
            Phase::Broken => "failed".into(),
        };
        let mut details = vec![
            ("replay".to_owned(), phase),
            ("replayed".to_owned(), format!("{} frames", self.replayed.load(Relaxed))),
        ];
        let skipped = self.skipped.load(Relaxed);
        if skipped > 0 {
            let why =
                format!("{skipped} frames, shorter than {MIN_PACKET} or longer than {MAX_PACKET} bytes");
            details.push(("skipped".to_owned(), why));
        }
        let cut = self.cut.load(Relaxed);
        if cut > 0 {
            details.push(("cut".to_owned(), format!("{cut} frames, at capture")));
        }
        details
    }
}

/// The replaying thread. See the module's documentation.
pub(super) struct Replay {
    pub(super) path: PathBuf,
    pub(super) speed: Speed,
    pub(super) rounds: Rounds,
    pub(super) ring: Arc<FrameRing>,
    pub(super) progress: Arc<Progress>,
    /// Hears of an error that keeps the file from being replayed, and of its end.
    pub(super) port: Arc<PortState>,
}

/// End of a replay.
enum End {
    /// With the number of times that the ring had been resumed by then.
    Finished(u64),
    Stopped,
    Broken(String),
}

impl Replay {
    /// Replays the file, and again each time the ring is resumed after that, until the ring is stopped.
    pub(super) fn run(self, first: Capture) {
        self.ring.begin_reading();
        let mut capture = first;
        loop {
            let seen = capture.stamp;
            let next = match self.replay(capture.file) {
                End::Stopped => return,
                End::Finished(resumed) => self.wait_for_start(resumed),
                End::Broken(why) => self.wait_for_change(seen, why),
            };
            match next {
                Some(next) => capture = next,
                None => return,
            }
        }
    }

    /// Waits until the ring has been resumed more than `seen` times, and opens the file. `None`: the ring was stopped.
    fn wait_for_start(&self, seen: u64) -> Option<Capture> {
        while self.ring.resumed() == seen {
            if self.ring.is_stopped() {
                return None;
            }
            std::thread::park();
        }
        let before = stamp(std::fs::metadata(&self.path));
        match Capture::open(&self.path) {
            Ok(capture) => Some(capture),
            Err(why) => self.wait_for_change(before, why),
        }
    }

    /// Reports the error, and waits until a version of the file other than the one seen can be opened.
    fn wait_for_change(&self, mut seen: Stamp, why: String) -> Option<Capture> {
        self.progress.set(Phase::Broken);
        self.port.report(Side::Replay, Some(why));
        loop {
            if self.ring.is_stopped() {
                return None;
            }
            let now = stamp(std::fs::metadata(&self.path));
            if now == seen {
                std::thread::park_timeout(LOOK);
                continue;
            }
            seen = now;
            match Capture::open(&self.path) {
                Ok(capture) => {
                    self.port.report(Side::Replay, None);
                    return Some(capture);
                }
                Err(why) => self.port.report(Side::Replay, Some(why)),
            }
        }
    }

    fn replay(&self, mut file: File) -> End {
        let mut feeder = Feeder { ring: &self.ring, progress: &self.progress, page: None, origin: None };
        let mut pacer = Pacer::new(self.speed);
        let mut round = 0;
        let broken = loop {
            round += 1;
            match self.round(round, &mut file, &mut pacer, &mut feeder) {
                Ok(Some(frames)) => {
                    let more = match self.rounds {
                        Rounds::Forever => true,
                        Rounds::Times(times) => round < u64::from(times),
                    };
                    // A file without frames would be read in a busy loop.
                    if !more || frames == 0 {
                        break None;
                    }
                    pacer.next_round();
                }
                Ok(None) => return End::Stopped,
                Err(why) => break Some(why),
            }
        };
        // Frames read so far are delivered before the end is reported.
        feeder.flush();
        if !feeder.wait_for_delivery() {
            return End::Stopped;
        }
        match broken {
            Some(why) => End::Broken(format!("{}: {why}", self.path.display())),
            None => {
                // An observer of the end may resume the ring at once.
                let resumed = self.ring.resumed();
                self.progress.set(Phase::Finished(round));
                End::Finished(resumed)
            }
        }
    }

    /// Replays the file once; returns its number of frames, `None` if the ring was stopped.
    fn round(
        &self,
        round: u64,
        file: &mut File,
        pacer: &mut Pacer,
        feeder: &mut Feeder<'_>,
    ) -> Result<Option<u64>, String> {
        file.seek(SeekFrom::Start(0)).map_err(|error| format!("cannot go back to the beginning: {error}"))?;
        let file = Stoppable { file, ring: &self.ring };
        let mut reader = Reader::new(file).map_err(|error| error.to_string())?;
        let (mut frames, mut data) = (0, Vec::new());
        while let Some(frame) = reader.next(&mut data).map_err(|error| error.to_string())? {
            let due = pacer.due(frame.at, frame.len);
            if !feeder.wait(due) {
                return Ok(None);
            }
            if frames == 0 {
                self.progress.set(Phase::Round(round));
            }
            if !feeder.push(frame, &data) {
                return Ok(None);
            }
            frames += 1;
        }
        Ok(Some(frames))
    }
}

/// A file that is readable until the ring is stopped: skipping to the next frame may take long.
struct Stoppable<'a> {
    file: &'a File,
    ring: &'a FrameRing,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.ring.is_stopped() {
            return Err(io::Error::other("the port is being closed"));
        }
        self.file.read(out)
    }
}

/// Fills pages, and waits.
struct Feeder<'a> {
    ring: &'a FrameRing,
    progress: &'a Progress,
    page: Option<Page>,
    /// Time at which the first frame was due, moved on by the time that the ring was halted since.
    origin: Option<Instant>,
}

impl Feeder<'_> {
    /// Waits until a frame is due and the ring is not halted. Returns false if it was stopped.
    fn wait(&mut self, due: Option<Duration>) -> bool {
        loop {
            if self.ring.is_stopped() {
                return false;
            }
            if self.ring.is_halted() {
                self.flush();
                let since = Instant::now();
                while self.ring.is_halted() && !self.ring.is_stopped() {
                    std::thread::park();
                }
                if let Some(origin) = &mut self.origin {
                    *origin += since.elapsed();
                }
                continue;
            }
            let Some(due) = due else { return true };
            let early = due.saturating_sub(self.origin.get_or_insert_with(Instant::now).elapsed());
            if early.is_zero() {
                return true;
            }
            // Earlier frames are due already.
            self.flush();
            std::thread::park_timeout(early);
        }
    }

    /// Adds a frame. Returns false if the ring was stopped.
    fn push(&mut self, frame: Frame, data: &[u8]) -> bool {
        let skipped = frame.len < MIN_PACKET || frame.len > MAX_PACKET;
        let counter = if skipped { &self.progress.skipped } else { &self.progress.replayed };
        counter.fetch_add(1, Relaxed);
        if frame.len < frame.original {
            self.progress.cut.fetch_add(1, Relaxed);
        }
        loop {
            if self.page.is_none() {
                self.page = self.ring.empty_page();
            }
            let Some(page) = &mut self.page else { return false };
            let done = if frame.len > MAX_PACKET { page.push_oversize() } else { page.push(data) };
            if done {
                return true;
            }
            self.flush();
        }
    }

    /// Puts the frames of the current page in the ring.
    fn flush(&mut self) {
        if let Some(page) = self.page.take_if(|page| page.len() > 0) {
            self.ring.put(page);
        }
    }

    /// Waits until all frames in the ring are delivered. Returns false if the ring was stopped.
    fn wait_for_delivery(&mut self) -> bool {
        while !self.ring.is_delivered(usize::from(self.page.is_some())) {
            if self.ring.is_stopped() {
                return false;
            }
            if self.ring.is_halted() {
                std::thread::park();
            } else {
                std::thread::park_timeout(DELIVERY);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_gaps_between_frames_do_not_keep_the_port_open() {
        // Blocks of 4 GiB without frames, in a sparse file: hours to read.
        let file = tempfile::NamedTempFile::new().unwrap();
        let section: [&[u8]; 5] = [
            b"\x0a\x0d\x0d\x0a",
            &28u32.to_le_bytes(),
            b"\x4d\x3c\x2b\x1a\x01\0\0\0",
            &[0xff; 8],
            &28u32.to_le_bytes(),
        ];
        std::fs::write(file.path(), section.concat()).unwrap();
        let long = 0xffff_fffcu64;
        for block in 0..64 {
            use std::os::unix::fs::FileExt;
            let (begin, length) = (28 + block * long, (long as u32).to_le_bytes());
            file.as_file().write_all_at(&[&0x99u32.to_le_bytes()[..], &length].concat(), begin).unwrap();
            file.as_file().write_all_at(&length, begin + long - 4).unwrap();
        }
        let capture = Capture::open(file.path()).unwrap();
        let ring = Arc::new(FrameRing::new(false).unwrap());
        let stop = std::thread::spawn({
            let ring = ring.clone();
            move || {
                std::thread::sleep(Duration::from_millis(50));
                ring.stop();
            }
        });
        let stoppable = Stoppable { file: &capture.file, ring: &ring };
        (&capture.file).seek(SeekFrom::Start(0)).unwrap();
        let error = Reader::new(stoppable).unwrap().next(&mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("the port is being closed"), "{error}");
        stop.join().unwrap();
    }
}
