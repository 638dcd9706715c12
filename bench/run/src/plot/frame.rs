//! Title, axes, grid and legend: all of a plot but its data.

use super::scale::{Scale, number};
use super::svg::{Anchor, Svg};

const WIDTH: f64 = 720.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 20.0;
const PLOT: f64 = 270.0;
const BOTTOM: f64 = 58.0;
/// Height of the title, and of a line of the legend.
const HEAD: f64 = 34.0;
const ROW: f64 = 20.0;
/// Width of a character of the legend, generously.
const LETTER: f64 = 7.6;

/// The frame of a plot.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) svg: Svg,
    top: f64,
    y: Scale,
}

/// Texts of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
}

impl Frame {
    /// Draws the frame; `sample` draws the sign of a series at a place of the legend.
    pub(super) fn new(
        texts: Texts<'_>,
        y: Scale,
        legend: &[&str],
        sample: impl Fn(&mut Svg, usize, (f64, f64)),
    ) -> Frame {
        let places = places(legend);
        let rows = places.last().map_or(0.0, |(_, row)| row + 1.0);
        let top = HEAD + rows * ROW + 8.0;
        let mut svg = Svg::new(WIDTH, top + PLOT + BOTTOM, texts.title);
        svg.text(LEFT, 22.0, Anchor::Start, "head", texts.title);
        for (series, (name, (x, row))) in legend.iter().zip(&places).enumerate() {
            let middle = HEAD + row * ROW + ROW / 2.0;
            sample(&mut svg, series, (*x + 8.0, middle));
            svg.text(x + 20.0, middle + 4.2, Anchor::Start, "name", name);
        }
        let mut frame = Frame { svg, top, y };
        for tick in frame.y.ticks().to_vec() {
            let at = frame.y(tick);
            frame.svg.line((LEFT, at), (WIDTH - RIGHT, at), "grid");
            frame.svg.text(LEFT - 7.0, at + 4.2, Anchor::End, "tick", &number(tick));
        }
        let (bottom, right) = (top + PLOT, WIDTH - RIGHT);
        frame.svg.line((LEFT, bottom), (right, bottom), "axis");
        frame.svg.line((LEFT, top), (LEFT, bottom), "axis");
        frame.svg.upright(20.0, top + PLOT / 2.0, texts.y);
        frame.svg.text(f64::midpoint(LEFT, right), bottom + 44.0, Anchor::Middle, "name", texts.x);
        frame
    }

    /// Pixel of a share of the horizontal axis.
    pub(super) fn x(&self, share: f64) -> f64 {
        LEFT + share * (WIDTH - RIGHT - LEFT)
    }

    /// Pixel of a value on the vertical axis.
    pub(super) fn y(&self, value: f64) -> f64 {
        self.top + PLOT * (1.0 - self.y.position(value))
    }

    /// Pixel of the horizontal axis.
    pub(super) fn bottom(&self) -> f64 {
        self.top + PLOT
    }

    /// A tick's text below the horizontal axis.
    pub(super) fn x_tick(&mut self, at: f64, text: &str) {
        let bottom = self.bottom();
        self.svg.line((at, bottom), (at, bottom + 4.0), "axis");
        self.svg.text(at, bottom + 20.0, Anchor::Middle, "tick", text);
    }
}

/// Places of the legend's entries: pixel and row. Entries that do not fit into a row go to the next.
fn places(legend: &[&str]) -> Vec<(f64, f64)> {
    let (mut x, mut row) = (LEFT, 0.0);
    let mut places = Vec::new();
    for name in legend {
        let width = 42.0 + LETTER * name.chars().count() as f64;
        if x > LEFT && x + width > WIDTH - RIGHT {
            (x, row) = (LEFT, row + 1.0);
        }
        places.push((x, row));
        x += width;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_legend_has_several_rows_within_the_picture() {
        let names =
            ["mswitch", "mswitch-learning", "ovs", "ovs-learning", "testpmd", "linux-bridge", "mswitch-poll"];
        let places = places(&names);
        assert!(places.last().unwrap().1 >= 1.0, "{places:?}");
        for (name, (x, _)) in names.iter().zip(&places) {
            assert!(x + 20.0 + LETTER * name.len() as f64 <= WIDTH, "{name}: {x}");
        }
    }
}
