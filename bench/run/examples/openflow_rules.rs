//! Draws the pictures of `bench/rules.sh` from its reports, of the sets that these have:
//! `cargo run -p mswitch-bench-run --example openflow_rules -- docs/plots REPORT.json...`

use std::error::Error;
use std::path::Path;

use bench_run::plot::{Kind, Line, Lines, Point};
use serde_json::Value;

/// Switches in reports, and their names in the pictures.
const SWITCHES: [(&str, &str); 2] = [("mswitch", "mswitch"), ("ovs", "Open vSwitch")];
/// Bytes of the packets with which numbers of rules are compared.
const BYTES: f64 = 64.0;
/// Numbers of rules with which sizes of packets are compared, and what they are called.
const RULES: [(f64, &str); 2] = [(10.0, "10 rules"), (100.0, "100 rules")];
/// Sets of rules: their names in reports, and what they match.
const SETS: [(&str, &str); 2] = [("l2", "Ethernet addresses"), ("l3", "IPv4 addresses")];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().ok_or("usage: openflow_rules FOLDER REPORT.json...")?;
    let mut rows: Vec<Value> = vec![];
    for report in arguments {
        let of_report = |error: &dyn std::fmt::Display| format!("{}: {error}", report.display());
        let bytes = std::fs::read(&report).map_err(|error| of_report(&error))?;
        let mut value: Value = serde_json::from_slice(&bytes).map_err(|error| of_report(&error))?;
        rows.append(
            value["summary"].as_array_mut().ok_or_else(|| of_report(&"no report of bench/rules.sh"))?,
        );
    }
    if rows.is_empty() {
        return Err("nothing to draw: name reports that bench/rules.sh --out has written".into());
    }
    for (set, what) in SETS {
        let of_set: Vec<&Value> = rows.iter().filter(|row| row["set"] == set).collect();
        if of_set.is_empty() {
            continue;
        }
        let write = |kind: &str, plot: Lines| {
            let path = Path::new(&folder).join(format!("rules-{set}-{kind}.svg"));
            std::fs::write(&path, plot.svg()).map_err(|error| format!("{}: {error}", path.display()))
        };
        write("rate", by_rules(&of_set, &format!("64 B, rules for {what}: rate"), "Mpps", "pps", 1e-6))?;
        write(
            "cycles",
            by_rules(&of_set, &format!("64 B, rules for {what}: cycles"), "cycles a packet", "cycles", 1.0),
        )?;
        write("sizes", by_bytes(&of_set, &format!("Rules for {what}: rate by size of packets")))?;
    }
    Ok(())
}

/// A figure of both switches against the number of rules.
fn by_rules(rows: &[&Value], title: &str, y: &str, figure: &str, unit: f64) -> Lines {
    let line = |(series, (switch, _)): (usize, &(&str, &str))| {
        let point = |row: &&Value| {
            (bytes_of(row) == BYTES && has_a_flow_for_each(row))
                .then(|| point(number(row, "size"), &row[switch][figure], unit))
                .flatten()
        };
        Line { series, dashed: false, points: sorted(rows.iter().filter_map(point).collect()) }
    };
    Lines {
        title: title.to_owned(),
        x: "rules".to_owned(),
        x_scale: Kind::Logarithmic,
        y: y.to_owned(),
        scale: Kind::Logarithmic,
        ticks: vec![],
        series: SWITCHES.iter().map(|(_, name)| (*name).to_owned()).collect(),
        lines: SWITCHES.iter().enumerate().map(line).collect(),
    }
}

/// The rate of both switches with few rules against the size of packets.
fn by_bytes(rows: &[&Value], title: &str) -> Lines {
    let cases = SWITCHES.iter().flat_map(|switch| RULES.iter().map(move |rules| (switch, rules)));
    let mut series = vec![];
    let mut lines = vec![];
    for ((switch, its_name), (rules, how_many)) in cases {
        let point = |row: &&Value| {
            let bytes = bytes_of(row);
            (number(row, "size") == *rules && has_a_flow_for_each(row))
                .then(|| point(bytes, &row[switch]["pps"], bytes * 8e-9))
                .flatten()
        };
        let points = sorted(rows.iter().filter_map(point).collect());
        lines.push(Line { series: series.len(), dashed: false, points });
        series.push(format!("{its_name}, {how_many}"));
    }
    let mut ticks: Vec<f64> = lines.iter().flat_map(|line| line.points.iter().map(|point| point.x)).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    Lines {
        title: title.to_owned(),
        x: "bytes".to_owned(),
        x_scale: Kind::Logarithmic,
        y: "Gbit/s".to_owned(),
        scale: Kind::Linear,
        ticks,
        series,
        lines,
    }
}

/// A point of a figure with its spread; `None` where the switch failed.
fn point(x: f64, figure: &Value, unit: f64) -> Option<Point> {
    let [y, low, high] = ["median", "min", "max"].map(|key| figure[key].as_f64().map(|value| value * unit));
    Some(Point { x, y: y?, range: Some((low?, high?)) })
}

/// Bytes of the packets; reports had none when all were of one size.
fn bytes_of(row: &Value) -> f64 {
    row["bytes"].as_f64().unwrap_or(BYTES)
}

/// Whether the traffic has one flow for each rule.
fn has_a_flow_for_each(row: &Value) -> bool {
    row["flows"] == row["size"]
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_default()
}

fn sorted(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}
