//! Controllers and OpenFlow settings of a bridge, from its row and the rows that it refers to.
//!
//! Invariant: whatever the rows hold, the settings are ones that the model accepts; what is left out is said of its
//! controller.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use control::openflow::OpenFlowConfig;
use control::openflow::settings::{
    DatapathId, MAX_CONTROLLERS, check_backoff, check_probe, parse_table_name, parse_table_number,
};
use ofagent::{FailMode, Target};
use ofswitch::TableLimit;
use openflow::Version;
use ovsdb::Uuid;
use ovsdb::vswitch::{Bridge, Controller, FlowTable, SSL};

/// Names of versions in `Bridge.protocols`.
const PROTOCOLS: [(&str, Version); 6] = [
    ("OpenFlow10", Version::V1_0),
    ("OpenFlow11", Version::V1_1),
    ("OpenFlow12", Version::V1_2),
    ("OpenFlow13", Version::V1_3),
    ("OpenFlow14", Version::V1_4),
    ("OpenFlow15", Version::V1_5),
];

/// A controller of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedController {
    pub(crate) uuid: Uuid,
    /// The target, or why there is none.
    pub(crate) target: Result<Target, String>,
}

/// Rows that bridges refer to.
#[derive(Debug, Default)]
pub(super) struct OpenFlowRows {
    pub(super) controllers: BTreeMap<Uuid, Controller>,
    pub(super) flow_tables: BTreeMap<Uuid, FlowTable>,
    pub(super) ssl: Option<SSL>,
    /// Seconds after which an unused bundle is discarded.
    pub(super) bundle_idle: Option<u32>,
}

impl OpenFlowRows {
    /// Returns the controllers of a bridge and its OpenFlow settings. Sockets of controllers are in `rundir` only.
    pub(super) fn settings(
        &self,
        bridge: &Bridge,
        datapath_id: DatapathId,
        rundir: &Path,
    ) -> (Vec<PlannedController>, OpenFlowConfig) {
        let rows: Vec<_> = bridge.controller.iter().filter_map(|uuid| self.controllers.get(uuid)).collect();
        let mut targets: Vec<Target> = Vec::new();
        let mut controllers = Vec::new();
        for row in &rows {
            let target = match target(&row.target, rundir) {
                Ok(target) if target.is_tls() && self.ssl.is_none() => {
                    Err(format!("`{target}` needs files: ovs-vsctl set-ssl PRIVATE-KEY CERTIFICATE CA-CERT"))
                }
                Ok(target) if targets.contains(&target) => Ok(target),
                Ok(_) if targets.len() == MAX_CONTROLLERS => {
                    Err(format!("a bridge has at most {MAX_CONTROLLERS} controllers"))
                }
                Ok(target) => {
                    targets.push(target.clone());
                    Ok(target)
                }
                Err(error) => Err(error),
            };
            controllers.push(PlannedController { uuid: row.uuid, target });
        }
        let defaults = OpenFlowConfig::default();
        let secure = bridge.fail_mode.as_deref() == Some("secure");
        let planned = rows.iter().zip(&controllers);
        let has_unusable = planned.into_iter().any(|(row, it)| it.target.is_err() && is_active(&row.target));
        let config = OpenFlowConfig {
            controllers: targets,
            has_unusable,
            fail_mode: if secure { FailMode::Secure } else { FailMode::Standalone },
            versions: versions(bridge).unwrap_or_else(|| defaults.versions.clone()),
            datapath_id: Some(datapath_id),
            probe: probe(&rows, defaults.probe),
            max_backoff: max_backoff(&rows, defaults.max_backoff),
            flush_flows: true,
            tables: self.tables(bridge),
            table_limits: self.table_limits(bridge),
            bundle_idle: self.bundle_idle.unwrap_or(defaults.bundle_idle),
            ageing: super::learning::ageing(bridge),
            stations: super::learning::stations(bridge),
            snooping: super::learning::snooping(bridge),
            // As in Open vSwitch, controllers get packets whole.
            buffers: false,
            tls: self.ssl.as_ref().map_or([None, None, None], |ssl| {
                [&ssl.private_key, &ssl.certificate, &ssl.ca_cert].map(|file| Some(file.into()))
            }),
            ..defaults
        };
        (controllers, config)
    }

