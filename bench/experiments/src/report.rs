//! Reports of experiments: JSON, Markdown with tables, and a picture for each figure.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::experiments::{Experiment, Point};
use crate::rig::Result;
use crate::samples::{Effort, Spread};

/// An experiment and its points.
pub struct Measured {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// Its points, in the order of measuring.
    pub points: Vec<Point>,
}

impl Measured {
    /// All of it, for programs.
    pub fn json(&self) -> Value {
        let Experiment { name, about, x, base, .. } = self.experiment;
        json!({ "experiment": name, "about": about, "x": x, "base": base, "points": self.points })
    }

    fn markdown(&self, effort: Effort) -> String {
        let Experiment { name, about, x, base, plots, .. } = self.experiment;
        let mut text = format!("## {name}\n\n{about}.\n\n");
        for plot in *plots {
            let _ = writeln!(text, "![{}](plots/{}.svg)\n", plot.title, plot.name);
        }
        let _ = writeln!(
            text,
            "Median (lowest to highest) of {} turns of {} ms; the ratio is to: {base}.\n\n\
             | {x} | | Mpps | Gbit/s | ratio | dropped | disturbed |\n| --- | --- | --- | --- | --- | --- | --- |",
            effort.rounds,
            effort.time.as_millis()
        );
        for point in &self.points {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                point.x,
                point.series,
                shown(point.mpps),
                shown(point.gbps),
                shown(point.ratio),
                point.drops,
                point.disturbed
            );
        }
        text
    }
}

/// A spread as text.
pub fn shown(spread: Option<Spread>) -> String {
    match spread {
        Some(it) => format!("{:.2} ({:.2} to {:.2})", it.median, it.min, it.max),
        None => "-".into(),
    }
}

/// Writes `experiments.json`, `experiments.md` and `plots/*.svg` into a folder.
pub fn write(folder: &Path, effort: Effort, all: &[Measured]) -> Result<()> {
    let plots = folder.join("plots");
    fs::create_dir_all(&plots)?;
    let mut text = "# Experiments on the fabric\n".to_owned();
    for measured in all {
        text += "\n";
        text += &measured.markdown(effort);
        for plot in measured.experiment.plots {
            fs::write(
                plots.join(format!("{}.svg", plot.name)),
                plot.svg(measured.experiment, &measured.points),
            )?;
        }
    }
    fs::write(folder.join("experiments.md"), text)?;
    let json: Vec<Value> = all.iter().map(Measured::json).collect();
    fs::write(folder.join("experiments.json"), serde_json::to_string_pretty(&json)? + "\n")?;
    Ok(())
}
