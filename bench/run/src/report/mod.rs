//! Reports of a benchmark: JSON for programs, Markdown and HTML for people.
//!
//! | module | idea |
//! | --- | --- |
//! | `summary` | medians of samples |
//! | `block` | headings, paragraphs, tables and plots, in Markdown and in HTML |
//! | `content` | what a report says, in which order |
//! | `tables`, `plots` | its tables and plots |
//! | `pairs` | ratios of mswitch and its counterpart within rounds |

mod block;
mod content;
mod pairs;
mod plots;
mod summary;
mod tables;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::journal::{Header, Journal, check_format};
use crate::sample::Sample;

pub(crate) use summary::figure;

/// A complete report: the journal in one piece.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// What was measured, where, with what.
    #[serde(flatten)]
    pub header: Header,
    /// All samples.
    pub samples: Vec<Sample>,
}

/// Writes all reports of a journal into a folder: `report.json`, `report.md` with its plots as files, and `report.html`,
/// which needs no other file.
pub(crate) fn write(folder: &Path, journal: &Journal) -> Result<()> {
    let document = Document { header: journal.header().clone(), samples: journal.all() };
    let json = serde_json::to_string_pretty(&document).map_err(Error::while_doing("report.json"))?;
    save(folder, "report.json", &(json + "\n"))?;
    let blocks = content::blocks(&document);
    let plots = folder.join("plots");
    std::fs::create_dir_all(&plots).map_err(Error::while_doing(plots.display()))?;
    for (name, svg) in block::plots(&blocks) {
        save(&plots, &format!("{name}.svg"), svg)?;
    }
    save(folder, "report.md", &block::markdown(&blocks))?;
    save(folder, "report.html", &block::html(&blocks))
}

fn save(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text).map_err(Error::while_doing(path.display()))
}

/// Reads a report: the file, or `report.json` in the folder.
pub fn read(path: &Path) -> Result<Document> {
    let path = if path.is_dir() { path.join("report.json") } else { path.to_owned() };
    let named = |error: String| Error::new(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| named(error.to_string()))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
    check_format(&value).map_err(|error| named(error.to_string()))?;
    serde_json::from_value(value).map_err(|error| named(error.to_string()))
}
