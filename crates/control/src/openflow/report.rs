//! A bridge's OpenFlow connections in replies.

use ofagent::{ControllerState, PeerState};
use ofswitch::{Limit, PerWhat};
use openflow::message::Role;

use super::running::Running;
use super::settings::{fail_mode_name, version_name};
use crate::proto;

impl Running {
    /// Returns the state of the bridge's connections.
    pub(crate) fn report(&self) -> proto::OpenFlow {
        let config = self.applied();
        let mut controllers = self.controllers();
        controllers.sort_by_cached_key(|controller| controller.target.to_string());
        let mut ports: Vec<_> =
            self.logic().ports().into_iter().map(|port| (port.number, port.name)).collect();
        ports.sort();
        let (flows, tables) =
            self.logic().switch().with(|switch, _| (switch.flow_count() as u64, switch.table_names()));
        let shown =
            |path: Option<std::path::PathBuf>| path.map_or(String::new(), |path| path.display().to_string());
        proto::OpenFlow {
            datapath_id: self.datapath_id().to_string(),
            versions: config.versions.iter().copied().map(version_name).collect(),
            fail_mode: fail_mode_name(config.fail_mode).into(),
            standalone: self.logic().is_standalone(),
            management: shown(self.management()),
            snoop: shown(self.snoop()),
            flows,
            kept: shown(self.kept()),
            controllers: controllers.into_iter().map(controller).collect(),
            ports: ports
                .into_iter()
                .map(|(number, name)| proto::OpenFlowPort { name, number: number.0 })
                .collect(),
            tables: tables
                .into_iter()
                .map(|(number, name)| proto::OpenFlowTable { number: number.into(), name })
                .collect(),
            limits: self.limits().into_iter().map(limit).collect(),
        }
    }
}

fn limit(limit: Limit) -> proto::OpenFlowLimit {
    let per = match limit.per {
        PerWhat::Bridge => "bridge",
        PerWhat::Table => "table",
        PerWhat::Group => "group",
        PerWhat::Meter => "meter",
        PerWhat::Connection => "connection",
        PerWhat::Bundle => "bundle",
        PerWhat::Worker => "worker",
    };
    proto::OpenFlowLimit {
        name: limit.name.into(),
        per: per.into(),
        used: limit.used,
        most: limit.most,
        bytes: limit.is_bytes,
    }
}

fn controller(state: ControllerState) -> proto::OpenFlowController {
    proto::OpenFlowController {
        connected: state.is_connected(),
        target: state.target.to_string(),
        listens: state.address.map_or(String::new(), |address| address.to_string()),
        connections: state.connections.into_iter().map(peer).collect(),
        last_error: state.last_error.unwrap_or_default(),
        since_seconds: state.since.as_secs_f64(),
        refused: state.refused,
    }
}

fn peer(peer: PeerState) -> proto::OpenFlowPeer {
    let role = match peer.role {
        Role::Primary => "primary",
        Role::Secondary => "secondary",
        Role::Equal | Role::NoChange => "equal",
    };
    proto::OpenFlowPeer {
        peer: peer.peer,
        version: peer.version.map(version_name).unwrap_or_default(),
        role: role.into(),
        since_seconds: peer.since.as_secs_f64(),
        dropped: peer.dropped,
    }
}
