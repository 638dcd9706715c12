//! State of the view: rates between two replies of the daemon, with the viewer's order, filter and pause.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use control::proto;
use serde::Serialize;

/// Replies of the daemon at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    pub(super) ports: proto::Ports,
    pub(super) workers: proto::Workers,
    /// Sorted names.
    pub(super) bridges: Vec<String>,
}

/// A port over an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Port {
    pub(super) bridge: String,
    pub(super) port: String,
    pub(super) r#type: String,
    pub(super) link: String,
    /// Reason why the link is down.
    pub(super) reason: String,
    pub(super) rx: Flow,
    pub(super) tx: Flow,
    /// Drops in both directions since the port was added.
    pub(super) dropped: u64,
    /// Its classes, if packets wait at it.
    pub(super) classes: Vec<Class>,
}

impl Port {
    pub(super) fn drops_per_second(&self) -> f64 {
        self.rx.drops_per_second + self.tx.drops_per_second
    }
}

/// One direction of a port over an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Flow {
    pub(super) packets_per_second: f64,
    pub(super) bits_per_second: f64,
    pub(super) packets_per_batch: f64,
    pub(super) drops_per_second: f64,
}

/// A class of a port, in which packets wait, over an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Class {
    pub(super) class: u32,
    pub(super) packets_per_second: f64,
    pub(super) bits_per_second: f64,
    /// Packets that wait now.
    pub(super) waiting: u64,
    /// Mean time that packets which have left have waited; 0 if none has.
    pub(super) mean_wait_seconds: f64,
    pub(super) drops_per_second: f64,
    /// Packets that were marked instead (ECN).
    pub(super) marks_per_second: f64,
}

/// A worker over an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Worker {
    pub(super) index: u32,
    pub(super) cpu: Option<u32>,
    pub(super) queues: usize,
    pub(super) busy_share: f64,
    pub(super) packets_per_second: f64,
    pub(super) packets_per_batch: f64,
    pub(super) cycles_per_packet: f64,
    pub(super) wakeups_per_second: f64,
    pub(super) notifications_per_second: f64,
}

/// Order of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Name,
    RxPackets,
    RxBits,
    TxPackets,
    TxBits,
    Drops,
}

impl Order {
    pub(super) const ALL: [Order; 6] =
        [Order::Name, Order::RxPackets, Order::RxBits, Order::TxPackets, Order::TxBits, Order::Drops];

    fn compare(self, a: &Port, b: &Port) -> Ordering {
        match self {
            // Descending; `Model::visible` reverses the order.
            Order::Name => name(b).cmp(&name(a)),
            Order::RxPackets => a.rx.packets_per_second.total_cmp(&b.rx.packets_per_second),
            Order::RxBits => a.rx.bits_per_second.total_cmp(&b.rx.bits_per_second),
            Order::TxPackets => a.tx.packets_per_second.total_cmp(&b.tx.packets_per_second),
            Order::TxBits => a.tx.bits_per_second.total_cmp(&b.tx.bits_per_second),
            Order::Drops => a.drops_per_second().total_cmp(&b.drops_per_second()),
        }
    }
}

fn name(port: &Port) -> (&str, &str) {
    (&port.bridge, &port.port)
}

/// State of the view.
#[derive(Debug, Clone)]
pub(super) struct Model {
    ports: Vec<Port>,
    pub(super) workers: Vec<Worker>,
    pub(super) bridges: Vec<String>,
    /// Length of the interval; 0 before the first one has passed.
    pub(super) seconds: f64,
    pub(super) order: Order,
    /// Smallest first (for names: Z first) instead of largest first.
    pub(super) reversed: bool,
    /// Classes are shown instead of ports.
    pub(super) by_class: bool,
    /// The bridge whose ports are shown; `None` shows all.
    pub(super) bridge: Option<String>,
    pub(super) paused: bool,
    /// Number of ports above the first one shown.
    pub(super) scroll: usize,
}

/// The view for `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Report<'m> {
    seconds: f64,
    workers: &'m [Worker],
    ports: Vec<&'m Port>,
}

impl Model {
    /// Returns an empty model that orders ports by received packets.
    pub(super) fn new(bridge: Option<String>) -> Self {
        Self {
            ports: Vec::new(),
            workers: Vec::new(),
            bridges: Vec::new(),
            seconds: 0.0,
            order: Order::RxPackets,
            reversed: false,
            by_class: false,
            bridge,
            paused: false,
            scroll: 0,
        }
    }

