//! Plots of a report. Each peer has one colour and marker in all of them.

use super::Document;
use super::block::Block;
use super::summary::figure;
use super::tables::column;
use crate::plot::{Bar, Bars, Kind, Line, Lines, Point};
use crate::sample::{Figures, Load, Task};
use crate::settings::SLEEPY;
use crate::statistics::Summary;

/// Throughput by size, as figure 4 of the comparison has it.
pub(super) fn throughput(document: &Document, scenario: &str, ways: u8) -> Option<Block> {
    let peers = document.peers();
    let bar = |size: &str, peer: &str| {
        let task = Document::saturation(scenario, size, ways);
        Some(bar_of(document.summary(&task, peer, figure::bits)?, 1e9))
    };
    let sizes = &document.header.settings.sizes;
    let groups: Vec<_> = sizes
        .iter()
        .map(|size| (column(size), peers.iter().map(|peer| bar(size, peer)).collect::<Vec<_>>()))
        .collect();
    if groups.iter().all(|(_, bars)| bars.iter().all(Option::is_none)) {
        return None;
    }
    let direction = if ways == 1 { "one direction" } else { "both directions" };
    let bars = Bars {
        title: format!("{scenario}: throughput, {direction}"),
        x: "packet size".into(),
        y: "Gbit/s received".into(),
        scale: Kind::Linear,
        series: names(&peers),
        groups,
    };
    Some(Block::Plot { name: format!("throughput-{scenario}-{ways}"), svg: bars.svg() })
}

/// Round-trip time of single packets by size, as figure 13 of the mSwitch paper has it.
pub(super) fn round_trips(document: &Document, scenario: &str) -> Option<Block> {
    let peers = document.peers();
    let sizes = &document.header.settings.sizes;
    let bar = |size: &str, peer: &str| {
        let task = Task { scenario: scenario.into(), size: size.into(), ways: 1, load: SLEEPY };
        Some(bar_of(document.summary(&task, peer, figure::rtt_median)?, 1e3))
    };
    let groups: Vec<_> = sizes
        .iter()
        .map(|size| (column(size), peers.iter().map(|peer| bar(size, peer)).collect::<Vec<_>>()))
        .filter(|(_, bars)| bars.iter().any(Option::is_some))
        .collect();
    if groups.is_empty() {
        return None;
    }
    let bars = Bars {
        title: format!("{scenario}: round-trip time at 1,000 packets per second"),
        x: "packet size".into(),
        y: "µs, median".into(),
        scale: Kind::Logarithmic,
        series: names(&peers),
        groups,
    };
    Some(Block::Plot { name: format!("rtt-{scenario}"), svg: bars.svg() })
}

/// Round-trip time against throughput, for every peer at 0.10, 0.50 and 0.99 R⁺.
pub(super) fn latency(document: &Document, scenario: &str) -> Option<Block> {
    let peers = document.peers();
    let line = |(series, peer): (usize, &&str), figure: fn(&Figures) -> Option<f64>, dashed| {
        let points = [10, 50, 99].into_iter().filter_map(|percent| {
            let task = document.share(scenario, Load::Share(percent));
            let x = document.summary(&task, peer, figure::rate)?.median / 1e6;
            Some(Point { range: None, ..point(x, document.summary(&task, peer, figure)?, 1e3) })
        });
        Line { series, dashed, points: points.collect() }
    };
    let medians = peers.iter().enumerate().map(|peer| line(peer, figure::rtt_median, false));
    let tails = peers.iter().enumerate().map(|peer| line(peer, figure::rtt_p99, true));
    picture(
        format!("latency-{scenario}"),
        Lines {
            title: format!("{scenario}: latency against throughput"),
            x: "Mpps received, one direction".into(),
            x_scale: Kind::Linear,
            y: "µs: median (solid), 99 % (dashed)".into(),
            scale: Kind::Logarithmic,
            ticks: Vec::new(),
            series: names(&peers),
            lines: medians.chain(tails).collect(),
        },
    )
}

/// CPUs of the switch against load.
pub(super) fn cpus(document: &Document, scenario: &str) -> Option<Block> {
    let peers = document.peers();
    let loads =
        [(0.0, Load::Idle), (10.0, Load::Share(10)), (50.0, Load::Share(50)), (100.0, Load::Saturation)];
    let lines = peers.iter().enumerate().map(|(series, peer)| {
        let points = loads.iter().filter_map(|(x, load)| {
            let task = document.share(scenario, *load);
            Some(point(*x, document.summary(&task, peer, figure::cpus)?, 1.0))
        });
        Line { series, dashed: false, points: points.collect() }
    });
    picture(
        format!("cpu-{scenario}"),
        Lines {
            title: format!("{scenario}: CPU against load"),
            x: "load in % of the peer's own rate at saturation".into(),
            x_scale: Kind::Linear,
            y: "CPUs of the switch".into(),
            scale: Kind::Linear,
            ticks: vec![0.0, 10.0, 25.0, 50.0, 75.0, 100.0],
            series: names(&peers),
            lines: lines.collect(),
        },
    )
}

