//! The process at the other end of a Unix socket.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

/// A process as the kernel knew it when it connected or began to listen; it may have passed the socket on since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its id; `None` if it is in a PID namespace that this process cannot see into.
    pub pid: Option<u32>,
    /// Its user's id.
    pub uid: u32,
    /// Its group's id.
    pub gid: u32,
}

impl Peer {
    /// Returns the process that `socket` is connected to; `None` without one.
    pub fn of(socket: impl AsFd) -> Option<Self> {
        let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // rustix wraps this call too, but its process ids are never 0, which the kernel returns for hidden processes.
        // SAFETY: the kernel writes at most `length` bytes to `credentials`, which is plain integers.
        let failed = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut length,
            )
        };
        let libc::ucred { pid, uid, gid } = credentials;
        // Without a peer the kernel returns user -1.
        let is_there = failed == 0 && uid != u32::MAX;
        is_there.then(|| Self { pid: u32::try_from(pid).ok().filter(|pid| *pid != 0), uid, gid })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_other_end_is_known() {
        let (a, _b) = UnixStream::pair().unwrap();
        let peer = Peer::of(&a).unwrap();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert_eq!(peer, Peer { pid: Some(std::process::id()), uid, gid });
        assert_eq!(Peer::of(std::fs::File::open("/dev/null").unwrap()), None);
    }

    /// Starts itself in a PID namespace of its own, to look at this process from there.
    #[test]
    fn a_process_outside_the_namespace_has_no_id() {
        const INSIDE: &str = "SOCKET_FILE_PEER_INSIDE";
        if std::env::var_os(INSIDE).is_some() {
            assert_eq!(Peer::of(std::io::stdin()).unwrap().pid, None);
            return;
        }
        let (a, _b) = UnixStream::pair().unwrap();
        let mut inside = Command::new("unshare");
        inside.args(["--user", "--map-root-user", "--pid", "--fork"]).arg(std::env::current_exe().unwrap());
        inside.args(["--exact", "peer::tests::a_process_outside_the_namespace_has_no_id"]).env(INSIDE, "1");
        let output = inside.stdin(Stdio::from(OwnedFd::from(a))).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    }
}
