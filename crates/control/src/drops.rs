//! The reasons for which packets are dropped, with advice, and the reference that is made of them.
//!
//! The reasons and their meanings are those of [`DropReason`]. `mswitch port reasons` prints them, and docs/drops.md is
//! [`reference()`].

use std::fmt::Write;

use fabric::DropReason;
use serde::Serialize;

/// A reason for which packets are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Its name in statistics, captures and traces.
    pub name: &'static str,
    /// `rx`: counted at the port where the packet came in; `tx`: where it was to leave; or both.
    pub counted: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    /// The next step of an operator.
    pub advice: &'static str,
}

/// Every reason, in the order of the counters.
pub fn all() -> Vec<Reason> {
    let reason = |reason: &DropReason| {
        let (counted, advice) = about(*reason);
        Reason { name: reason.name(), counted, meaning: reason.meaning(), advice }
    };
    DropReason::ALL.iter().map(reason).collect()
}

/// The side on which a reason is counted, and advice.
fn about(reason: DropReason) -> (&'static str, &'static str) {
    match reason {
        DropReason::Runt | DropReason::Oversize => {
            ("rx", "Look for the fault in the client: it made the packet.")
        }
        DropReason::NoDestination => (
            "rx",
            "`mswitch trace` names the VLAN and the settings of the other ports; `mswitch port list` shows both.",
        ),
        DropReason::SamePort => (
            "rx",
            "None is needed for a port with several stations behind it; else `mswitch fdb show` shows who is where.",
        ),
        DropReason::Vlan => {
            ("rx", "`mswitch trace` names the port and its setting; `mswitch port set --vlan` changes it.")
        }
        DropReason::ReservedGroup => (
            "rx",
            "None is needed: link protocols (LLDP, STP) end at a bridge. The logics `static` and `hub` forward them.",
        ),
        DropReason::PortDown => (
            "rx, tx",
            "`mswitch port show` has the reason; `mswitch port set --admin up` ends an administrative one.",
        ),
        DropReason::RingFull => (
            "tx",
            "The receiver is too slow: give it more CPU or a longer ring, or limit its senders with `--police`.",
        ),
        DropReason::ExceedsMtu => {
            ("tx", "Raise the MTU with `mswitch port set --mtu` and in the client, or lower the sender's.")
        }
        DropReason::BadOffload => (
            "rx",
            "Look for the fault in the client: the checksum or segmentation that it asks for does not fit the packet.",
        ),
        DropReason::BatchLimit => (
            "rx",
            "The logic makes too many copies of a packet, or edits headers beyond their room: mend the logic.",
        ),
        DropReason::Device => {
            ("tx", "The log has the error of the interface; `ip -s link` shows its own counters.")
        }
        DropReason::Isolated => {
            ("rx", "`mswitch port set --isolated off` at one of the two ports lets them talk.")
        }
        DropReason::Policed => ("rx", "`mswitch port set --police` and `--police-burst` change the limit."),
        DropReason::StormControl => (
            "rx",
            "`mswitch port set --storm-broadcast`, `--storm-multicast` and `--storm-unknown` change the limits.",
        ),
        DropReason::StationLimit => (
            "rx",
            "`mswitch events --kind port-security` shows the address; `--max-stations` and `--stations` of the port allow it.",
        ),
        DropReason::SourceGuard => {
            ("rx", "`mswitch trace --live` shows the address; `--sources` of the port allows it.")
        }
        DropReason::MirrorPort => (
            "rx",
            "A mirror without `--vlan` owns its port: `mswitch mirror list` names it, `mswitch mirror del` frees it.",
        ),
        DropReason::Logic => ("rx", "`mswitch logic show` has the logic's parameters, tables and counters."),
        DropReason::LogicFault => ("rx", "`mswitch logic show` and the log have the fault of the module."),
        DropReason::NoPort => (
            "rx",
            "`mswitch trace` names the logic's decision: mend the module, or the port's name among its parameters.",
        ),
        DropReason::Loop => ("tx", "Take one of the patch ports away that form the loop."),
    }
}

/// The reference of every reason, in Markdown.
pub fn reference() -> String {
    let mut text = String::from(
        "# Reasons for drops\n\n\
         Output of `mswitch port reasons --markdown`. `mswitch port stats`, captures, traces and metrics use these names.\n\
         A drop counts in `rx` at the ingress port, or in `tx` at the egress port.\n\n\
         | reason | counted in | meaning | next step |\n| --- | --- | --- | --- |\n",
    );
    for Reason { name, counted, meaning, advice } in all() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{name}` | {counted} | {meaning} | {advice} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `make docs` brings the file up to date.
    #[test]
    fn the_reference_in_the_docs_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/drops.md");
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(there, reference(), "docs/drops.md is out of date; `make docs` makes it anew");
    }

    #[test]
    fn every_reason_is_a_sentence_with_advice() {
        for Reason { name, counted, meaning, advice } in all() {
            assert!(["rx", "tx", "rx, tx"].contains(&counted), "{name}: {counted}");
            for sentence in [meaning, advice] {
                assert!(
                    sentence.ends_with(['.', ')']) && sentence.starts_with(char::is_uppercase)
                        || sentence.starts_with('`'),
                    "{name}: {sentence}"
                );
                assert!(!sentence.contains(['|', '\n']), "would break the table: {sentence}");
            }
        }
    }
}
