//! All exports: the switch's, of every bridge without its own, and those of single bridges, which are sub-agents of one
//! agent with numbers and sequences of their own (sFlow version 5, 4.2.2).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::Switch;
use fabric::switch::BridgeId;

use super::{Report, Sflow};
use crate::model::Config;
use crate::reconcile::Action;
use crate::state::Bridges;

/// A change of an export and its result.
pub(crate) struct Changed {
    /// The bridge whose own export it is.
    pub(crate) bridge: Option<String>,
    pub(crate) action: Action,
    pub(crate) done: Result<(), String>,
}

/// sFlow export. See the module.
pub struct Exports {
    switch: Arc<Switch>,
    all: Sflow,
    own: Mutex<BTreeMap<String, Sflow>>,
}

impl Exports {
    /// Creates disabled exports.
    pub fn new(switch: Arc<Switch>) -> Self {
        Self { all: Sflow::new(switch.clone(), 0), switch, own: Mutex::default() }
    }

    fn own(&self) -> MutexGuard<'_, BTreeMap<String, Sflow>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of the switch's export; `None` if it is disabled.
    pub fn report(&self) -> Option<Report> {
        self.all.report()
    }

    /// Returns the number of observers of a bridge that are sFlow's. It does not change while the bridges are locked.
    pub fn observes(&self, bridge: &str, id: BridgeId) -> usize {
        self.all.observes(id) + self.own().get(bridge).map_or(0, |own| own.observes(id))
    }

    /// Applies the desired settings to these bridges. Returns what changed.
    pub(crate) fn follow(&self, wanted: &Config, bridges: &Bridges) -> Vec<Changed> {
        let settings = |name: &str| wanted.bridge(name).and_then(|bridge| bridge.sflow.as_ref());
        let mut changes = Vec::new();
        let mut note = |bridge: Option<&str>, change: Option<(Action, Result<(), String>)>| {
            let bridge = bridge.map(Into::into);
            changes.extend(change.map(|(action, done)| Changed { bridge, action, done }));
        };
        note(None, self.all.follow(wanted.sflow.as_ref(), bridges, |name| settings(name).is_none()));
        let mut own = self.own();
        own.retain(|name, export| {
            let stays = settings(name).is_some() && bridges.contains_key(name);
            if !stays {
                note(Some(name), export.follow(None, bridges, |_| false));
            }
            stays
        });
        for (name, bridge) in bridges {
            let Some(wanted) = settings(name) else { continue };
            // 0 is the switch.
            let new = || Sflow::new(self.switch.clone(), bridge.number + 1);
            let export = own.entry(name.clone()).or_insert_with(new);
            note(Some(name), export.follow(Some(wanted), bridges, |other| other == name));
        }
        changes
    }
}
