//! The reasons for drops, with advice, and the reference generated from them.
//!
//! Reasons and meanings come from [`DropReason`]. `mswitch port reasons` prints them, and docs/drops.md is
//! [`reference()`].

use std::fmt::Write;

use fabric::DropReason;
use serde::Serialize;

/// A reason for drops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Its name in statistics, captures and traces.
    pub name: &'static str,
    /// `rx`: counted at the ingress port; `tx`: counted at the egress port; or both.
    pub counted: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    /// The next step for an operator.
    pub advice: &'static str,
}

/// Returns all reasons, in the order of the counters.
pub fn all() -> Vec<Reason> {
    let reason = |reason: &DropReason| {
        let (counted, advice) = about(*reason);
        Reason { name: reason.name(), counted, meaning: reason.meaning(), advice }
    };
    DropReason::ALL.iter().map(reason).collect()
}

/// Returns the side on which a reason is counted, and the advice.
fn about(reason: DropReason) -> (&'static str, &'static str) {
    match reason {
        DropReason::Runt | DropReason::Oversize => ("rx", "Check the client that sent the packet."),
        DropReason::NoDestination => (
            "rx",
            "`mswitch trace` names the VLAN and the settings of the other ports; `mswitch port list` shows both.",
        ),
        DropReason::SamePort => (
            "rx",
            "Normal for a port with several stations behind it; otherwise `mswitch fdb show` lists the stations of each port.",
        ),
        DropReason::Vlan => {
            ("rx", "`mswitch trace` names the port and its setting; `mswitch port set --vlan` changes it.")
        }
        DropReason::ReservedGroup => (
            "rx",
            "Normal: link protocols (LLDP, STP) end at a bridge. The logics `static` and `hub` forward them.",
        ),
        DropReason::PortDown => (
            "rx, tx",
            "`mswitch port show` shows the reason; `mswitch port set --admin up` re-enables an administratively disabled port.",
        ),
        DropReason::RingFull => (
            "tx",
            "The receiver is too slow: give it more CPU time or a longer ring, or limit its senders with `--police`.",
        ),
        DropReason::QueueFull => (
            "tx",
            "More comes for the class than leaves: raise its rate or weight, or give it more room with `mswitch port set --queue-buffers`.",
        ),
        DropReason::EarlyDrop => (
            "tx",
            "Normal under congestion: senders slow down. `mswitch port set --early-drop` changes the thresholds; `ecn` marks instead.",
        ),
        DropReason::ExceedsMtu => (
            "tx",
            "Raise the MTU with `mswitch port set --mtu` and in the client, or lower the MTU of the sender.",
        ),
        DropReason::BadOffload => (
            "rx",
            "Check the client: its request for checksum or segmentation offload does not match the packet.",
        ),
        DropReason::BatchLimit => (
            "rx",
            "Fix the logic: it makes too many copies of a packet, or its edited headers exceed the available space.",
        ),
        DropReason::Device => {
            ("tx", "The log shows the error of the interface; `ip -s link` shows its own counters.")
        }
        DropReason::Isolated => {
            ("rx", "`mswitch port set --isolated off` at one of the two ports allows the traffic.")
        }
        DropReason::EgressPoliced => {
            ("tx", "The port or its queue sends more than `Port.qos` in Open vSwitch's database allows.")
        }
        DropReason::Policed => ("rx", "`mswitch port set --police` and `--police-burst` change the limit."),
        DropReason::StormControl => (
            "rx",
            "`mswitch port set --storm-broadcast`, `--storm-multicast` and `--storm-unknown` change the limits.",
        ),
        DropReason::StationLimit => (
            "rx",
            "`mswitch events --kind port-security` shows the address. If `mswitch fdb show` has it at another port, `mswitch fdb flush --port` there frees it; otherwise `mswitch port set --max-stations` or `--stations` allows it.",
        ),
        DropReason::SourceGuard => {
            ("rx", "`mswitch trace --live` shows the address; `mswitch port set --sources` allows it.")
        }
        DropReason::UnreservedSource => (
            "rx",
            "`mswitch trace` shows the source; the port's client reserves it, or `mswitch logic call BRIDGE reserve` does.",
        ),
        DropReason::MirrorPort => (
            "rx",
            "A mirror without `--vlan` occupies its target port: `mswitch mirror list` shows it, `mswitch mirror del` removes it.",
        ),
        DropReason::Logic => {
            ("rx", "`mswitch logic show` shows the logic's parameters, tables and counters.")
        }
        DropReason::LogicFault => ("rx", "`mswitch logic show` and the log show the fault of the module."),
        DropReason::NoPort => (
            "rx",
            "`mswitch trace` shows the logic's decision: fix the module, or the name of the port in its parameters.",
        ),
        DropReason::ControllerQueue => (
            "rx",
            "Flows send more packets to controllers than those can take: a meter in front limits them, and flows for the traffic itself avoid them.",
        ),
        DropReason::Loop => ("tx", "Remove one of the patch ports that form the loop."),
    }
}

/// Returns the reference of all reasons in Markdown.
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
    fn docs_drops_md_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/drops.md");
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(found, reference(), "docs/drops.md is out of date; run `make docs`");
    }

    #[test]
    fn every_reason_has_a_meaning_and_advice_in_sentences() {
        for Reason { name, counted, meaning, advice } in all() {
            assert!(["rx", "tx", "rx, tx"].contains(&counted), "{name}: {counted}");
            for sentence in [meaning, advice] {
                assert!(
                    sentence.ends_with(['.', ')']) && sentence.starts_with(char::is_uppercase)
                        || sentence.starts_with('`'),
                    "{name}: {sentence}"
                );
                assert!(!sentence.contains(['|', '\n']), "breaks the table: {sentence}");
            }
        }
    }
}
