//! Runs STF cases, each on the program of the same name beside it, and prints those that do not pass.
//!
//! ```text
//! cargo run -p mswitch-p4 --example stf -- [-v] FOLDER/*.stf
//! ```
//!
//! With `-v`: also the differences.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use mswitch_p4::compile;
use mswitch_p4::preprocess::Options;
use mswitch_p4::stf::{self, Case};

fn main() -> ExitCode {
    let verbose = env::args().any(|arg| arg == "-v");
    let files: Vec<PathBuf> = env::args().skip(1).filter(|arg| arg != "-v").map(PathBuf::from).collect();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &files {
        let (kind, text) = judge(file);
        *kinds.entry(kind).or_default() += 1;
        if kind != "passed" {
            let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
            println!("{}: {kind}: {}", file.display(), if verbose { &text } else { first });
        }
    }
    println!("{} cases: {kinds:?}", files.len());
    if kinds.get("passed") == Some(&files.len()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What became of a case, with the reason.
fn judge(file: &Path) -> (&'static str, String) {
    let program = file.with_extension("p4");
    let mut front = match compile::file(&program, &Options::default()) {
        Ok(front) => front,
        Err(error) => return ("unreadable", error.to_string()),
    };
    let lowered = front.lower();
    let errors = || {
        let list = front.diagnostics.list().iter();
        let line = |d: &mswitch_p4::diagnostic::Diagnostic| {
            let (line, column) = front.sources.line(d.label.span);
            format!("{line}:{column}: {}", d.message)
        };
        list.map(line).collect::<Vec<_>>().join("\n")
    };
    let Some(lowered) = lowered else {
        return (if front.program.is_some() { "not lowered" } else { "refused" }, errors());
    };
    let case = match fs::read_to_string(file).map(|text| Case::parse(&text)) {
        Ok(Ok(case)) => case,
        Ok(Err(problems)) => {
            let lines = problems.iter().map(|p| format!("{}: {}", p.line, p.message));
            return ("malformed", lines.collect::<Vec<_>>().join("\n"));
        }
        Err(error) => return ("unreadable", error.to_string()),
    };
    let report = stf::run(&lowered, &case, &stf::Options::default());
    match report.passes() {
        true => ("passed", String::new()),
        false => ("failed", report.text(&file.display().to_string())),
    }
}
