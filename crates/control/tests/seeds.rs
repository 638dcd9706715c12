//! Runs each seed and finding of the configuration fuzzer once, without the sanitizer.
#![allow(unreachable_pub, dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../../fuzz/src/config_text.rs"]
mod config_text;

use std::panic::catch_unwind;

#[test]
fn every_seed_passes() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/config");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let input = std::fs::read(&path).unwrap();
        assert!(catch_unwind(|| config_text::check(&input)).is_ok(), "{}", path.display());
        count += 1;
    }
    assert!(count > 100, "{count} seeds in {folder}");
}
