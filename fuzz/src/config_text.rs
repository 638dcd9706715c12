//! Configuration text: arbitrary text, and text close to the grammar.
//!
//! Invariants:
//! - No panic, and a running time bounded by the length of the text.
//! - A refusal names at least one error; each has a message and a position within the text, in the text's order.
//! - An accepted configuration satisfies the constraints on each value: names, MTUs, unique names.
//! - A written configuration reads back unchanged; an edited text reads as the configuration that it was edited for.
//! - VLANs, CPU lists and port options survive a round trip through their text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use control::diff::between;
use control::file::{self, Depth, FileError, Secrets};
use control::model::{self, Config};
use control::sflow::{Collector, settings};
use control::{cpulist, options, vlan};

use crate::Bytes;

/// Parses an input and asserts the invariants above.
pub fn check(data: &[u8]) {
    let mut from = Bytes::new(data);
    let text = if from.u8() & 1 == 0 {
        String::from_utf8_lossy(from.rest()).into_owned()
    } else {
        grammar(&mut from)
    };
    match file::parse(&text, Path::new("fuzz.toml"), Depth::Text) {
        Ok(config) => accepted(&text, &config),
        Err(error) => refused(&text, &error),
    }
    grammars(&text);
}

fn refused(text: &str, error: &FileError) {
    assert!(!error.problems.is_empty());
    assert!(!error.to_string().is_empty());
    let lines: Vec<&str> = text.split('\n').collect();
    let mut last = None;
    for problem in &error.problems {
        assert!(!problem.message.is_empty());
        let Some(at) = problem.position else { panic!("no position in a text: {error}") };
        let line = at.line.checked_sub(1).and_then(|line| lines.get(line));
        let Some(line) = line else { panic!("line {} of {}: {error}", at.line, lines.len()) };
        let columns = line.chars().count() + 1;
        assert!((1..=columns).contains(&at.column), "column {} of {columns}: {error}", at.column);
        assert!(last <= Some(at), "out of order: {error}");
        last = Some(at);
    }
}

fn accepted(text: &str, config: &Config) {
    let again = file::parse(text, Path::new("fuzz.toml"), Depth::Text);
    assert_eq!(again.as_ref(), Ok(config), "the same text parses differently");
    let written = file::write(config, Secrets::Written);
    let again = file::parse(&written, Path::new("fuzz.toml"), Depth::Text);
    assert_eq!(again.as_ref(), Ok(config), "the written text parses differently: {written}");
    // Edits towards the same configuration, an empty one, and from empty to all.
    assert_eq!(file::edit(text, config).rewritten, None, "cannot be edited: {text}");
    for (from, wanted) in [(text, config), (text, &Config::default()), ("", config)] {
        let edited = file::edit(from, wanted).text;
        let again =
            file::parse(&edited, Path::new("fuzz.toml"), Depth::Form).map(|again| between(&again, wanted));
        assert_eq!(again, Ok(Vec::new()), "the edited text has another meaning: {edited}");
    }
    if let Some(sflow) = &config.sflow {
        assert_eq!(settings::check_collectors(&sflow.collectors), Ok(()));
        assert_eq!(settings::check_sampling(sflow.sampling.into()), Ok(sflow.sampling));
        assert_eq!(settings::check_polling(sflow.polling.into()), Ok(sflow.polling));
        assert_eq!(settings::check_header(sflow.header.into()), Ok(sflow.header));
    }
    let mut bridges = BTreeSet::new();
    for bridge in &config.bridges {
        assert!(bridges.insert(&bridge.name) && model::check_name(&bridge.name).is_ok());
        assert!(logic::build(&bridge.logic.name, &bridge.logic.params, &[]).is_ok());
        let mut ports = BTreeSet::new();
        for port in &bridge.ports {
            let settings = &port.settings;
            assert!(ports.insert(&settings.name) && model::check_name(&settings.name).is_ok());
            assert!(model::check_mtu(settings.mtu.into()).is_ok());
            assert_eq!(vlan::parse(&settings.vlan.to_string()).as_ref(), Ok(&settings.vlan));
            // Options travel to the daemon as text; secrets do not travel back.
            let mut options_text = options::to_text(&port.spec);
            if options_text.remove("secret").is_none() {
                let again = options::from_text(port.spec.type_name(), &options_text);
                assert_eq!(again.as_ref(), Ok(&port.spec), "{options_text:?}");
            }
        }
    }
}

