//! The journal: the configuration as it was before the first change, and what was received since, on disk until it is
//! back.
//!
//! The journal is versioned JSON, readable only by its owner. It appears complete or not at all, because it is
//! written beside its place, synchronized and renamed. Its place is a directory that does not survive a reboot, such
//! as `/run/mswitch`; a journal of an earlier boot or of another network namespace is never applied.
//!
//! Invariant: whoever changes interfaces for a journal, after it exists, holds its lock, or is the daemon that wrote
//! it and whose guardian holds the lock.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

use crate::{Error, Snapshot};

/// Version of the journal's format.
const VERSION: u32 = 1;
/// Limit on the size of a journal that is read.
const LIMIT: u64 = 256 << 20;

/// What is needed to restore the state before a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    version: u32,
    /// The kernel's identification of this boot.
    boot: String,
    /// Inode of the network namespace.
    namespace: u64,
    /// Seconds since the boot at which the configuration was read.
    taken: u64,
    /// The interface that the configuration belongs to, with what it and the target have received since.
    pub source: Snapshot,
    /// The host port before it received anything.
    pub target: Snapshot,
}

/// Whether a journal belongs to this place and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Here,
    /// The host has rebooted since.
    EarlierBoot,
    OtherNamespace(u64),
}

impl Journal {
    /// Returns the journal of a move between interfaces of the calling thread's network namespace.
    pub(crate) fn new(path: &Path, source: Snapshot, target: Snapshot) -> Result<Self, Error> {
        let failed = failure(path);
        Ok(Self {
            version: VERSION,
            boot: boot().map_err(&failed)?,
            namespace: namespace().map_err(&failed)?,
            taken: now(),
            source,
            target,
        })
    }

    /// Returns the configuration of the source as it would be now: lifetimes have run on.
    #[must_use]
    pub fn wanted(&self) -> Snapshot {
        let elapsed = now().saturating_sub(self.taken);
        self.source.aged(u32::try_from(elapsed).unwrap_or(u32::MAX))
    }

    /// Returns what the target, as it is now, has beyond its own configuration.
    pub(crate) fn received(&self, target: &Snapshot) -> Snapshot {
        target.without(&self.target.moved(&target.interface))
    }

    /// Returns the journal with what the source is to have in addition, or for longer; `None` if that is no news.
    pub(crate) fn updated(&self, newer: &Snapshot) -> Option<Self> {
        let known = self.wanted();
        known.is_outdated_by(newer).then(|| Self {
            source: known.merged(newer),
            taken: now(),
            ..self.clone()
        })
    }

    pub(crate) fn place(&self, path: &Path) -> Result<Place, Error> {
        let failed = failure(path);
        if boot().map_err(&failed)? != self.boot {
            return Ok(Place::EarlierBoot);
        }
        let namespace = namespace().map_err(failed)?;
        Ok(if namespace == self.namespace { Place::Here } else { Place::OtherNamespace(self.namespace) })
    }

    /// Writes the journal. On return it is on disk.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        let failed = failure(path);
        let text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        let beside = sibling(path, ".new");
        // One that a crash left behind is incomplete.
        remove_file(&beside).map_err(&failed)?;
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&beside, path)?;
            File::open(directory(path))?.sync_all()
        };
        write().map_err(failed)
    }

    /// Reads a journal; `None` if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        let failed = failure(path);
        let mut file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let found = file.metadata().map_err(&failed)?;
        check_owner(path, &found)?;
        if found.len() > LIMIT {
            return Err(broken(path, format!("it has {} bytes; at most {LIMIT} are expected", found.len())));
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let unreadable = |error: serde_json::Error| {
            broken(
                path,
                format!("it is not a journal: {error}; restore the addresses by hand, then remove the file"),
            )
        };
        let Version { version } = serde_json::from_slice(&text).map_err(unreadable)?;
        if version != VERSION {
            return Err(broken(
                path,
                format!(
                    "it has version {version}, and this program reads version {VERSION}; recover with the program that wrote it"
                ),
            ));
        }
        serde_json::from_slice(&text).map(Some).map_err(unreadable)
    }

    /// Removes a journal; one that does not exist is no failure.
    pub(crate) fn remove(path: &Path) -> Result<(), Error> {
        remove_file(path).map_err(failure(path))
    }
}

