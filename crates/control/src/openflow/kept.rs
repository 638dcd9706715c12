//! Flows, groups and meters of a bridge in a file, for the next start of the daemon (`keep-flows`).
//!
//! The file holds the messages that [`ofswitch::Switch::restore`] takes, with the ages of flows and a digest.
//!
//! Invariants:
//! - The file is complete or absent: it is written beside its place, synced and renamed.
//! - A file that is damaged, or that the bridge refuses, restores nothing and stays until the next save.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ofagent::SharedSwitch;
use ofswitch::Saved;
use sha2::{Digest, Sha256};

use super::settings::DatapathId;

/// First bytes of a file.
const MAGIC: &[u8; 16] = b"mswitch flows 1\n";
/// Bytes of the digest at the end.
const DIGEST: usize = 32;
/// Shortest time from a save to the next one.
const PAUSE: Duration = Duration::from_secs(2);
/// Part of the time that saves may take.
const SHARE: u32 = 20;

/// Reasons why a file restores nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Refused(#[from] ofswitch::RestoreError),
}

/// The file of a bridge, and what is known of its content.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    /// The number of changes that the file has; `None`: unknown.
    saved: Option<u64>,
    /// When the next save may begin.
    next: Instant,
    /// The last failure, which is reported once.
    failure: Option<String>,
}

impl Kept {
    /// The file of the bridge with this name and derived id; `None`: the daemon has no folder for it.
    pub(super) fn new(bridge: &str, id: DatapathId) -> Option<Self> {
        let path = folder(|name| std::env::var_os(name))?.join(format!("{bridge}-{id}.flows"));
        Some(Self { path, saved: None, next: Instant::now(), failure: None })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Restores what the file has. Returns whether there is a file that could be restored.
    pub(super) fn restore(&mut self, shared: &SharedSwitch) -> bool {
        let restored = read(&self.path, SystemTime::now()).and_then(|messages| match messages {
            None => Ok(None),
            Some(messages) => Ok(Some(shared.with(|switch, now| {
                let flows = switch.restore(&messages, now)?;
                Ok::<_, LoadError>((flows, switch.changes()))
            })?)),
        });
        let file = self.path.display();
        match restored {
            Ok(None) => false,
            Ok(Some((flows, changes))) => {
                tracing::info!(flows, "restored the flows of {file}");
                self.saved = Some(changes);
                true
            }
            Err(error) => {
                tracing::warn!(
                    "{file}: {error}; the bridge starts without its saved flows, and the next save replaces the file"
                );
                false
            }
        }
    }

    /// Saves changes, unless the last save was a moment ago.
    pub(super) fn save_if_due(&mut self, shared: &SharedSwitch) {
        if Instant::now() >= self.next {
            self.save(shared);
        }
    }

    /// Saves changes, if there are some.
    pub(super) fn save(&mut self, shared: &SharedSwitch) {
        let begin = Instant::now();
        let snapshot = shared.with(|switch, now| {
            let changes = switch.changes();
            (self.saved != Some(changes)).then(|| (changes, switch.snapshot(now)))
        });
        let Some((changes, snapshot)) = snapshot else { return };
        match write(&self.path, snapshot.messages(), SystemTime::now()) {
            Ok(()) => {
                (self.saved, self.failure) = (Some(changes), None);
            }
            Err(error) => {
                let failure = error.to_string();
                if self.failure.as_ref() != Some(&failure) {
                    let file = self.path.display();
                    tracing::warn!("{file}: {error}; flows are not kept until the file can be written");
                }
                self.failure = Some(failure);
            }
        }
        self.next = Instant::now() + PAUSE.max(begin.elapsed() * SHARE);
    }

    /// Removes the file.
    pub(super) fn remove(&mut self) {
        self.saved = None;
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let file = self.path.display();
                tracing::warn!("{file}: {error}; remove the file, which has flows that are no longer kept");
            }
            _ => {}
        }
    }
}

/// The folder for state: that which systemd names, else that of the user.
fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let users = || match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from("/var/lib")),
        false => named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state"))),
    };
    named("STATE_DIRECTORY").or_else(|| Some(users()?.join("mswitch")))
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A writer that computes the digest of what passes.
struct Hashing<W> {
    writer: W,
    digest: Sha256,
}

impl<W: Write> Hashing<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.writer.write_all(bytes)
    }
}

