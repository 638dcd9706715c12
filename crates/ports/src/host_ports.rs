//! Host ports: ports with an interface of the host's stack that can take over the configuration of another interface.
//!
//! A TAP port *joins* when it is attached and *leaves* before its interface goes away. A netdev port *claims* a host
//! port of its bridge before it moves the host's addresses there, and gives them back when that port leaves.
//!
//! Invariants: a host port has at most one user. When [`HostPorts::leave`] returns, its user has given everything back,
//! or has been waited for as long as [`GIVE_BACK`]. The lock over the ports is never held during a call of a host port
//! or a user.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fabric::switch::BridgeId;
use tokio::sync::watch;

use crate::bounded::within;

/// Longest time for giving addresses and routes back, while a port closes.
pub(crate) const GIVE_BACK: Duration = Duration::from_secs(10);

/// A port with an interface of the host's stack.
pub(crate) trait Host: Send + Sync {
    /// Returns the interface's present name; `None` if it no longer exists.
    fn interface(&self) -> Option<String>;

    /// Lets the switch deliver packets up to this MTU, which the interface has been given; `None` ends that.
    fn lend_mtu(&self, mtu: Option<u32>);
}

/// A port that moves the configuration of its interface to a host port.
pub(crate) trait User: Send + Sync {
    /// Gives the configuration back, because the host port leaves. Blocks until that is done.
    fn host_left(&self);
}

/// Name of a host port: its bridge, and its name there.
pub(crate) type Key = (BridgeId, String);

struct Entry {
    host: Weak<dyn Host>,
    user: Option<(String, Weak<dyn User>)>,
}

/// All host ports of a switch.
#[derive(Clone, Default)]
pub struct HostPorts {
    entries: Arc<Mutex<BTreeMap<Key, Entry>>>,
    /// Ports that cannot be host ports although their type can, with the reasons.
    unfit: Arc<Mutex<BTreeMap<Key, String>>>,
    changes: Arc<watch::Sender<()>>,
    journals: Option<Arc<Path>>,
}

/// Reasons for refusing a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unclaimed {
    /// There is no such host port now.
    Missing,
    /// Another port, in words, uses it.
    Taken(String),
}

impl HostPorts {
    /// Makes a set without ports. The names of journals begin with this path.
    #[must_use]
    pub fn with_journals(prefix: &Path) -> Self {
        Self { journals: Some(prefix.into()), ..Self::default() }
    }

    /// Returns the path of the journal of an interface, by the inode of its namespace and its index.
    pub(crate) fn journal(&self, namespace: u64, index: u32) -> Option<PathBuf> {
        let mut path = self.journals.as_ref()?.as_os_str().to_owned();
        path.push(format!("{namespace}-{index}{JOURNAL}"));
        Some(path.into())
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver that sees a change whenever a host port joins or leaves.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Adds a host port.
    pub(crate) fn join(&self, key: Key, host: Weak<dyn Host>) {
        self.entries().insert(key, Entry { host, user: None });
        self.changes.send_replace(());
    }

    /// Removes a host port, if it is still the one of this name, and waits until its user has given everything back.
    pub(crate) fn leave(&self, key: &Key, host: &Weak<dyn Host>) {
        let user = {
            let mut entries = self.entries();
            if !entries.get(key).is_some_and(|entry| entry.host.ptr_eq(host)) {
                return;
            }
            entries.remove(key).and_then(|entry| entry.user)
        };
        self.changes.send_replace(());
        let Some((name, user)) = user.and_then(|(name, user)| Some((name, user.upgrade()?))) else { return };
        if let Err(error) = within(GIVE_BACK, "mswitch-host", move || user.host_left()) {
            tracing::warn!(port = key.1, "returning the addresses of {name}: {error}");
        }
    }

    /// Notes that a port cannot be a host port, for this reason, until the mark is dropped.
    pub(crate) fn mark_unfit(&self, key: Key, why: String) -> Unfit {
        self.unfit_ports().insert(key.clone(), why);
        self.changes.send_replace(());
        Unfit { ports: self.clone(), key }
    }

    /// Returns the reason why a port cannot be a host port, if it is known.
    pub(crate) fn unfit(&self, key: &Key) -> Option<String> {
        self.unfit_ports().get(key).cloned()
    }

    fn unfit_ports(&self) -> MutexGuard<'_, BTreeMap<Key, String>> {
        self.unfit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is such a host port.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.entries().contains_key(key)
    }

    /// Returns the port that uses a host port, in words.
    pub(crate) fn user(&self, key: &Key) -> Option<String> {
        self.entries().get(key)?.user.as_ref().map(|(name, _)| name.clone())
    }

