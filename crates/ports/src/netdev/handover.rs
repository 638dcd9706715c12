//! The host's addresses at a host port: moved there before the switch has the interface, and back when it gives the
//! interface up. The crate `hostnet` moves them; its guardian process gives them back if the daemon dies.
//!
//! Invariants: a [`Lease`] exists only while its port holds the interface, and the host port has no other user. The
//! lease is lost if a call does not return in time: the call then ends by itself, and the guardian gives everything
//! back. A lease that is dropped without [`Lease::release`] is given back by its guardian.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fabric::switch::BridgeId;
use hostnet::{Changes, Handover, Object, Recovered, Released, guardian};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

use super::link::Inner;
use super::links::{Interface, Namespace};
use crate::OpenError;
use crate::host_ports::{Claim, HostPorts, Key, Unclaimed, User};
use crate::watch::{Watchable, watch};

/// Longest time for a step of a move: the start of the guardian, and each 10,000 routes, take seconds under load.
const LIMIT: Duration = Duration::from_secs(25);
/// Shortest time between two moves of what has appeared at the interface, and longest wait for the end of changes.
const PACE: Duration = Duration::from_secs(1);
/// Time without a change after which a program has set all that belongs together: an address, then routes through it.
const QUIET: Duration = Duration::from_millis(300);
/// Time until another attempt to start a guardian, or to move what has appeared.
const RETRY: Duration = Duration::from_secs(5);

/// Message of a port whose lease was lost.
pub(super) const LOST: &str =
    "the host's addresses: a step did not finish in time; the guardian gives them back";

/// Reasons for having no lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unleased {
    /// The host port is not open.
    Waiting(String),
    /// The host port or the kernel refuses.
    Refused(String),
}

impl From<OpenError> for Unleased {
    fn from(error: OpenError) -> Self {
        Self::Refused(error.0)
    }
}

fn refused(error: hostnet::Error) -> OpenError {
    OpenError(format!("the host's addresses: {error}"))
}

/// The host port of a netdev port, by name.
pub(super) struct HostPort {
    pub(super) ports: HostPorts,
    pub(super) key: Key,
}

impl HostPort {
    pub(super) fn new(ports: &HostPorts, bridge: BridgeId, name: &str) -> Self {
        Self { ports: ports.clone(), key: (bridge, name.to_owned()) }
    }

    /// Returns its name.
    pub(super) fn name(&self) -> &str {
        &self.key.1
    }

    /// Returns whether it is open.
    pub(super) fn is_open(&self) -> bool {
        self.ports.contains(&self.key)
    }

    /// Returns the reason for waiting, while it is not open.
    pub(super) fn missing(&self) -> String {
        if let Some(why) = self.ports.unfit(&self.key) {
            return format!("port `{}` {why}", self.name());
        }
        format!("port `{}`, which is to have the host's addresses, is not open; waiting for it", self.name())
    }
}

/// The configuration of an interface at a host port.
pub(super) struct Lease {
    /// `None` if a call has not returned.
    handover: Option<Handover>,
    committed: bool,
    claim: Claim,
    /// Names for the log.
    names: Names,
    /// Notifications of what appears at the interfaces, until they are watched.
    changes: Option<Changes>,
    watcher: Option<Watcher>,
}

/// A task that ends with its lease.
struct Watcher(AbortHandle);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What to follow while a lease lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Followed {
    /// Process number of the guardian.
    guardian: u32,
    /// Time until the next look at the interfaces, if nothing is reported before.
    next: Option<Duration>,
}

/// Names for the log.
struct Names {
    owner: String,
    interface: String,
    port: String,
}

impl Lease {
    /// Claims the host port, writes the journal, starts the guardian, and prepares the host port. Nothing has moved.
    pub(super) fn begin(
        host: &HostPort,
        owner: &str,
        user: Weak<dyn User>,
        namespace: &Arc<Namespace>,
        interface: &Interface,
    ) -> Result<Self, Unleased> {
        let claim = host.ports.claim(&host.key, owner, user).map_err(|error| match error {
            Unclaimed::Missing => Unleased::Waiting(host.missing()),
            Unclaimed::Taken(other) => Unleased::Refused(format!(
                "port `{}` has the addresses of {other}; name another TAP port as `host`",
                host.name()
            )),
        })?;
        let target = claim.host.interface().ok_or_else(|| Unleased::Waiting(host.missing()))?;
        let journal = host.ports.journal(namespace.inode(), interface.index);
        let journal = journal.ok_or_else(|| {
            Unleased::Refused("the switch has no directory for journals of moved addresses".to_owned())
        })?;
        let source = interface.name.clone();
        let (handover, changes) = namespace.run_for(LIMIT, move || {
            // Left by a release that has failed, or by another daemon.
            hostnet::recover(&journal).map_err(refused)?;
            let handover =
                Handover::begin(&source, &target, &journal, guardian::command()).map_err(refused)?;
            let changes = handover.changes().map_err(refused)?;
            Ok((handover, changes))
        })?;
        claim.host.lend_mtu(Some(interface.mtu));
        let names =
            Names { owner: owner.to_owned(), interface: interface.label(), port: host.name().to_owned() };
        Ok(Self {
            handover: Some(handover),
            committed: false,
            claim,
            names,
            changes: Some(changes),
            watcher: None,
        })
    }

