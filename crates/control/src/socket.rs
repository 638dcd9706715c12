//! The control socket, and the detection of processes that listen on a socket path.
//!
//! A path without a listener is free even if the socket file exists: `kill -9` leaves it behind. A path with a listener
//! is refused with its process id. Checking, removing and binding happen under a lock on the directory, so if two
//! daemons start at the same time, one wins and the other reports the conflict.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ports::{Access, OpenError, Process};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use socket_file::{SocketAccess, SocketError as FileError, SocketFile};

use crate::model::DEFAULT_SOCKET;

/// A process that listens on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process id; `None` if the kernel does not report it (another PID namespace, a full backlog).
    pub pid: Option<u32>,
}

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pid) = self.pid else { return out.write_str("a process that does not answer") };
        match ports::program(pid) {
            Some(program) => write!(out, "process {pid} ({program})"),
            None => write!(out, "process {pid}"),
        }
    }
}

/// The occupant of a socket's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occupant {
    /// No file: the path is free.
    None,
    /// A socket file without a listener: the path is free.
    Stale,
    /// A file of another kind.
    OtherFile,
    /// A process listens.
    Process(Holder),
}

/// Determines the occupant of `path`; a leading `@` means the abstract namespace.
pub fn occupant(path: &Path) -> io::Result<Occupant> {
    let bytes = path.as_os_str().as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name)?,
        None => {
            match std::fs::symlink_metadata(path) {
                Ok(meta) if meta.file_type().is_socket() => {}
                Ok(_) => return Ok(Occupant::OtherFile),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::None),
                Err(error) => return Err(error),
            }
            SocketAddrUnix::new(path)?
        }
    };
    // memif listens on SEQPACKET sockets, gRPC on STREAM. Connecting with the wrong type fails with EPROTOTYPE only if
    // a process listens.
    for kind in [SocketType::STREAM, SocketType::SEQPACKET, SocketType::DGRAM] {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) => {
                let pid = Process::behind(&socket).and_then(|process| process.pid);
                return Ok(Occupant::Process(Holder { pid }));
            }
            Err(Errno::PROTOTYPE) => {}
            Err(Errno::CONNREFUSED) if bytes.starts_with(b"@") => return Ok(Occupant::None),
            Err(Errno::CONNREFUSED) => return Ok(Occupant::Stale),
            Err(Errno::NOENT) => return Ok(Occupant::None),
            Err(Errno::AGAIN) => return Ok(Occupant::Process(Holder { pid: None })),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Occupant::Process(Holder { pid: None }))
}

/// Reasons for failing to bind the control socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A process listens on the path.
    #[error("{path} is in use by {holder}; stop it, or choose another path with --socket")]
    Held {
        /// The path.
        path: PathBuf,
        /// The process that listens there.
        holder: Holder,
    },
    /// The path is a file of another kind.
    #[error("{0} exists and is not a socket; remove it, or choose another path with --socket")]
    OtherFile(PathBuf),
    /// The directory does not exist.
    #[error("the directory {0} does not exist; create it, or choose another path with --socket")]
    NoDirectory(PathBuf),
    /// The user may not create the socket.
    #[error(
        "cannot listen on {path}: permission denied; run as root, or choose a path in a directory of your own with --socket"
    )]
    Denied {
        /// The path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot listen on {path}: {error}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

/// The bound control socket; dropping it removes its file.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    _file: SocketFile,
}

