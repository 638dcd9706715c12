//! Threads in other network namespaces.
//!
//! A thread that changed its namespace never does anything else afterwards: workers and the runtime's threads
//! must not find themselves elsewhere. So each errand has a thread of its own.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::options::Netns;
use crate::OpenError;
use crate::bounded::within;

/// The longest that an errand may take: the kernel's lock over interfaces may be busy, and a path may lead anywhere.
const LIMIT: Duration = Duration::from_secs(5);

/// Runs `errand` on a thread of its own, in `netns` if given, and waits for its end, for [`LIMIT`] at most.
pub(super) fn run_in<T: Send + 'static>(
    netns: Option<&Netns>,
    errand: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    let netns = netns.cloned();
    let done = within(LIMIT, "mswitch-tap", move || {
        if let Some(netns) = netns {
            enter(&netns)?;
        }
        errand()
    });
    done.unwrap_or_else(|error| Err(OpenError(format!("the interface: {error}"))))
}

fn enter(netns: &Netns) -> Result<(), OpenError> {
    let path = netns.path();
    let refused = |why: String| OpenError(format!("network namespace `{netns}`: {why}"));
    let file = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
        .map_err(|error| match (error, netns) {
            (Errno::NOENT, Netns::Name(name)) => {
                refused(format!("{} does not exist; `ip netns add {name}` makes it", path.display()))
            }
            (Errno::NOENT, Netns::Pid(pid)) => refused(format!("there is no process {pid}")),
            (Errno::NOENT, Netns::Path(_)) => refused("the file does not exist".into()),
            (Errno::ACCESS | Errno::PERM, _) => refused(format!("{} must not be opened", path.display())),
            (error, _) => refused(format!("cannot open {}: {error}", path.display())),
        })?;

    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|error| match error {
        Errno::INVAL => refused(format!("{} does not stand for a network namespace", path.display())),
        Errno::PERM => refused("entering it needs CAP_SYS_ADMIN".into()),
        error => refused(format!("cannot enter it: {error}")),
    })
}