/// A figure against the length of a chain, as figures 5 and 6 of the comparison have it. `kind` is that of the ports.
pub(super) fn chain(document: &Document, kind: &str, ways: u8, what: Chain) -> Option<Block> {
    let peers = document.peers();
    let size = document.header.settings.sizes.first()?;
    let (name, y, figure, unit): (_, _, fn(&Figures) -> Option<f64>, f64) = match what {
        Chain::Rate => ("throughput", "Mpps received", figure::rate, 1e6),
        Chain::Cycles => ("cycles", "TSC cycles per packet and hop", figure::cycles, 1.0),
    };
    let lines = peers.iter().enumerate().map(|(series, peer)| {
        let points = (0..=5u8).filter_map(|length| {
            let scenario =
                if length == 0 { format!("v2v-{kind}") } else { format!("loopback-{length}-{kind}") };
            let task: Task = Document::saturation(&scenario, size, ways);
            Some(point(f64::from(length), document.summary(&task, peer, figure)?, unit))
        });
        Line { series, dashed: false, points: points.collect() }
    });
    let direction = if ways == 1 { "one direction" } else { "both directions" };
    let lines: Vec<Line> = lines.collect();
    // A chain has at least one function.
    if !lines.iter().flat_map(|line| &line.points).any(|point| point.x > 0.0) {
        return None;
    }
    picture(
        format!("chain-{name}-{kind}-{ways}"),
        Lines {
            title: format!("loopback, {kind}: {name} by length of the chain, {}, {direction}", column(size)),
            x: "functions in the chain (0: v2v)".into(),
            x_scale: Kind::Linear,
            y: y.into(),
            scale: Kind::Linear,
            ticks: (0..=5).map(f64::from).collect(),
            series: names(&peers),
            lines,
        },
    )
}

/// Throughput against the number of ports that share the switch's thread.
pub(super) fn ports_rate(document: &Document) -> Option<Block> {
    let texts =
        ("ports-throughput", "memif: throughput by ports, both directions", "Mpps received, all ports");
    by_ports(document, texts, 2, Load::Saturation, |figures| figure::rate(figures).map(|rate| rate / 1e6))
}

/// CPU time of the switch against the number of ports, as figure 8 of the mSwitch paper has it.
pub(super) fn ports_cpus(document: &Document) -> Option<Block> {
    let texts = ("ports-cpu", "memif: CPU by ports, at 10 % of the rate at saturation", "CPUs of the switch");
    by_ports(document, texts, 1, Load::Share(10), figure::cpus)
}

fn by_ports(
    document: &Document,
    (name, title, y): (&str, &str, &str),
    ways: u8,
    load: Load,
    figure: fn(&Figures) -> Option<f64>,
) -> Option<Block> {
    let peers = document.peers();
    let size = document.header.settings.sizes.first()?;
    let counts = [1u8, 2, 4, 8, 16];
    let lines = peers.iter().enumerate().map(|(series, peer)| {
        let points = counts.iter().filter_map(|pairs| {
            let scenario = if *pairs == 1 { "v2v-memif".into() } else { format!("pairs-{pairs}-memif") };
            let task = Task { scenario, size: size.clone(), ways, load };
            Some(point(2.0 * f64::from(*pairs), document.summary(&task, peer, figure)?, 1.0))
        });
        Line { series, dashed: false, points: points.collect() }
    });
    let lines: Vec<Line> = lines.collect();
    if !lines.iter().flat_map(|line| &line.points).any(|point| point.x > 2.0) {
        return None;
    }
    picture(
        name.into(),
        Lines {
            title: format!("{title}, {}", column(size)),
            x: "ports, in pairs".into(),
            x_scale: Kind::Logarithmic,
            y: y.into(),
            scale: Kind::Linear,
            ticks: counts.map(|pairs| 2.0 * f64::from(pairs)).into(),
            series: names(&peers),
            lines,
        },
    )
}

/// Figures of chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chain {
    /// Packets per second.
    Rate,
    /// Cycles per packet and hop.
    Cycles,
}

/// A point with its whisker, in a unit.
fn point(x: f64, summary: Summary, unit: f64) -> Point {
    let range = (summary.count > 1).then_some((summary.lowest / unit, summary.highest / unit));
    Point { x, y: summary.median / unit, range }
}

/// A bar with its whisker, in a unit.
fn bar_of(summary: Summary, unit: f64) -> Bar {
    Bar { median: summary.median / unit, lowest: summary.lowest / unit, highest: summary.highest / unit }
}

fn picture(name: String, mut lines: Lines) -> Option<Block> {
    lines.lines.retain(|line| !line.points.is_empty());
    if lines.lines.is_empty() { None } else { Some(Block::Plot { name, svg: lines.svg() }) }
}

fn names(peers: &[&str]) -> Vec<String> {
    peers.iter().map(|peer| (*peer).to_owned()).collect()
}