impl ControlSocket {
    /// Binds `path` with mode 0660, and replaces the socket file of a daemon that was killed. Creates a missing
    /// directory if `create_directory`.
    pub fn bind(path: &Path, create_directory: bool) -> Result<(Self, UnixListener), SocketError> {
        let io = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => SocketError::Denied { path: path.into() },
            _ => SocketError::Io { path: path.into(), error },
        };
        let directory = directory(path);
        if create_directory {
            std::fs::create_dir_all(directory).map_err(io)?;
        }
        let lock = match File::open(directory) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SocketError::NoDirectory(directory.into()));
            }
            Err(error) => return Err(io(error)),
        };
        lock_with_timeout(&lock).map_err(io)?;
        match occupant(path).map_err(io)? {
            Occupant::None | Occupant::Stale => {}
            Occupant::OtherFile => return Err(SocketError::OtherFile(path.into())),
            Occupant::Process(holder) => return Err(SocketError::Held { path: path.into(), holder }),
        }
        let (file, listener) =
            SocketFile::listen(path, SocketAccess::default()).map_err(|error| match error {
                FileError::InUse(path) => SocketError::Held { path, holder: Holder { pid: None } },
                FileError::OtherFile(path) => SocketError::OtherFile(path),
                FileError::Io { error, .. } => io(error),
            })?;
        Ok((Self { path: path.into(), _file: file }, listener))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets its owner, group and mode.
    pub fn restrict(&self, access: &Access) -> Result<(), OpenError> {
        access.apply(&self.path).map_err(|error| {
            OpenError(format!("cannot set mode, owner or group of {}: {error}", self.path.display()))
        })
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks that a control socket could be bound at `path`: by the daemon already running there, or by a new one.
pub fn could_bind(path: &Path) -> Result<(), SocketError> {
    let directory = directory(path);
    if path != Path::new(DEFAULT_SOCKET) && !directory.is_dir() {
        return Err(SocketError::NoDirectory(directory.into()));
    }
    match occupant(path) {
        Ok(Occupant::OtherFile) => Err(SocketError::OtherFile(path.into())),
        Ok(_) => Ok(()),
        Err(error) => Err(SocketError::Io { path: path.into(), error }),
    }
}

/// Locks a directory against other daemons that start. Any process can hold such a lock, so the wait is limited.
fn lock_with_timeout(directory: impl AsFd) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match flock(directory.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another process holds a lock on its directory"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns whether `path` is a name in the abstract namespace, which has no file.
pub fn is_abstract(path: &Path) -> bool {
    path.as_os_str().as_bytes().starts_with(b"@")
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::SocketAddr;

    use super::*;

    #[test]
    fn socket_is_bound_with_mode_0660_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let (socket, listener) = ControlSocket::bind(&path, false).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(socket.path(), path);
        drop((socket, listener));
        assert!(!path.exists());
    }

    #[test]
    fn binding_does_not_change_the_mode_of_files_created_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let create = |name: String| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            mode(&path)
        };
        let usual = create("before".into());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let dir = tempfile::tempdir().unwrap();
                    for socket in 0..200 {
                        let path = dir.path().join(format!("{socket}.sock"));
                        let (_socket, _listener) = ControlSocket::bind(&path, false).unwrap();
                        assert_eq!(mode(&path), 0o660);
                    }
                });
            }
            for number in 0..2_000 {
                assert_eq!(create(number.to_string()), usual);
            }
        });
    }

    #[test]
    fn a_stale_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(occupant(&path).unwrap(), Occupant::Stale);
        ControlSocket::bind(&path, false).unwrap();
    }

    #[test]
    fn a_running_holder_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let _held = ControlSocket::bind(&path, false).unwrap();
        let error = ControlSocket::bind(&path, false).unwrap_err().to_string();
        assert!(error.contains(&format!("in use by process {} (", std::process::id())), "{error}");
        assert!(path.exists());
    }

    #[test]
    fn other_files_and_missing_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(matches!(ControlSocket::bind(&file, false), Err(SocketError::OtherFile(_))));
        let missing = dir.path().join("no/where/control.sock");
        assert!(matches!(ControlSocket::bind(&missing, false), Err(SocketError::NoDirectory(_))));
        ControlSocket::bind(&missing, true).unwrap();
    }

    #[test]
    fn a_socket_of_another_process_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let (socket, listener) = ControlSocket::bind(&path, false).unwrap();
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop((socket, listener));
        assert!(path.exists());
    }

    #[test]
    fn holder_of_a_seqpacket_socket_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memif.sock");
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        let me = Holder { pid: Some(std::process::id()) };
        assert_eq!(occupant(&path).unwrap(), Occupant::Process(me));
    }

    #[test]
    fn holder_of_an_abstract_name_is_found() {
        let name = format!("@mswitch-test-{}", std::process::id());
        assert_eq!(occupant(Path::new(&name)).unwrap(), Occupant::None);
        let address = SocketAddr::from_abstract_name(&name[1..]).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let me = Holder { pid: Some(std::process::id()) };
        assert_eq!(occupant(Path::new(&name)).unwrap(), Occupant::Process(me));
    }
}
