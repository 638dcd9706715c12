//! Status of a maintenance point: for the database, and as text.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{Point, fault};
use crate::Millis;

/// Status of a maintenance point, by the columns `Interface.cfm_*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Names of the faults.
    pub faults: BTreeSet<String>,
    /// How often a fault came or went.
    pub flaps: u64,
    /// Percentage of continuity checks that came, with one remote maintenance point.
    pub health: Option<u8>,
    /// Remote maintenance points.
    pub remotes: Vec<u64>,
    /// Whether all of them are operationally up; only with extensions.
    pub remote_is_up: Option<bool>,
}

const NAMES: [(u8, &str); 6] = [
    (fault::RECEIVE, "recv"),
    (fault::REMOTE_DEFECT, "rdi"),
    (fault::ASSOCIATION, "maid"),
    (fault::LOOPBACK, "loopback"),
    (fault::OVERFLOW, "overflow"),
    (fault::OVERRIDE, "override"),
];

fn names(faults: u8) -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().filter(move |(bit, _)| faults & bit != 0).map(|(_, name)| name)
}

fn state(is_up: bool) -> &'static str {
    if is_up { "up" } else { "down" }
}

impl Point {
    /// Returns the status for the database.
    pub fn status(&self) -> Status {
        Status {
            faults: names(self.faults()).map(str::to_owned).collect(),
            flaps: self.flaps,
            health: self.health,
            remotes: self.heard.clone(),
            remote_is_up: self.settings.extended.then_some(self.remote_is_up),
        }
    }

    /// Returns the maintenance point as text, as `cfm/show` has it.
    pub fn show(&self, name: &str, now: Millis) -> String {
        let until = |time: Millis| i128::from(time) - i128::from(now);
        let extended = if self.settings.extended { " extended" } else { "" };
        let forced = if self.forced.is_some() { " fault_override" } else { "" };
        let mut text = format!("---- {name} ----\nMPID {}:{extended}{forced}\n", self.settings.point);
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {name}: {value}");
        };
        if self.faults() != 0 {
            line("fault", &names(self.faults()).collect::<Vec<_>>().join(" "));
        }
        match self.health {
            Some(percent) => line("average health", &percent),
            None => line("average health", &"undefined"),
        }
        line("opstate", &state(self.settings.is_up));
        line("remote_opstate", &state(self.remote_is_up));
        line("interval", &format_args!("{}ms", self.settings.interval));
        line("next CCM tx", &format_args!("{}ms", until(self.next_tx)));
        line("next fault check", &format_args!("{}ms", until(self.look_at)));
        for (point, remote) in &self.remotes {
            let _ = writeln!(text, "Remote MPID {point}");
            let _ = writeln!(text, "  recv since check: {}", remote.heard);
            let _ = writeln!(text, "  opstate: {}", state(remote.is_up));
        }
        text
    }
}
