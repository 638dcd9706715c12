//! What a report says, in which order.

use std::collections::BTreeSet;

use super::Document;
use super::block::Block;
use super::pairs;
use super::plots::{self, Chain};
use super::summary::figure;
use super::tables::{self, table};
use crate::sample::{Load, Outcome, Sample};
use crate::scenarios::{self, Scenario};

/// All blocks.
pub(super) fn blocks(document: &Document) -> Vec<Block> {
    let mut blocks = vec![Block::Heading(1, "Software switches, side by side".into())];
    blocks.extend(introduction(document));
    let measured: Vec<Scenario> = scenarios::all()
        .into_iter()
        .filter(|scenario| document.samples.iter().any(|sample| sample.task.scenario == scenario.name))
        .collect();
    for scenario in &measured {
        blocks.push(Block::Heading(2, scenario.name.clone()));
        let rounds = rounds(document, scenario);
        let plural = if rounds == 1 { "" } else { "s" };
        blocks.push(Block::Paragraph(format!("Packets pass {}. {rounds} round{plural}.", scenario.about)));
        blocks.extend(of_scenario(document, scenario));
    }
    let chains: Vec<Block> = ["memif", "vhost-user"]
        .iter()
        .flat_map(|kind| {
            let plot = |ways, what| plots::chain(document, kind, ways, what);
            [plot(1, Chain::Rate), plot(2, Chain::Rate), plot(2, Chain::Cycles)]
        })
        .flatten()
        .collect();
    if !chains.is_empty() {
        blocks.push(Block::Heading(2, "Length of chains".into()));
        blocks.extend(chains);
    }
    let ports: Vec<Block> =
        [plots::ports_rate(document), plots::ports_cpus(document)].into_iter().flatten().collect();
    if !ports.is_empty() {
        blocks.push(Block::Heading(2, "Number of ports".into()));
        blocks.extend(ports);
    }
    blocks.extend(failures(document));
    blocks.extend(machine(document));
    blocks.extend(peers(document, &measured));
    blocks
}

/// Number of rounds in which a scenario was measured.
fn rounds(document: &Document, scenario: &Scenario) -> usize {
    let samples = document.samples.iter().filter(|sample| sample.task.scenario == scenario.name);
    samples.map(|sample| sample.round).collect::<BTreeSet<u32>>().len()
}

fn introduction(document: &Document) -> Vec<Block> {
    let settings = &document.header.settings;
    let mut list = vec![
        format!(
            "Peers took turns, {} s for each figure in each round. Figures are medians over the rounds of their scenario; \
             those of throughput and cycles have the lowest and the highest value in parentheses.",
            settings.seconds
        ),
        "R⁺ is the rate received when the generator sends as fast as the switch accepts packets.".into(),
        "Sizes are without frame check sequence; Gbit/s count these bytes.".into(),
        "*: the generator was near its own ceiling; there, cycles decide, not throughput.".into(),
        format!(
            "±: the spread is too large, or the rounds too few, for a median known to {:.0} %.",
            settings.goal * 100.0
        ),
        "†: in a round, more than 0.1 % of the packets of this share of R⁺ were lost or not sent in time, or the rate was \
         missed by more than 1 %."
            .into(),
        "Only figures of one run are comparable, and rates only between peers with the same kind of ports."
            .into(),
    ];
    if document.header.cpus.shared() {
        list.push(
            "This machine has two CPUs for the benchmark: functions of chains share one with the generator. Rates and \
             round-trip times of chains are those of this sharing; cycles per packet and hop are the switch's."
                .into(),
        );
    }
    if document.header.peers.iter().any(|peer| peer.name == "testpmd") {
        list.push(
            "testpmd counts no cycles: at saturation, all cycles of its core are taken for its packets; there are none \
             where the generator was near its ceiling."
                .into(),
        );
    }
    vec![Block::List(list)]
}

