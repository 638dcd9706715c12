//! Replies about logics: the available types, and the state of a bridge's logic.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use fabric::{PortIndex, Switch};
use logic::{
    Counter, CounterDescription, Logic, LogicDescription, ParamDefault, ParamDescription, ParamKind, Table,
    TableDescription, TableSize,
};

use crate::refusal::Refusal;
use crate::state::Bridge;
use crate::{logics, openflow, p4, proto};

/// Describes the logic with this name, or all logics if the name is empty.
pub(crate) fn types(name: &str) -> Result<proto::LogicTypes, Refusal> {
    if !name.is_empty() {
        let found = logics::describe(name)?;
        return Ok(proto::LogicTypes { logics: vec![described(found)] });
    }
    let (files, singles): (Vec<&logic::Kind>, Vec<_>) = logics::KINDS.iter().partition(|kind| kind.is_file());
    let singles = singles.iter().filter_map(|kind| (kind.describe)(kind.prefix).ok());
    let built_in =
        logic::LIST.iter().map(|info| info.describe()).chain([openflow::describe(), p4::describe()]);
    let modules = files.iter().map(|kind| proto::LogicType {
        name: kind.label(),
        summary: kind.summary.into(),
        from_file: true,
        ..proto::LogicType::default()
    });
    let programs = proto::LogicType {
        name: format!("{}:FILE", p4::LOGIC),
        summary: "a P4 program".into(),
        from_file: true,
        ..proto::LogicType::default()
    };
    let files = modules.chain([programs]);
    Ok(proto::LogicTypes { logics: built_in.chain(singles).map(described).chain(files).collect() })
}

fn described(logic: LogicDescription) -> proto::LogicType {
    proto::LogicType {
        from_file: logic.name.contains(':'),
        name: logic.name,
        summary: logic.summary,
        params: logic.params.into_iter().map(param).collect(),
        commands: logic.commands.into_iter().map(command).collect(),
        counters: logic.counters.into_iter().map(counter).collect(),
        tables: logic.tables.into_iter().map(table).collect(),
    }
}

fn counter(counter: CounterDescription) -> proto::LogicCounterType {
    proto::LogicCounterType { name: counter.name, summary: counter.help }
}