    /// Moves addresses and routes, unless they have moved already. On an error everything is as before
    /// [`Lease::begin`], and the lease is lost.
    pub(super) fn commit(&mut self, namespace: &Arc<Namespace>, port: &Weak<Inner>) -> Result<(), OpenError> {
        if self.committed {
            return Ok(());
        }
        let handover = self.take()?;
        let handover = namespace.run_for(LIMIT, move || handover.commit().map_err(refused))?;
        self.committed = true;
        let Names { owner, interface, port: host } = &self.names;
        let (moved, guardian) = (count(&handover.source().objects), handover.guardian());
        tracing::info!(port = owner, interface, host, guardian, "the host has {moved} at its host port now");
        self.handover = Some(handover);
        self.watch(port);
        Ok(())
    }

    /// Returns whether a call has not returned, or has failed and undone everything.
    pub(super) fn is_lost(&self) -> bool {
        self.handover.is_none()
    }

    fn take(&mut self) -> Result<Handover, OpenError> {
        self.handover.take().ok_or_else(|| OpenError(LOST.to_owned()))
    }

    /// Describes the place of the addresses for users.
    pub(super) fn describe(&self) -> Option<String> {
        let guardian = self.handover.as_ref().filter(|_| self.committed)?.guardian();
        Some(format!("addresses are at port {}, guardian pid {guardian}", self.names.port))
    }

    /// Gives everything back. The interface is detached next, then [`Returned::finish`] is called.
    pub(super) fn release(mut self, namespace: &Arc<Namespace>) -> Option<Returned> {
        let handover = self.handover.take()?;
        let released = namespace.run_for(LIMIT, move || handover.release().map_err(refused));
        let Names { owner, interface, port: host } = &self.names;
        match released {
            Ok(released) => {
                match released.recovered() {
                    Recovered::Gone(_) => tracing::warn!(
                        port = owner,
                        interface,
                        host,
                        "the interface is gone: the host's addresses of it were discarded"
                    ),
                    _ if self.committed => {
                        tracing::info!(port = owner, interface, host, "the host has its addresses back");
                    }
                    _ => {}
                }
                Some(Returned { released, names: self.names, _claim: self.claim })
            }
            Err(error) => {
                tracing::error!(port = owner, interface, host, "{error}; the guardian tries on");
                None
            }
        }
    }

    /// Moves what has appeared at the interface since, and notes what the host port has received.
    pub(super) fn follow(&mut self, namespace: &Arc<Namespace>) -> Option<Followed> {
        let mut handover = self.handover.take()?;
        let followed = namespace.run_for(LIMIT, move || {
            let moved = handover.follow().map_err(refused);
            Ok((handover, moved))
        });
        let Names { owner, interface, port: host } = &self.names;
        match followed {
            Ok((handover, moved)) => {
                let next = if moved.is_ok() { handover.next_follow() } else { Some(RETRY) };
                let followed = Followed { guardian: handover.guardian(), next };
                self.handover = Some(handover);
                match moved {
                    Ok(0) => {}
                    Ok(objects) => tracing::info!(
                        port = owner,
                        interface,
                        host,
                        objects,
                        "addresses or routes appeared at the interface and moved to the host port"
                    ),
                    Err(error) => tracing::warn!(port = owner, interface, host, "{error}; retrying"),
                }
                Some(followed)
            }
            Err(error) => {
                tracing::error!(port = owner, interface, host, "{error}");
                None
            }
        }
    }

    /// Starts another guardian, because the present one has died. After a failure, the guardian is the former one.
    pub(super) fn guard_again(&mut self, namespace: &Arc<Namespace>) -> Option<Followed> {
        let mut handover = self.handover.take()?;
        let guarded = namespace.run_for(LIMIT, move || {
            let guarded = handover.guard_again(guardian::command()).map_err(refused);
            Ok((handover, guarded))
        });
        let Names { owner, interface, port: host } = &self.names;
        match guarded {
            Ok((handover, guarded)) => {
                let guardian = handover.guardian();
                self.handover = Some(handover);
                match guarded {
                    Ok(()) => {
                        tracing::warn!(
                            port = owner,
                            interface,
                            host,
                            guardian,
                            "the guardian died; another runs"
                        )
                    }
                    Err(error) => {
                        tracing::error!(port = owner, interface, host, "the guardian died: {error}")
                    }
                }
                // Something may have been reported at the same time.
                Some(Followed { guardian, next: Some(PACE) })
            }
            Err(error) => {
                tracing::error!(port = owner, interface, host, "{error}");
                None
            }
        }
    }

