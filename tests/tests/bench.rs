//! `mswitch bench`: a measurement with its reports, wishes that cannot be met, and ends by Ctrl-C and SIGKILL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use e2e::{Running, binary, exclusive, output, until};
use rustix::process::Signal;
use serde_json::Value;

/// Where a benchmark keeps its records and sockets.
const LAB: &str = "/run/mswitch-bench";

/// `mswitch bench WORDS`, with results in a folder.
fn bench(words: &[&str]) -> Command {
    let mut command = Command::new(binary("mswitch", "MSWITCH_BIN").unwrap());
    command.arg("bench").args(words).stdin(Stdio::null());
    command
}

/// A short benchmark of mswitch between two memif ports, with results in this folder.
fn short(out: &Path, rounds: &str, seconds: &str) -> Command {
    let mut command = bench(&["run", "--scenario", "v2v-memif", "--peer", "mswitch", "--size", "64"]);
    command.args(["--rounds", rounds, "--seconds", seconds, "--out"]).arg(out);
    command
}

fn run(command: &mut Command) -> (Output, String) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, errors)
}

/// Ids of running processes whose command line names the laboratory's folder.
fn left() -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let named = processes.filter(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(LAB)
    });
    named.map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}

fn assert_nothing_left() {
    assert_eq!(left(), Vec::<String>::new());
    assert!(!Path::new(LAB).exists(), "{LAB} still exists");
    assert!(!output("ip", &["netns"]).unwrap().contains("mswitch-bench"));
}

/// A benchmark of many rounds, started and in the middle of a measurement.
fn in_the_middle(out: &Path) -> (Running, PathBuf) {
    let log = out.with_extension("log");
    let mut command = short(out, "100", "0.1");
    command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    let running = Running::start(&mut command).unwrap();
    until("a first sample", Duration::from_secs(60), || {
        Ok(std::fs::read_to_string(&log)?.contains(" Mpps").then_some(()))
    })
    .unwrap();
    assert!(!left().is_empty(), "a switch is running");
    (running, log)
}

#[test]
fn a_short_run_measures_and_reports() {
    let _machine = exclusive();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a");
    let (output, errors) = run(&mut short(&out, "1", "0.1"));
    assert!(output.status.success(), "{errors}");
    assert_nothing_left();
    let report: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    let samples = report["samples"].as_array().unwrap();
    let of = |load: &str, ways: u64| {
        let found = samples.iter().find(|sample| sample["load"] == load && sample["ways"] == ways);
        found.unwrap_or_else(|| panic!("no {load}: {errors}"))["measured"].clone()
    };
    let number =
        |figures: &Value, name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("{name}: {figures}"));
    for ways in [1, 2] {
        let figures = of("max", ways);
        assert!(number(&figures, "received_pps") > 10_000.0, "{figures}");
        assert!(number(&figures, "cycles_per_packet") > 10.0, "{figures}");
        assert!(number(&figures, "packets_per_batch") >= 1.0, "{figures}");
        assert!(number(&figures, "switch_cpus") > 0.0, "{figures}");
    }
    let (saturated, half) = (of("max", 1), of("50%", 1));
    let share = number(&half, "sent_pps") / number(&saturated, "received_pps");
    assert!(share < 0.55, "half of the rate was asked for: {share}");
    assert!(half["rtt_ns"]["p50"].as_f64().unwrap() <= half["rtt_ns"]["p99"].as_f64().unwrap(), "{half}");
    assert!(of("idle", 1)["switch_cpus"].as_f64().unwrap() < 0.5);
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("<svg") && html.contains("v2v-memif: latency against throughput"), "{html}");
    assert!(std::fs::read_to_string(out.join("report.md")).unwrap().contains("| mswitch | "));

    // A report does not differ from itself.
    let path = out.to_str().unwrap();
    let comparison = bench(&["compare", path, path, "--json"]).output().unwrap();
    let comparison: Value = serde_json::from_slice(&comparison.stdout).unwrap();
    let overall = comparison["overall"].as_array().unwrap();
    assert!(overall.len() >= 4 && overall.iter().all(|change| change["verdict"] == "same"), "{comparison}");

    // It has nothing to compare within itself.
    let (_, errors) = run(&mut bench(&["compare", path]));
    assert!(
        errors.starts_with(&format!("mswitch: {path}: the report has no figures of an earlier")),
        "{errors}"
    );

    // Its journal continues only what it began.
    let (output, errors) = run(&mut short(&out, "2", "0.1"));
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("journal.jsonl: begun with another --rounds; give the same options"), "{errors}");
    std::fs::write(out.join("report.json"), "{\"format\":99}").unwrap();
    let (output, errors) = run(&mut bench(&["compare", path, path]));
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("report.json: format 99 (expected 1)"), "{errors}");
}

