//! Builds replies from the state of the switch.

use std::collections::BTreeMap;

use fabric::counters::{DropReason, QueueSnapshot};
use fabric::switch::{Assignment, PortRef, PortSnapshot, WorkerReport};
use fabric::{EgressQueueSnapshot, Mirror, MirrorSnapshot};
use ports::Link;
use ports::faults::Summary;

use crate::desired::Applied;
use crate::diff::{Difference, KeyChange, Object};
use crate::direction;
use crate::events::nanoseconds;
use crate::mirror::{MirrorError, parse_vlan};
use crate::model::format_admin;
use crate::reconcile::Outcome;
use crate::refusal::Refusal;
use crate::sflow::{CollectorReport, Report};
use crate::state::{Bridge, Bridges, Port, State, every};
use crate::{options, protection, proto};

/// Builds the reply for a port.
pub fn port(
    state: &State,
    bridges: &Bridges,
    bridge: &str,
    name: &str,
    port: &Port,
) -> Result<proto::Port, Refusal> {
    let settings = &port.config.settings;
    let counters = state.switch().counters(port.at)?;
    let status = port.status();
    let (link, reason) = link(settings.admin_up, status.link);
    let stations = bridges.get(bridge).and_then(|bridge| stations(bridge, port));
    let mirrors = bridges.get(bridge).map(|bridge| bridge.mirrors.as_slice()).unwrap_or_default();
    let mirror = mirrors.iter().find(|mirror| mirror.owns(name));
    let details = status.details.into_iter().chain(stations);
    Ok(proto::Port {
        bridge: bridge.into(),
        name: name.into(),
        r#type: port.config.spec.type_name().into(),
        index: port.at.port.0.into(),
        admin: format_admin(settings.admin_up).into(),
        link: link.into(),
        reason,
        mtu: settings.mtu,
        vlan: settings.vlan.to_string(),
        options: options::to_text(&port.config.spec),
        protection: protection::given(settings),
        details: details.map(|(name, value)| proto::Detail { name, value }).collect(),
        totals: Some(totals(std::slice::from_ref(&counters))),
        rx_queues: counters.rx.iter().map(queue).collect(),
        tx_queues: counters.tx.iter().map(queue).collect(),
        faults: port.open.as_ref().and_then(|open| open.faults()?.summary()).map(faults),
        mirror: mirror.map(|mirror| mirror.name.clone()).unwrap_or_default(),
        classes: counters.egress.iter().map(class).collect(),
    })
}

fn faults(summary: Summary) -> proto::PortFaults {
    let last = summary.last;
    proto::PortFaults {
        total: summary.total,
        at_unix_nanoseconds: nanoseconds(last.at),
        client: last.client,
        kind: last.kind.name().into(),
        reason: last.reason,
        limit: last.limit.map(|limit| limit.to_string()).unwrap_or_default(),
        hold_off_seconds: summary.hold_off.as_secs_f64(),
    }
}

/// Returns the number of stations at a port, with its limit, as a detail.
fn stations(bridge: &Bridge, port: &Port) -> Option<(String, String)> {
    let table = bridge.logic.views().stations?;
    let limit = port.config.settings.security.max_stations.unwrap_or(table.port_limit());
    Some(("stations".into(), format!("{} of at most {limit}", table.stations_at(port.at.port))))
}

/// Returns the state of the link, and the reason if it is down.
fn link(admin_up: bool, link: Link) -> (&'static str, String) {
    match link {
        _ if !admin_up => ("down", "set down by the administrator".into()),
        Link::Up => ("up", String::new()),
        Link::Down(reason) => ("down", reason),
    }
}

