//! The journal of a benchmark: a header, then a line of JSON for each sample, written as soon as it is measured.
//!
//! An interrupted benchmark continues where its journal ends. A last line that is incomplete, as a kill or a full disk
//! leaves it, is cut off. Samples that failed are measured again; the attempts that they took count for those that take
//! their place.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ceilings::Ceilings;
use crate::cpus::Cpus;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::sample::{Outcome, Sample};
use crate::settings::Settings;

/// Version of journals and reports.
pub const FORMAT: u64 = 1;
/// Name of the file.
const NAME: &str = "journal.jsonl";

/// A peer as the report names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFacts {
    /// Name.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// Version of the installed program.
    pub version: String,
    /// Command lines, by scenario.
    pub commands: BTreeMap<String, Vec<String>>,
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// See [`FORMAT`].
    pub format: u64,
    /// When the benchmark began: seconds since 1970.
    pub began: u64,
    /// What is measured.
    pub settings: Settings,
    /// Where.
    pub machine: Machine,
    /// CPUs.
    pub cpus: Cpus,
    /// Frequency of the time stamp counter.
    pub tsc_hz: f64,
    /// Peers that are measured.
    pub peers: Vec<PeerFacts>,
    /// Peers that are not, with the reason.
    pub absent: Vec<(String, String)>,
    /// Version of the generator's DPDK.
    pub generator: String,
    /// Fingerprint of the generator; empty in reports of earlier versions.
    #[serde(default)]
    pub generator_build: String,
    /// Limits of the machine, measured before.
    pub ceilings: Ceilings,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    header: Header,
    samples: Vec<Sample>,
    /// Failures from before an interruption that have not been repeated.
    failures: Vec<Sample>,
}

impl Journal {
    /// Continues the journal of a folder; `None` if there is none. It is left as it is if `check` refuses its header. The
    /// caller excludes other benchmarks: the file is replaced.
    pub fn resume(folder: &Path, check: impl FnOnce(&Header) -> Result<()>) -> Result<Option<Journal>> {
        let path = folder.join(NAME);
        let text = match std::fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::new(format!("{}: {error}", path.display()))),
        };
        let Some(content) = parse(&text).map_err(Error::while_doing(path.display()))? else {
            // Killed before the header was complete: nothing was measured.
            std::fs::remove_file(&path).map_err(Error::while_doing(path.display()))?;
            return Ok(None);
        };
        check(&content.header)?;
        let journal = Journal::write(path, content.lines, content.header)?;
        Ok(Some(Journal { samples: content.samples, failures: content.failures, ..journal }))
    }

    /// Begins a journal.
    pub fn begin(folder: &Path, header: Header) -> Result<Journal> {
        std::fs::create_dir_all(folder).map_err(Error::while_doing(folder.display()))?;
        Journal::write(folder.join(NAME), &line(&header)?, header)
    }

    /// Writes all of it into a new file, which then takes the place of the old one.
    fn write(path: PathBuf, text: &str, header: Header) -> Result<Journal> {
        let new = path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(Error::while_doing(path.display()))?;
        let file = File::options().append(true).open(&path).map_err(Error::while_doing(path.display()))?;
        Ok(Journal { file, path, header, samples: Vec::new(), failures: Vec::new() })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Samples that are not to be measured any more.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// These, and failures from before an interruption that have not been repeated.
    pub fn all(&self) -> Vec<Sample> {
        self.samples.iter().chain(&self.failures).cloned().collect()
    }

    /// Appends a sample; attempts of an earlier failure are added to its own.
    pub fn add(&mut self, mut sample: Sample) -> Result<()> {
        if let Some(earlier) = self.failures.iter().position(|failure| sample.replaces(failure)) {
            sample.attempts = sample.attempts.saturating_add(self.failures.swap_remove(earlier).attempts);
        }
        let text = line(&sample)?;
        self.file.write_all(text.as_bytes()).map_err(Error::while_doing(self.path.display()))?;
        self.samples.push(sample);
        Ok(())
    }
}

fn line<T: Serialize>(value: &T) -> Result<String> {
    let text = serde_json::to_string(value).map_err(Error::while_doing("journal"))?;
    Ok(text + "\n")
}

/// Checks the format of a journal or report before its other fields.
pub fn check_format(value: &serde_json::Value) -> Result<()> {
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(FORMAT) => Ok(()),
        Some(format) => Err(Error::new(format!(
            "format {format} (expected {FORMAT}): written by another version of mswitch; use that version, or another --out"
        ))),
        None => Err(Error::new("not the result of a benchmark")),
    }
}

/// Content of a journal.
struct Content<'a> {
    header: Header,
    samples: Vec<Sample>,
    /// Failed samples in whose place there is no other.
    failures: Vec<Sample>,
    /// Complete lines.
    lines: &'a str,
}

