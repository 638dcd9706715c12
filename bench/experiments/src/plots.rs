//! Pictures of experiments, in the form of the paper's figures.

use bench_run::plot::{Bar, Bars, Kind, Line, Lines, Point as At};

use crate::experiments::{Experiment, Point};
use crate::samples::Spread;

/// A picture of an experiment.
#[derive(Debug)]
pub struct Plot {
    /// Name of its file, without ending.
    pub name: &'static str,
    /// Above the picture.
    pub title: &'static str,
    /// The vertical axis.
    pub y: Measure,
    /// Whether that has a logarithmic scale.
    pub logarithmic: bool,
    /// The horizontal axis.
    pub x: Horizontal,
    /// Beginning of the names of its series, which the legend leaves out.
    pub group: &'static str,
}

/// Figures of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Million packets per second.
    Mpps,
    /// Gbit/s.
    Gbps,
}

/// Horizontal axes.
#[derive(Debug, Clone, Copy)]
pub enum Horizontal {
    /// Lines, on a linear scale with these ticks.
    Linear(&'static [f64]),
    /// Lines, on a logarithmic scale with these ticks.
    Logarithmic(&'static [f64]),
    /// Bars, in groups of this unit.
    Groups(&'static str),
}

impl Plot {
    /// The picture of these points as SVG.
    pub fn svg(&self, experiment: &Experiment, points: &[Point]) -> String {
        let points: Vec<(&str, &Point)> =
            points.iter().filter_map(|point| Some((point.series.strip_prefix(self.group)?, point))).collect();
        let mut series: Vec<String> = Vec::new();
        for (name, _) in &points {
            if !series.iter().any(|known| known == name) {
                series.push((*name).to_owned());
            }
        }
        match self.x {
            Horizontal::Linear(ticks) => self.lines(experiment, &points, series, Kind::Linear, ticks),
            Horizontal::Logarithmic(ticks) => {
                self.lines(experiment, &points, series, Kind::Logarithmic, ticks)
            }
            Horizontal::Groups(unit) => self.bars(experiment, &points, series, unit),
        }
    }

    fn lines(
        &self,
        experiment: &Experiment,
        points: &[(&str, &Point)],
        series: Vec<String>,
        x_scale: Kind,
        ticks: &[f64],
    ) -> String {
        let line = |(index, name): (usize, &String)| {
            let own = points.iter().filter(|(of, _)| of == name);
            let points = own.filter_map(|(_, point)| {
                let spread = self.value(point)?;
                Some(At { x: point.x, y: spread.median, range: Some((spread.min, spread.max)) })
            });
            Line { series: index, dashed: false, points: points.collect() }
        };
        let lines = series.iter().enumerate().map(line).collect();
        Lines {
            title: self.title.into(),
            x: experiment.x.into(),
            x_scale,
            y: self.unit().into(),
            scale: self.scale(),
            ticks: ticks.into(),
            series,
            lines,
        }
        .svg()
    }

    fn bars(
        &self,
        experiment: &Experiment,
        points: &[(&str, &Point)],
        series: Vec<String>,
        unit: &str,
    ) -> String {
        let mut places: Vec<f64> = points.iter().map(|(_, point)| point.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let group = |x: &f64| {
            let bar = |name: &String| {
                let (_, point) = points.iter().find(|(of, point)| of == name && point.x == *x)?;
                let spread = self.value(point)?;
                Some(Bar { median: spread.median, lowest: spread.min, highest: spread.max })
            };
            let name = if experiment.x.contains(unit) { x.to_string() } else { format!("{x} {unit}") };
            (name, series.iter().map(bar).collect())
        };
        Bars {
            title: self.title.into(),
            x: experiment.x.into(),
            y: self.unit().into(),
            scale: self.scale(),
            groups: places.iter().map(group).collect(),
            series: series.clone(),
        }
        .svg()
    }

    fn value(&self, point: &Point) -> Option<Spread> {
        match self.y {
            Measure::Mpps => point.mpps,
            Measure::Gbps => point.gbps,
        }
    }

    fn unit(&self) -> &'static str {
        match self.y {
            Measure::Mpps => "Mpps per CPU second of a worker",
            Measure::Gbps => "Gbit/s per CPU second of a worker",
        }
    }

    fn scale(&self) -> Kind {
        if self.logarithmic { Kind::Logarithmic } else { Kind::Linear }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::LIST;

    #[test]
    fn each_experiment_has_pictures_with_all_of_their_series() {
        let spread = Some(Spread { min: 1.0, median: 2.0, max: 3.0 });
        for experiment in LIST {
            assert!(!experiment.plots.is_empty(), "{}", experiment.name);
            for plot in experiment.plots {
                let point = |name: &str, x| Point {
                    series: format!("{}{name}", plot.group),
                    x,
                    mpps: spread,
                    gbps: spread,
                    ratio: None,
                    batch: 1.0,
                    drops: 0,
                    disturbed: 0,
                };
                let other = Point { series: "zzz".into(), ..point("", 60.0) };
                let svg = plot.svg(experiment, &[point("one", 60.0), point("two", 60.0), other]);
                assert!(svg.contains(">one</text>") && svg.contains(">two</text>"), "{svg}");
                assert_eq!(svg.contains(">zzz</text>"), plot.group.is_empty(), "{}", plot.name);
            }
        }
    }
}
