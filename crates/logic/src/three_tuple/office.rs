//! One office for each bridge: its ledger and the socket of its clients, shared by successive logics.
//!
//! A logic that replaces another of this kind in the same bridge finds the office by the bridge's name. So
//! reservations, held sockets and connections survive `mswitch logic set`, and no moment lets the host take a reserved
//! endpoint. The office closes with the last logic that uses it.
//!
//! Invariants: parameters take effect when the logic's first ports are announced, after the last step that can fail. A
//! path has at most one server, which ends with the last logic that needs it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use super::ledger::{Ledger, Terms};
use super::server::Server;

/// See the module.
pub(super) struct Office {
    pub(super) ledger: Arc<Ledger>,
    /// The server of the active logic.
    present: Mutex<Option<Arc<Server>>>,
    /// All servers, those of logics that are prepared only included.
    servers: Mutex<Vec<Weak<Server>>>,
}

/// Offices by the names of their bridges.
static OFFICES: LazyLock<Mutex<BTreeMap<String, Weak<Office>>>> = LazyLock::new(Mutex::default);

impl Office {
    /// Makes an office of its own, for a logic without a bridge.
    pub(super) fn new() -> Arc<Self> {
        let ledger = Arc::new(Ledger::new());
        Arc::new(Self { ledger, present: Mutex::default(), servers: Mutex::default() })
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
    /// the socket: one that runs already, for the present logic or another prepared one, or a new one.
    pub(super) fn prepare(
        &self,
        terms: &Terms,
        socket: Option<&Path>,
    ) -> Result<Option<Arc<Server>>, String> {
        let before = self.ledger.terms();
        let reservations = self.ledger.entries().len();
        if reservations > 0 && before.netns != terms.netns {
            return Err(format!(
                "parameter `netns` cannot change while there are reservations, here {reservations}, because their \
                 sockets are in the former namespace; release them first"
            ));
        }
        let Some(path) = socket else { return Ok(None) };
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = servers.iter().filter_map(Weak::upgrade).find(|server| server.path() == path);
        if known.is_some() {
            return Ok(known);
        }
        let server = Arc::new(Server::start(path, &terms.policy, self.ledger.clone())?);
        servers.retain(|server| server.strong_count() > 0);
        servers.push(Arc::downgrade(&server));
        Ok(Some(server))
    }

    /// Puts terms into effect, with the server that [`Office::prepare`] returned.
    pub(super) fn activate(&self, terms: Arc<Terms>, server: Option<Arc<Server>>) {
        if let Some(server) = &server {
            server.set_policy(&terms.policy);
        }
        self.ledger.set_terms(terms);
        // Dropping the last use of the former server ends its connections.
        *self.present.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.ledger.close();
    }
}
