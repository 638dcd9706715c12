//! Series of points, joined by lines.

use super::frame::{Frame, Texts};
use super::scale::{Kind, Scale, number};

/// A point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// Ends of a whisker.
    pub range: Option<(f64, f64)>,
}

impl Point {
    /// Its vertical values.
    fn values(&self) -> impl Iterator<Item = f64> {
        let (low, high) = self.range.unwrap_or((self.y, self.y));
        [low, self.y, high].into_iter()
    }
}

/// A line of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Index of the series in [`Lines::series`]: lines of one series share colour and marker.
    pub series: usize,
    /// Whether it is dashed, and its markers are left out.
    pub dashed: bool,
    /// Its points.
    pub points: Vec<Point>,
}

/// A plot of lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// Above the plot.
    pub title: String,
    /// Below the horizontal axis, with the unit.
    pub x: String,
    /// The horizontal scale.
    pub x_scale: Kind,
    /// Beside the vertical axis, with the unit.
    pub y: String,
    /// The vertical scale.
    pub scale: Kind,
    /// Values that have ticks on the horizontal axis, which ends at the last one; empty for round ones.
    pub ticks: Vec<f64>,
    /// Names of the series.
    pub series: Vec<String>,
    /// The lines.
    pub lines: Vec<Line>,
}

impl Lines {
    /// The picture.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let y = Scale::of(self.scale, points().flat_map(Point::values));
        let x = if self.ticks.is_empty() {
            Scale::of(self.x_scale, points().map(|point| point.x))
        } else {
            Scale::with_ticks(self.x_scale, &self.ticks)
        };
        let names: Vec<&str> = self.series.iter().map(String::as_str).collect();
        let texts = Texts { title: &self.title, x: &self.x, y: &self.y };
        let mut frame = Frame::new(texts, y, &names, |svg, series, at| svg.marker(at, series, ""));
        for tick in x.ticks() {
            let at = frame.x(inset(x.position(*tick)));
            frame.x_tick(at, &number(*tick));
        }
        for line in &self.lines {
            let at = |point: &Point| (frame.x(inset(x.position(point.x))), frame.y(point.y));
            let places: Vec<(f64, f64)> = line.points.iter().map(at).collect();
            frame.svg.path(&places, super::colour(line.series), line.dashed);
        }
        // Above all lines.
        for line in self.lines.iter().filter(|line| !line.dashed) {
            let name = names.get(line.series).copied().unwrap_or_default();
            for point in &line.points {
                let across = frame.x(inset(x.position(point.x)));
                if let Some((low, high)) = point.range {
                    let (low, high) = (frame.y(low), frame.y(high));
                    frame.svg.line((across, low), (across, high), "whisker");
                    for y in [low, high] {
                        frame.svg.line((across - 3.0, y), (across + 3.0, y), "whisker");
                    }
                }
                let at = (across, frame.y(point.y));
                frame.svg.marker(
                    at,
                    line.series,
                    &format!("{name}: {}, {}", number(point.x), number(point.y)),
                );
            }
        }
        frame.svg.finish()
    }
}

/// Keeps markers off the axes.
fn inset(share: f64) -> f64 {
    0.03 + 0.94 * share
}