/// Runs the grammars of values on the whole text.
fn grammars(text: &str) {
    if let Ok(mode) = vlan::parse(text) {
        assert_eq!(vlan::parse(&mode.to_string()), Ok(mode));
    }
    if let Ok(collector) = text.parse::<Collector>() {
        assert_eq!(collector.to_string().parse(), Ok(collector));
    }
    let _ = cpulist::parse(text);
    for type_name in ["memif", "tap", "netdev", "pcap"] {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let given: BTreeMap<_, _> =
            pairs.map(|(key, value)| (key.trim().into(), value.trim().into())).collect();
        if let Ok(spec) = options::from_text(type_name, &given) {
            assert_eq!(spec.type_name(), type_name);
        }
    }
}

/// Fragments of configurations, valid and almost valid.
const PIECES: &[&str] = &[
    "[daemon]\n",
    "workers = \"0,2-3\"\n",
    "workers = \"0\"\n",
    "poll = true\n",
    "socket = \"/tmp/m.sock\"\n",
    "[[bridge]]\n",
    "[bridge]\n",
    "name = \"br0\"\n",
    "name = \"br1\"\n",
    "logic = \"learning\"\n",
    "logic = \"static\"\n",
    "params = { ageing = 300 }\n",
    "params = { p0 = \"p1\" }\n",
    "[bridge.params]\n",
    "ageing = 5\n",
    "max-stations = 1_000\n",
    "[[bridge.port]]\n",
    "name = \"p0\"\n",
    "name = \"p1\"\n",
    "type = \"memif\"\n",
    "type = \"tap\"\n",
    "type = \"tpa\"\n",
    "admin = \"down\"\n",
    "mtu = 1500\n",
    "mtu = 0xFFFF\n",
    "vlan = \"access:10\"\n",
    "vlan = \"trunk:10,20-29,native:1\"\n",
    "vlan = \"trunk:all\"\n",
    "id = 7\n",
    "role = \"client\"\n",
    "role = \"server\"\n",
    "secret = \"hush\"\n",
    "ring-size = 1024\n",
    "buffer-size = 2048\n",
    "queues = 4\n",
    "mode = \"0660\"\n",
    "owner = \"root\"\n",
    "interface = \"tap0\"\n",
    "mac = \"02:00:00:00:00:01\"\n",
    "netns = \"blue\"\n",
    "netns = \"pid:1\"\n",
    "addresses = [\"10.0.0.1/24\", \"fd00::1/64\"]\n",
    "offloads = false\n",
    "colour = 7\n",
    "# ä comment\n",
    "\n",
    "= ",
    "\"",
    "'''\n",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "-1",
    "1e400",
    "99999999999999999999",
    "1979-05-27T07:32:00Z",
    "\u{feff}",
    "\r\n",
    "\u{0}",
    "ä",
    "[sflow]\n",
    "collectors = [\"192.0.2.9\", \"[2001:db8::9]:6343\"]\n",
    "collectors = []\n",
    "agent = \"10.0.0.1\"\n",
    "sampling = 400\n",
    "polling = 0\n",
    "header = 64\n",
    "path = \"/tmp/m.sock\"\n",
];

/// Text of such fragments, one for each byte, with raw bytes in between.
fn grammar(from: &mut Bytes<'_>) -> String {
    let mut text = String::new();
    while !from.is_empty() && text.len() < 8192 {
        match usize::from(from.u8()) {
            // Numbered from 0, so that seeds can be written by hand.
            n if n < PIECES.len() => text.push_str(PIECES[n]),
            255 => {
                let n = from.below(8);
                text.push_str(&String::from_utf8_lossy(from.slice(n)));
            }
            // Remove the last line, or its end.
            254 => text.truncate(text.trim_end().rfind('\n').map_or(0, |at| at + 1)),
            253 => text.truncate(text.floor_char_boundary(text.len().saturating_sub(from.below(8)))),
            n => text.push_str(PIECES[n % PIECES.len()]),
        }
    }
    text
}
