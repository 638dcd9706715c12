//! The process at the other end of a Unix socket.

use std::fmt;
use std::os::fd::AsFd;

use socket_file::Peer;

/// A process as the kernel knew it when it connected or began to listen. Its name is read once: it may change later,
/// and the process may pass the socket on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id; `None` if it is in a PID namespace that this process cannot see into.
    pub pid: Option<u32>,
    /// Its user's id.
    pub uid: u32,
    /// Id of the user who logged in (`/proc/PID/loginuid`), who may have become another one since, as with sudo(8).
    pub login: Option<u32>,
    /// Its program's name, as the process reports it.
    pub program: Option<String>,
}

impl Process {
    /// Returns the process that `socket` is connected to.
    pub fn behind(socket: impl AsFd) -> Option<Process> {
        Peer::of(socket).map(|peer| Process::new(peer.pid, peer.uid))
    }

    /// Returns the process with this id and user.
    pub fn new(pid: Option<u32>, uid: u32) -> Process {
        Process { pid, uid, login: pid.and_then(login), program: pid.and_then(program) }
    }
}

/// Returns the user who logged in and started a process. Daemons have none, nor have kernels without auditing.
fn login(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/loginuid")).ok()?;
    text.trim_end().parse().ok().filter(|uid| *uid != u32::MAX)
}

/// Returns the program name of a process. Processes choose it freely, so control characters are replaced.
pub fn program(pid: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(printable(String::from_utf8_lossy(&name).trim_end_matches('\n')))
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

impl fmt::Display for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.program) {
            (Some(pid), Some(program)) => write!(out, "process {pid} ({program})")?,
            (Some(pid), None) => write!(out, "process {pid}")?,
            (None, _) => out.write_str("process in another PID namespace")?,
        }
        write!(out, ", user {}", self.uid)?;
        match self.login {
            Some(login) if login != self.uid => write!(out, ", logged in as user {login}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_is_named() {
        let (a, _b) = UnixStream::pair().unwrap();
        let process = Process { login: None, ..Process::behind(&a).unwrap() };
        assert_eq!(process.pid, Some(std::process::id()));
        let program = process.program.clone().unwrap();
        assert!(!program.is_empty());
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(process.to_string(), format!("process {} ({program}), user {user}", std::process::id()));
        let hidden = Process { pid: None, uid: 7, login: None, program: None };
        assert_eq!(hidden.to_string(), "process in another PID namespace, user 7");
        let sudo = Process { uid: 0, login: Some(1000), ..process };
        assert!(sudo.to_string().ends_with(", user 0, logged in as user 1000"), "{sudo}");
        let same = Process { uid: 1000, ..sudo };
        assert!(same.to_string().ends_with(", user 1000"), "{same}");
        assert_eq!(Process::behind(std::fs::File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn control_characters_in_names_are_replaced() {
        assert_eq!(printable("a\u{1b}[31m b\n"), "a\u{fffd}[31m b\u{fffd}");
    }
}
