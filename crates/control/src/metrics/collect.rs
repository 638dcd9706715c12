//! The metrics. Dashboards depend on their names: add metrics, do not rename them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use super::exposition::{Document, Kind, Labels};
use crate::logic_state::LogicView;
use crate::refusal::Refusal;
use crate::sflow::{CollectorReport, Report};
use crate::state::{State, every};
use crate::{convert, proto};

/// Returns all metrics in the text format. `started` is the start time of the daemon.
pub(super) fn collect(state: &State, started: SystemTime) -> Result<String, Refusal> {
    let mut document = Document::default();
    process(&mut document, started);
    let (bridges, logics, ports, workers) = {
        let all = state.bridges();
        let bridges: Vec<_> = all
            .iter()
            .map(|(name, bridge)| convert::bridge(state, name, bridge))
            .collect::<Result<_, _>>()?;
        let logics: Vec<_> =
            all.iter().map(|(name, bridge)| (name.clone(), LogicView::of(bridge, state.switch()))).collect();
        let ports: Vec<_> = every(&all)
            .map(|(bridge, name, port)| convert::port(state, &all, bridge, name, port))
            .collect::<Result<_, _>>()?;
        (bridges, logics, ports, convert::workers(state, &all))
    };
    write_bridges(&mut document, &bridges);
    write_logics(&mut document, &logics);
    write_ports(&mut document, &ports);
    write_classes(&mut document, &ports);
    write_kernel_drops(&mut document, &ports);
    write_workers(&mut document, &workers, fabric::clock::frequency());
    if let Some(sflow) = state.sflow().report() {
        write_sflow(&mut document, &sflow);
    }
    Ok(document.finish())
}

/// Writes the metrics of the process. The `process_` names are Prometheus' convention.
fn process(document: &mut Document, started: SystemTime) {
    let build = Labels::new(&[("version", env!("CARGO_PKG_VERSION"))]);
    document.family("mswitch_build_info", Kind::Gauge, "Version of the daemon; always 1.").sample(&build, 1);
    let started = started.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    document
        .family(
            "process_start_time_seconds",
            Kind::Gauge,
            "Start time of the daemon since the epoch, in seconds.",
        )
        .sample(&Labels::default(), format_args!("{:.3}", started.as_secs_f64()));
    let used = clock_gettime(ClockId::ProcessCPUTime);
    document
        .family(
            "process_cpu_seconds_total",
            Kind::Counter,
            "CPU time of all threads of the daemon, in seconds.",
        )
        .sample(&Labels::default(), format_args!("{}.{:09}", used.tv_sec, used.tv_nsec));
}

fn write_bridges(document: &mut Document, bridges: &[proto::Bridge]) {
    let labels: Vec<Labels> = bridges.iter().map(|bridge| Labels::new(&[("bridge", &bridge.name)])).collect();
    let mut info = document.family("mswitch_bridge_info", Kind::Gauge, "A bridge and its logic; always 1.");
    for (bridge, labels) in bridges.iter().zip(&labels) {
        let logic = bridge.logic.as_ref().map_or("", |logic| logic.name.as_str());
        info.sample(&labels.and("logic", logic), 1);
    }
    let mut ports = document.family("mswitch_bridge_ports", Kind::Gauge, "Ports of a bridge.");
    for (bridge, labels) in bridges.iter().zip(&labels) {
        ports.sample(labels, bridge.ports);
    }
    let mut entries =
        document.family("mswitch_bridge_fdb_entries", Kind::Gauge, "Addresses in a bridge's MAC table.");
    for (bridge, labels) in bridges.iter().zip(&labels) {
        if let Some(n) = bridge.fdb_entries {
            entries.sample(labels, n);
        }
    }
    type Field = fn(&proto::FdbStats) -> u64;
    let counters: [(&str, &str, Field); 8] = [
        ("mswitch_bridge_fdb_learned_total", "Addresses learned.", |fdb| fdb.learned),
        ("mswitch_bridge_fdb_moved_total", "Addresses that moved to another port.", |fdb| fdb.moved),
        ("mswitch_bridge_fdb_evicted_total", "Addresses evicted to make room for others.", |fdb| fdb.evicted),
        ("mswitch_bridge_fdb_expired_total", "Addresses that expired.", |fdb| fdb.expired),
        ("mswitch_bridge_fdb_refused_total", "Addresses not learned because the table was full.", |fdb| {
            fdb.refused
        }),
        (
            "mswitch_bridge_fdb_limit_evicted_total",
            "Addresses evicted because their own port had reached its share of the table.",
            |fdb| fdb.limit_evicted,
        ),
        (
            "mswitch_bridge_fdb_limited_total",
            "Addresses not learned because their port had reached its share of the table.",
            |fdb| fdb.limited,
        ),
        (
            "mswitch_bridge_fdb_conflicts_total",
            "Times that an address was heard at another port than the one that it belongs to.",
            |fdb| fdb.conflicts,
        ),
    ];
    for (name, help, field) in counters {
        let mut family = document.family(name, Kind::Counter, help);
        for (bridge, labels) in bridges.iter().zip(&labels) {
            if let Some(fdb) = &bridge.fdb {
                family.sample(labels, field(fdb));
            }
        }
    }
}