fn of_scenario(document: &Document, scenario: &Scenario) -> Vec<Block> {
    let name = &scenario.name;
    let mut blocks = Vec::new();
    let settings = &document.header.settings;
    let has = |load: fn(&Load) -> bool| settings.loads.iter().any(load);
    for ways in settings.ways.iter().copied().filter(|_| has(|load| *load == Load::Saturation)) {
        blocks.push(tables::throughput(document, name, ways));
        blocks.extend(plots::throughput(document, name, ways));
        // Both directions where both are measured: batches are then those of two senders.
        if Some(&ways) == settings.ways.last() {
            blocks.push(tables::cycles(document, name, ways));
        }
    }
    if has(|load| matches!(load, Load::Share(_) | Load::Rate(_))) {
        blocks.push(tables::round_trips(document, name));
        blocks.extend(plots::latency(document, name));
        blocks.extend(plots::round_trips(document, name));
    }
    if has(|load| *load != Load::Saturation) {
        blocks.push(tables::cpus(document, name));
        blocks.extend(plots::cpus(document, name));
    }
    blocks.extend(pairs::table(document, name));
    blocks
}

fn failures(document: &Document) -> Vec<Block> {
    let line = |sample: &Sample| match &sample.outcome {
        Outcome::Failed(reason) => {
            let tries = match sample.attempts {
                0 => ", not tried".to_owned(),
                1 => String::new(),
                tries => format!(", tried {tries} times"),
            };
            Some(format!("{}, {}, round {}{tries}: {reason}", sample.task, sample.peer, sample.round))
        }
        Outcome::Measured(_) => None,
    };
    let mut lines: Vec<String> = document.samples.iter().filter_map(line).collect();
    for peer in document.peers() {
        let of_peer =
            document.samples.iter().filter(|sample| sample.peer == peer && sample.figures().is_some());
        let attempts: Vec<u32> = of_peer.map(|sample| sample.attempts).collect();
        let repeated = attempts.iter().filter(|attempts| **attempts > 1).count();
        if repeated > 0 {
            lines.push(format!(
                "{peer}: {repeated} of {} samples were measured only after failed attempts, at most {}",
                attempts.len(),
                attempts.iter().max().map_or(0, |most| most.saturating_sub(1))
            ));
        }
    }
    if lines.is_empty() {
        return Vec::new();
    }
    vec![Block::Heading(2, "Failures".into()), Block::List(lines)]
}

fn machine(document: &Document) -> Vec<Block> {
    let header = &document.header;
    let machine = &header.machine;
    let kib = |size: Option<u64>| size.map_or_else(|| "unknown".to_owned(), |size| format!("{size} KiB"));
    let mut rows = vec![
        ("processor", machine.processor.clone()),
        ("CPUs", format!("{}; {}", machine.cpus, header.cpus)),
        ("time stamp counter", format!("{:.0} MHz", header.tsc_hz / 1e6)),
        ("caches", format!("L2 {}, last level {}", kib(machine.l2_kib), kib(machine.last_level_kib))),
        ("memory", format!("{} MiB", machine.memory_mib)),
        (
            "kernel",
            format!(
                "Linux {}{}",
                machine.kernel,
                if machine.virtual_machine { ", in a virtual machine" } else { "" }
            ),
        ),
        (
            "frequency governor",
            machine.governor.clone().unwrap_or_else(|| "not under this kernel's control".into()),
        ),
        ("generator", format!("mswitch-generator, {}, program {}", header.generator, header.generator_build)),
        ("began", format!("{} s after 1970 (UTC)", header.began)),
        ("frequency of the CPUs", frequency(document)),
        ("stolen by other virtual machines", stolen(document)),
    ];
    let limits = header.ceilings.text();
    rows.extend(
        limits
            .lines()
            .filter_map(|line| line.split_once("  "))
            .map(|(name, value)| (name, value.trim().to_owned())),
    );
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
    vec![
        Block::Heading(2, "Machine".into()),
        table("Where it was measured, and its limits".into(), ["".to_owned(), "".to_owned()], rows),
    ]
}

/// CPU time that the host gave to others meanwhile.
fn stolen(document: &Document) -> String {
    let values = document.samples.iter().filter_map(Sample::figures).filter_map(figure::stolen);
    match crate::statistics::Summary::of(values) {
        Some(summary) => {
            format!("{:.3} CPUs in the median sample, {:.3} at most", summary.median, summary.highest)
        }
        None => "unknown".into(),
    }
}

