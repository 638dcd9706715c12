//! Listening Unix sockets as files, and the processes that connect to them.
//!
//! Invariant: a file is replaced only if it is a socket on which nobody listens, and is removed only if it is the one
//! that was created.
#![deny(unsafe_code)]

mod peer;

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

pub use peer::Peer;

/// Owner, group and mode of a socket's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketAccess {
    /// User id; `None`: that of the process.
    pub owner: Option<u32>,
    /// Group id; `None`: that of the process.
    pub group: Option<u32>,
    /// Mode.
    pub mode: u32,
}

impl Default for SocketAccess {
    /// Owner and group may connect.
    fn default() -> Self {
        SocketAccess { owner: None, group: None, mode: 0o660 }
    }
}

/// Connections that wait to be accepted: as many as the system allows (`net.core.somaxconn`), as the standard library
/// asks for.
const BACKLOG: i32 = -1;

/// Reasons why a socket cannot be made at a path.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A process listens there.
    #[error("{0}: another process listens on this socket")]
    InUse(PathBuf),
    /// A file is there that is no socket.
    #[error("{0}: a file that is not a socket is in the way; remove it")]
    OtherFile(PathBuf),
    /// The system refuses it.
    #[error("{path}: {error}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

/// A listening socket's file; dropping it removes the file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Listens at `path`. The listener does not block.
    pub fn listen(path: &Path, access: SocketAccess) -> Result<(Self, UnixListener), SocketError> {
        remove_stale(path)?;
        Self::bind(path, access).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => SocketError::InUse(path.into()),
            _ => SocketError::Io { path: path.into(), error },
        })
    }

    fn bind(path: &Path, access: SocketAccess) -> io::Result<(Self, UnixListener)> {
        let socket = socket()?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        let meta = std::fs::symlink_metadata(path)?;
        let file = SocketFile { path: path.into(), identity: (meta.dev(), meta.ino()) };
        // Until it listens, connections are refused: nobody gets in under the mode of its creation.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(access.mode))?;
        if access.owner.is_some() || access.group.is_some() {
            std::os::unix::fs::chown(path, access.owner, access.group)?;
        }
        listen(&socket, BACKLOG)?;
        Ok((file, socket.into()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let meta = std::fs::symlink_metadata(&self.path);
        if meta.is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn socket() -> rustix::io::Result<rustix::fd::OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes a socket on which nobody listens.
///
/// It is moved aside first: of two processes that find the same file, one moves the file that it looked at, and the other
/// finds a live socket in its hands, which it puts back.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let failed = |error: io::Error| SocketError::Io { path: path.into(), error };
    match is_stale(path).map_err(failed)? {
        None => return Ok(()),
        Some(false) => return Err(SocketError::InUse(path.into())),
        Some(true) => {}
    }
    let is_socket = std::fs::symlink_metadata(path).map_err(failed)?.file_type().is_socket();
    if !is_socket {
        return Err(SocketError::OtherFile(path.into()));
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    std::fs::rename(path, &aside).map_err(failed)?;
    if is_stale(&aside).map_err(failed)? == Some(false) {
        std::fs::rename(&aside, path).map_err(failed)?;
        return Err(SocketError::InUse(path.into()));
    }
    std::fs::remove_file(&aside).map_err(failed)
}

/// Whether nobody listens at `path`; `None`: there is no file.
fn is_stale(path: &Path) -> io::Result<Option<bool>> {
    let result = connect(socket()?, &SocketAddrUnix::new(path)?);
    match result {
        // The backlog of a listener is full, or a socket of another type is there.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Ok(Some(false)),
        // Also what a file gives that is no socket.
        Err(Errno::CONNREFUSED) => Ok(Some(true)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stale_sockets_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let (file, listener) = SocketFile::listen(&path, SocketAccess::default()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let error = SocketFile::listen(&path, SocketAccess::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: another process listens on this socket", path.display()));
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop((listener, file));
        assert!(!path.exists());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left aside");
    }

    #[test]
    fn other_files_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(SocketFile::listen(&path, SocketAccess::default()), Err(SocketError::OtherFile(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        let none = directory.path().join("none/s");
        assert!(matches!(SocketFile::listen(&none, SocketAccess::default()), Err(SocketError::Io { .. })));
    }

    #[test]
    fn the_file_of_a_successor_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let (file, _listener) = SocketFile::listen(&path, SocketAccess::default()).unwrap();
        std::fs::rename(&path, directory.path().join("old")).unwrap();
        let _successor = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }
}
