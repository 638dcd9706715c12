//! Watches the names of namespaces: a deleted namespace lives on as long as a port uses it, but its operator means it to
//! end, and a new one may take its name.
//!
//! All names in a directory share one inotify object, because the kernel limits their number for each user.
//!
//! Invariant: nothing runs until a name in a watched directory is removed, or a process ends.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::netns::Netns;
use crate::watch::{Watchable, watch};

/// Identity of a namespace: device and inode of its file.
pub(crate) type Identity = (u64, u64);

/// Returns the identity of a namespace, by its open file.
pub(crate) fn identity(file: impl AsFd) -> rustix::io::Result<Identity> {
    rustix::fs::fstat(file).map(|file| (file.st_dev, file.st_ino))
}

/// A descriptor that becomes readable when names may have changed.
struct Descriptor(OwnedFd);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

// SAFETY: the descriptor is never replaced.
unsafe impl Watchable for Descriptor {}

/// A watched directory.
struct Directory {
    /// Signals that a name was removed.
    removals: watch::Sender<()>,
    follower: AbortHandle,
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Directory {
    /// Must be called in the context of a runtime.
    fn open(path: &Path) -> Option<Arc<Self>> {
        let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let events = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        inotify::add_watch(&descriptor, path, events).ok()?;
        let descriptor = watch(Descriptor(descriptor)).ok()?;
        let removals = watch::Sender::new(());
        let sender = removals.clone();
        let follower = tokio::spawn(async move {
            loop {
                let Ok(mut ready) = descriptor.readable().await else { return };
                // Which name was removed does not matter.
                let file = &descriptor.get_ref().0;
                while rustix::io::read(file, &mut [0; 4096]).is_ok_and(|len| len > 0) {}
                ready.clear_ready();
                sender.send_replace(());
            }
        });
        Some(Arc::new(Self { removals, follower: follower.abort_handle() }))
    }
}

/// The watched directories.
#[derive(Clone, Default)]
pub(crate) struct Directories(Arc<Mutex<BTreeMap<PathBuf, Weak<Directory>>>>);

impl Directories {
    fn get(&self, path: &Path) -> Option<Arc<Directory>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, directory| directory.strong_count() > 0);
        if let Some(known) = all.get(path).and_then(Weak::upgrade) {
            return Some(known);
        }
        let directory = Directory::open(path)?;
        all.insert(path.to_owned(), Arc::downgrade(&directory));
        Some(directory)
    }

    /// Watches the name of the namespace with this identity. Without inotify, or for a path without a directory, a name
    /// cannot be watched: the port then stays with its namespace. Must be called in the context of a runtime.
    pub(crate) fn watch(&self, netns: &Netns, identity: Identity) -> Option<NameWatch> {
        let source = match netns {
            Netns::Pid(pid) => {
                let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw)?;
                let descriptor = pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
                Source::Process(watch(Descriptor(descriptor)).ok()?)
            }
            Netns::Name(_) | Netns::Path(_) => Source::Directory(self.get(netns.path().parent()?)?),
        };
        Some(NameWatch { source, netns: netns.clone(), identity })
    }
}

enum Source {
    Directory(Arc<Directory>),
    Process(AsyncFd<Descriptor>),
}

/// A watched name.
pub(crate) struct NameWatch {
    source: Source,
    netns: Netns,
    identity: Identity,
}

impl NameWatch {
    /// Returns when the name no longer leads to the namespace, with the reason.
    pub(crate) async fn gone(&self) -> String {
        let netns = &self.netns;
        match &self.source {
            Source::Process(process) => match process.readable().await {
                Ok(_) => format!("network namespace `{netns}`: its process has ended"),
                Err(_) => std::future::pending().await,
            },
            Source::Directory(directory) => {
                let mut removals = directory.removals.subscribe();
                loop {
                    // Also at first: the name may have changed before it was watched.
                    match rustix::fs::stat(netns.path()).map(|now| (now.st_dev, now.st_ino)) {
                        Ok(now) if now == self.identity => {}
                        // Another namespace: all have the same device.
                        Ok(now) if now.0 == self.identity.0 => {
                            return format!("network namespace `{netns}` was deleted and made anew");
                        }
                        // Of a deleted one, the file over which it was mounted may be left for a moment.
                        _ => return format!("network namespace `{netns}` was deleted"),
                    }
                    if removals.changed().await.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }
}

/// Returns when the name no longer leads to the namespace, with the reason. Never, if it is not watched.
pub(crate) async fn gone(watched: Option<&NameWatch>) -> String {
    match watched {
        Some(watched) => watched.gone().await,
        None => std::future::pending().await,
    }
}
