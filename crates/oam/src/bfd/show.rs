//! Status of a session: for the database, and as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Session;
use super::packet::flag;
use crate::Millis;

/// Status of a session, by the keys of the column `Interface.bfd_status`.
pub type Status = BTreeMap<String, String>;

impl Session {
    /// Returns the status for the database.
    pub fn status(&self) -> Status {
        [
            ("forwarding", self.forwards().to_string()),
            ("state", self.state.name().into()),
            ("diagnostic", self.diagnostic.name().into()),
            ("flap_count", self.flaps.to_string()),
            ("remote_state", self.remote.state.name().into()),
            ("remote_diagnostic", self.remote.diagnostic.name().into()),
        ]
        .map(|(key, text): (&str, String)| (key.to_owned(), text))
        .into()
    }

    /// Returns the session as text, as `bfd/show` has it.
    pub fn show(&mut self, now: Millis) -> String {
        self.update(now);
        let until = |time: Millis| i128::from(time) - i128::from(now);
        let mut text = String::new();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {name}: {value}");
        };
        line("Forwarding", &self.forwards());
        line("Detect Multiplier", &self.settings.multiplier);
        line("Concatenated Path Down", &self.settings.path_is_down);
        line("TX Interval", &format_args!("Approx {}ms", self.tx_interval()));
        line("RX Interval", &format_args!("Approx {}ms", self.rx_interval()));
        line("Detect Time", &format_args!("now {:+}ms", until(self.lost_at)));
        line("Next TX Time", &format_args!("now {:+}ms", until(self.next_tx)));
        line("Last TX Time", &format_args!("now {:+}ms", until(self.last_tx)));
        text.push('\n');
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(text, "  {name}: {value}");
        };
        line("Local Flags", &flags(self.flags));
        line("Local Session State", &self.state.name());
        line("Local Diagnostic", &self.diagnostic.name());
        line("Local Discriminator", &format_args!("{:#x}", self.discriminator));
        line("Local Minimum TX Interval", &format_args!("{}ms", self.slow_tx()));
        line("Local Minimum RX Interval", &format_args!("{}ms", self.min_rx));
        text.push('\n');
        let remote = &self.remote;
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(text, "  {name}: {value}");
        };
        line("Remote Flags", &flags(remote.flags));
        line("Remote Session State", &remote.state.name());
        line("Remote Diagnostic", &remote.diagnostic.name());
        line("Remote Discriminator", &format_args!("{:#x}", remote.discriminator));
        line("Remote Minimum TX Interval", &format_args!("{}ms", remote.min_tx));
        line("Remote Minimum RX Interval", &format_args!("{}ms", remote.min_rx));
        line("Remote Detect Multiplier", &remote.multiplier);
        text
    }
}

fn flags(flags: u8) -> String {
    let names = [
        (flag::MULTIPOINT, "multipoint"),
        (flag::DEMAND, "demand"),
        (flag::AUTHENTICATED, "auth"),
        (flag::CONTROL_PLANE, "ctl"),
        (flag::FINAL, "final"),
        (flag::POLL, "poll"),
    ];
    let set: Vec<_> = names.into_iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| name).collect();
    if set.is_empty() { "none".into() } else { set.join(" ") }
}