/// Builds the reply for a bridge.
pub fn bridge(state: &State, name: &str, bridge: &Bridge) -> Result<proto::Bridge, Refusal> {
    let mut counters = Vec::new();
    let mut up = 0;
    for port in bridge.ports.values() {
        counters.push(state.switch().counters(port.at)?);
        up += u32::from(down_reason(port).is_none());
    }
    let stations = bridge.logic.views().stations;
    Ok(proto::Bridge {
        name: name.into(),
        logic: Some(logic(bridge)),
        ports: bridge.ports.len() as u32,
        ports_up: up,
        fdb_entries: stations.map(|table| table.len() as u64),
        fdb: stations.map(|table| {
            let stats = table.stats();
            proto::FdbStats {
                learned: stats.learned,
                moved: stats.moved,
                evicted: stats.evicted,
                expired: stats.expired,
                refused: stats.refused,
                limit_evicted: stats.limit_evicted,
                limited: stats.limited,
                conflicts: stats.conflicts,
            }
        }),
        totals: Some(totals(&counters)),
        stuck: stuck(state, Some(name)),
        module_faults: module_faults(name, bridge).collect(),
        owner: bridge.owner.name().into(),
        unmet: unmet(state, Some(name)),
        observers: state
            .switch()
            .observers(bridge.id)?
            .saturating_sub(state.sflow().observes(name, bridge.id) + state.accounting().observes(name))
            as u32,
    })
}

/// Returns the stuck modules of a bridge, or of all bridges: in batches, then in other calls.
pub fn stuck(state: &State, bridge: Option<&str>) -> Vec<proto::StuckModule> {
    let (batches, calls) = (state.stuck(), modules::late_calls());
    let mut stuck: Vec<proto::StuckModule> = batches.iter().map(Into::into).collect();
    stuck.extend(calls.iter().map(proto::StuckModule::from));
    stuck.retain(|stuck| bridge.is_none_or(|bridge| stuck.bridge == bridge));
    stuck
}

/// Returns the modules of a bridge that have failed since its logic was set.
fn module_faults(name: &str, bridge: &Bridge) -> impl Iterator<Item = proto::ModuleFaults> {
    bridge.logic.faults().into_iter().map(move |faults| proto::ModuleFaults::of(name, faults))
}

fn logic(bridge: &Bridge) -> proto::Logic {
    let (name, params) = (bridge.logic.name().into(), bridge.logic.params().into_iter().collect());
    proto::Logic { name, params, ..proto::Logic::default() }
}

/// Builds the reply for a bridge's multicast groups.
pub fn groups(name: &str, bridge: &Bridge) -> Result<proto::Groups, Refusal> {
    let groups = bridge.logic.views().groups.ok_or_else(|| {
        Refusal::Other(format!(
            "bridge \"{name}\" does not snoop IGMP and MLD; `mswitch logic set {name} learning --param snooping=on` \
             enables snooping"
        ))
    })?;
    let entries = groups.entries().into_iter().filter_map(|entry| {
        // Skip an entry whose port was just removed: the entry is about to be removed too.
        let (port, _) = bridge.ports.iter().find(|(_, port)| port.at.port == entry.port)?;
        Some(proto::Group {
            mac: entry.group.map(|mac| mac.to_string()).unwrap_or_default(),
            family: if entry.version == packet::IpVersion::V4 { "ipv4" } else { "ipv6" }.into(),
            vlan: entry.vid.into(),
            port: port.clone(),
            expires_seconds: entry.expires_seconds,
        })
    });
    Ok(proto::Groups { entries: entries.collect() })
}

/// Returns the reason why a port is down; `None` if it is up.
pub fn down_reason(port: &Port) -> Option<String> {
    let (link, reason) = link(port.config.settings.admin_up, port.status().link);
    (link == "down").then_some(reason)
}

/// Returns the objects that do not run as configured, of a bridge or of all bridges.
fn unmet(state: &State, bridge: Option<&str>) -> Vec<proto::Unmet> {
    let unmet = state.unmet().into_iter();
    let unmet = unmet.filter(|(object, _)| bridge.is_none_or(|bridge| object.bridge() == Some(bridge)));
    unmet.map(|(object, reason)| proto::Unmet { object: object.to_string(), reason }).collect()
}

/// Builds the status of bridges, ports and workers.
pub fn status(state: &State, bridges: &Bridges) -> Result<proto::Status, Refusal> {
    let mut down = Vec::new();
    let mut counters = Vec::new();
    for (bridge, name, port) in every(bridges) {
        counters.push(state.switch().counters(port.at)?);
        if let Some(reason) = down_reason(port) {
            down.push(proto::DownPort { bridge: bridge.into(), port: name.into(), reason });
        }
    }
    let ports = counters.len();
    counters.push(state.removed());
    Ok(proto::Status {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        bridges: bridges.len() as u32,
        ports: ports as u32,
        ports_up: (ports - down.len()) as u32,
        down,
        workers: workers(state, bridges),
        stuck: stuck(state, None),
        module_faults: bridges.iter().flat_map(|(name, bridge)| module_faults(name, bridge)).collect(),
        unmet: unmet(state, None),
        totals: Some(totals(&counters)),
        ..proto::Status::default()
    })
}