/// Writes the counters and table sizes of logics. Logics choose the names, so these are labels.
fn write_logics(document: &mut Document, logics: &[(String, LogicView)]) {
    let labels = |bridge: &str| Labels::new(&[("bridge", bridge)]);
    let help = "Counter of a bridge's logic, since the logic was set; `mswitch logic show` describes it.";
    let mut family = document.family("mswitch_logic_counter_total", Kind::Counter, help);
    for (bridge, logic) in logics {
        for counter in logic.counters() {
            family.sample(&labels(bridge).and("counter", &counter.name), counter.value);
        }
    }
    let sizes: Vec<_> = logics.iter().map(|(bridge, logic)| (labels(bridge), logic.table_sizes())).collect();
    let help = "Rows in a table of a bridge's logic.";
    let mut family = document.family("mswitch_logic_table_entries", Kind::Gauge, help);
    for (labels, size) in
        sizes.iter().flat_map(|(labels, sizes)| sizes.iter().map(move |size| (labels, size)))
    {
        family.sample(&labels.and("table", &size.name), size.entries);
    }
    let help = "Maximum number of rows in a table of a bridge's logic.";
    let mut family = document.family("mswitch_logic_table_capacity", Kind::Gauge, help);
    for (labels, size) in
        sizes.iter().flat_map(|(labels, sizes)| sizes.iter().map(move |size| (labels, size)))
    {
        if size.capacity > 0 {
            family.sample(&labels.and("table", &size.name), size.capacity);
        }
    }
}