fn remove_file(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn broken(path: &Path, what: String) -> Error {
    Error::Journal { path: path.to_owned(), what }
}

fn failure(path: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |error| {
        let remedy = match error.kind() {
            ErrorKind::NotFound => "; create its directory",
            ErrorKind::PermissionDenied => "; make its directory writable to this user",
            ErrorKind::StorageFull => "; free space in its file system",
            _ => "",
        };
        broken(&path, format!("{error}{remedy}"))
    }
}

/// Refuses a journal that somebody else may have written: its content decides over the host's addresses.
fn check_owner(path: &Path, found: &Metadata) -> Result<(), Error> {
    let mine = rustix::process::geteuid().as_raw();
    // Root recovers for the daemon's user, to whom the directory belongs.
    let trusted = found.uid() == mine
        || mine == 0
            && std::fs::metadata(directory(path)).is_ok_and(|directory| directory.uid() == found.uid());
    if !found.is_file() || !trusted || found.mode() & 0o022 != 0 {
        let (owner, mode) = (found.uid(), found.mode() & 0o7777);
        let what = format!(
            "its owner is user {owner} and its mode {mode:04o}; a file that only its writer, user {mine}, can write is \
             expected; remove the file if it is not the daemon's"
        );
        return Err(broken(path, what));
    }
    Ok(())
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

fn boot() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Returns the inode of the calling thread's network namespace.
fn namespace() -> std::io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// Returns the seconds since the boot, suspended ones included.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or_default()
}

/// The right to change interfaces for a journal. The kernel releases it when its holder ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock, or returns `None` if another process holds it for longer than `patience`.
    pub(crate) fn take(journal: &Path, patience: Duration) -> Result<Option<Self>, Error> {
        let path = sibling(journal, ".lock");
        let failed = failure(&path);
        let deadline = Instant::now() + patience;
        loop {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(&failed)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    // The former holder may have removed the file before it released it.
                    let mine = file.metadata().map_err(&failed)?.ino();
                    if std::fs::metadata(&path).is_ok_and(|found| found.ino() == mine) {
                        return Ok(Some(Self { _file: file, path }));
                    }
                }
                Err(Errno::WOULDBLOCK) if Instant::now() >= deadline => return Ok(None),
                // A lock has no descriptor to wait for.
                Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(5)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It is released afterwards, when its file is closed. A lock file that stays is harmless.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::objects::tests::{address, route};
    use crate::{Interface, Link, Object};

    fn journal(path: &Path) -> Journal {
        let snapshot = |index, name: &str, objects| Snapshot {
            interface: Interface { index, name: name.into() },
            link: Link::default(),
            objects,
        };
        let source = snapshot(
            2,
            "eth0",
            vec![
                Object::Address(address("10.0.0.5/24", 2, 600)),
                Object::Route(route("0.0.0.0/0", Some("10.0.0.254"), 2)),
            ],
        );
        Journal::new(path, source, snapshot(3, "host0", vec![])).unwrap()
    }

    #[test]
    fn a_journal_survives_and_only_its_owner_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("eth0.journal");
        let written = journal(&path);
        std::fs::write(sibling(&path, ".new"), "half of").unwrap();
        written.write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Journal::read(&path).unwrap(), Some(written.clone()));
        assert_eq!(written.place(&path).unwrap(), Place::Here);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        Journal::remove(&path).unwrap();
        Journal::remove(&path).unwrap();
        assert_eq!(Journal::read(&path).unwrap(), None);
    }

    #[test]
    fn journals_of_other_places_and_versions_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("eth0.journal");
        let mut written = journal(&path);
        written.namespace = 1;
        assert_eq!(written.place(&path).unwrap(), Place::OtherNamespace(1));
        written.boot = "another".into();
        assert_eq!(written.place(&path).unwrap(), Place::EarlierBoot);
        written.version = 7;
        written.write(&path).unwrap();
        assert_eq!(
            Journal::read(&path).unwrap_err().to_string(),
            format!(
                "journal {}: it has version 7, and this program reads version 1; recover with the program that wrote it",
                path.display()
            )
        );
        std::fs::write(&path, "{").unwrap();
        assert_eq!(
            Journal::read(&path).unwrap_err().to_string(),
            format!(
                "journal {}: it is not a journal: EOF while parsing an object at line 1 column 1; restore the addresses \
                 by hand, then remove the file",
                path.display()
            )
        );
    }

    #[test]
    fn a_journal_that_others_may_have_written_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("eth0.journal");
        journal(&path).write(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).unwrap();
        let mine = rustix::process::geteuid().as_raw();
        assert_eq!(
            Journal::read(&path).unwrap_err().to_string(),
            format!(
                "journal {}: its owner is user {mine} and its mode 0620; a file that only its writer, user {mine}, can \
                 write is expected; remove the file if it is not the daemon's",
                path.display()
            )
        );
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(Journal::read(&path).is_err());
    }

    #[test]
    fn a_directory_that_does_not_exist_is_named() {
        let path = Path::new("/run/mswitch-no-such/eth0.journal");
        assert_eq!(
            journal(path).write(path).unwrap_err().to_string(),
            "journal /run/mswitch-no-such/eth0.journal: No such file or directory (os error 2); create its directory"
        );
    }

    #[test]
    fn one_process_at_a_time_holds_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("eth0.journal");
        let lock = Lock::take(&path, Duration::ZERO).unwrap().unwrap();
        assert!(Lock::take(&path, Duration::ZERO).unwrap().is_none());
        drop(lock);
        assert!(Lock::take(&path, Duration::ZERO).unwrap().is_some());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