    /// Computes the rates between two samples.
    pub(super) fn update(&mut self, earlier: &Sample, now: &Sample) {
        let nanoseconds = now.ports.at_nanoseconds.saturating_sub(earlier.ports.at_nanoseconds);
        self.seconds = nanoseconds as f64 / 1e9;
        let per_second = if self.seconds > 0.0 { 1.0 / self.seconds } else { 0.0 };
        let before: BTreeMap<_, _> =
            earlier.ports.ports.iter().map(|port| ((&port.bridge, &port.name), port)).collect();
        self.ports = now
            .ports
            .ports
            .iter()
            .map(|port| rates(before.get(&(&port.bridge, &port.name)).copied(), port, per_second))
            .collect();
        let hz = now.workers.cycles_per_second as f64;
        let earlier = &earlier.workers.workers;
        self.workers =
            now.workers.workers.iter().map(|now| worker(earlier.get(now.index as usize), now, hz)).collect();
        self.bridges.clone_from(&now.bridges);
        if self.bridge.as_ref().is_some_and(|bridge| !self.bridges.contains(bridge)) {
            self.bridge = None;
        }
    }

    /// Returns the ports that match the filter, in the chosen order.
    pub(super) fn visible(&self) -> Vec<&Port> {
        let wanted = |port: &&Port| self.bridge.as_ref().is_none_or(|bridge| *bridge == port.bridge);
        let mut ports: Vec<&Port> = self.ports.iter().filter(wanted).collect();
        ports.sort_by(|a, b| {
            let order = self.order.compare(a, b);
            let order = if self.reversed { order } else { order.reverse() };
            order.then_with(|| name(a).cmp(&name(b)))
        });
        ports
    }

    /// Returns the classes of these ports, each with its port.
    pub(super) fn classes(&self) -> Vec<(&Port, &Class)> {
        self.visible()
            .into_iter()
            .flat_map(|port| port.classes.iter().map(move |class| (port, class)))
            .collect()
    }

    /// Shows classes instead of ports, or ports again.
    pub(super) fn turn(&mut self) {
        self.by_class = !self.by_class;
        self.scroll = 0;
    }

    /// Filters by the next bridge; after the last bridge shows all ports.
    pub(super) fn next_bridge(&mut self) {
        self.bridge = match &self.bridge {
            None => self.bridges.first().cloned(),
            Some(now) => self.bridges.iter().find(|name| *name > now).cloned(),
        };
        self.scroll = 0;
    }

    /// Orders by the column `places` further right.
    pub(super) fn next_order(&mut self, places: usize) {
        let at = Order::ALL.iter().position(|order| *order == self.order).unwrap_or(0);
        self.order = Order::ALL.iter().cycle().nth(at + places).copied().unwrap_or(Order::Name);
    }

    /// Returns the view for programs.
    pub(super) fn report(&self) -> Report<'_> {
        Report { seconds: self.seconds, workers: &self.workers, ports: self.visible() }
    }
}

fn rates(before: Option<&proto::Port>, now: &proto::Port, per_second: f64) -> Port {
    let none = proto::PortTotals::default();
    let was = before.and_then(|port| port.totals.as_ref()).unwrap_or(&none);
    let is = now.totals.as_ref().unwrap_or(&none);
    let dropped = [&is.rx, &is.tx].into_iter().flatten().map(|queue| queue.dropped).sum();
    Port {
        bridge: now.bridge.clone(),
        port: now.name.clone(),
        r#type: now.r#type.clone(),
        link: now.link.clone(),
        reason: now.reason.clone(),
        rx: flow(was.rx.as_ref(), is.rx.as_ref(), per_second),
        tx: flow(was.tx.as_ref(), is.tx.as_ref(), per_second),
        dropped,
        classes: now.classes.iter().filter_map(|is| class(before, is, per_second)).collect(),
    }
}