fn write_ports(document: &mut Document, ports: &[proto::Port]) {
    let labels: Vec<Labels> =
        ports.iter().map(|port| Labels::new(&[("bridge", &port.bridge), ("port", &port.name)])).collect();
    let mut info = document.family("mswitch_port_info", Kind::Gauge, "A port and its type; always 1.");
    for (port, labels) in ports.iter().zip(&labels) {
        info.sample(&labels.and("type", &port.r#type), 1);
    }
    let mut up = document.family("mswitch_port_up", Kind::Gauge, "1 if the port carries traffic, else 0.");
    for (port, labels) in ports.iter().zip(&labels) {
        up.sample(labels, u8::from(port.link == "up"));
    }
    let none = proto::QueueCounters::default();
    for (direction, verb, of) in [
        ("receive", "received from a port's client", rx as Side),
        ("transmit", "delivered to a port's client", tx),
    ] {
        let counters: Vec<&proto::QueueCounters> =
            ports.iter().map(|port| of(port).unwrap_or(&none)).collect();
        type Field = fn(&proto::QueueCounters) -> u64;
        let families: [(&str, String, Field); 4] = [
            ("packets", format!("Packets {verb}."), |c| c.packets),
            (
                "bytes",
                format!("Bytes {verb}, from the destination address to the end of the payload."),
                |c| c.bytes,
            ),
            ("batches", format!("Batches in which packets were {verb}."), |c| c.batches),
            ("dropped_packets", "Packets dropped at a port for any reason.".into(), |c| c.dropped),
        ];
        for (counter, help, field) in families {
            let name = format!("mswitch_port_{direction}_{counter}_total");
            let mut family = document.family(&name, Kind::Counter, &help);
            for (counters, labels) in counters.iter().zip(&labels) {
                family.sample(labels, field(counters));
            }
        }
        // Left out if 0: two dozen reasons for each of a thousand ports would be most of a scrape.
        let name = format!("mswitch_port_{direction}_drop_reasons_total");
        let help = "Packets dropped at a port, by reason; reasons with a count of 0 are left out.";
        let mut family = document.family(&name, Kind::Counter, help);
        for (counters, labels) in counters.iter().zip(&labels) {
            for (reason, n) in &counters.drops {
                family.sample(&labels.and("reason", reason), n);
            }
        }
    }
}

/// Writes the counters of the classes of ports that have some.
fn write_classes(document: &mut Document, ports: &[proto::Port]) {
    let of_port = |port: &proto::Port| {
        let labels = Labels::new(&[("bridge", &port.bridge), ("port", &port.name)]);
        let class = |class: &proto::ClassCounters| {
            (labels.and("class", &class.class.to_string()), *class, class.waiting.unwrap_or_default())
        };
        port.classes.iter().map(class).collect::<Vec<_>>()
    };
    let classes: Vec<_> = ports.iter().flat_map(of_port).collect();
    if classes.is_empty() {
        return;
    }
    type Field = fn(&proto::ClassCounters, &proto::WaitingCounters) -> u64;
    let families: [(&str, Kind, &str, Field); 8] = [
        ("packets_total", Kind::Counter, "Packets of a class delivered to a port's client.", |c, _| {
            c.packets
        }),
        ("bytes_total", Kind::Counter, "Their bytes.", |c, _| c.bytes),
        ("policed_packets_total", Kind::Counter, "Packets of a class dropped beyond a rate.", |c, _| {
            c.policed
        }),
        ("waiting_packets", Kind::Gauge, "Packets of a class that wait now.", |_, w| w.packets),
        (
            "queue_full_packets_total",
            Kind::Counter,
            "Packets of a class dropped for lack of room.",
            |_, w| w.queue_full,
        ),
        ("early_drop_packets_total", Kind::Counter, "Packets of a class dropped early.", |_, w| w.early_drop),
        ("marked_packets_total", Kind::Counter, "Packets of a class marked for congestion.", |_, w| w.marked),
        ("waited_packets_total", Kind::Counter, "Packets of a class that have waited and left.", |_, w| {
            w.waited
        }),
    ];
    for (name, kind, help, field) in families {
        let name = format!("mswitch_port_class_{name}");
        let mut family = document.family(&name, kind, help);
        for (labels, counters, waiting) in &classes {
            family.sample(labels, field(counters, waiting));
        }
    }
    let help = "Time that packets of a class have waited, together.";
    let mut family = document.family("mswitch_port_class_waited_seconds_total", Kind::Counter, help);
    for (labels, _, waiting) in &classes {
        family.sample(labels, waiting.waited_seconds);
    }
}

/// Writes the packets that the kernel dropped before the switch could take them, of ports where it counts them.
fn write_kernel_drops(document: &mut Document, ports: &[proto::Port]) {
    let help = "Packets for a port that the kernel dropped because the switch did not take them in time.";
    let mut family = document.family("mswitch_port_kernel_dropped_packets_total", Kind::Counter, help);
    for port in ports {
        let counted = port.details.iter().find(|detail| detail.name == ports::netdev::KERNEL_DROPS);
        if let Some(dropped) = counted.and_then(|detail| detail.value.parse::<u64>().ok()) {
            family.sample(&Labels::new(&[("bridge", &port.bridge), ("port", &port.name)]), dropped);
        }
    }
}

type Side = fn(&proto::Port) -> Option<&proto::QueueCounters>;

fn rx(port: &proto::Port) -> Option<&proto::QueueCounters> {
    port.totals.as_ref()?.rx.as_ref()
}

fn tx(port: &proto::Port) -> Option<&proto::QueueCounters> {
    port.totals.as_ref()?.tx.as_ref()
}

fn write_workers(document: &mut Document, workers: &[proto::Worker], cycles_per_second: u64) {
    let labels: Vec<Labels> =
        workers.iter().map(|worker| Labels::new(&[("worker", &worker.index.to_string())])).collect();
    let mut info = document.family(
        "mswitch_worker_info",
        Kind::Gauge,
        "A worker and the CPU to which it is pinned; always 1.",
    );
    for (worker, labels) in workers.iter().zip(&labels) {
        let cpu = worker.cpu.map_or_else(|| "any".into(), |cpu| cpu.to_string());
        info.sample(&labels.and("cpu", &cpu), 1);
    }
    let mut queues =
        document.family("mswitch_worker_queues", Kind::Gauge, "Receive queues that a worker serves.");
    for (worker, labels) in workers.iter().zip(&labels) {
        queues.sample(labels, worker.queues.len());
    }
    type Field = fn(&proto::Worker) -> u64;
    let counters: [(&str, &str, Field); 6] = [
        ("mswitch_worker_packets_total", "Packets switched.", |w| w.packets),
        ("mswitch_worker_batches_total", "Batches in which packets were switched.", |w| w.batches),
        ("mswitch_worker_wakeups_total", "Returns from sleep.", |w| w.wakeups),
        ("mswitch_worker_notifications_total", "Receivers notified.", |w| w.notifications),
        (
            "mswitch_worker_relieved_total",
            "Number of times that another thread took over a worker's tasks because a client blocked it.",
            |w| w.relieved,
        ),
        ("mswitch_worker_busy_cycles_total", "CPU cycles (TSC) spent on batches with packets.", |w| {
            w.busy_cycles
        }),
    ];
    for (name, help, field) in counters {
        let mut family = document.family(name, Kind::Counter, help);
        for (worker, labels) in workers.iter().zip(&labels) {
            family.sample(labels, field(worker));
        }
    }
    let mut busy = document.family(
        "mswitch_worker_busy_seconds_total",
        Kind::Counter,
        "Time spent on batches with packets, in seconds.",
    );
    for (worker, labels) in workers.iter().zip(&labels) {
        busy.sample(labels, worker.busy_cycles as f64 / cycles_per_second.max(1) as f64);
    }
}

fn write_sflow(document: &mut Document, sflow: &Report) {
    let none = Labels::default();
    for (name, help, value) in [
        ("mswitch_sflow_samples_total", "Packet samples sent.", sflow.samples),
        ("mswitch_sflow_port_samples_total", "Counter samples sent.", sflow.counter_samples),
        (
            "mswitch_sflow_dropped_samples_total",
            "Packet samples lost because export could not keep up.",
            sflow.dropped,
        ),
    ] {
        document.family(name, Kind::Counter, help).sample(&none, value);
    }
    let labels =
        |collector: &CollectorReport| Labels::new(&[("collector", &collector.collector.to_string())]);
    let mut sent =
        document.family("mswitch_sflow_datagrams_total", Kind::Counter, "Datagrams sent to a collector.");
    for collector in &sflow.collectors {
        sent.sample(&labels(collector), collector.datagrams);
    }
    let help = "Datagrams that could not be sent to a collector or were refused by it.";
    let mut errors = document.family("mswitch_sflow_errors_total", Kind::Counter, help);
    for collector in &sflow.collectors {
        errors.sample(&labels(collector), collector.errors);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use logic::Logic;

    use super::*;

    fn counters(packets: u64, drops: &[(&str, u64)]) -> Option<proto::QueueCounters> {
        Some(proto::QueueCounters {
            packets,
            dropped: drops.iter().map(|(_, n)| n).sum(),
            drops: drops.iter().map(|(reason, n)| ((*reason).into(), *n)).collect(),
            ..Default::default()
        })
    }

    #[test]
    fn metrics_of_a_port() {
        let port = proto::Port {
            bridge: "br0".into(),
            name: "vm1".into(),
            r#type: "memif".into(),
            link: "up".into(),
            totals: Some(proto::PortTotals {
                rx: counters(7, &[]),
                tx: counters(9, &[("ring-full", 2), ("vlan", 1)]),
            }),
            ..Default::default()
        };
        let detail = proto::Detail { name: ports::netdev::KERNEL_DROPS.into(), value: "5".into() };
        let uplink = proto::Port {
            bridge: "br0".into(),
            name: "up".into(),
            details: vec![detail],
            ..Default::default()
        };
        let mut document = Document::default();
        write_kernel_drops(&mut document, &[port.clone(), uplink]);
        write_ports(&mut document, &[port]);
        let text = document.finish();
        for line in [
            "mswitch_port_kernel_dropped_packets_total{bridge=\"br0\",port=\"up\"} 5",
            "mswitch_port_info{bridge=\"br0\",port=\"vm1\",type=\"memif\"} 1",
            "mswitch_port_up{bridge=\"br0\",port=\"vm1\"} 1",
            "# TYPE mswitch_port_receive_packets_total counter",
            "mswitch_port_receive_packets_total{bridge=\"br0\",port=\"vm1\"} 7",
            "mswitch_port_receive_dropped_packets_total{bridge=\"br0\",port=\"vm1\"} 0",
            "mswitch_port_transmit_dropped_packets_total{bridge=\"br0\",port=\"vm1\"} 3",
            "mswitch_port_transmit_drop_reasons_total{bridge=\"br0\",port=\"vm1\",reason=\"ring-full\"} 2",
            "mswitch_port_transmit_drop_reasons_total{bridge=\"br0\",port=\"vm1\",reason=\"vlan\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("receive_drop_reasons_total{"), "{text}");
    }

    #[test]
    fn metrics_of_classes() {
        let waiting =
            proto::WaitingCounters { packets: 3, waited: 9, waited_seconds: 1.5, ..Default::default() };
        let classes = vec![
            proto::ClassCounters { class: 0, packets: 5, policed: 2, ..Default::default() },
            proto::ClassCounters { class: 7, bytes: 600, waiting: Some(waiting), ..Default::default() },
        ];
        let port = proto::Port { bridge: "br0".into(), name: "up".into(), classes, ..Default::default() };
        let mut document = Document::default();
        write_classes(&mut document, &[proto::Port::default()]);
        write_classes(&mut document, &[port]);
        let text = document.finish();
        for line in [
            "mswitch_port_class_packets_total{bridge=\"br0\",port=\"up\",class=\"0\"} 5",
            "mswitch_port_class_policed_packets_total{bridge=\"br0\",port=\"up\",class=\"0\"} 2",
            "mswitch_port_class_bytes_total{bridge=\"br0\",port=\"up\",class=\"7\"} 600",
            "# TYPE mswitch_port_class_waiting_packets gauge",
            "mswitch_port_class_waiting_packets{bridge=\"br0\",port=\"up\",class=\"7\"} 3",
            "mswitch_port_class_waited_packets_total{bridge=\"br0\",port=\"up\",class=\"7\"} 9",
            "mswitch_port_class_waited_seconds_total{bridge=\"br0\",port=\"up\",class=\"7\"} 1.5",
        ] {
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line}\n{text}");
        }
    }

    #[test]
    fn busy_time_of_a_worker_in_seconds() {
        let worker = proto::Worker { index: 1, busy_cycles: 500, ..Default::default() };
        let mut document = Document::default();
        write_workers(&mut document, &[worker], 1000);
        let text = document.finish();
        assert!(text.contains("mswitch_worker_busy_seconds_total{worker=\"1\"} 0.5\n"), "{text}");
        assert!(text.contains("mswitch_worker_info{worker=\"1\",cpu=\"any\"} 1\n"), "{text}");
    }

    /// A logic with counters, one of them duplicated, and tables.
    struct Probe(u64);

    impl fabric::SwitchLogic for Probe {
        fn forward(&self, _: &mut fabric::Batch<'_>) {}
    }

    impl Logic for Probe {
        fn name(&self) -> &str {
            "probe"
        }

        fn params(&self) -> Vec<(String, String)> {
            Vec::new()
        }

        fn counters(&self) -> Vec<logic::Counter> {
            let counter = |name: &str, value| logic::Counter { name: name.into(), help: "".into(), value };
            vec![counter("knocks", self.0), counter("a\"b\nc", 1), counter("knocks", 0)]
        }

        fn table_sizes(&self) -> Vec<logic::TableSize> {
            let size = |name: &str, capacity| logic::TableSize { name: name.into(), entries: 3, capacity };
            vec![size("sources", 64), size("others", 0)]
        }
    }

    #[test]
    fn metrics_of_logics_are_labelled_with_their_bridges() {
        let mut document = Document::default();
        let wires = logic::build("static", &[], &[]).unwrap();
        let probe = |n| -> Arc<dyn Logic> { Arc::new(Probe(n)) };
        let logics = [("a", probe(5)), ("b", probe(6)), ("wires", wires)];
        write_logics(&mut document, &logics.map(|(name, logic)| (name.to_owned(), LogicView::alone(logic))));
        let text = document.finish();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "mswitch_logic_counter_total{bridge=\"a\",counter=\"knocks\"} 5",
                "mswitch_logic_counter_total{bridge=\"a\",counter=\"a\\\"b\\nc\"} 1",
                "mswitch_logic_counter_total{bridge=\"b\",counter=\"knocks\"} 6",
                "mswitch_logic_counter_total{bridge=\"b\",counter=\"a\\\"b\\nc\"} 1",
                "mswitch_logic_table_entries{bridge=\"a\",table=\"sources\"} 3",
                "mswitch_logic_table_entries{bridge=\"a\",table=\"others\"} 3",
                "mswitch_logic_table_entries{bridge=\"b\",table=\"sources\"} 3",
                "mswitch_logic_table_entries{bridge=\"b\",table=\"others\"} 3",
                "mswitch_logic_table_capacity{bridge=\"a\",table=\"sources\"} 64",
                "mswitch_logic_table_capacity{bridge=\"b\",table=\"sources\"} 64",
            ]
        );
    }

    #[test]
    fn a_bridge_without_a_mac_table_has_no_metrics_of_one() {
        let bridge = proto::Bridge { name: "wire".into(), ports: 2, ..Default::default() };
        let mut document = Document::default();
        write_bridges(&mut document, &[bridge]);
        let text = document.finish();
        assert!(text.contains("mswitch_bridge_ports{bridge=\"wire\"} 2\n"), "{text}");
        assert!(!text.contains("fdb_entries{") && !text.contains("learned_total{"), "{text}");
    }
}
