//! Configuration text: `fuzz/src/config_text.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use support::config_text;

fuzz_target!(|data: &[u8]| config_text::check(data));