    /// Returns sizes of tables.
    fn table_limits(&self, bridge: &Bridge) -> BTreeMap<u8, TableLimit> {
        let limit = |(number, row): (&i64, &Uuid)| {
            let row = self.flow_tables.get(row)?;
            let flows = row.flow_limit.and_then(|limit| u32::try_from(limit).ok());
            let evicts = row.overflow_policy.as_deref() == Some("evict");
            let limit = TableLimit { flows, evicts, groups: row.groups.iter().cloned().collect() };
            let number = u8::try_from(*number).ok()?;
            (limit != TableLimit::default()).then_some((number, limit))
        };
        bridge.flow_tables.iter().filter_map(limit).collect()
    }

    /// Returns names of tables. Of two tables with the same name, the first has it.
    fn tables(&self, bridge: &Bridge) -> BTreeMap<u8, String> {
        let mut names: BTreeMap<u8, String> = BTreeMap::new();
        for (number, row) in &bridge.flow_tables {
            let name = self.flow_tables.get(row).and_then(|row| row.name.as_deref());
            let number = parse_table_number(&number.to_string());
            if let (Ok(number), Some(Ok(name))) = (number, name.map(parse_table_name))
                && !names.values().any(|other| *other == name)
            {
                names.insert(number, name);
            }
        }
        names
    }
}

/// Returns the versions that controllers may choose from; `None` for the default.
fn versions(bridge: &Bridge) -> Option<Vec<Version>> {
    let named = |name: &str| bridge.protocols.iter().any(|protocol| protocol == name);
    let versions: Vec<_> = PROTOCOLS.iter().filter(|(name, _)| named(name)).map(|(_, it)| *it).collect();
    (!versions.is_empty()).then_some(versions)
}

/// Returns the seconds of silence after which controllers are probed: those of the most impatient controller.
fn probe(controllers: &[&Controller], default: u32) -> u32 {
    let seconds = controllers.iter().filter_map(|row| row.inactivity_probe).filter_map(seconds);
    let probes: Vec<_> = seconds.filter_map(|seconds| check_probe(seconds).ok()).collect();
    probes.iter().copied().filter(|probe| *probe > 0).min().or(probes.first().copied()).unwrap_or(default)
}

/// Returns the longest delay in seconds before controllers are called again: that of the most impatient controller.
fn max_backoff(controllers: &[&Controller], default: u32) -> u32 {
    let seconds = controllers.iter().filter_map(|row| row.max_backoff).filter_map(seconds);
    seconds.filter_map(|seconds| check_backoff(seconds.max(1)).ok()).min().unwrap_or(default)
}

/// Returns seconds, rounded up; `None` for less than none.
fn seconds(milliseconds: i64) -> Option<i64> {
    u64::try_from(milliseconds).ok().and_then(|count| i64::try_from(count.div_ceil(1000)).ok())
}

/// Returns whether an address, right or not, is that of a controller to connect to.
fn is_active(target: &str) -> bool {
    target.split_once(':').is_some_and(|(kind, _)| ["tcp", "ssl", "unix"].contains(&kind))
}

