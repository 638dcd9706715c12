//! Groups of bars: a group per size of packets, a bar per peer, a whisker from the lowest to the highest value.

use super::frame::{Frame, Texts};
use super::scale::{Kind, Scale, number};
use super::svg::Anchor;

/// A bar: median, lowest and highest value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// Its height.
    pub median: f64,
    /// Lower end of the whisker.
    pub lowest: f64,
    /// Upper end.
    pub highest: f64,
}

/// A plot of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// Above the plot.
    pub title: String,
    /// Below the horizontal axis.
    pub x: String,
    /// Beside the vertical axis, with the unit.
    pub y: String,
    /// The vertical scale.
    pub scale: Kind,
    /// Names of the series.
    pub series: Vec<String>,
    /// Names of the groups, each with a bar per series where there is one.
    pub groups: Vec<(String, Vec<Option<Bar>>)>,
}

impl Bars {
    /// The picture.
    pub fn svg(&self) -> String {
        let bars = self.groups.iter().flat_map(|(_, bars)| bars.iter().flatten());
        let scale = Scale::of(self.scale, bars.flat_map(|bar| [bar.median, bar.lowest, bar.highest]));
        let names: Vec<&str> = self.series.iter().map(String::as_str).collect();
        let texts = Texts { title: &self.title, x: &self.x, y: &self.y };
        let mut frame = Frame::new(texts, scale, &names, |svg, series, (x, y)| {
            svg.rectangle((x - 6.0, y - 6.0), (12.0, 12.0), super::colour(series), "");
        });
        let count = self.groups.len().max(1) as f64;
        for (index, (name, bars)) in self.groups.iter().enumerate() {
            let (from, to) = (frame.x(index as f64 / count), frame.x((index as f64 + 1.0) / count));
            frame.x_tick(f64::midpoint(from, to), name);
            let gap = (to - from) * 0.1;
            let width = (to - from - 2.0 * gap) / bars.len().max(1) as f64;
            for (series, bar) in bars.iter().enumerate() {
                let left = from + gap + series as f64 * width;
                let peer = names.get(series).copied().unwrap_or_default();
                self.bar(&mut frame, *bar, (left, width), series, &format!("{peer}, {name}"));
            }
        }
        frame.svg.finish()
    }

    fn bar(&self, frame: &mut Frame, bar: Option<Bar>, (left, width): (f64, f64), series: usize, name: &str) {
        let (middle, bottom) = (left + width / 2.0, frame.bottom());
        let Some(bar) = bar else {
            frame.svg.text(middle, bottom - 4.0, Anchor::Middle, "small", "–");
            return;
        };
        let top = frame.y(bar.median);
        let hint =
            format!("{name}: {} ({} to {})", number(bar.median), number(bar.lowest), number(bar.highest));
        frame.svg.rectangle((left + 1.0, top), (width - 2.0, bottom - top), super::colour(series), &hint);
        let (low, high) = (frame.y(bar.lowest), frame.y(bar.highest));
        if low - high > 1.0 {
            frame.svg.line((middle, low), (middle, high), "whisker");
            for y in [low, high] {
                frame.svg.line((middle - 3.0, y), (middle + 3.0, y), "whisker");
            }
        }
        if width >= 26.0 {
            frame.svg.text(middle, top.min(high) - 4.0, Anchor::Middle, "small", &number(bar.median));
        }
    }
}
