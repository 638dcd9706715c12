//! Plots as SVG: grouped bars and lines with markers, legible without colour and in print.
//!
//! | module | idea |
//! | --- | --- |
//! | `svg` | elements and escaping |
//! | `scale` | from values to pixels, and where ticks go |
//! | `frame` | title, axes, grid, legend |
//! | `bars` | groups of bars with whiskers |
//! | `lines` | series of points, joined |

mod bars;
mod frame;
mod lines;
mod scale;
mod svg;

pub use bars::{Bar, Bars};
pub use lines::{Line, Lines, Point};
pub use scale::Kind;
pub use svg::escape;

/// Colours that people with any colour vision tell apart (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7a5230", "#555555"];

/// Colour of a series, by its index.
fn colour(series: usize) -> &'static str {
    COLOURS.get(series % COLOURS.len()).copied().unwrap_or("#000000")
}
