//! `mswitch port stats --watch`: rates between two replies.

use std::collections::BTreeMap;

use control::proto;
use serde::Serialize;

use super::port::directions;
use super::table::{Column, table};
use super::{drops, units};

/// Rates of one direction of a port, or of one queue. `--json` prints an array of them each second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Rate {
    /// Bridge of the port.
    bridge: String,
    /// Name of the port.
    port: String,
    /// `rx`, `tx`, or with `--queues` `rx0`, `tx0`, …
    queue: String,
    packets_per_second: f64,
    bits_per_second: f64,
    packets_per_batch: f64,
    drops_per_second: f64,
    /// Packets dropped in the interval, by reason.
    drops: BTreeMap<String, u64>,
}

/// The rates between two replies.
pub(crate) fn between(earlier: &proto::Ports, later: &proto::Ports, queues: bool) -> Vec<Rate> {
    let seconds = later.at_nanoseconds.saturating_sub(earlier.at_nanoseconds) as f64 / 1e9;
    if seconds <= 0.0 {
        return Vec::new();
    }
    let before: BTreeMap<_, _> = earlier
        .ports
        .iter()
        .flat_map(|port| directions(port, queues).into_iter().map(move |(name, c)| ((key(port), name), c)))
        .collect();
    let none = proto::QueueCounters::default();
    let mut rates = Vec::new();
    for port in &later.ports {
        for (queue, now) in directions(port, queues) {
            let was = before.get(&(key(port), queue.clone())).copied().unwrap_or(&none);
            let packets = now.packets.saturating_sub(was.packets) as f64;
            let batches = now.batches.saturating_sub(was.batches) as f64;
            let since = |(reason, count): (&String, &u64)| {
                let count = count.saturating_sub(was.drops.get(reason).copied().unwrap_or_default());
                (count > 0).then(|| (reason.clone(), count))
            };
            let drops = now.drops.iter().filter_map(since).collect();
            rates.push(Rate {
                bridge: port.bridge.clone(),
                port: port.name.clone(),
                queue,
                packets_per_second: packets / seconds,
                bits_per_second: now.bytes.saturating_sub(was.bytes) as f64 * 8.0 / seconds,
                packets_per_batch: if batches > 0.0 { packets / batches } else { 0.0 },
                drops_per_second: now.dropped.saturating_sub(was.dropped) as f64 / seconds,
                drops,
            });
        }
    }
    rates
}

fn key(port: &proto::Port) -> (&str, &str) {
    (&port.bridge, &port.name)
}

/// The rates as a table.
pub(crate) fn show(rates: &[Rate]) -> String {
    let columns = [
        Column::Left("BRIDGE"),
        Column::Left("PORT"),
        Column::Left("DIR"),
        Column::Right("PACKETS"),
        Column::Right("BITS"),
        Column::Right("PACKETS/BATCH"),
        Column::Right("DROPPED"),
        Column::Left("REASONS"),
    ];
    let row = |rate: &Rate| {
        vec![
            rate.bridge.clone(),
            rate.port.clone(),
            rate.queue.clone(),
            units::packet_rate(rate.packets_per_second),
            units::bit_rate(rate.bits_per_second),
            units::ratio(rate.packets_per_batch),
            units::packet_rate(rate.drops_per_second),
            drops(&rate.drops),
        ]
    };
    table(&columns, rates.iter().map(row).collect(), "no ports")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(at_nanoseconds: u64, packets: u64) -> proto::Ports {
        let rx = proto::QueueCounters {
            packets,
            bytes: packets * 100,
            batches: packets / 10,
            dropped: packets / 100,
            drops: [("vlan".to_owned(), packets / 100), ("runt".to_owned(), 3)].into(),
        };
        let totals = Some(proto::PortTotals { rx: Some(rx), tx: None });
        let port = proto::Port { bridge: "b".into(), name: "p".into(), totals, ..Default::default() };
        proto::Ports { ports: vec![port], at_nanoseconds }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let rates = between(&reply(1_000_000_000, 500), &reply(3_000_000_000, 2500), false);
        assert_eq!(rates.len(), 1);
        assert_eq!(rates[0].packets_per_second, 1000.0);
        assert_eq!(rates[0].bits_per_second, 800_000.0);
        assert_eq!(rates[0].packets_per_batch, 10.0);
        let text = show(&rates);
        assert!(text.contains("1.00 kpps") && text.contains("800 kbit/s"), "{text}");
        assert!(text.lines().next().unwrap().ends_with("DROPPED  REASONS"), "{text}");
        assert!(text.ends_with(" 10 pps  20 vlan\n"), "only reasons of this interval: {text}");
    }

    #[test]
    fn new_ports_count_from_zero_and_empty_intervals_have_no_rates() {
        let empty = proto::Ports { ports: Vec::new(), at_nanoseconds: 0 };
        assert_eq!(between(&empty, &reply(1_000_000_000, 7), false)[0].packets_per_second, 7.0);
        assert_eq!(between(&reply(5, 0), &reply(5, 9), false), []);
    }
}