fn table(table: TableDescription) -> proto::LogicTableType {
    let column = |(name, r#type)| proto::LogicColumn { name, r#type };
    proto::LogicTableType {
        name: table.name,
        key: table.key.into_iter().map(column).collect(),
        value: table.value.into_iter().map(column).collect(),
        key_bytes: table.lengths.0,
        value_bytes: table.lengths.1,
        capacity: table.capacity,
        expires: table.expires.unwrap_or_default(),
        hand_over: table.hand_over,
    }
}

fn command(command: logic::CommandInfo) -> proto::LogicCommand {
    proto::LogicCommand { name: command.name, usage: command.usage, summary: command.help }
}

fn param(param: ParamDescription) -> proto::LogicParam {
    let expected = param.kind.to_string();
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (min, max) = match &param.kind {
        ParamKind::Number { min, max, .. } => (Some(*min), Some(*max)),
        ParamKind::Duration { min, max } => (Some(ms(*min)), Some(ms(*max))),
        ParamKind::Text { max } => (None, Some(*max)),
        _ => (None, None),
    };
    proto::LogicParam {
        r#type: param.kind.name().into(),
        default: param.default.to_string(),
        required: param.default == ParamDefault::Required,
        unit: if let ParamKind::Number { unit, .. } = &param.kind { unit.clone() } else { String::new() },
        choices: if let ParamKind::Choice(words) = param.kind { words } else { Vec::new() },
        name: param.name,
        summary: param.help,
        any_name: param.any_name,
        expected,
        min,
        max,
    }
}

/// A logic and the names of its ports, to read its tables without a lock on the bridges.
pub(crate) struct LogicView {
    logic: Arc<dyn Logic>,
    ports: BTreeMap<PortIndex, String>,
    /// Packets originated on a timer that were dropped; `None` if the logic has no timer.
    undelivered: Option<u64>,
}

impl LogicView {
    /// Creates a view of a bridge's logic.
    pub(crate) fn of(bridge: &Bridge, switch: &Switch) -> Self {
        let ports = bridge.ports.iter().map(|(name, port)| (port.at.port, name.clone())).collect();
        let originated = bridge.logic.period().and_then(|_| switch.originated(bridge.id).ok());
        let undelivered = originated.map(|originated| originated.drops.iter().sum());
        Self { logic: bridge.logic.clone(), ports, undelivered }
    }

    /// Creates a view of a logic without a bridge.
    #[cfg(test)]
    pub(crate) fn alone(logic: Arc<dyn Logic>) -> Self {
        Self { logic, ports: BTreeMap::new(), undelivered: None }
    }

    /// Returns its counters without the statistics of its MAC table. Names are unique: Prometheus rejects a whole
    /// scrape with a duplicate.
    pub(crate) fn counters(&self) -> Vec<Counter> {
        let mut names = BTreeSet::new();
        let mut counters = self.logic.counters();
        counters.extend(self.undelivered());
        counters.retain(|counter| names.insert(counter.name.clone()));
        counters
    }

    /// Returns the sizes of its tables, with unique names.
    pub(crate) fn table_sizes(&self) -> Vec<TableSize> {
        let (mut sizes, mut names) = (self.logic.table_sizes(), BTreeSet::new());
        sizes.retain(|size| names.insert(size.name.clone()));
        sizes
    }

    /// Returns its state: one table or all of them, with up to `rows` rows each.
    pub(crate) fn show(
        &self,
        bridge: &str,
        table: Option<&str>,
        rows: usize,
    ) -> Result<proto::Logic, Refusal> {
        let mut tables = self.tables();
        if let Some(wanted) = table {
            let names: Vec<_> = tables.iter().map(|table| table.name.clone()).collect();
            tables.retain(|table| table.name == wanted);
            if tables.is_empty() {
                let known = match names.is_empty() {
                    true => "it has no tables".into(),
                    false => format!("its tables are {}", names.join(", ")),
                };
                return Err(Refusal::Other(format!(
                    "the logic of bridge \"{bridge}\", `{}`, has no table `{wanted}`; {known}",
                    self.logic.name()
                )));
            }
        }
        let table = |table: Table| proto::LogicTable {
            entries: table.rows.len() as u64,
            capacity: table.capacity,
            name: table.name,
            columns: table.columns,
            rows: table.rows.into_iter().take(rows).map(|cells| proto::LogicRow { cells }).collect(),
        };
        let counter = |counter: Counter| proto::LogicCounter {
            name: counter.name,
            summary: counter.help,
            value: counter.value,
        };
        Ok(proto::Logic {
            name: self.logic.name().into(),
            params: self.logic.params().into_iter().collect(),
            counters: self.station_counters().into_iter().chain(self.counters()).map(counter).collect(),
            tables: tables.into_iter().map(table).collect(),
            commands: self.logic.commands().into_iter().map(command).collect(),
            missing_ports: self.missing_ports(),
        })
    }

    /// Returns the ports that its parameters name but the bridge lacks.
    pub(crate) fn missing_ports(&self) -> Vec<String> {
        let there: BTreeSet<_> = self.ports.values().collect();
        let named: BTreeSet<_> = self.logic.named_ports().into_iter().collect();
        named.into_iter().filter(|port| !there.contains(port)).collect()
    }

    fn port(&self, port: PortIndex) -> Option<String> {
        self.ports.get(&port).cloned()
    }

    /// Returns the logics whose views are shown, each with the prefix of its names: the stages of a chain, or the logic
    /// itself.
    fn viewed(&self) -> Vec<(String, &dyn Logic)> {
        let stages = self.logic.stages();
        match stages.is_empty() {
            true => vec![(String::new(), &*self.logic)],
            false => stages.into_iter().map(|(n, logic)| (format!("stage{n}_"), logic)).collect(),
        }
    }

    /// Returns the statistics of its MAC tables. Metrics have their own names for these.
    fn station_counters(&self) -> Vec<Counter> {
        self.viewed().into_iter().flat_map(|(prefix, logic)| Self::counters_of(&prefix, logic)).collect()
    }

    fn counters_of(prefix: &str, logic: &dyn Logic) -> Vec<Counter> {
        let Some(stats) = logic.views().stations.map(logic::MacTable::stats) else { return Vec::new() };
        let counters = [
            ("learned", "stations learned", stats.learned),
            ("moved", "stations that moved to another port", stats.moved),
            ("evicted", "stations evicted to make room for others", stats.evicted),
            ("expired", "stations that expired", stats.expired),
            ("refused", "stations not learned because the table was full", stats.refused),
            (
                "limit-evicted",
                "stations evicted because their own port had reached its share of the table",
                stats.limit_evicted,
            ),
            (
                "limited",
                "stations not learned because their port had reached its share of the table",
                stats.limited,
            ),
            (
                "conflicts",
                "times that a station was heard at another port than the one that it belongs to",
                stats.conflicts,
            ),
        ];
        let counter = |(name, help, value): (&str, &str, _)| Counter {
            name: format!("{prefix}{name}"),
            help: help.into(),
            value,
        };
        counters.map(counter).into()
    }

    /// Returns the counter of packets originated on a timer that were dropped.
    fn undelivered(&self) -> Option<Counter> {
        let help = "packets originated on a timer that were dropped".to_owned();
        Some(Counter { name: "undelivered".into(), help, value: self.undelivered? })
    }

    /// Returns its tables: the standard ones, then its own.
    fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        for (prefix, logic) in self.viewed() {
            let own = self.stations(logic).into_iter().chain(self.groups(logic));
            tables.extend(own.map(|table| Table { name: format!("{prefix}{}", table.name), ..table }));
        }
        tables.extend(self.logic.tables());
        tables
    }

    fn stations(&self, logic: &dyn Logic) -> Option<Table> {
        let table = logic.views().stations?;
        let mut entries = table.entries();
        entries.sort_by_key(|entry| (entry.vid, entry.mac));
        let row = |entry: logic::FdbEntry| {
            let (age, kind) = match (entry.is_static, entry.is_sticky) {
                (true, _) => (String::new(), "static"),
                (_, true) => (String::new(), "sticky"),
                _ => (entry.age_seconds.to_string(), "learned"),
            };
            // Skip an entry whose port was just removed: the entry is about to be removed too.
            Some(vec![entry.vid.to_string(), entry.mac.to_string(), self.port(entry.port)?, age, kind.into()])
        };
        Some(Table {
            name: "stations".into(),
            columns: ["vlan", "mac", "port", "age", "kind"].map(str::to_owned).into(),
            rows: entries.into_iter().filter_map(row).collect(),
            capacity: table.capacity() as u64,
        })
    }

    fn groups(&self, logic: &dyn Logic) -> Option<Table> {
        let row = |entry: logic::GroupEntry| {
            let group = entry.group.map_or_else(|| "all".into(), |mac| mac.to_string());
            let version = if entry.version == packet::IpVersion::V4 { "ipv4" } else { "ipv6" };
            let expires = entry.expires_seconds.to_string();
            Some(vec![entry.vid.to_string(), group, version.into(), self.port(entry.port)?, expires])
        };
        Some(Table {
            name: "groups".into(),
            columns: ["vlan", "group", "family", "port", "expires"].map(str::to_owned).into(),
            rows: logic.views().groups?.entries().into_iter().filter_map(row).collect(),
            capacity: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use fabric::{Batch, SwitchLogic};
    use logic::MacTable;

    use super::*;

    /// A logic with counters, tables and a command.
    struct Probe;

    impl SwitchLogic for Probe {
        fn forward(&self, _: &mut Batch<'_>) {}
    }

    impl Logic for Probe {
        fn name(&self) -> &str {
            "probe"
        }

        fn params(&self) -> Vec<(String, String)> {
            vec![("rate".into(), "7".into())]
        }

        fn counters(&self) -> Vec<Counter> {
            let counter = |name: &str, value| Counter { name: name.into(), help: "packets".into(), value };
            vec![counter("seen", 1), counter("lost", 2), counter("seen", 3)]
        }

        fn tables(&self) -> Vec<Table> {
            let rows = |n: usize| (0..n).map(|i| vec![i.to_string()]).collect();
            let table = |name: &str, n| Table {
                name: name.into(),
                columns: vec!["n".into()],
                rows: rows(n),
                capacity: 9,
            };
            vec![table("few", 1), table("many", 5), table("few", 2)]
        }

        fn commands(&self) -> Vec<logic::CommandInfo> {
            let text = str::to_owned;
            vec![logic::CommandInfo { name: text("reset"), usage: text("[PORT]"), help: text("restarts") }]
        }
    }

    fn probe() -> LogicView {
        LogicView::alone(Arc::new(Probe))
    }

    #[test]
    fn the_whole_state_of_a_logic_is_shown() {
        let shown = probe().show("br0", None, 2).unwrap();
        assert_eq!((shown.name.as_str(), shown.params["rate"].as_str()), ("probe", "7"));
        let counters: Vec<_> = shown.counters.iter().map(|c| (c.name.as_str(), c.value)).collect();
        assert_eq!(counters, [("seen", 1), ("lost", 2)], "Prometheus rejects a scrape with duplicates");
        let tables: Vec<_> =
            shown.tables.iter().map(|t| (t.name.as_str(), t.rows.len(), t.entries)).collect();
        assert_eq!(tables, [("few", 1, 1), ("many", 2, 5), ("few", 2, 2)]);
        assert_eq!(shown.commands[0].usage, "[PORT]");
        let one = probe().show("br0", Some("many"), usize::MAX).unwrap();
        assert_eq!((one.tables.len(), one.tables[0].rows.len()), (1, 5));
        assert_eq!(one.tables[0].rows[4].cells, ["4"]);
    }

    #[test]
    fn an_unknown_table_is_refused_with_the_known_ones() {
        let error = probe().show("br0", Some("lots"), 2).unwrap_err().to_string();
        assert_eq!(
            error,
            "the logic of bridge \"br0\", `probe`, has no table `lots`; its tables are few, many, few"
        );
        let wires = logic::build("static", &[], &[]).unwrap();
        let error = LogicView::alone(wires).show("br0", Some("x"), 2).unwrap_err();
        assert!(error.to_string().ends_with("`static`, has no table `x`; it has no tables"), "{error}");
    }

    #[test]
    fn names_of_a_chain_begin_with_the_stage() {
        let stages = [("1", "static"), ("2", "learning snooping=on"), ("3", "learning")];
        let chain = logic::build("chain", &stages.map(|(k, v)| (k.into(), v.into())), &[]).unwrap();
        let shown = LogicView::alone(chain).show("br0", None, 9).unwrap();
        let tables: Vec<_> = shown.tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(tables, ["stage2_stations", "stage2_groups", "stage3_stations"]);
        let counters: Vec<_> = shown.counters.iter().map(|counter| counter.name.as_str()).collect();
        assert!(counters.contains(&"stage2_learned") && counters.contains(&"stage3_limit-evicted"));
        assert!(counters.iter().all(|name| name.starts_with("stage")), "{counters:?}");
    }

    #[test]
    fn table_sizes_match_the_tables() {
        let sizes: Vec<_> = LogicView::alone(Arc::new(Probe))
            .table_sizes()
            .into_iter()
            .map(|s| (s.name, s.entries, s.capacity))
            .collect();
        assert_eq!(sizes, [("few".into(), 1, 9), ("many".into(), 5, 9)]);
    }

    #[test]
    fn stations_and_groups_have_port_names() {
        let params = [("snooping".into(), "on".into())];
        let learning = logic::Learning::new(&params).unwrap();
        let fdb = learning.fdb();
        let mac = packet::ether::MacAddr([2, 0, 0, 0, 0, 1]);
        fdb.add_static(7, mac, PortIndex(1)).unwrap();
        fdb.learn(logic::Key::new(0, mac), PortIndex(0), fabric::clock::seconds());
        fdb.learn(logic::Key::new(8, mac), PortIndex(9), fabric::clock::seconds());
        let ports = [(PortIndex(0), "vm1".into()), (PortIndex(1), "host".into())].into();
        let shown =
            LogicView { logic: Arc::new(learning), ports, undelivered: None }.show("br0", None, 9).unwrap();
        let names: Vec<_> = shown.tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["stations", "groups"]);
        let rows: Vec<_> = shown.tables[0].rows.iter().map(|row| row.cells.join(" ")).collect();
        assert_eq!(rows[1], "7 02:00:00:00:00:01 host  static");
        assert!(rows[0].starts_with("0 02:00:00:00:00:01 vm1 ") && rows[0].ends_with(" learned"), "{rows:?}");
        assert_eq!(
            (rows.len(), shown.tables[0].capacity),
            (2, 8192),
            "an entry of a removed port is left out"
        );
        assert_eq!((shown.counters[0].name.as_str(), shown.counters[0].value), ("learned", 2));
    }
}
