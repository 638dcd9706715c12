//! One office for each bridge: its ledger and the socket of its clients, shared by successive logics.
//!
//! A logic that replaces another of this kind in the same bridge finds the office by the bridge's name. So
//! reservations, held sockets and connections survive `mswitch logic set`, and no moment lets the host take a reserved
//! endpoint. The office closes with the last logic that uses it.
//!
//! Invariant: parameters take effect when the logic's first ports are announced, after the last step that can fail.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use super::ledger::{Ledger, Terms};
use super::server::Server;

/// See the module.
pub(super) struct Office {
    pub(super) ledger: Arc<Ledger>,
    server: Mutex<Option<Server>>,
}

/// Offices by the names of their bridges.
static OFFICES: LazyLock<Mutex<BTreeMap<String, Weak<Office>>>> = LazyLock::new(Mutex::default);

impl Office {
    /// Makes an office of its own, for a logic without a bridge.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { ledger: Arc::new(Ledger::new()), server: Mutex::default() })
    }

    /// Returns the office of a bridge.
    pub(super) fn of(bridge: &str) -> Arc<Self> {
        let mut all = OFFICES.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, office| office.strong_count() > 0);
        match all.get(bridge).and_then(Weak::upgrade) {
            Some(office) => office,
            None => {
                let office = Self::new();
                all.insert(bridge.into(), Arc::downgrade(&office));
                office
            }
        }
    }

    /// Prepares for other terms and another socket, without an effect on reservations so far. Returns the server of
    /// the socket if it is not the present one.
    pub(super) fn prepare(&self, terms: &Terms, socket: Option<&Path>) -> Result<Option<Server>, String> {
        let before = self.ledger.terms();
        let reservations = self.ledger.entries().len();
        if reservations > 0 && before.netns != terms.netns {
            return Err(format!(
                "parameter `netns` cannot change while there are reservations, here {reservations}, because their \
                 sockets are in the former namespace; release them first"
            ));
        }
        let is_present = |path: &Path| self.socket().as_deref() == Some(path);
        match socket.filter(|path| !is_present(path)) {
            Some(path) => Server::start(path, &terms.policy, self.ledger.clone()).map(Some),
            None => Ok(None),
        }
    }

    /// Puts terms into effect, with the server that [`Office::prepare`] started.
    pub(super) fn activate(&self, terms: Arc<Terms>, socket: Option<&Path>, server: Option<Server>) {
        let mut present = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(present) = &*present {
            present.set_policy(&terms.policy);
        }
        self.ledger.set_terms(terms);
        if server.is_some() || socket.is_none() {
            // Dropping the former server ends its connections.
            *present = server;
        }
    }

    fn socket(&self) -> Option<PathBuf> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|server| server.path().into())
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.ledger.close();
    }
}
