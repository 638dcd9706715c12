//! Settings of a benchmark: what is measured, how long and how often. An interrupted run is resumed only where they
//! agree.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::peers::is_before;
use crate::sample::{Load, Task};
use crate::scenarios::{self, Scenario, Set};

/// Sizes of the comparison of seven software switches.
const CORE_SIZES: [&str; 3] = ["64", "256", "1024"];
const FULL_SIZES: [&str; 6] = ["64", "256", "1024", "1518", "64K", "imix"];
const QUICK_SIZES: [&str; 2] = ["64", "1024"];
/// The size of large segments, which tell nothing about a single packet's time.
const LARGEST: &str = "64K";

/// Packets per second at which a switch that can sleep does.
pub const SLEEPY: Load = Load::Rate(1000);

/// Loads: saturation, and, for round-trip times, cycles and CPU time, shares of the rate at saturation.
const LOADS: [Load; 6] =
    [Load::Saturation, Load::Idle, SLEEPY, Load::Share(10), Load::Share(50), Load::Share(99)];
const WAYS: [u8; 2] = [1, 2];

/// Peers of the core set and of the quick one; the full one has all.
const CORE_PEERS: [&str; 6] =
    ["mswitch", "mswitch-learning", "ovs", "ovs-learning", "testpmd", "linux-bridge"];
const QUICK_PEERS: [&str; 5] = ["mswitch", "mswitch-learning", "ovs", "testpmd", "linux-bridge"];

/// What is asked for on the command line; `None` and empty lists take the set's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Wishes {
    /// The set.
    pub set: Set,
    /// Names or kinds of scenarios.
    pub scenarios: Vec<String>,
    /// Names of peers.
    pub peers: Vec<String>,
    /// Sizes of packets.
    pub sizes: Vec<String>,
    /// Loads.
    pub loads: Vec<Load>,
    /// Numbers of directions at saturation.
    pub ways: Vec<u8>,
    /// Measured seconds of each sample.
    pub seconds: Option<f64>,
    /// Rounds, no fewer and no more.
    pub rounds: Option<u32>,
    /// Minutes within which a further round must be able to end.
    pub limit: Option<f64>,
}

/// Settings of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Names of scenarios, in their order.
    pub scenarios: Vec<String>,
    /// Names of peers, in their order.
    pub peers: Vec<String>,
    /// Sizes of packets.
    pub sizes: Vec<String>,
    /// Loads; those of [`Load::Rate`] are measured with each size.
    #[serde(default = "all_loads")]
    pub loads: Vec<Load>,
    /// Numbers of directions at saturation.
    #[serde(default = "all_ways")]
    pub ways: Vec<u8>,
    /// Measured seconds of each sample.
    pub seconds: f64,
    /// Fewest rounds.
    pub fewest: u32,
    /// Most rounds, for scenarios whose spread stays large.
    pub most: u32,
    /// Uncertainty of a median, as a share, at which a scenario needs no more rounds.
    pub goal: f64,
    /// Minutes within which a further round must be able to end; the first one is always completed.
    pub limit: f64,
}

fn all_loads() -> Vec<Load> {
    LOADS.into()
}

fn all_ways() -> Vec<u8> {
    WAYS.into()
}

/// What is asked for, in the order of all values, each once; all if nothing is.
fn chosen<T: Copy + PartialEq>(all: &[T], asked: &[T]) -> Vec<T> {
    all.iter().copied().filter(|value| asked.is_empty() || asked.contains(value)).collect()
}