/// Parses a controller's address. As in Open vSwitch, sockets are in the run directory, so that whoever may change the
/// database cannot reach other sockets of the host.
fn target(text: &str, rundir: &Path) -> Result<Target, String> {
    let target: Target = text.parse().map_err(|error: ofagent::TargetError| error.to_string())?;
    let inside = |path: &Path| {
        let path = rundir.join(path);
        let rest = path.strip_prefix(rundir).ok();
        let plain =
            rest.is_some_and(|rest| rest.components().all(|part| matches!(part, Component::Normal(_))));
        let name = path.display();
        plain
            .then(|| path.clone())
            .ok_or_else(|| format!("`{name}` is not in the run directory {}", rundir.display()))
    };
    match target {
        Target::Unix(path) => inside(&path).map(Target::Unix),
        Target::Punix(path) => inside(&path).map(Target::Punix),
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNDIR: &str = "/run/openvswitch";

    fn controller(number: u8, target: &str, probe: Option<i64>, backoff: Option<i64>) -> Controller {
        let uuid = Uuid([number; 16]);
        let target = target.into();
        Controller { uuid, target, inactivity_probe: probe, max_backoff: backoff, ..Controller::default() }
    }

    fn settings(controllers: Vec<Controller>, bridge: Bridge) -> (Vec<PlannedController>, OpenFlowConfig) {
        let bridge = Bridge { controller: controllers.iter().map(|row| row.uuid).collect(), ..bridge };
        let controllers = controllers.into_iter().map(|row| (row.uuid, row)).collect();
        let rows = OpenFlowRows { controllers, ..OpenFlowRows::default() };
        rows.settings(&bridge, DatapathId(7), Path::new(RUNDIR))
    }

    #[test]
    fn a_bridge_without_settings_learns_and_speaks_all_versions() {
        let (controllers, config) = settings(vec![], Bridge::default());
        assert_eq!(controllers, []);
        let defaults = OpenFlowConfig::default();
        assert_eq!(
            config,
            OpenFlowConfig {
                datapath_id: Some(DatapathId(7)),
                flush_flows: true,
                buffers: false,
                ..defaults
            }
        );
        assert_eq!((config.fail_mode, config.versions.len()), (FailMode::Standalone, 6));
    }

    #[test]
    fn controllers_protocols_and_times_are_read() {
        let bridge = Bridge {
            fail_mode: Some("secure".into()),
            protocols: ["OpenFlow13", "OpenFlow10", "OpenFlow99"].map(String::from).into(),
            ..Bridge::default()
        };
        let rows = vec![
            controller(1, "tcp:127.0.0.1:6653", Some(0), Some(1000)),
            controller(2, "ptcp:6634", Some(2500), None),
            controller(3, "unix:sock", None, Some(-5)),
        ];
        let (controllers, config) = settings(rows, bridge);
        assert_eq!(config.fail_mode, FailMode::Secure);
        assert_eq!(config.versions, [Version::V1_0, Version::V1_3]);
        assert_eq!((config.probe, config.max_backoff), (3, 1));
        let targets: Vec<_> = config.controllers.iter().map(Target::to_string).collect();
        assert_eq!(targets, ["tcp:127.0.0.1:6653", "ptcp:6634", "unix:/run/openvswitch/sock"]);
        assert!(controllers.iter().all(|controller| controller.target.is_ok()), "{controllers:?}");
        let never = settings(vec![controller(1, "tcp:127.0.0.1", Some(0), None)], Bridge::default()).1;
        assert_eq!(never.probe, 0);
    }

    #[test]
    fn controllers_that_cannot_be_used_say_why() {
        for (target, reason) in [
            ("udp:1.2.3.4", "`udp:1.2.3.4` starts with no known kind"),
            ("unix:/etc/x", "`/etc/x` is not in the run directory /run/openvswitch"),
            ("punix:../x", "`/run/openvswitch/../x` is not in the run directory /run/openvswitch"),
            ("ssl:127.0.0.1", "`ssl:127.0.0.1:6653` needs files: ovs-vsctl set-ssl"),
        ] {
            let (controllers, config) = settings(vec![controller(1, target, None, None)], Bridge::default());
            let error = controllers.first().unwrap().target.clone().unwrap_err();
            assert!(error.starts_with(reason), "{error}");
            assert_eq!(config.controllers, []);
            let is_active = target.starts_with("unix:") || target.starts_with("ssl:");
            assert_eq!((config.has_unusable, config.has_active()), (is_active, is_active), "{target}");
        }
        let many = (0..20).map(|at| controller(at, &format!("ptcp:{}", 7000 + u16::from(at)), None, None));
        let (controllers, config) = settings(many.collect(), Bridge::default());
        assert_eq!((controllers.len(), config.controllers.len()), (20, MAX_CONTROLLERS));
        let last = controllers.last().unwrap().target.clone().unwrap_err();
        assert_eq!(last, "a bridge has at most 16 controllers");
    }

    #[test]
    fn tables_have_names() {
        let table = |number: u8, name: &str| {
            let uuid = Uuid([number; 16]);
            (uuid, FlowTable { uuid, name: Some(name.into()), ..FlowTable::default() })
        };
        let rows = [table(1, "acl"), table(2, "acl"), table(3, "not a name")];
        let numbers = [(0, 1), (1, 2), (2, 3), (300, 1)];
        let flow_tables = numbers.map(|(number, row): (i64, u8)| (number, Uuid([row; 16]))).into();
        let rows = OpenFlowRows { flow_tables: rows.into(), ..OpenFlowRows::default() };
        let bridge = Bridge { flow_tables, ..Bridge::default() };
        let config = rows.settings(&bridge, DatapathId(7), Path::new(RUNDIR)).1;
        assert_eq!(config.tables, [(0, "acl".to_owned())].into());
    }
}
