//! The names of a bridge's ports, for modules that look them up.
//!
//! Invariant: a worker that looks a name up does not wait for the control plane, which changes the names: it is told
//! to ask again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::abi::{self, ASK_AGAIN, NO_PORT};
use crate::call::Host;

/// See the module.
pub(crate) struct PortNames {
    ports: Mutex<Vec<(u16, String)>>,
    version: AtomicU64,
}

impl Default for PortNames {
    /// No ports.
    fn default() -> Self {
        // 0 is the version of modules that have not looked yet.
        Self { ports: Mutex::default(), version: AtomicU64::new(1) }
    }
}

impl PortNames {
    /// Replaces all names.
    pub(crate) fn set(&self, ports: Vec<(u16, String)>) {
        *self.lock() = ports;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Changes with the names.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The value of a parameter that names a port.
    pub(crate) fn value(&self, name: &str) -> u64 {
        u64::try_from(find(&self.lock(), name.as_bytes())).unwrap_or(abi::NOTHING)
    }

    /// The index of a port for a module that asks.
    pub(crate) fn look(&self, name: &[u8]) -> i32 {
        match self.ports.try_lock() {
            Ok(ports) => find(&ports, name),
            Err(TryLockError::Poisoned(ports)) => find(&ports.into_inner(), name),
            Err(TryLockError::WouldBlock) => ASK_AGAIN,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u16, String)>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(ports: &[(u16, String)], name: &[u8]) -> i32 {
    ports.iter().find(|(_, port)| port.as_bytes() == name).map_or(NO_PORT, |(at, _)| i32::from(*at))
}

/// The host without a batch: at a module's start and in commands.
impl Host for &PortNames {
    fn port(&mut self, name: &[u8]) -> i32 {
        find(&self.lock(), name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_and_nobody_waits_for_them() {
        let names = PortNames::default();
        let empty = names.version();
        assert_eq!((names.look(b"vm1"), names.value("vm1")), (NO_PORT, abi::NOTHING));
        names.set(vec![(0, "vm0".into()), (7, "vm1".into())]);
        assert_ne!(names.version(), empty);
        assert_eq!((names.look(b"vm1"), names.value("vm1"), (&names).port(b"vm0")), (7, 7, 0));
        let changing = names.lock();
        assert_eq!(names.look(b"vm1"), ASK_AGAIN);
        drop(changing);
        assert_eq!(names.look(b"vm"), NO_PORT);
    }
}
