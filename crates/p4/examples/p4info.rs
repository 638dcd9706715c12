//! Compares P4Info with the results that p4c's test data holds.
//!
//! ```sh
//! P4C=CHECKOUT cargo run -p mswitch-p4 --example p4info [PART]...
//! ```
//! P4C is a checkout of p4c. With parts of programs' names, the differences of these programs are printed in full.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mswitch_p4::diagnostic::{Diagnostics, Severity};
use mswitch_p4::info::{self, Form, P4Info};
use mswitch_p4::parse;
use mswitch_p4::preprocess::Options;

fn main() {
    let p4c = PathBuf::from(std::env::var_os("P4C").expect("P4C: a checkout of p4c"));
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let samples = p4c.join("testdata/p4_16_samples");
    let outputs = p4c.join("testdata/p4_16_samples_outputs");
    let mut references = Vec::new();
    find(&outputs, &mut references);
    references.sort();
    let mut counts: BTreeMap<(String, &str), Vec<String>> = BTreeMap::new();
    for reference in references {
        let relative = reference.strip_prefix(&outputs).unwrap().to_str().unwrap();
        let name = relative.strip_suffix(SUFFIX).unwrap();
        if !parts.is_empty() && !parts.iter().any(|part| name.contains(part)) {
            continue;
        }
        let text = std::fs::read_to_string(&reference).unwrap();
        let expected = info::read(&text).unwrap_or_else(|error| panic!("{relative}: {error}"));
        let arch = expected.pkg_info.as_ref().map_or("", |package| &package.arch).to_owned();
        let (outcome, detail) = compare(&samples.join(name), expected);
        if outcome != EQUAL {
            println!("{name}: {outcome}");
            let lines = if parts.is_empty() { 3 } else { usize::MAX };
            detail.lines().take(lines).for_each(|line| println!("    {line}"));
        }
        counts.entry((arch, outcome)).or_default().push(name.to_owned());
    }
    for ((arch, outcome), names) in counts {
        println!("{:>4} {arch} {outcome}", names.len());
    }
}

const SUFFIX: &str = ".p4info.txtpb";
const EQUAL: &str = "equal";

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, found);
        } else if path.to_str().is_some_and(|path| path.ends_with(SUFFIX)) {
            found.push(path);
        }
    }
}

/// The outcome of a program, with details.
fn compare(program: &Path, expected: P4Info) -> (&'static str, String) {
    let Ok(parsed) = parse::file(program, &Options::default()) else {
        return ("has no program", String::new());
    };
    let mut diagnostics = parsed.diagnostics;
    if diagnostics.errors() > 0 {
        return ("is not parsed", errors(&diagnostics));
    }
    let Some(checked) = mswitch_p4::check::check(&parsed.program, &mut diagnostics) else {
        return ("is refused by the checker", errors(&diagnostics));
    };
    let found = info::of(&checked, &parsed.sources, &mut diagnostics);
    if diagnostics.errors() > 0 {
        return ("has no P4Info", errors(&diagnostics));
    }
    let (expected, found) = (lines(expected), lines(found));
    if expected == found { (EQUAL, String::new()) } else { ("differs", difference(&expected, &found)) }
}

fn errors(diagnostics: &Diagnostics) -> String {
    let errors = diagnostics.list().iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    errors.map(|error| format!("{}\n", error.message)).collect()
}

/// The text form, with objects in the order of their ids.
fn lines(mut info: P4Info) -> Vec<String> {
    macro_rules! sort {
        ($($list:ident)*) => {
            $(info.$list.sort_by_key(|object| object.preamble.as_ref().map_or(0, |preamble| preamble.id));)*
        };
    }
    sort!(tables actions action_profiles counters direct_counters meters direct_meters controller_packet_metadata);
    sort!(value_sets registers digests);
    let text = String::from_utf8(info::print(&info, Form::Text).unwrap()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Blocks at the top level that only one side has.
fn difference(expected: &[String], found: &[String]) -> String {
    let blocks = |lines: &[String]| {
        let mut blocks = BTreeSet::new();
        let mut block = String::new();
        for line in lines {
            block.push_str(line);
            block.push('\n');
            if line == "}" {
                blocks.insert(std::mem::take(&mut block));
            }
        }
        blocks
    };
    let (expected, found) = (blocks(expected), blocks(found));
    let mut text = String::new();
    for (sign, block) in
        expected.difference(&found).map(|b| ('-', b)).chain(found.difference(&expected).map(|b| ('+', b)))
    {
        for line in block.lines() {
            text.push_str(&format!("{sign} {line}\n"));
        }
    }
    text
}
