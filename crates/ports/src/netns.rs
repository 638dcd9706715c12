//! Network namespaces: their names, and threads in them.
//!
//! A thread that changed its namespace does nothing else afterwards: workers and the runtime's threads must not end up
//! in another one. So each task has a thread of its own.
//!
//! Invariant: [`Netns`] holds only values that its text form allows.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use crate::OpenError;
use crate::bounded::within;

/// Longest time for a task: the kernel's lock over interfaces may be busy, and a path may lead anywhere.
const LIMIT: Duration = Duration::from_secs(5);

/// Runs `task` on a thread of its own, in `netns` if given, and waits for its end, for at most [`LIMIT`].
pub(crate) fn run_in<T: Send + 'static>(
    netns: Option<&Netns>,
    task: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    let netns = netns.cloned();
    run(move || {
        if let Some(netns) = netns {
            let file = open(&netns)?;
            enter(&netns, file.as_fd())?;
        }
        task()
    })
}

/// Runs `task` on a thread of its own, and waits for its end, for at most [`LIMIT`].
pub(crate) fn run<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    run_for(LIMIT, task)
}

/// Runs `task` on a thread of its own, and waits for its end, for at most `limit`.
pub(crate) fn run_for<T: Send + 'static>(
    limit: Duration,
    task: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    let done = within(limit, "mswitch-netns", task);
    done.unwrap_or_else(|error| Err(OpenError(format!("the interface: {error}"))))
}

/// Opens the file of a namespace. The namespace exists at least until the file is closed.
pub(crate) fn open(netns: &Netns) -> Result<OwnedFd, OpenError> {
    let path = netns.path();
    let refused = |why: String| OpenError(format!("network namespace `{netns}`: {why}"));
    rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).map_err(
        |error| match (error, netns) {
            (Errno::NOENT, Netns::Name(name)) => {
                refused(format!("{} does not exist; create it with `ip netns add {name}`", path.display()))
            }
            (Errno::NOENT, Netns::Pid(pid)) => refused(format!("there is no process {pid}")),
            (Errno::NOENT, Netns::Path(_)) => refused("the file does not exist".into()),
            (Errno::ACCESS | Errno::PERM, _) => refused(format!("no permission to open {}", path.display())),
            (error, _) => refused(format!("cannot open {}: {error}", path.display())),
        },
    )
}

/// Moves the calling thread to a namespace, by its file.
pub(crate) fn enter(netns: &Netns, file: BorrowedFd<'_>) -> Result<(), OpenError> {
    let refused = |why: String| OpenError(format!("network namespace `{netns}`: {why}"));
    move_into_link_name_space(file, Some(LinkNameSpaceType::Network)).map_err(|error| match error {
        Errno::INVAL => refused(format!("{} is not a network namespace", netns.path().display())),
        Errno::PERM => refused("entering it needs CAP_SYS_ADMIN".into()),
        error => refused(format!("cannot enter it: {error}")),
    })
}

/// Describes the place of an interface, for messages: nothing for the switch's own namespace.
pub(crate) fn place(netns: Option<&Netns>) -> String {
    netns.map(|netns| format!(" in network namespace `{netns}`")).unwrap_or_default()
}

/// Returns the command that runs `ip` with these arguments in a namespace.
pub(crate) fn ip(netns: Option<&Netns>, arguments: &str) -> String {
    match netns {
        None => format!("ip {arguments}"),
        Some(Netns::Name(name)) => format!("ip -n {name} {arguments}"),
        Some(netns) => format!("nsenter --net={} ip {arguments}", netns.path().display()),
    }
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Netns {
    /// A namespace made by `ip netns add`, by its name under /run/netns.
    Name(String),
    /// A namespace by the absolute path of its file.
    Path(PathBuf),
    /// The namespace of a process.
    Pid(u32),
}

impl Netns {
    /// Returns the path of its file.
    pub fn path(&self) -> PathBuf {
        match self {
            Netns::Name(name) => PathBuf::from("/run/netns").join(name),
            Netns::Path(path) => path.clone(),
            Netns::Pid(pid) => PathBuf::from(format!("/proc/{pid}/ns/net")),
        }
    }
}

impl FromStr for Netns {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let refused = || {
            OpenError(format!(
                "`{text}` is not a network namespace: a name under /run/netns, an absolute path, or `pid:` with a \
                 process number is expected"
            ))
        };
        if let Some(pid) = text.strip_prefix("pid:") {
            return pid.parse().ok().filter(|pid| *pid > 0).map(Netns::Pid).ok_or_else(refused);
        }
        if text.contains('\0') {
            return Err(refused());
        }
        if text.starts_with('/') {
            return Ok(Netns::Path(PathBuf::from(text)));
        }
        if text.is_empty() || text == "." || text == ".." || text.contains('/') {
            return Err(refused());
        }
        Ok(Netns::Name(text.to_owned()))
    }
}

impl fmt::Display for Netns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Netns::Name(name) => out.write_str(name),
            Netns::Path(path) => path.display().fmt(out),
            Netns::Pid(pid) => write!(out, "pid:{pid}"),
        }
    }
}

impl TryFrom<String> for Netns {
    type Error = OpenError;

    fn try_from(text: String) -> Result<Self, OpenError> {
        text.parse()
    }
}

impl From<Netns> for String {
    fn from(netns: Netns) -> Self {
        netns.to_string()
    }
}
