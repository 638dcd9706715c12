//! Draws the pictures of `bench/line-cards.sh` from its report:
//! `cargo run -p mswitch-bench-run --example line_cards -- REPORT.json docs/plots`

use std::error::Error;
use std::path::Path;

use bench_run::plot::{Kind, Line, Lines, Point};
use serde_json::Value;

/// Settings of the script, and their names in the pictures; the first one is what the others are compared with.
const SETTINGS: [(&str, &str); 3] =
    [("whole", "one card"), ("cable", "two cards, cable"), ("switch", "two cards, switched")];
/// The size of packets with which loads are compared.
const SIZE: f64 = 800.0;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(report), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: line_cards REPORT.json FOLDER".into());
    };
    let report: Value = serde_json::from_slice(&std::fs::read(report)?)?;
    let rows = report["summary"].as_array().ok_or("the report has no summary")?;
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or_default();
    let most = rows.iter().map(|row| number(row, "load")).fold(0.0, f64::max);
    let write = |file: &str, plot: Lines| std::fs::write(Path::new(&folder).join(file), plot.svg());

    let by_load = |row: &Value| (number(row, "size") == SIZE).then(|| number(row, "load"));
    let by_size = |row: &Value| (number(row, "load") == most).then(|| number(row, "size"));
    let load = "load, % of the highest rate";
    write(
        "line-cards-load.svg",
        plot(rows, "800 B: increase of the round-trip time", load, "ratio to one card", "increase", by_load),
    )?;
    write(
        "line-cards-size.svg",
        plot(rows, "Increase by size of packets", "bytes", "ratio to one card", "increase", by_size),
    )?;
    let times = plot(rows, "800 B: round-trip time", load, "median, µs", "p50", by_load);
    write("line-cards-time.svg", times)?;
    Ok(())
}

/// A figure of all settings against what `x` returns.
fn plot(
    rows: &[Value],
    title: &str,
    x_text: &str,
    y_text: &str,
    figure: &str,
    x: impl Fn(&Value) -> Option<f64>,
) -> Lines {
    let line = |(series, (setting, _)): (usize, &(&str, &str))| {
        let point = |row: &Value| {
            let at = x(row)?;
            let settings = row["settings"].as_array()?;
            let its = &settings.iter().find(|its| its["setting"] == *setting)?[figure];
            let [y, low, high] = ["median", "min", "max"].map(|key| its[key].as_f64());
            Some(Point { x: at, y: y?, range: Some((low?, high?)) })
        };
        Line { series, dashed: false, points: rows.iter().filter_map(point).collect() }
    };
    let lines: Vec<Line> = SETTINGS.iter().enumerate().map(line).collect();
    let mut ticks: Vec<f64> = lines.iter().flat_map(|line| line.points.iter().map(|point| point.x)).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    Lines {
        title: title.to_owned(),
        x: x_text.to_owned(),
        x_scale: Kind::Linear,
        y: y_text.to_owned(),
        scale: Kind::Linear,
        ticks,
        series: SETTINGS.iter().map(|(_, name)| (*name).to_owned()).collect(),
        lines,
    }
}
