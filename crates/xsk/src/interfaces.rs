//! Interfaces with AF_XDP sockets, for those who have other programs for them.
//!
//! Whoever opens sockets of an interface lets it *join* under a key, and holds what it gets as long as the sockets are
//! open. Others ask which interfaces there are, and hear when that changes.
//!
//! Invariants: the list keeps no interface open; listeners are called without locks.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::Error;

/// An interface with sockets.
pub trait Interface: Send + Sync {
    /// The map from receive queues to sockets.
    fn sockets(&self) -> BorrowedFd<'_>;

    /// Runs another program on the interface's packets.
    ///
    /// # Errors
    /// The kernel's.
    fn replace(&self, program: BorrowedFd<'_>) -> Result<(), Error>;

    /// Redirects all packets to the sockets again.
    ///
    /// # Errors
    /// The kernel's.
    fn restore(&self) -> Result<(), Error>;

    /// The mark of notes that programs put in front of packets ([`crate::note`]). They are taken off from the first call
    /// on.
    fn expect_notes(&self) -> u64;

    /// Enters the interface in a map of interfaces by numbers, to which programs send packets.
    ///
    /// # Errors
    /// The kernel's.
    fn connect(&self, interfaces: BorrowedFd<'_>, number: u32) -> Result<(), Error>;
}

/// Called after interfaces have joined or left.
type Listener = Box<dyn Fn() + Send + Sync>;

struct List<K> {
    interfaces: BTreeMap<K, Weak<dyn Interface>>,
    listeners: Vec<Weak<Listener>>,
}

/// Interfaces by keys.
pub struct Interfaces<K>(Arc<Mutex<List<K>>>);

impl<K> Clone for Interfaces<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Default for Interfaces<K> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(List { interfaces: BTreeMap::new(), listeners: Vec::new() })))
    }
}

impl<K> fmt::Debug for Interfaces<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interfaces").finish_non_exhaustive()
    }
}

/// An interface in the list, as long as this exists.
pub struct Joined<K: Ord + Copy> {
    list: Interfaces<K>,
    key: K,
    interface: Arc<dyn Interface>,
}

/// Hears of changes, as long as this exists.
pub struct Listening {
    _listener: Arc<Listener>,
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").finish_non_exhaustive()
    }
}

impl<K: Ord + Copy> Interfaces<K> {
    fn lock(&self) -> MutexGuard<'_, List<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an interface, in place of one with the same key.
    pub fn join(&self, key: K, interface: Arc<dyn Interface>) -> Joined<K> {
        self.lock().interfaces.insert(key, Arc::downgrade(&interface));
        self.tell();
        Joined { list: self.clone(), key, interface }
    }

    /// The interfaces that are there.
    pub fn list(&self) -> Vec<(K, Arc<dyn Interface>)> {
        let list = self.lock();
        list.interfaces.iter().filter_map(|(key, interface)| Some((*key, interface.upgrade()?))).collect()
    }

    /// Has a function called after each change, as long as the result exists. It must not block.
    pub fn listen(&self, listener: impl Fn() + Send + Sync + 'static) -> Listening {
        let listener: Arc<Listener> = Arc::new(Box::new(listener));
        self.lock().listeners.push(Arc::downgrade(&listener));
        Listening { _listener: listener }
    }

    fn tell(&self) {
        let listeners: Vec<_> = {
            let mut list = self.lock();
            list.listeners.retain(|listener| listener.strong_count() > 0);
            list.listeners.iter().filter_map(Weak::upgrade).collect()
        };
        listeners.iter().for_each(|listener| listener());
    }
}

impl<K: Ord + Copy> Drop for Joined<K> {
    fn drop(&mut self) {
        {
            let mut list = self.list.lock();
            let is_own = list
                .interfaces
                .get(&self.key)
                .is_some_and(|other| std::ptr::addr_eq(other.as_ptr(), Arc::as_ptr(&self.interface)));
            if is_own {
                list.interfaces.remove(&self.key);
            }
        }
        self.list.tell();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    struct Nothing(std::fs::File);

    fn nothing() -> Arc<Nothing> {
        Arc::new(Nothing(std::fs::File::open("/dev/null").unwrap()))
    }

    impl Interface for Nothing {
        fn sockets(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn replace(&self, _: BorrowedFd<'_>) -> Result<(), Error> {
            Ok(())
        }

        fn restore(&self) -> Result<(), Error> {
            Ok(())
        }

        fn expect_notes(&self) -> u64 {
            0
        }

        fn connect(&self, _: BorrowedFd<'_>, _: u32) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn interfaces_come_and_go_and_listeners_hear_of_it() {
        let list = Interfaces::<u32>::default();
        let calls = Arc::<AtomicU32>::default();
        let counted = calls.clone();
        let listening = list.listen(move || _ = counted.fetch_add(1, Relaxed));
        let first = list.join(7, nothing());
        let second = list.join(7, nothing());
        assert_eq!((list.list().len(), calls.load(Relaxed)), (1, 2));
        // The one whose place it took is gone already.
        drop(first);
        assert_eq!((list.list().len(), calls.load(Relaxed)), (1, 3));
        drop(listening);
        drop(second);
        assert_eq!((list.list().len(), calls.load(Relaxed)), (0, 3));
    }
}