/// Builds the reply for sFlow export; `None` means that it is disabled.
pub fn sflow(report: Option<Report>) -> proto::Sflow {
    let Some(report) = report else { return proto::Sflow::default() };
    let collector = |collector: &CollectorReport| proto::SflowCollector {
        address: collector.collector.to_string(),
        datagrams: collector.datagrams,
        errors: collector.errors,
        last_error: collector.last.as_ref().map(|(message, _)| message.clone()).unwrap_or_default(),
        seconds_since_error: collector.last.as_ref().map(|(_, at)| at.elapsed().as_secs()),
    };
    proto::Sflow {
        enabled: true,
        collectors: report.collectors.iter().map(collector).collect(),
        agent: report.agent.map(|agent| agent.to_string()).unwrap_or_default(),
        agent_set: report.config.agent.is_some(),
        sampling: report.config.sampling,
        polling: report.config.polling,
        header: report.config.header,
        samples: report.samples,
        counter_samples: report.counter_samples,
        dropped: report.dropped,
        ports: report
            .ports
            .into_iter()
            .map(|(if_index, bridge, port)| proto::SflowPort { if_index, bridge, port })
            .collect(),
    }
}

/// Builds the reply for the changes that a whole configuration made or would make.
pub fn applied(applied: &Applied, file_notes: Vec<String>) -> proto::Applied {
    proto::Applied {
        differences: differences(&applied.differences),
        outcomes: applied.outcomes.iter().map(outcome).collect(),
        notes: [applied.notes(), file_notes].concat(),
    }
}

/// Returns the name of a port; empty for other objects.
pub(crate) fn port_of(object: &Object) -> String {
    match object {
        Object::Port { port, .. } => port.clone(),
        _ => String::new(),
    }
}

/// Converts the changes of keys.
pub(crate) fn key_changes(changes: &[KeyChange]) -> Vec<proto::KeyChange> {
    let change = |change: &KeyChange| {
        let KeyChange { key, from, to, default } = change.clone();
        proto::KeyChange { key, from, to, default }
    };
    changes.iter().map(change).collect()
}

/// Converts differences.
pub(crate) fn differences(found: &[Difference]) -> Vec<proto::Difference> {
    found.iter().map(difference).collect()
}

fn difference(difference: &Difference) -> proto::Difference {
    proto::Difference {
        object: difference.object.to_string(),
        bridge: difference.object.bridge().unwrap_or_default().into(),
        port: port_of(&difference.object),
        kind: difference.kind.name().into(),
        keys: key_changes(&difference.keys),
    }
}

fn outcome(outcome: &Outcome) -> proto::Outcome {
    proto::Outcome {
        object: outcome.object.to_string(),
        bridge: outcome.object.bridge().unwrap_or_default().into(),
        port: port_of(&outcome.object),
        action: outcome.action.name().into(),
        trouble: outcome.trouble.clone().unwrap_or_default(),
    }
}

/// Builds the replies for the workers.
pub fn workers(state: &State, bridges: &Bridges) -> Vec<proto::Worker> {
    let names: BTreeMap<PortRef, (&str, &str)> =
        every(bridges).map(|(bridge, name, port)| (port.at, (bridge, name))).collect();
    (0u32..).zip(state.switch().workers()).map(|(index, report)| worker(index, &report, &names)).collect()
}

fn worker(index: u32, report: &WorkerReport, names: &BTreeMap<PortRef, (&str, &str)>) -> proto::Worker {
    let queues = report.queues.iter().filter_map(|queue| {
        let (bridge, port) = names.get(&queue.port)?;
        Some(proto::WorkerQueue {
            bridge: (*bridge).into(),
            port: (*port).into(),
            queue: queue.queue.into(),
            busy_cycles: queue.cycles,
            pinned: queue.assignment == Assignment::Pinned,
            reason: assignment(queue.assignment),
        })
    });
    let mut worker = proto::Worker {
        index,
        cpu: report.cpu.and_then(|cpu| u32::try_from(cpu).ok()),
        node: report.node.and_then(|node| u32::try_from(node).ok()),
        queues: queues.collect(),
        packets: report.counters.packets,
        batches: report.counters.batches,
        busy_cycles: report.counters.busy_cycles,
        elapsed_cycles: report.elapsed_cycles,
        wakeups: report.counters.wakeups,
        notifications: report.counters.notifications,
        relieved: report.counters.relieved,
        ..proto::Worker::default()
    };
    worker.derive();
    worker
}

