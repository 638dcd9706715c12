//! Deciding and delivering: the steps common to plain bridges ([`crate::decide::forward`]) and mirrored or observed
//! ones ([`crate::decide::detour`]).

use crate::bridge::port::PortIndex;
use crate::bridge::state::{BridgeState, PortEntry};
use crate::counters::{DropReason, QueueCounters};
use crate::decide::batch::Batch;
use crate::deliver::tools::Tools;
use crate::lists::output::OutputList;
use crate::lists::scratchpad::Scratchpad;
use crate::rx::RxBatch;
use crate::sync::{Ordering, fence};

/// The port, if it is up; otherwise the drop reason of its packets.
#[inline(always)]
pub(crate) fn open_port(bridge: &BridgeState, ingress: PortIndex) -> Result<&PortEntry, DropReason> {
    match bridge.port(ingress) {
        Some(port) if port.up => Ok(port),
        port => Err(port.map_or(DropReason::PortDown, |port| port.closed)),
    }
}

/// Begins the lists of a batch that came in through `port`; `None`: through none.
#[inline(always)]
pub(crate) fn begin(rx: &mut RxBatch, pad: &mut Scratchpad, bridge: &BridgeState, port: Option<&PortEntry>) {
    pad.begin(bridge.lane_count());
    rx.queues = port.map_or(0, |port| port.queues);
}

/// The logic's view of a batch.
#[inline(always)]
pub(crate) fn packets_of<'a>(
    rx: &'a mut RxBatch,
    pad: &'a mut Scratchpad,
    bridge: &'a BridgeState,
    ingress: PortIndex,
    port: &PortEntry,
) -> Batch<'a> {
    Batch::new(rx, pad, bridge, bridge.view(port), ingress)
}

/// The logic's view of a batch from a port that is up.
#[cfg(feature = "fuzzing")]
#[inline(always)]
pub(crate) fn logic_view<'a>(
    rx: &'a mut RxBatch,
    pad: &'a mut Scratchpad,
    bridge: &'a BridgeState,
    ingress: PortIndex,
) -> Option<Batch<'a>> {
    let port = open_port(bridge, ingress).ok()?;
    begin(rx, pad, bridge, Some(port));
    Some(packets_of(rx, pad, bridge, ingress, port))
}

/// Fills the lists as `decide` says: a logic's `wake`, or the control plane for the packets that it injects.
pub(crate) fn decide_originated(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    bridge: &BridgeState,
    decide: impl FnOnce(&mut Batch<'_>),
) {
    begin(rx, pad, bridge, None);
    let ingress = PortIndex::NONE;
    let mut packets = Batch::new(rx, pad, bridge, bridge.everywhere(), ingress);
    decide(&mut packets);
    packets.finish();
    if let Some(mirrors) = bridge.monitoring().and_then(|monitoring| monitoring.mirrors.as_ref()) {
        mirrors.sent(rx, pad, bridge, ingress);
    }
}

/// Delivers every list once, in the order in which destinations were first named, and then has receivers signalled.
#[inline(always)]
pub(crate) fn deliver(batch: &RxBatch, pad: &mut Scratchpad, tools: &mut Tools, bridge: &BridgeState) {
    let published = pad.take_lists(batch, |lane, list| {
        let Some(to) = bridge.lane(lane) else { return false };
        tools.activity.deliver(&to.client);
        if to.client.is_quarantined() {
            refuse(list, &to.counters);
            return false;
        }
        tools.published = false;
        if let Err(fault) = to.egress.deliver(list, &to.counters, tools) {
            to.client.fault(fault);
        }
        tools.published
    });
    if published.len() == 0 {
        return;
    }
    // See `Egress::notify`.
    fence(Ordering::SeqCst);
    for to in published.filter_map(|lane| bridge.lane(lane as usize)) {
        tools.activity.deliver(&to.client);
        to.egress.notify(tools);
    }
}

/// Drops packets for a client in quarantine.
#[cold]
fn refuse(list: &mut OutputList<'_>, counters: &QueueCounters) {
    counters.add_dropped(DropReason::RingFull, list.len() as u32);
    list.refuse_rest(DropReason::RingFull);
}