/// Writes messages, and the time for which their ages hold.
fn write(path: &Path, messages: impl Iterator<Item = Saved>, time: SystemTime) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let beside = path.with_extension("new");
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    let mut out = Hashing { writer: BufWriter::new(file), digest: Sha256::new() };
    out.put(MAGIC)?;
    out.put(&nanoseconds(time).to_be_bytes())?;
    for Saved { age, message } in messages {
        out.put(&age.to_be_bytes())?;
        out.put(&message)?;
    }
    let Hashing { mut writer, digest } = out;
    writer.write_all(&digest.finalize())?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    std::fs::rename(&beside, path)
}

/// Reads a file; `None`: there is none. `time` is that to which the ages advance.
fn read(path: &Path, time: SystemTime) -> Result<Option<Vec<Saved>>, LoadError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    parse(&bytes, time).map(Some).map_err(LoadError::Damaged)
}

fn parse(bytes: &[u8], time: SystemTime) -> Result<Vec<Saved>, &'static str> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not begin like a file of flows")?;
    let (_, digest) = bytes.split_last_chunk::<DIGEST>().ok_or("it is too short")?;
    let content = bytes.get(..bytes.len() - DIGEST).unwrap_or_default();
    if Sha256::digest(content).as_slice() != digest {
        return Err("its digest does not match its content");
    }
    let end = "it ends within a message";
    let rest = rest.get(..rest.len().saturating_sub(DIGEST)).ok_or(end)?;
    let (saved, mut rest) = rest.split_first_chunk().ok_or(end)?;
    // A clock that was set back means no time at all.
    let gone = nanoseconds(time).saturating_sub(u64::from_be_bytes(*saved));
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let (age, tail) = rest.split_first_chunk().ok_or(end)?;
        let length = match tail {
            [_, _, high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
            _ => return Err(end),
        };
        let (message, tail) = tail.split_at_checked(length).filter(|_| length > 0).ok_or(end)?;
        let age = u64::from_be_bytes(*age).saturating_add(gone);
        messages.push(Saved { age, message: message.to_vec() });
        rest = tail;
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: SystemTime = SystemTime::UNIX_EPOCH;

    fn messages() -> Vec<Saved> {
        let message = |age, message: &[u8]| Saved { age, message: message.to_vec() };
        vec![message(0, &[4, 14, 0, 8, 0, 0, 0, 0]), message(77, &[4, 0, 0, 5, 9])]
    }

    #[test]
    fn files_are_read_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/br0.flows");
        assert!(read(&path, THEN).unwrap().is_none());
        for _ in 0..2 {
            write(&path, messages().into_iter(), THEN).unwrap();
            assert_eq!(read(&path, THEN).unwrap(), Some(messages()));
        }
        let later = read(&path, THEN + Duration::from_nanos(5)).unwrap().unwrap();
        assert_eq!((later[0].age, later[1].age), (5, 82));
        // Nothing else is left in the folder.
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn damage_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("br0.flows");
        write(&path, messages().into_iter(), THEN).unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(parse(&whole, THEN), Ok(messages()));
        for length in 0..whole.len() {
            assert!(parse(&whole[..length], THEN).is_err(), "{length}");
        }
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 1;
            assert!(parse(&other, THEN).is_err(), "{at}");
        }
        let mut signed = MAGIC.to_vec();
        // Lengths that lie, behind a digest that holds.
        signed.extend([0; 16]);
        signed.extend([4, 14, 0, 0]);
        signed.extend(Sha256::digest(&signed));
        assert_eq!(parse(&signed, THEN), Err("it ends within a message"));
    }

    #[test]
    fn the_folder_is_the_services_or_the_users() {
        let of = |list: &[(&str, &str)]| {
            let list: Vec<(String, OsString)> =
                list.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            folder(|name| list.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
        };
        assert_eq!(of(&[("STATE_DIRECTORY", "/s"), ("XDG_STATE_HOME", "/x")]), Some("/s".into()));
        let others = of(&[("XDG_STATE_HOME", "/x"), ("HOME", "/h")]);
        match rustix::process::geteuid().is_root() {
            true => assert_eq!(others, Some("/var/lib/mswitch".into())),
            false => assert_eq!(others, Some("/x/mswitch".into())),
        }
    }
}