#[test]
fn an_earlier_program_is_measured_in_the_same_rounds() {
    let _machine = exclusive();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a");
    let path = out.to_str().unwrap();
    let mut command = short(&out, "2", "0.1");
    command.args(["--load", "max", "--ways", "2", "--before"]);
    let (output, errors) = run(command.arg(binary("mswitch", "MSWITCH_BIN").unwrap()));
    assert!(output.status.success(), "{errors}");
    assert_nothing_left();
    assert!(errors.contains(&format!("mswitch bench compare {path}")), "{errors}");
    let report: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    let peers = report["samples"].as_array().unwrap().iter().map(|sample| sample["peer"].as_str().unwrap());
    // Each begins a round.
    assert_eq!(peers.collect::<Vec<_>>(), ["mswitch", "mswitch-before", "mswitch-before", "mswitch"]);
    let comparison = bench(&["compare", path]).output().unwrap();
    let text = String::from_utf8_lossy(&comparison.stdout).into_owned();
    assert!(text.contains("note: mswitch and mswitch-before are the same program"), "{text}");
    assert!(text.contains("note: mswitch: 2 rounds: fewer than 8 tell no change from chance"), "{text}");
    assert!(text.contains("cycles per packet        now/before "), "{text}");

    // Without a peer for it, or a program, nothing is measured.
    let other = folder.path().join("b");
    let refusal = |words: &[&str]| {
        let (output, errors) = run(bench(&["run", "--peer", "testpmd", "--out"]).arg(&other).args(words));
        assert_eq!((output.status.code(), other.exists()), (Some(1), false), "{errors}");
        errors
    };
    let errors = refusal(&["--before", "/nowhere/mswitch"]);
    assert!(errors.starts_with("mswitch: --before /nowhere/mswitch: no peer runs mswitch"), "{errors}");
    let errors = refusal(&["--before", "/nowhere/mswitch", "--peer", "mswitch"]);
    assert!(errors.starts_with("mswitch: --before /nowhere/mswitch: "), "{errors}");
    assert!(errors.contains("No such file"), "{errors}");
    let errors = refusal(&["--before", "/bin/ls", "--peer", "mswitch"]);
    assert!(errors.starts_with("mswitch: --before /bin/ls: /bin/ls is another program"), "{errors}");
}

#[test]
fn thousands_of_stations_are_learned() {
    let _machine = exclusive();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a");
    let words = [
        "run",
        "--scenario",
        "stations-memif",
        "--peer",
        "mswitch-learning",
        "--size",
        "64",
        "--load",
        "max",
    ];
    let mut command = bench(&words);
    command.args(["--ways", "2", "--rounds", "1", "--seconds", "0.2", "--out"]).arg(&out);
    let (output, errors) = run(&mut command);
    assert!(output.status.success(), "{errors}");
    assert_nothing_left();
    let report: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    let samples = report["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 1, "{errors}");
    assert!(samples[0]["measured"]["received_pps"].as_f64().unwrap() > 10_000.0, "{errors}");
    // With less room, the table would forget stations, and the switch flood to the only other port unnoticed.
    let commands = report["peers"][0]["commands"]["stations-memif"].to_string();
    assert!(commands.contains("max-stations"), "{commands}");
}

#[test]
fn wishes_that_cannot_be_met_are_refused_before_the_start() {
    let _machine = exclusive();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a");
    let refusal = |words: &[&str], path: Option<&str>| {
        let mut command = bench(&["run", "--out"]);
        command.arg(&out).args(words);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let (output, errors) = run(&mut command);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {errors}");
        assert!(!out.exists() && !Path::new(LAB).exists(), "{words:?}: nothing was started");
        errors
    };
    assert_eq!(
        refusal(&["--peer", "snabb"], Some("/nowhere")),
        "mswitch: peer snabb: no `snabb` on the PATH\n"
    );
    let errors = refusal(&["--peer", "testpmd"], Some("/nowhere"));
    assert_eq!(
        errors,
        "mswitch: peer testpmd: dpdk-testpmd is missing; on Debian: apt-get install dpdk-dev\n"
    );
    let errors = refusal(&["--peer", "linux-bridge", "--scenario", "v2v-memif"], None);
    assert_eq!(errors, "mswitch: peer linux-bridge cannot run v2v-memif; it can run: p2p\n");
    let errors = refusal(&["--peer", "nobody"], None);
    assert!(errors.starts_with("mswitch: unknown peer `nobody`; there are: mswitch, "), "{errors}");
    let mut command = short(&out, "1", "0.1");
    command.env("MSWITCH_GENERATOR", "/nowhere/generator");
    let (output, errors) = run(&mut command);
    assert_eq!((output.status.code(), out.exists()), (Some(1), false));
    assert_eq!(errors, "mswitch: MSWITCH_GENERATOR=/nowhere/generator: no such file\n");
}

#[test]
fn nothing_is_left_after_ctrl_c_and_the_run_continues() {
    let _machine = exclusive();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a");
    let (mut running, log) = in_the_middle(&out);
    // A second benchmark does not disturb the first.
    let (_, errors) = run(&mut short(&folder.path().join("b"), "1", "0.1"));
    assert!(
        errors.contains(&format!("another benchmark is running on this machine (process {})", running.pid())),
        "{errors}"
    );
    running.signal(Signal::INT).unwrap();
    let status = running.wait(Duration::from_secs(30)).unwrap();
    let errors = std::fs::read_to_string(&log).unwrap();
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains("mswitch: interrupted; the same command continues: the journal in "), "{errors}");
    assert_nothing_left();
    assert!(out.join("report.html").exists(), "what was measured is reported");
    let before = std::fs::read_to_string(out.join("journal.jsonl")).unwrap();

    let (mut running, log) = in_the_middle(&out);
    running.signal(Signal::INT).unwrap();
    running.wait(Duration::from_secs(30)).unwrap();
    let errors = std::fs::read_to_string(&log).unwrap();
    assert!(errors.contains("continuing "), "{errors}");
    let after = std::fs::read_to_string(out.join("journal.jsonl")).unwrap();
    assert!(after.starts_with(&before) && after.len() > before.len(), "{before}\n{after}");
    assert_nothing_left();
}

#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    let _machine = exclusive();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a");
    let (mut running, _) = in_the_middle(&out);
    running.kill().unwrap();
    assert!(!left().is_empty(), "a killed benchmark removes nothing");
    let (output, errors) = run(&mut short(&folder.path().join("b"), "1", "0.1"));
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("removed what a killed benchmark had left: process "), "{errors}");
    assert_nothing_left();
}