impl Settings {
    /// Completes what is asked for. `known` are the names of all peers that could run.
    pub fn of(wishes: &Wishes, known: &[&str]) -> Result<Settings> {
        let of_set = |quick: &[&str], core: &[&str], full: &[&str]| -> Vec<String> {
            let names = match wishes.set {
                Set::Quick => quick,
                Set::Core => core,
                Set::Full => full,
            };
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let peers = if wishes.peers.is_empty() {
            of_set(&QUICK_PEERS, &CORE_PEERS, known)
        } else {
            wishes.peers.clone()
        };
        if let Some(unknown) = peers.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(Error::new(format!("unknown peer `{unknown}`; there are: {}", known.join(", "))));
        }
        let mut sizes = if wishes.sizes.is_empty() {
            of_set(&QUICK_SIZES, &CORE_SIZES, &FULL_SIZES)
        } else {
            wishes.sizes.clone()
        };
        if let Some(wrong) = sizes.iter().find(|size| generator_size(size).is_none()) {
            return Err(Error::new(format!("--size {wrong}: expected 60 to 65000, 64K or imix")));
        }
        // A size twice would count its samples twice.
        let mut lengths = BTreeSet::new();
        sizes.retain(|size| lengths.insert(generator_size(size)));
        if let Some(wrong) = wishes.loads.iter().find(|load| !LOADS.contains(load)) {
            let known: Vec<String> = LOADS.iter().map(Load::to_string).collect();
            return Err(Error::new(format!("--load {wrong}: expected one of {}", known.join(", "))));
        }
        let (seconds, fewest, most, limit) = match wishes.set {
            Set::Quick => (0.4, 1, 3, 8.0),
            Set::Core => (0.6, 3, 5, 55.0),
            Set::Full => (2.0, 5, 15, f64::from(24 * 60)),
        };
        Ok(Settings {
            scenarios: scenarios_of(wishes)?,
            peers,
            sizes,
            loads: chosen(&LOADS, &wishes.loads),
            ways: chosen(&WAYS, &wishes.ways),
            seconds: wishes.seconds.unwrap_or(seconds),
            fewest: wishes.rounds.unwrap_or(fewest),
            most: wishes.rounds.unwrap_or(most),
            goal: 0.02,
            limit: wishes.limit.unwrap_or(limit),
        })
    }

    /// The scenarios.
    pub fn scenarios(&self) -> Vec<Scenario> {
        scenarios::all().into_iter().filter(|scenario| self.scenarios.contains(&scenario.name)).collect()
    }

    /// Tasks of a scenario in the order in which they are measured: saturation in one direction and in both, for each
    /// size; then, in one direction, a fixed rate with each size, and with the first size the shares of its rate.
    pub fn tasks(&self, scenario: &str) -> Vec<Task> {
        let task = |size: &str, ways, load| Task { scenario: scenario.into(), size: size.into(), ways, load };
        let mut tasks = Vec::new();
        if self.loads.contains(&Load::Saturation) {
            for size in &self.sizes {
                tasks.extend(self.ways.iter().map(|ways| task(size, *ways, Load::Saturation)));
            }
        }
        let shares = self.loads.iter().any(|load| matches!(load, Load::Share(_)));
        // Shares are those of a rate.
        tasks.extend(self.reference(scenario).filter(|reference| shares && !tasks.contains(reference)));
        for (index, size) in self.sizes.iter().enumerate() {
            let paced = self.loads.iter().filter(|load| match load {
                Load::Saturation => false,
                Load::Rate(_) => size != LARGEST,
                Load::Idle | Load::Share(_) => index == 0,
            });
            tasks.extend(paced.map(|load| task(size, 1, *load)));
        }
        tasks
    }

    /// The task of a scenario whose rate is R⁺ for its shares: saturation in one direction with the first size.
    pub fn reference(&self, scenario: &str) -> Option<Task> {
        let size = self.sizes.first()?.clone();
        Some(Task { scenario: scenario.into(), size, ways: 1, load: Load::Saturation })
    }

    /// Names of the settings in which two differ, apart from the limit of time.
    pub fn differences(&self, other: &Settings) -> Vec<&'static str> {
        let mut names = Vec::new();
        let mut check = |name, same: bool| {
            if !same {
                names.push(name);
            }
        };
        check("--scenario", self.scenarios == other.scenarios);
        let [peers, before] = [false, true].map(|is_wanted| {
            let of = |settings: &Settings| {
                let names = settings.peers.iter().filter(|name| is_before(name) == is_wanted);
                names.cloned().collect::<Vec<_>>()
            };
            of(self) == of(other)
        });
        check("--peer", peers);
        check("--before", before);
        check("--size", self.sizes == other.sizes);
        check("--load", self.loads == other.loads);
        check("--ways", self.ways == other.ways);
        check("--seconds", self.seconds == other.seconds);
        check("--rounds", (self.fewest, self.most) == (other.fewest, other.most));
        names
    }
}

fn scenarios_of(wishes: &Wishes) -> Result<Vec<String>> {
    if wishes.scenarios.is_empty() {
        let of_set = scenarios::all().into_iter().filter(|scenario| scenario.set <= wishes.set);
        return Ok(of_set.map(|scenario| scenario.name).collect());
    }
    let mut chosen = Vec::new();
    for name in &wishes.scenarios {
        let named = scenarios::named(name);
        if named.is_empty() {
            let known: Vec<String> = scenarios::all().into_iter().map(|scenario| scenario.name).collect();
            return Err(Error::new(format!("unknown scenario `{name}`; there are: {}", known.join(", "))));
        }
        chosen.extend(named.into_iter().map(|scenario| scenario.name));
    }
    // In the order of all scenarios, each once.
    let all = scenarios::all().into_iter().map(|scenario| scenario.name);
    Ok(all.filter(|name| chosen.contains(name)).collect())
}

