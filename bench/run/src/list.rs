//! `mswitch bench run --list`: scenarios and peers, with what is missing.

use std::fmt::Write;
use std::path::Path;

use crate::peers;
use crate::scenarios::{self, Set};

/// Lines for people.
pub fn text(mswitch: &Path) -> String {
    let mut text = "Scenarios:\n".to_owned();
    for scenario in scenarios::all() {
        let set = match scenario.set {
            Set::Quick => "quick",
            Set::Core => "core",
            Set::Full => "full",
        };
        let _ = writeln!(text, "  {:<22} {set:<6} {}", scenario.name, scenario.about);
    }
    text += "Peers:\n";
    for peer in peers::all(mswitch) {
        let version = peer.version().unwrap_or_else(|error| format!("missing: {error}"));
        let _ = writeln!(text, "  {:<22} {}; {version}", peer.name(), peer.about());
    }
    for other in peers::unsupported() {
        let _ = writeln!(text, "  {:<22} missing: {}", other.name, other.reason());
    }
    text
}