/// Frequency after each sample, as the kernel told it.
fn frequency(document: &Document) -> String {
    let figures = document.samples.iter().filter_map(Sample::figures);
    match crate::statistics::Summary::of(figures.filter_map(|figures| figures.frequency_mhz)) {
        Some(summary) => {
            format!(
                "{:.0} MHz in the median sample, {:.0} to {:.0}",
                summary.median, summary.lowest, summary.highest
            )
        }
        None => "unknown".into(),
    }
}

fn peers(document: &Document, measured: &[Scenario]) -> Vec<Block> {
    let mut blocks = vec![Block::Heading(2, "Peers and commands".into())];
    let row =
        |peer: &crate::journal::PeerFacts| vec![peer.name.clone(), peer.version.clone(), peer.about.clone()];
    let present = document.header.peers.iter().map(row);
    let absent = document
        .header
        .absent
        .iter()
        .map(|(name, reason)| vec![name.clone(), "not measured".into(), reason.clone()]);
    blocks.push(table(
        "What was compared".into(),
        ["peer", "version", "what"].map(String::from),
        present.chain(absent),
    ));
    // The first scenario stands for all: the others have more ports or other kinds.
    for peer in &document.header.peers {
        let first = measured.iter().find_map(|scenario| Some((scenario, peer.commands.get(&scenario.name)?)));
        if let Some((scenario, lines)) = first {
            blocks.push(Block::Paragraph(format!(
                "{}, {}; report.json has all scenarios:",
                peer.name, scenario.name
            )));
            blocks.push(Block::Commands(lines.clone()));
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::super::block;
    use super::*;
    use crate::journal::PeerFacts;
    use crate::journal::tests::{header, sample};
    use crate::sample::{Figures, Packets};

    #[test]
    fn a_report_has_medians_spreads_and_failures() {
        let mut header = header();
        header.peers = ["mswitch", "ovs"]
            .map(|name| PeerFacts {
                name: name.into(),
                about: "a switch".into(),
                version: "1".into(),
                commands: [("v2v-memif".to_owned(), vec![format!("start {name}")])].into(),
            })
            .into();
        let failed = Sample { outcome: Outcome::Failed("died <here>".into()), ..sample("ovs", 1, 0.0) };
        let packets = Some(Packets { sent: 1000, lost: 250, ..Packets::default() });
        let with = |load, figures| {
            let mut sample = sample("ovs", 1, 0.0);
            sample.task.load = load;
            sample.task.ways = if load == Load::Saturation { 2 } else { 1 };
            sample.outcome = Outcome::Measured(Box::new(figures));
            sample
        };
        let lossy = Figures { cycles_per_packet: Some(50.0), packets, ..Figures::default() };
        let lossy = Figures { frequency_mhz: Some(2500.0), ..lossy };
        let paced = Figures {
            frequency_mhz: Some(2700.0),
            paced: true,
            packets,
            switch_cpus: Some(0.5),
            ..Figures::default()
        };
        let samples = vec![
            sample("mswitch", 1, 1e6),
            Sample { attempts: 3, ..sample("mswitch", 2, 3e6) },
            sample("mswitch", 3, 2e6),
            failed,
            with(Load::Saturation, lossy),
            with(Load::Share(50), paced),
        ];
        let document = Document { header, samples };
        let blocks = blocks(&document);
        let markdown = block::markdown(&blocks);
        for part in [
            "| mswitch | 2.00 (1.00–3.00) ± |",
            "- v2v-memif, 64 B, both ways, max, ovs, round 1: died &lt;here&gt;",
            ". 3 rounds.",
            "| frequency of the CPUs | 2600 MHz in the median sample, 2500 to 2700 |",
            "| vpp | not measured | no `vpp` on the PATH |",
            "start mswitch",
            "- mswitch: 1 of 3 samples were measured only after failed attempts, at most 2",
            "| ovs | 50; 25.0 % lost |",
            "| ovs | – / – / – | – / – / – | – / – / – † | – / – / – |",
            "| ovs | – | – | 0.500 † | – |",
            "![throughput-v2v-memif-2](plots/throughput-v2v-memif-2.svg)",
        ] {
            assert!(markdown.contains(part), "{part}:\n{markdown}");
        }
        let html = block::html(&blocks);
        assert!(html.contains("died &lt;here&gt;") && html.contains("<svg"), "{html}");
        assert!(!html.contains("<script") && !html.contains("href"), "a report needs no other file");
    }
}