/// A size as the generator's option has it; `None` if there is no such size.
pub fn generator_size(size: &str) -> Option<String> {
    match size {
        "64K" => Some("65000".into()),
        "imix" => Some("imix".into()),
        _ => {
            let bytes = size.parse::<u32>().ok().filter(|bytes| (60..=65_000).contains(bytes))?;
            Some(bytes.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes() -> Wishes {
        Wishes {
            set: Set::Quick,
            scenarios: Vec::new(),
            peers: Vec::new(),
            sizes: Vec::new(),
            loads: Vec::new(),
            ways: Vec::new(),
            seconds: None,
            rounds: None,
            limit: None,
        }
    }

    #[test]
    fn wrong_names_are_refused_with_the_right_ones() {
        let known = ["mswitch", "ovs"];
        let of = |wishes: Wishes| Settings::of(&wishes, &known).unwrap_err().to_string();
        let error = of(Wishes { peers: vec!["ows".into()], ..wishes() });
        assert_eq!(error, "unknown peer `ows`; there are: mswitch, ovs");
        let peers = vec!["ovs".into()];
        let error = of(Wishes { scenarios: vec!["v3v".into()], peers: peers.clone(), ..wishes() });
        assert!(error.starts_with("unknown scenario `v3v`; there are: p2p, p2v-memif"), "{error}");
        let error = of(Wishes { sizes: vec!["20".into()], peers, ..wishes() });
        assert_eq!(error, "--size 20: expected 60 to 65000, 64K or imix");
    }

    #[test]
    fn saturation_comes_before_its_shares() {
        let wishes = Wishes { peers: vec!["ovs".into()], scenarios: vec!["v2v-memif".into()], ..wishes() };
        let settings = Settings::of(&wishes, &["ovs"]).unwrap();
        let tasks: Vec<String> = settings.tasks("v2v-memif").iter().map(Task::to_string).collect();
        assert_eq!(tasks.len(), 10, "{tasks:#?}");
        assert_eq!(tasks[0], "v2v-memif, 64 B, one way, max");
        assert_eq!(tasks[8], "v2v-memif, 64 B, one way, 99%");
        assert_eq!(tasks[9], "v2v-memif, 1024 B, one way, 1000/s");
    }

    #[test]
    fn loads_and_ways_are_chosen_and_shares_bring_their_rate() {
        let of = |loads: &[Load], ways: &[u8]| {
            let wishes =
                Wishes { peers: vec!["ovs".into()], loads: loads.into(), ways: ways.into(), ..wishes() };
            Settings::of(&wishes, &["ovs"])
        };
        let tasks = |loads: &[Load], ways: &[u8]| {
            let tasks = of(loads, ways).unwrap().tasks("v2v-memif");
            tasks.iter().map(Task::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            tasks(&[Load::Saturation], &[2]),
            ["v2v-memif, 64 B, both ways, max", "v2v-memif, 1024 B, both ways, max"]
        );
        assert_eq!(
            tasks(&[Load::Share(50), Load::Idle], &[]),
            [
                "v2v-memif, 64 B, one way, max",
                "v2v-memif, 64 B, one way, idle",
                "v2v-memif, 64 B, one way, 50%"
            ]
        );
        let error = of(&[Load::Share(42)], &[]).unwrap_err().to_string();
        assert_eq!(error, "--load 42%: expected one of max, idle, 1000/s, 10%, 50%, 99%");
    }

    #[test]
    fn a_size_is_measured_once() {
        let sizes = ["64", "1518", "064", "64K", "64", "65000"].map(String::from).into();
        let wishes = Wishes { peers: vec!["ovs".into()], sizes, ..wishes() };
        assert_eq!(Settings::of(&wishes, &["ovs"]).unwrap().sizes, ["64", "1518", "64K"]);
    }

    #[test]
    fn differences_are_named_by_option() {
        let wishes = Wishes { peers: vec!["ovs".into()], ..wishes() };
        let settings = Settings::of(&wishes, &["ovs"]).unwrap();
        let other = Settings { seconds: 9.0, limit: 1.0, ..settings.clone() };
        assert_eq!(settings.differences(&other), ["--seconds"]);
        let other = Settings { peers: vec!["ovs".into(), "mswitch-before".into()], ..settings.clone() };
        assert_eq!(settings.differences(&other), ["--before"]);
    }
}