/// A class, if packets wait in it.
fn class(before: Option<&proto::Port>, now: &proto::ClassCounters, per_second: f64) -> Option<Class> {
    let is = now.waiting.as_ref()?;
    let then = before.and_then(|port| port.classes.iter().find(|then| then.class == now.class));
    let none = proto::ClassCounters::default();
    let then = then.unwrap_or(&none);
    let was = then.waiting.unwrap_or_default();
    let rate = |then: u64, now: u64| now.saturating_sub(then) as f64 * per_second;
    let waited = is.waited.saturating_sub(was.waited) as f64;
    let seconds = (is.waited_seconds - was.waited_seconds).max(0.0);
    Some(Class {
        class: now.class,
        packets_per_second: rate(then.packets, now.packets),
        bits_per_second: rate(then.bytes, now.bytes) * 8.0,
        waiting: is.packets,
        mean_wait_seconds: if waited > 0.0 { seconds / waited } else { 0.0 },
        drops_per_second: rate(was.queue_full + was.early_drop, is.queue_full + is.early_drop),
        marks_per_second: rate(was.marked, is.marked),
    })
}

fn flow(was: Option<&proto::QueueCounters>, is: Option<&proto::QueueCounters>, per_second: f64) -> Flow {
    let none = proto::QueueCounters::default();
    let (was, is) = (was.unwrap_or(&none), is.unwrap_or(&none));
    let packets = is.packets.saturating_sub(was.packets) as f64;
    let batches = is.batches.saturating_sub(was.batches) as f64;
    Flow {
        packets_per_second: packets * per_second,
        bits_per_second: is.bytes.saturating_sub(was.bytes) as f64 * 8.0 * per_second,
        packets_per_batch: if batches > 0.0 { packets / batches } else { 0.0 },
        drops_per_second: is.dropped.saturating_sub(was.dropped) as f64 * per_second,
    }
}

