//! The state of a bridge's controllers, for the table `Controller`.

use std::collections::BTreeMap;

use control::state::State;
use ofagent::ControllerState;
use openflow::message::Role;
use ovsdb::Uuid;

use crate::plan::Plan;

/// What is known of a controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ControllerFacts {
    pub(crate) is_connected: bool,
    pub(crate) role: Option<String>,
    pub(crate) status: BTreeMap<String, String>,
}

/// Returns the facts about the controllers of a plan, by row.
pub(crate) fn of(plan: &Plan, state: &State) -> BTreeMap<Uuid, ControllerFacts> {
    let bridges = state.bridges();
    let mut all = BTreeMap::new();
    for bridge in &plan.bridges {
        let states = bridges.get(&bridge.name).map(|running| running.controllers()).unwrap_or_default();
        for controller in &bridge.controllers {
            let facts = match &controller.target {
                Ok(target) => states.iter().find(|state| state.target == *target).map(facts),
                Err(error) => Some(failed(error)),
            };
            all.insert(controller.uuid, facts.unwrap_or_default());
        }
    }
    all
}

fn failed(error: &str) -> ControllerFacts {
    let status = [("state", "VOID"), ("last_error", error)];
    let status = status.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    ControllerFacts { status, ..ControllerFacts::default() }
}

fn facts(state: &ControllerState) -> ControllerFacts {
    let peer = state.connections.iter().find(|peer| peer.version.is_some());
    let role = peer.map(|peer| match peer.role {
        Role::Primary => "master",
        Role::Secondary => "slave",
        Role::Equal | Role::NoChange => "other",
    });
    let mut status = BTreeMap::new();
    let mut put = |key: &str, value: String| status.insert(key.to_owned(), value);
    match peer {
        Some(peer) => {
            put("state", "ACTIVE".into());
            put("sec_since_connect", peer.since.as_secs().to_string());
        }
        None => {
            put("state", if state.target.is_passive() { "LISTENING" } else { "BACKOFF" }.into());
            put("sec_since_disconnect", state.since.as_secs().to_string());
        }
    }
    if let Some(error) = &state.last_error {
        put("last_error", error.clone());
    }
    ControllerFacts { is_connected: peer.is_some(), role: role.map(Into::into), status }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ofagent::PeerState;
    use openflow::Version;

    use super::*;

    #[test]
    fn a_controller_is_connected_once_it_has_said_hello() {
        let peer = |version| PeerState {
            peer: "tcp:127.0.0.1:6653".into(),
            version,
            role: Role::Primary,
            since: Duration::from_millis(2900),
            dropped: 0,
        };
        let state = |version| ControllerState {
            target: "tcp:127.0.0.1".parse().unwrap(),
            address: None,
            connections: vec![peer(version)],
            last_error: Some("refused".into()),
            since: Duration::from_secs(7),
            refused: 0,
        };
        let map = |entries: &[(&str, &str)]| {
            entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(
            facts(&state(Some(Version::V1_3))),
            ControllerFacts {
                is_connected: true,
                role: Some("master".into()),
                status: map(&[("state", "ACTIVE"), ("sec_since_connect", "2"), ("last_error", "refused")]),
            }
        );
        assert_eq!(
            facts(&state(None)),
            ControllerFacts {
                is_connected: false,
                role: None,
                status: map(&[
                    ("state", "BACKOFF"),
                    ("sec_since_disconnect", "7"),
                    ("last_error", "refused")
                ]),
            }
        );
    }
}
