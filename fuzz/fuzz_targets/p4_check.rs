//! A P4 program's text through the whole front end: checked and, without errors, lowered into a pipeline.
//!
//! Invariants:
//! - No panic, also while the messages are rendered; time, memory and stack are bounded.
//! - A program is checked exactly if it has no errors; one that cannot be lowered has errors that say why.
#![no_main]

use libfuzzer_sys::fuzz_target;
use p4::compile;
use p4::diagnostic::render;
use p4::preprocess::Options;

fuzz_target!(|data: &[u8]| {
    let mut front = compile::text("fuzz.p4", &String::from_utf8_lossy(data), &Options::default());
    assert_eq!(front.program.is_some(), front.diagnostics.errors() == 0);
    if front.runs() {
        assert_eq!(front.lower().is_some(), front.diagnostics.errors() == 0);
    }
    render(&front.sources, &front.diagnostics, false);
});
