//! Threads in other network namespaces.
//!
//! A thread that changed its namespace does nothing else afterwards: workers and the runtime's threads must not end up
//! in another one. So each task has a thread of its own.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::options::Netns;
use crate::OpenError;
use crate::bounded::within;

/// Longest time for a task: the kernel's lock over interfaces may be busy, and a path may lead anywhere.
const LIMIT: Duration = Duration::from_secs(5);

/// Runs `task` on a thread of its own, in `netns` if given, and waits for its end, for at most [`LIMIT`].
pub(super) fn run_in<T: Send + 'static>(
    netns: Option<&Netns>,
    task: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    let netns = netns.cloned();
    let done = within(LIMIT, "mswitch-tap", move || {
        if let Some(netns) = netns {
            enter(&netns)?;
        }
        task()
    });
    done.unwrap_or_else(|error| Err(OpenError(format!("the interface: {error}"))))
}

fn enter(netns: &Netns) -> Result<(), OpenError> {
    let path = netns.path();
    let refused = |why: String| OpenError(format!("network namespace `{netns}`: {why}"));
    let file = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
        .map_err(|error| match (error, netns) {
            (Errno::NOENT, Netns::Name(name)) => {
                refused(format!("{} does not exist; create it with `ip netns add {name}`", path.display()))
            }
            (Errno::NOENT, Netns::Pid(pid)) => refused(format!("there is no process {pid}")),
            (Errno::NOENT, Netns::Path(_)) => refused("the file does not exist".into()),
            (Errno::ACCESS | Errno::PERM, _) => refused(format!("no permission to open {}", path.display())),
            (error, _) => refused(format!("cannot open {}: {error}", path.display())),
        })?;

    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|error| match error {
        Errno::INVAL => refused(format!("{} is not a network namespace", path.display())),
        Errno::PERM => refused("entering it needs CAP_SYS_ADMIN".into()),
        error => refused(format!("cannot enter it: {error}")),
    })
}