    /// Makes `user`, called `name`, the user of a host port, until the claim is dropped.
    pub(crate) fn claim(&self, key: &Key, name: &str, user: Weak<dyn User>) -> Result<Claim, Unclaimed> {
        let mut entries = self.entries();
        let entry = entries.get_mut(key).ok_or(Unclaimed::Missing)?;
        let host = entry.host.upgrade().ok_or(Unclaimed::Missing)?;
        if let Some((other, _)) = entry.user.as_ref().filter(|(_, user)| user.strong_count() > 0) {
            return Err(Unclaimed::Taken(other.clone()));
        }
        entry.user = Some((name.to_owned(), user));
        Ok(Claim { ports: self.clone(), key: key.clone(), host })
    }
}

/// Mark of a port that cannot be a host port.
pub(crate) struct Unfit {
    ports: HostPorts,
    key: Key,
}

impl Drop for Unfit {
    fn drop(&mut self) {
        self.ports.unfit_ports().remove(&self.key);
        self.ports.changes.send_replace(());
    }
}

/// Ending of the names of journals.
pub(crate) const JOURNAL: &str = ".journal";

/// The use of a host port.
pub(crate) struct Claim {
    ports: HostPorts,
    key: Key,
    pub(crate) host: Arc<dyn Host>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.host.lend_mtu(None);
        // A port that has left, or has joined anew, does not know this user.
        if let Some(entry) = self.ports.entries().get_mut(&self.key)
            && entry.host.ptr_eq(&Arc::downgrade(&self.host))
        {
            entry.user = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use fabric::{Batch, Switch, SwitchLogic, SwitchOptions};

    use super::*;

    struct Logic;

    impl SwitchLogic for Logic {
        fn forward(&self, _: &mut Batch<'_>) {}
    }

    #[derive(Default)]
    struct Tap(AtomicU32);

    impl Host for Tap {
        fn interface(&self) -> Option<String> {
            Some("host0".into())
        }

        fn lend_mtu(&self, mtu: Option<u32>) {
            self.0.store(mtu.unwrap_or(1500), Relaxed);
        }
    }

    struct Uplink {
        claim: Mutex<Option<Claim>>,
        left: AtomicU32,
    }

    impl User for Uplink {
        fn host_left(&self) {
            self.left.fetch_add(1, Relaxed);
            self.claim.lock().unwrap().take();
        }
    }

    fn uplink() -> Arc<Uplink> {
        Arc::new(Uplink { claim: Mutex::default(), left: AtomicU32::new(0) })
    }

    #[test]
    fn unfit_ports_are_known_with_the_reason_while_they_last() {
        let switch = Switch::start(&SwitchOptions::default()).unwrap();
        let bridge = switch.add_bridge("br0", Arc::new(Logic)).unwrap();
        let (ports, key) = (HostPorts::default(), (bridge, "host".to_owned()));
        let mut changes = ports.changes();
        let unfit = ports.mark_unfit(key.clone(), "is a veth".to_owned());
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert_eq!(ports.unfit(&key).as_deref(), Some("is a veth"));
        drop(unfit);
        assert_eq!(ports.unfit(&key), None);
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn a_host_port_has_one_user_which_is_told_when_it_leaves() {
        let switch = Switch::start(&SwitchOptions::default()).unwrap();
        let bridge = switch.add_bridge("br0", Arc::new(Logic)).unwrap();
        let (ports, key) = (HostPorts::with_journals("/run/x-".as_ref()), (bridge, "host".to_owned()));
        assert_eq!(ports.journal(7, 3), Some("/run/x-7-3.journal".into()));
        assert_eq!(HostPorts::default().journal(7, 3), None);
        let (first, second) = (uplink(), uplink());
        let user = |uplink: &Arc<Uplink>| Arc::downgrade(uplink) as Weak<dyn User>;
        assert_eq!(ports.claim(&key, "a", user(&first)).err(), Some(Unclaimed::Missing));
        let mut changes = ports.changes();
        let tap = Arc::new(Tap::default());
        let host = Arc::downgrade(&tap) as Weak<dyn Host>;
        ports.join(key.clone(), host.clone());
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        let claim = ports.claim(&key, "a", user(&first)).ok().unwrap();
        claim.host.lend_mtu(Some(9000));
        assert_eq!(tap.0.load(Relaxed), 9000);
        *first.claim.lock().unwrap() = Some(claim);
        assert_eq!(ports.claim(&key, "b", user(&second)).err(), Some(Unclaimed::Taken("a".into())));
        assert_eq!(ports.user(&key).as_deref(), Some("a"));
        // Another port of that name does not remove it.
        ports.leave(&key, &(Arc::downgrade(&Arc::new(Tap::default())) as Weak<dyn Host>));
        assert!(ports.contains(&key));
        ports.leave(&key, &host);
        assert_eq!((first.left.load(Relaxed), tap.0.load(Relaxed)), (1, 1500));
        assert!(changes.has_changed().unwrap() && !ports.contains(&key));
        // After it was given back, another port may claim it.
        ports.join(key.clone(), host);
        drop(ports.claim(&key, "a", user(&first)).ok().unwrap());
        assert_eq!(ports.user(&key), None);
        assert!(ports.claim(&key, "b", user(&second)).is_ok());
    }
}
