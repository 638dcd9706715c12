//! Deciding and delivering: the steps that plain bridges ([`crate::decide::forward`]) and mirrored or observed ones
//! ([`crate::decide::detour`]) have in common.

use crate::bridge::picture::{BridgeState, PortEntry};
use crate::bridge::port::PortIndex;
use crate::clock;
use crate::counters::DropReason;
use crate::decide::batch::Batch;
use crate::deliver::tools::Tools;
use crate::lists::scratchpad::Scratchpad;
use crate::rx::RxBatch;

/// The port, if it is up; else why its packets are dropped.
#[inline(always)]
pub(crate) fn open_port(bridge: &BridgeState, ingress: PortIndex) -> Result<&PortEntry, DropReason> {
    match bridge.port(ingress) {
        Some(port) if port.up => Ok(port),
        port => Err(port.map_or(DropReason::PortDown, |port| port.closed)),
    }
}

/// What the logic sees.
#[inline(always)]
pub(crate) fn packets_of<'a>(
    rx: &'a mut RxBatch,
    pad: &'a mut Scratchpad,
    bridge: &'a BridgeState,
    ingress: PortIndex,
    port: &PortEntry,
) -> Batch<'a> {
    let (view, now, rehearsal) = (bridge.view(port), clock::seconds(), pad.rehearsal);
    Batch { rx, pad, bridge, view, ingress, now, rehearsal, left: None }
}

/// What the logic would see of a batch from a port that is up.
#[cfg(feature = "fuzzing")]
#[inline(always)]
pub(crate) fn seen<'a>(
    rx: &'a mut RxBatch,
    pad: &'a mut Scratchpad,
    bridge: &'a BridgeState,
    ingress: PortIndex,
) -> Option<Batch<'a>> {
    let port = open_port(bridge, ingress).ok()?;
    pad.begin(bridge.lane_count());
    Some(packets_of(rx, pad, bridge, ingress, port))
}

/// Puts on the lists what `say` says: a logic whose time has come, or the control plane for the packets that it injects.
pub(crate) fn say(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    bridge: &BridgeState,
    say: impl FnOnce(&mut Batch<'_>),
) {
    pad.begin(bridge.lane_count());
    let (view, ingress) = (bridge.everywhere(), PortIndex::NONE);
    let mut packets =
        Batch { rx, pad, bridge, view, ingress, now: clock::seconds(), rehearsal: false, left: None };
    say(&mut packets);
    packets.finish();
    if let Some(mirrors) = bridge.aside().and_then(|aside| aside.mirrors.as_ref()) {
        mirrors.sent(rx, pad, bridge, ingress);
    }
}

/// Delivers all lists.
#[inline(always)]
pub(crate) fn deliver(batch: &RxBatch, pad: &mut Scratchpad, tools: &mut Tools, bridge: &BridgeState) {
    pad.deliver(batch, bridge, tools, |lane, fault| {
        if let Some(lane) = bridge.lane(lane) {
            (lane.on_fault)(fault);
        }
    });
}