    /// Follows the interface and the guardian from now on.
    fn watch(&mut self, port: &Weak<Inner>) {
        let (Some(handover), Some(inner)) = (&self.handover, port.upgrade()) else { return };
        let runtime = inner.runtime();
        let entered = runtime.enter();
        let changes = self.changes.take().and_then(|changes| watch(Appeared(changes)).ok());
        drop(entered);
        let followed = Followed { guardian: handover.guardian(), next: handover.next_follow() };
        let follower = runtime.spawn(follow(port.clone(), changes, followed));
        self.watcher = Some(Watcher(follower.abort_handle()));
    }
}

/// A configuration that is back at its interface.
pub(super) struct Returned {
    released: Released,
    names: Names,
    /// Until the host port has its own settings back.
    _claim: Claim,
}

impl Returned {
    /// Gives the host port its own MAC address, MTU and settings back.
    pub(super) fn finish(self, namespace: &Arc<Namespace>) {
        let Self { released, names, _claim } = self;
        let Names { owner, interface, port: host } = names;
        if let Err(error) = namespace.run_for(LIMIT, move || released.finish().map_err(refused)) {
            tracing::warn!(port = owner, interface, host, "{error}");
        }
    }
}

/// Counts objects for the log.
fn count(objects: &[Object]) -> String {
    let mut counts = [
        ("address", "addresses", 0),
        ("route", "routes", 0),
        ("rule", "rules", 0),
        ("neighbour", "neighbours", 0),
    ];
    for object in objects {
        let kind = match object {
            Object::Address(_) => 0,
            Object::Route(_) | Object::Nexthop(_) => 1,
            Object::Rule(_) => 2,
            Object::Neighbour(_) => 3,
        };
        if let Some((.., count)) = counts.get_mut(kind) {
            *count += 1;
        }
    }
    let words = counts.map(|(one, many, count)| format!("{count} {}", if count == 1 { one } else { many }));
    words.join(", ")
}

/// Tells that a process has ended.
struct Exit(OwnedFd);

impl AsRawFd for Exit {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

// SAFETY: the descriptor is never replaced.
unsafe impl Watchable for Exit {}

/// Tells that something has appeared at the interface.
struct Appeared(Changes);

impl AsRawFd for Appeared {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

// SAFETY: `Changes` keeps its socket until it is dropped.
unsafe impl Watchable for Appeared {}

/// Returns when something has appeared; never without notifications.
async fn appeared(changes: Option<&mut AsyncFd<Appeared>>) {
    let Some(changes) = changes else { return std::future::pending().await };
    loop {
        let Ok(mut ready) = changes.readable_mut().await else { return std::future::pending().await };
        let changed = ready.get_inner_mut().0.take();
        ready.clear_ready();
        if changed {
            return;
        }
    }
}

/// Returns when something has appeared, and nothing else for a while: a client that has set an address adds routes
/// through it next.
async fn settled(mut changes: Option<&mut AsyncFd<Appeared>>) {
    appeared(changes.as_deref_mut()).await;
    let quiet =
        async { while tokio::time::timeout(QUIET, appeared(changes.as_deref_mut())).await.is_ok() {} };
    // Without an end of changes, what is there moves.
    let _ = tokio::time::timeout(PACE, quiet).await;
}

/// Returns after this time; never without one.
async fn passed(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Returns when a process of this number has ended; never if it cannot be watched.
async fn ended(process: u32) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    let exit = process.and_then(|process| pidfd_open(process, PidfdFlags::NONBLOCK).ok());
    let Some(exit) = exit.and_then(|exit| watch(Exit(exit)).ok()) else {
        return std::future::pending().await;
    };
    if exit.readable().await.is_err() {
        std::future::pending().await
    }
}

/// Follows the interfaces and the guardian until the lease ends.
async fn follow(port: Weak<Inner>, mut changes: Option<AsyncFd<Appeared>>, mut followed: Followed) {
    loop {
        let died = tokio::select! {
            () = settled(changes.as_mut()) => false,
            () = passed(followed.next) => false,
            () = ended(followed.guardian) => true,
        };
        let Some(inner) = port.upgrade() else { return };
        let look = move || match died {
            true => inner.guard_host_again(),
            false => inner.follow_host(),
        };
        // Otherwise the lease has ended.
        let Ok(Some(now)) = tokio::task::spawn_blocking(look).await else { return };
        let unguarded = died && now.guardian == followed.guardian;
        tokio::time::sleep(if unguarded { RETRY } else { PACE }).await;
        followed = now;
    }
}