/// Describes why a worker has a receive queue.
fn assignment(assignment: Assignment) -> String {
    match assignment {
        Assignment::Fewest => "had fewest queues".into(),
        Assignment::Near => "near to its memory or device".into(),
        Assignment::Moved { from, busy } => {
            format!("moved from {}, which was {busy} % busy", cpu_name(from))
        }
        Assignment::WorkerRemoved { cpu } => {
            format!("moved when the worker on {} was removed", cpu_name(cpu))
        }
        Assignment::Pinned => "pinned".into(),
        Assignment::Unpinned => "was pinned".into(),
    }
}

/// Returns `CPU 3`.
pub fn cpu_name(cpu: Option<usize>) -> String {
    cpu.map_or_else(|| "any CPU".into(), |cpu| format!("CPU {cpu}"))
}

impl proto::Workers {
    /// Returns the difference from an earlier report, worker by worker.
    pub fn since(&self, earlier: &proto::Workers) -> Vec<proto::Worker> {
        let key = |queue: &proto::WorkerQueue| (queue.bridge.clone(), queue.port.clone(), queue.queue);
        // Queues may have moved from one worker to another.
        let before: BTreeMap<_, _> = (earlier.workers.iter())
            .flat_map(|worker| &worker.queues)
            .map(|queue| (key(queue), queue.busy_cycles))
            .collect();
        let mut workers: Vec<_> =
            self.workers.iter().map(|now| now.since(earlier.workers.get(now.index as usize))).collect();
        for queue in workers.iter_mut().flat_map(|worker| &mut worker.queues) {
            let then = before.get(&key(queue)).copied().unwrap_or_default();
            queue.busy_cycles = queue.busy_cycles.saturating_sub(then);
        }
        workers
    }
}

impl proto::Worker {
    /// Computes the values derived from the counters.
    fn derive(&mut self) {
        let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        self.busy_share = ratio(self.busy_cycles, self.elapsed_cycles);
        self.packets_per_batch = ratio(self.packets, self.batches);
        self.cycles_per_packet = ratio(self.busy_cycles, self.packets);
    }

    /// Returns the difference from an earlier report of the same worker, `None` before it was added.
    pub fn since(&self, earlier: Option<&proto::Worker>) -> proto::Worker {
        // One that was removed meanwhile, and another one added, counts from 0 again.
        let again = |earlier: &&proto::Worker| earlier.elapsed_cycles <= self.elapsed_cycles;
        let earlier = earlier.filter(again).cloned().unwrap_or_default();
        let mut worker = proto::Worker {
            packets: self.packets.saturating_sub(earlier.packets),
            batches: self.batches.saturating_sub(earlier.batches),
            busy_cycles: self.busy_cycles.saturating_sub(earlier.busy_cycles),
            elapsed_cycles: self.elapsed_cycles.saturating_sub(earlier.elapsed_cycles),
            wakeups: self.wakeups.saturating_sub(earlier.wakeups),
            notifications: self.notifications.saturating_sub(earlier.notifications),
            relieved: self.relieved.saturating_sub(earlier.relieved),
            ..self.clone()
        };
        worker.derive();
        worker
    }
}

/// Converts a mirror in a request.
pub fn requested_mirror(mirror: proto::Mirror) -> Result<Mirror, MirrorError> {
    let (what, vlan) = (direction::parse(&mirror.direction)?, parse_vlan(mirror.vlan.into())?);
    Ok(Mirror { name: mirror.name, from: mirror.from, what, to: mirror.to, vlan, ..Mirror::default() })
}

/// Builds the reply for a mirror.
pub fn mirror(bridge: &str, mirror: Mirror, copied: MirrorSnapshot) -> proto::Mirror {
    proto::Mirror {
        bridge: bridge.into(),
        name: mirror.name,
        from: match mirror.by_port {
            None => mirror.from,
            Some(by_port) => by_port
                .into_iter()
                .map(|(port, what)| format!("{port} ({})", direction::format(what)))
                .collect(),
        },
        direction: direction::format(mirror.what).into(),
        to: mirror.into_vlan.map_or(mirror.to, |vid| format!("VLAN {}", vid.get())),
        vlan: mirror.vlan.map_or(0, |vlan| vlan.get().into()),
        packets: copied.packets,
        bytes: copied.bytes,
    }
}

