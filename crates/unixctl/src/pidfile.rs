//! A pidfile with a POSIX lock, from which tools learn the daemon's process id: they ask who holds the lock (F_GETLK).
//!
//! Invariants:
//! - The lock belongs to this process, so the file is created after the last fork.
//! - This process never opens the file again: closing any descriptor of it would release the lock.
//! - The file appears complete and locked, by a rename, and goes when [`Pidfile`] is dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};

/// Reasons why a pidfile cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum PidfileError {
    /// A process holds the lock.
    #[error("{path}: already running as pid {pid}, aborting")]
    Running {
        /// The file.
        path: PathBuf,
        /// The process.
        pid: i32,
    },
    /// The system refuses it.
    #[error("cannot create the pidfile {path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

/// A pidfile. Dropping it removes the file.
#[derive(Debug)]
pub struct Pidfile {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
    /// Device and inode.
    identity: (u64, u64),
}

impl Pidfile {
    /// Returns the process that has locked a pidfile; `None` if the file does not exist or no other process has.
    pub fn owner(path: &Path) -> Result<Option<i32>, PidfileError> {
        let failed = |error: io::Error| PidfileError::Io { path: path.into(), error };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let lock =
            fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).map_err(|error| failed(error.into()))?;
        Ok(lock.and_then(|lock| lock.pid).map(|pid| pid.as_raw_nonzero().get()))
    }

    /// Creates a pidfile of this process. Call after the last fork, and once for a path.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, PidfileError> {
        if !overwrite && let Some(pid) = Self::owner(path)? {
            return Err(PidfileError::Running { path: path.into(), pid });
        }
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".tmp{}", std::process::id()));
        let temporary = PathBuf::from(temporary);
        Self::write(&temporary, path).map_err(|error| {
            // It may not exist.
            let _ = std::fs::remove_file(&temporary);
            PidfileError::Io { path: path.into(), error }
        })
    }

    fn write(temporary: &Path, path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o644).open(temporary)?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        writeln!(file, "{}", std::process::id())?;
        let meta = file.metadata()?;
        std::fs::rename(temporary, path)?;
        Ok(Self { path: path.into(), _file: file, identity: (meta.dev(), meta.ino()) })
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        let meta = std::fs::symlink_metadata(&self.path);
        if meta.is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pidfile_without_a_process_is_replaced_and_goes_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.pid");
        std::fs::write(&path, "1\n").unwrap();
        assert_eq!(Pidfile::owner(&path).unwrap(), None, "process 1 has not locked it");
        let pidfile = Pidfile::create(&path, false).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        drop(pidfile);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let error = Pidfile::create(Path::new("/nonexistent/d.pid"), false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot create the pidfile /nonexistent/d.pid: No such file or directory (os error 2)"
        );
    }
}
