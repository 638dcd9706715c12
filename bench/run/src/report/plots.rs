//! Plots of a report. Each peer has one colour and marker in all of them.

use super::Document;
use super::block::Block;
use super::summary::figure;
use super::tables::column;
use crate::plot::{Bar, Bars, Kind, Line, Lines, Point};
use crate::sample::{Figures, Load, Task};

/// Throughput by size, as figure 4 of the comparison has it.
pub(super) fn throughput(document: &Document, scenario: &str, ways: u8) -> Option<Block> {
    let peers = document.peers();
    let bar = |size: &str, peer: &str| {
        let task = Document::saturation(scenario, size, ways);
        let summary = document.summary(&task, peer, figure::bits)?;
        let unit = 1e9;
        Some(Bar {
            median: summary.median / unit,
            lowest: summary.lowest / unit,
            highest: summary.highest / unit,
        })
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
        series: names(&peers),
        groups,
    };
    Some(Block::Plot { name: format!("throughput-{scenario}-{ways}"), svg: bars.svg() })
}

/// Round-trip time against throughput, for every peer at 0.10, 0.50 and 0.99 R⁺.
pub(super) fn latency(document: &Document, scenario: &str) -> Option<Block> {
    let peers = document.peers();
    let line = |(series, peer): (usize, &&str), figure: fn(&Figures) -> Option<f64>, dashed| {
        let points = [10, 50, 99].into_iter().filter_map(|percent| {
            let task = document.share(scenario, Load::Share(percent));
            let x = document.summary(&task, peer, figure::rate)?.median / 1e6;
            Some(Point { x, y: document.summary(&task, peer, figure)?.median / 1e3 })
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
            Some(Point { x: *x, y: document.summary(&task, peer, figure::cpus)?.median })
        });
        Line { series, dashed: false, points: points.collect() }
    });
    picture(
        format!("cpu-{scenario}"),
        Lines {
            title: format!("{scenario}: CPU against load"),
            x: "load in % of the peer's own rate at saturation".into(),
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
            Some(Point { x: f64::from(length), y: document.summary(&task, peer, figure)?.median / unit })
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
            y: y.into(),
            scale: Kind::Linear,
            ticks: (0..=5).map(f64::from).collect(),
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

fn picture(name: String, mut lines: Lines) -> Option<Block> {
    lines.lines.retain(|line| !line.points.is_empty());
    if lines.lines.is_empty() { None } else { Some(Block::Plot { name, svg: lines.svg() }) }
}

fn names(peers: &[&str]) -> Vec<String> {
    peers.iter().map(|peer| (*peer).to_owned()).collect()
}