fn class(counters: &EgressQueueSnapshot) -> proto::ClassCounters {
    proto::ClassCounters {
        class: counters.queue.into(),
        packets: counters.packets,
        bytes: counters.bytes,
        policed: counters.policed,
        waiting: counters.waiting.map(|waiting| proto::WaitingCounters {
            packets: waiting.packets,
            queue_full: waiting.full,
            early_drop: waiting.early,
            marked: waiting.marked,
            waited: waiting.waited,
            waited_seconds: waiting.waited_for.as_secs_f64(),
            longest_seconds: waiting.longest.as_secs_f64(),
        }),
    }
}

fn queue(counters: &QueueSnapshot) -> proto::QueueCounters {
    sum([counters])
}

fn totals(ports: &[PortSnapshot]) -> proto::PortTotals {
    proto::PortTotals {
        rx: Some(sum(ports.iter().flat_map(|port| &port.rx))),
        tx: Some(sum(ports.iter().flat_map(|port| &port.tx))),
    }
}

fn sum<'a>(queues: impl IntoIterator<Item = &'a QueueSnapshot>) -> proto::QueueCounters {
    let mut total = proto::QueueCounters::default();
    for queue in queues {
        total.packets += queue.packets;
        total.bytes += queue.bytes;
        total.batches += queue.batches;
        for (reason, dropped) in DropReason::ALL.iter().zip(queue.drops).filter(|(_, dropped)| *dropped > 0) {
            total.dropped += dropped;
            *total.drops.entry(reason.name().into()).or_default() += dropped;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_queues_are_summed_by_reason() {
        let mut a = QueueSnapshot { packets: 3, bytes: 300, batches: 1, ..QueueSnapshot::default() };
        a.drops[DropReason::RingFull as usize] = 2;
        let mut b = QueueSnapshot { packets: 1, bytes: 60, batches: 1, ..QueueSnapshot::default() };
        b.drops[DropReason::RingFull as usize] = 1;
        b.drops[DropReason::Vlan as usize] = 5;
        let total = sum([&a, &b]);
        assert_eq!((total.packets, total.bytes, total.batches, total.dropped), (4, 360, 2, 8));
        assert_eq!(total.drops, [("ring-full".to_owned(), 3), ("vlan".to_owned(), 5)].into());
    }

    #[test]
    fn worker_counters_over_an_interval() {
        let earlier = proto::Worker {
            packets: 100,
            batches: 10,
            busy_cycles: 1000,
            elapsed_cycles: 9000,
            ..Default::default()
        };
        let later = proto::Worker {
            packets: 300,
            batches: 20,
            busy_cycles: 5000,
            elapsed_cycles: 17000,
            ..Default::default()
        };
        let between = later.since(Some(&earlier));
        assert_eq!((between.packets, between.packets_per_batch), (200, 20.0));
        assert_eq!((between.busy_share, between.cycles_per_packet), (0.5, 20.0));
        let queue = |busy_cycles| proto::WorkerQueue { busy_cycles, ..Default::default() };
        let at = |worker: &proto::Worker, queues| proto::Worker { queues, ..worker.clone() };
        let reply = |workers| proto::Workers { workers, ..Default::default() };
        let then = reply(vec![at(&earlier, vec![queue(100)]), earlier.clone()]);
        let now = reply(vec![later.clone(), at(&later, vec![queue(700)])]);
        assert_eq!(now.since(&then)[1].queues[0].busy_cycles, 600, "the queue has moved");
        // Workers that were added since.
        assert_eq!(earlier.since(Some(&later)).packets, 100);
        assert_eq!(earlier.since(None).elapsed_cycles, 9000);
    }

    #[test]
    fn admin_down_takes_precedence_over_the_client() {
        assert_eq!(link(true, Link::Up), ("up", String::new()));
        assert_eq!(link(false, Link::Up).1, "set down by the administrator");
        assert_eq!(link(true, Link::Down("left".into())), ("down", "left".into()));
    }
}
