//! Watches the name of a namespace: a deleted namespace lives on as long as a port uses it, but its operator means it
//! to end, and a new one may take its name.
//!
//! Invariant: nothing runs until a name in the same directory is removed, or the process ends.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;

use crate::netns::Netns;
use crate::watch::{Watchable, watch};

/// Identity of a namespace: device and inode of its file.
pub(super) type Identity = (u64, u64);

/// A watched name.
pub(super) struct NameWatch {
    /// An inotify object for the name's directory, or a process descriptor.
    descriptor: OwnedFd,
    netns: Netns,
    identity: Identity,
}

impl AsRawFd for NameWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

// SAFETY: the descriptor is never replaced.
unsafe impl Watchable for NameWatch {}

impl NameWatch {
    /// Watches the name of the namespace with this identity. Without inotify, or for a path without a directory, a name
    /// cannot be watched: the port then stays with its namespace. Must be called in the context of a runtime.
    pub(super) fn new(netns: &Netns, identity: Identity) -> Option<AsyncFd<Self>> {
        let descriptor = match netns {
            Netns::Pid(pid) => {
                let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw)?;
                pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?
            }
            Netns::Name(_) | Netns::Path(_) => {
                let path = netns.path();
                let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
                let removals = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
                inotify::add_watch(&descriptor, path.parent()?, removals).ok()?;
                descriptor
            }
        };
        watch(Self { descriptor, netns: netns.clone(), identity }).ok()
    }

    /// Returns the reason if the name no longer leads to the namespace. To be called when the descriptor is readable.
    pub(super) fn gone(&self) -> Option<String> {
        let netns = &self.netns;
        if let Netns::Pid(pid) = netns {
            return Some(format!("network namespace `{netns}`: process {pid} has ended"));
        }
        // Which name was removed does not matter.
        while rustix::io::read(&self.descriptor, &mut [0; 4096]).is_ok_and(|len| len > 0) {}
        let same = rustix::fs::stat(netns.path()).is_ok_and(|now| (now.st_dev, now.st_ino) == self.identity);
        (!same).then(|| format!("network namespace `{netns}` was deleted"))
    }
}

/// Returns when the name no longer leads to the namespace, with the reason. Never, if it is not watched.
pub(super) async fn gone(watched: Option<&AsyncFd<NameWatch>>) -> String {
    let Some(watched) = watched else { return std::future::pending().await };
    loop {
        let Ok(mut ready) = watched.readable().await else { return std::future::pending().await };
        if let Some(reason) = watched.get_ref().gone() {
            return reason;
        }
        ready.clear_ready();
    }
}
