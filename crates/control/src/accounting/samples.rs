//! Packets that the `sample` actions of a bridge choose, and the statistics that OpenFlow tells of its IPFIX.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use fabric::PortIndex;
use fabric::worker::Threads;
use metering::{Counts, Detail, Facts, Meter, Way};
use oflogic::{Sampled, Sampler};
use openflow::multipart::IpfixStats;

use super::exporter::{Exporter, Name};

/// The sets of collectors of a bridge. See the module.
pub(super) struct Samples {
    pub(super) sets: BTreeMap<u32, Arc<Meter>>,
    pub(super) exporter: Weak<Exporter>,
}

impl Sampler for Samples {
    fn prepare(&self, threads: Threads) {
        self.sets.values().for_each(|meter| meter.prepare(threads));
    }

    fn sample(&self, thread: Option<usize>, sample: &Sampled<'_>) {
        let Some(meter) = self.sets.get(&sample.collectors) else { return };
        let Some(mut facts) = Facts::read(sample.front, sample.length, Detail::Ethernet) else { return };
        facts.key.ingress = sample.ingress;
        facts.key.observation = [sample.domain, sample.point];
        let leaves = sample.is_egress.unwrap_or(sample.port.is_some());
        if leaves {
            facts.key.way = Way::Out;
            facts.key.egress = sample.port.unwrap_or(PortIndex::NONE);
        }
        let one = Counts::of_packet(
            fabric::clock::since_epoch(),
            sample.length,
            facts.octets,
            facts.tcp_flags,
            false,
        );
        let one = one.scaled(stands_for(sample.probability));
        meter.sample(thread, &facts, &one);
    }

    fn bridge_statistics(&self) -> Option<IpfixStats> {
        let reports = self.exporter.upgrade()?.reports_now();
        reports.into_iter().find(|report| report.name == Name::Ipfix).map(|report| report.stats)
    }

    fn set_statistics(&self) -> Vec<IpfixStats> {
        let reports = self.exporter.upgrade().map(|exporter| exporter.reports_now()).unwrap_or_default();
        reports.into_iter().filter(|it| matches!(it.name, Name::Set(_))).map(|it| it.stats).collect()
    }
}

/// Packets of which one is a sample, to the nearest number; all ones are the probability of every packet.
fn stands_for(probability: u16) -> u64 {
    let probability = u64::from(probability.max(1));
    let all = u64::from(u16::MAX);
    (all + probability / 2) / probability
}

#[cfg(test)]
mod tests {
    use metering::{ANYWHERE, Entry, Scope};

    use super::super::frames::{frame, ipv4};
    use super::*;

    /// Gives a packet of these collectors and this probability to a sampler of set 7; returns what it counted.
    fn counted(
        collectors: u32,
        probability: u16,
        port: Option<PortIndex>,
        egress: Option<bool>,
    ) -> Vec<Entry> {
        let scope = Scope { detail: Detail::Ethernet, input: false, output: false };
        let meter = Arc::new(Meter::new(scope, 1, true));
        let samples = Samples { sets: [(7, meter.clone())].into(), exporter: Weak::new() };
        samples.prepare(Threads::of(1));
        let bytes = frame(0x0800, &ipv4(17, &[0; 8]));
        let (ingress, length, is_egress) = (PortIndex(3), bytes.len() as u32, egress);
        let (domain, point, front) = (11, 12, &bytes[..]);
        let sampled =
            Sampled { collectors, domain, point, probability, ingress, port, is_egress, front, length };
        samples.sample(Some(0), &sampled);
        let mut entries = Vec::new();
        meter.drain(|entry| entries.push(*entry));
        entries
    }

    #[test]
    fn a_sample_stands_for_the_packets_of_its_probability() {
        for (probability, packets) in [(65535, 1), (50000, 1), (32768, 2), (6554, 10), (1, 65535)] {
            let entries = counted(7, probability, None, None);
            let counts = entries[0].counts;
            assert_eq!((counts.packets, counts.samples, counts.octets), (packets, 1, packets * 28));
            assert_eq!(entries[0].key.observation, [11, 12]);
        }
        assert!(counted(8, 65535, None, None).is_empty(), "another set of collectors");
    }

    #[test]
    fn an_action_names_the_egress_port_or_the_direction() {
        let place = |port, egress| {
            let key = counted(7, 65535, port, egress)[0].key;
            (key.way, key.ingress, key.egress)
        };
        let (from, to) = (PortIndex(3), PortIndex(5));
        assert_eq!(place(None, None), (Way::In, from, ANYWHERE));
        assert_eq!(place(Some(to), None), (Way::Out, from, to));
        assert_eq!(place(Some(to), Some(false)), (Way::In, from, ANYWHERE));
        assert_eq!(place(None, Some(true)), (Way::Out, from, PortIndex::NONE));
    }
}
