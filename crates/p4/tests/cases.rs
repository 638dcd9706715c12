//! Runs the cases in `tests/cases` and those of the examples, each on the program of the same name: in the interpreter
//! and as machine code.

use std::fs;
use std::path::{Path, PathBuf};

use mswitch_p4::compile;
use mswitch_p4::diagnostic::render;
use mswitch_p4::preprocess::Options;
use mswitch_p4::stf::{self, Case};

/// What is wrong with a case; nothing if it passes.
fn judge(path: &Path) -> String {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut front = match compile::file(&path.with_extension("p4"), &Options::default()) {
        Ok(front) => front,
        Err(error) => return format!("{name}: the program cannot be read: {error}"),
    };
    let Some(program) = front.lower() else {
        return render(&front.sources, &front.diagnostics, false);
    };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return format!("{name}: {error}"),
    };
    match Case::parse(&text) {
        Ok(case) => {
            stf::run(&program, &case, &stf::Options { trace: true, ..Default::default() }).text(&name)
        }
        Err(problems) => problems.iter().map(|problem| format!("{name}:{problem}\n")).collect(),
    }
}

/// Cases in a folder, in order.
fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut cases: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "stf")).collect();
    cases.sort();
    cases
}

#[test]
fn all_cases_pass() {
    let cases = cases("tests/cases");
    assert!(cases.len() >= 18, "{} cases found", cases.len());
    let cases = cases.into_iter().chain(self::cases("../../examples/cache-agent"));
    let wrong: String = cases.map(|path| judge(&path)).collect();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn all_examples_pass_and_have_a_page_that_counts_their_packets() {
    let cases = cases("../../examples/p4");
    assert!(cases.len() >= 8, "{} cases found", cases.len());
    let wrong: String = cases.iter().map(|path| judge(path)).collect();
    assert!(wrong.is_empty(), "{wrong}");
    for case in cases {
        let name = case.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/p4/{name}.md"));
        let page = fs::read_to_string(page).unwrap_or_default();
        let packets = fs::read_to_string(&case).unwrap_or_default();
        let packets = packets.lines().filter(|line| line.starts_with("packet ")).count();
        let passed = format!("examples/p4/{name}.stf: passed, {packets} packets\n");
        assert!(page.contains(&passed), "docs/p4/{name}.md does not end in {passed}");
    }
}