/// Reads a journal; `None` if not even the header is complete.
fn parse(text: &str) -> Result<Option<Content<'_>>> {
    let complete = text.rfind('\n').map_or("", |end| text.get(..=end).unwrap_or_default());
    let mut lines = complete.lines();
    let Some(first) = lines.next() else { return Ok(None) };
    let value: serde_json::Value = serde_json::from_str(first).map_err(Error::while_doing("line 1"))?;
    check_format(&value)?;
    let header: Header = serde_json::from_value(value).map_err(Error::while_doing("line 1"))?;
    let mut content = Content { header, samples: Vec::new(), failures: Vec::new(), lines: complete };
    for (index, line) in lines.enumerate() {
        let sample: Sample =
            serde_json::from_str(line).map_err(Error::while_doing(format!("line {}", index + 2)))?;
        content.failures.retain(|failure| !sample.replaces(failure));
        let list = match sample.outcome {
            Outcome::Measured(_) => &mut content.samples,
            Outcome::Failed(_) => &mut content.failures,
        };
        list.push(sample);
    }
    Ok(Some(content))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sample::{Figures, Load, Task};

    pub(crate) fn header() -> Header {
        Header {
            format: FORMAT,
            began: 1_800_000_000,
            settings: Settings {
                scenarios: vec!["v2v-memif".into()],
                peers: vec!["mswitch".into(), "ovs".into()],
                sizes: vec!["64".into()],
                loads: vec![Load::Saturation, Load::Share(50)],
                ways: vec![1, 2],
                seconds: 1.0,
                fewest: 3,
                most: 5,
                goal: 0.02,
                limit: 60.0,
            },
            machine: Machine::look(),
            cpus: Cpus { switch: 0, generator: 1, functions: 1 },
            tsc_hz: 2.6e9,
            peers: Vec::new(),
            absent: vec![("vpp".into(), "no `vpp` on the PATH".into())],
            generator: "22.11".into(),
            generator_build: "0badcafe".into(),
            ceilings: Ceilings::default(),
        }
    }

    pub(crate) fn sample(peer: &str, round: u32, pps: f64) -> Sample {
        let task = Task { scenario: "v2v-memif".into(), size: "64".into(), ways: 2, load: Load::Saturation };
        let figures = Figures { received_pps: pps, mean_size: 64.0, ..Figures::default() };
        Sample { task, peer: peer.into(), round, attempts: 1, outcome: Outcome::Measured(Box::new(figures)) }
    }

    #[test]
    fn a_journal_continues_after_a_torn_line() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Journal::resume(folder.path(), |_| Ok(())).unwrap().is_none());
        let mut journal = Journal::begin(folder.path(), header()).unwrap();
        journal.add(sample("ovs", 1, 1e6)).unwrap();
        journal.add(Sample { outcome: Outcome::Failed("died".into()), ..sample("ovs", 2, 0.0) }).unwrap();
        journal.add(sample("ovs", 3, 2e6)).unwrap();
        drop(journal);
        let path = folder.path().join(NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();

        let mut journal = Journal::resume(folder.path(), |_| Ok(())).unwrap().unwrap();
        assert_eq!(journal.samples(), [sample("ovs", 1, 1e6)]);
        assert_eq!(journal.header(), &header());
        let failed = Sample { outcome: Outcome::Failed("died".into()), ..sample("ovs", 2, 0.0) };
        assert_eq!(journal.all(), [sample("ovs", 1, 1e6), failed]);
        journal.add(sample("ovs", 2, 3e6)).unwrap();
        let twice = Sample { attempts: 2, ..sample("ovs", 2, 3e6) };
        assert_eq!(journal.all(), [sample("ovs", 1, 1e6), twice.clone()]);
        drop(journal);
        let journal = Journal::resume(folder.path(), |_| Ok(())).unwrap().unwrap();
        assert_eq!(journal.all(), [sample("ovs", 1, 1e6), twice]);
        assert_eq!(journal.samples(), journal.all());
    }

    #[test]
    fn the_journal_of_another_benchmark_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(folder.path(), header()).unwrap();
        journal.add(Sample { outcome: Outcome::Failed("died".into()), ..sample("ovs", 1, 0.0) }).unwrap();
        let path = folder.path().join(NAME);
        let before = std::fs::read(&path).unwrap();
        let refused = Journal::resume(folder.path(), |_| Err(Error::new("other"))).unwrap_err();
        assert_eq!(refused, Error::new("other"));
        // A benchmark that holds the file open goes on writing to it.
        journal.add(sample("ovs", 2, 1e6)).unwrap();
        assert!(std::fs::read(&path).unwrap().len() > before.len());
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let refusal = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let error = Journal::resume(folder.path(), |_| Ok(())).unwrap_err().to_string();
            error.split_once("jsonl: ").unwrap().1.to_owned()
        };
        assert_eq!(
            refusal("{\"format\":7}\n"),
            "format 7 (expected 1): written by another version of mswitch; use that version, or another --out"
        );
        assert_eq!(refusal("{}\n"), "not the result of a benchmark");
        assert!(refusal("hello\n").starts_with("line 1: "));
        let good = line(&header()).unwrap();
        assert!(refusal(&(good + "{}\n")).starts_with("line 2: "));
    }
}