fn worker(then: Option<&proto::Worker>, now: &proto::Worker, hz: f64) -> Worker {
    let between = now.since(then);
    let seconds = if hz > 0.0 { between.elapsed_cycles as f64 / hz } else { 0.0 };
    let rate = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    Worker {
        index: now.index,
        cpu: now.cpu,
        queues: now.queues.len(),
        busy_share: between.busy_share,
        packets_per_second: rate(between.packets),
        packets_per_batch: between.packets_per_batch,
        cycles_per_packet: between.cycles_per_packet,
        wakeups_per_second: rate(between.wakeups),
        notifications_per_second: rate(between.notifications),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn queue(packets: u64, bytes: u64, dropped: u64) -> Option<proto::QueueCounters> {
        Some(proto::QueueCounters { packets, bytes, batches: packets / 8, dropped, ..Default::default() })
    }

    /// A sample of ports: bridge, name, received packets, sent packets, dropped packets.
    pub(in crate::top) fn sample(seconds: u64, ports: &[(&str, &str, u64, u64, u64)]) -> Sample {
        let port = |(bridge, name, rx, tx, dropped): &(&str, &str, u64, u64, u64)| proto::Port {
            bridge: (*bridge).into(),
            name: (*name).into(),
            r#type: "memif".into(),
            link: if *rx == 0 { "down".into() } else { "up".into() },
            reason: if *rx == 0 { "no client has connected yet".into() } else { String::new() },
            totals: Some(proto::PortTotals {
                rx: queue(*rx, rx * 64, 0),
                tx: queue(*tx, tx * 1500, *dropped),
            }),
            ..Default::default()
        };
        let worker = proto::Worker {
            cpu: Some(3),
            packets: 16_000 * seconds,
            batches: 1000 * seconds,
            busy_cycles: 500_000_000 * seconds,
            elapsed_cycles: 2_000_000_000 * seconds,
            wakeups: 40 * seconds,
            notifications: 900 * seconds,
            ..Default::default()
        };
        let mut bridges: Vec<String> = ports.iter().map(|port| port.0.to_owned()).collect();
        bridges.dedup();
        Sample {
            ports: proto::Ports {
                ports: ports.iter().map(port).collect(),
                at_nanoseconds: seconds * 1_000_000_000,
            },
            workers: proto::Workers {
                workers: vec![worker],
                cycles_per_second: 2_000_000_000,
                ..Default::default()
            },
            bridges,
        }
    }

    /// A model of ports that counted from 0 for two seconds.
    pub(in crate::top) fn model(ports: &[(&str, &str, u64, u64, u64)]) -> Model {
        let mut model = Model::new(None);
        let nothing: Vec<_> = ports.iter().map(|p| (p.0, p.1, 0, 0, 0)).collect();
        model.update(&sample(1, &nothing), &sample(3, ports));
        model
    }

    fn names(model: &Model) -> Vec<&str> {
        model.visible().iter().map(|port| port.port.as_str()).collect()
    }

    #[test]
    fn rates_are_differences_over_time() {
        let model = model(&[("b", "p", 2000, 400, 10)]);
        let port = &model.visible()[0].clone();
        assert_eq!((port.rx.packets_per_second, port.rx.bits_per_second), (1000.0, 512_000.0));
        assert_eq!((port.tx.packets_per_second, port.drops_per_second()), (200.0, 5.0));
        assert_eq!((port.rx.packets_per_batch, port.dropped), (8.0, 10));
        let worker = &model.workers[0];
        assert_eq!((worker.busy_share, worker.packets_per_second), (0.25, 16_000.0));
        assert_eq!((worker.wakeups_per_second, worker.notifications_per_second), (40.0, 900.0));
        assert_eq!((worker.cycles_per_packet, worker.packets_per_batch), (31_250.0, 16.0));
    }

    /// A model of a port whose class 5 has sent, dropped, marked and delayed packets for two seconds.
    pub(in crate::top) fn with_classes() -> Model {
        let at = |seconds, packets: u64| {
            let mut sample = sample(seconds, &[("b", "p", 8, 0, 0)]);
            let waiting = proto::WaitingCounters {
                packets: 40,
                queue_full: packets / 10,
                early_drop: packets / 10,
                marked: packets / 100,
                waited: packets / 2,
                waited_seconds: packets as f64 / 2.0 * 0.000_25,
                ..Default::default()
            };
            let class = |class, waiting| proto::ClassCounters {
                class,
                packets,
                bytes: packets * 1000,
                waiting,
                ..Default::default()
            };
            sample.ports.ports[0].classes = vec![class(5, Some(waiting)), class(6, None)];
            sample
        };
        let mut model = Model::new(None);
        model.update(&at(1, 0), &at(3, 2000));
        model
    }

    #[test]
    fn classes_in_which_packets_wait_have_rates() {
        let model = with_classes();
        let classes = model.classes();
        let [(port, class)] = &classes[..] else { panic!("{classes:?}") };
        assert_eq!(port.port, "p");
        let expected = Class {
            class: 5,
            packets_per_second: 1000.0,
            bits_per_second: 8_000_000.0,
            waiting: 40,
            mean_wait_seconds: 0.000_25,
            drops_per_second: 200.0,
            marks_per_second: 10.0,
        };
        assert_eq!(**class, expected);
    }

    #[test]
    fn ports_in_every_order() {
        let mut model = model(&[("b", "x", 10, 300, 9), ("b", "y", 30, 200, 0), ("b", "z", 20, 100, 0)]);
        assert_eq!(names(&model), ["y", "z", "x"]);
        model.reversed = true;
        assert_eq!(names(&model), ["x", "z", "y"]);
        model.reversed = false;
        let by = |model: &mut Model, order| {
            model.order = order;
            names(model).join("")
        };
        assert_eq!(by(&mut model, Order::Name), "xyz");
        assert_eq!(by(&mut model, Order::TxPackets), "xyz");
        assert_eq!(by(&mut model, Order::RxBits), "yzx");
        assert_eq!(by(&mut model, Order::Drops), "xyz", "equal ones by name");
        model.reversed = true;
        assert_eq!(by(&mut model, Order::Name), "zyx");
    }

    #[test]
    fn bridges_cycle() {
        let mut model = model(&[("a", "x", 1, 1, 0), ("b", "y", 2, 1, 0)]);
        let mut seen = vec![names(&model).join("")];
        for _ in 0..3 {
            model.next_bridge();
            seen.push(names(&model).join(""));
        }
        assert_eq!(seen, ["yx", "x", "y", "yx"]);
    }

    #[test]
    fn the_filter_of_a_removed_bridge_ends() {
        let mut model = Model::new(Some("gone".into()));
        model.update(&sample(1, &[]), &sample(2, &[("b", "x", 8, 0, 0)]));
        assert_eq!(names(&model), ["x"]);
    }

    #[test]
    fn an_empty_interval_has_no_rates() {
        let mut model = Model::new(None);
        model.update(&sample(1, &[("b", "x", 0, 0, 0)]), &sample(1, &[("b", "x", 100, 0, 0)]));
        assert_eq!(model.visible()[0].rx.packets_per_second, 0.0);
        assert_eq!(model.workers[0].wakeups_per_second, 0.0);
    }
}
