//! The command `accounting/show` of `ovs-appctl`: the state of NetFlow and IPFIX, which Open vSwitch does not show.

use std::fmt::Write;
use std::sync::Arc;

use control::desired::Desired;
use unixctl::Commands;

/// Adds the command.
pub(crate) fn add(commands: &mut Commands, desired: &Arc<Desired>) {
    let subject = desired.clone();
    commands.add("accounting/show", "", 0..=0, move |_| Ok(show(&subject)));
}

fn show(desired: &Desired) -> String {
    let mut text = String::new();
    for report in desired.state().accounting().reports() {
        let control::accounting::Report { bridge, export, flows, current, evicted, packets, missed, .. } =
            &report;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{bridge} {export}: {flows} flows began, {current} last, {evicted} ended early; {packets} packets \
             accounted, {missed} missed"
        );
        for collector in &report.collectors {
            let (address, sent, failed) = (collector.collector, collector.datagrams, collector.errors);
            let _ = writeln!(text, "  {address}: {sent} datagrams sent, {failed} failed");
        }
    }
    text
}
