//! A packet's way through the fabric, once its batch is taken and its private header loaded.
//!
//! 1. The port's guards hold back what exceeds its rates (`guards`).
//! 2. The bridge's logic is called once and names destinations ([`crate::decide::batch`]); each output goes on its destination's
//!    list ([`crate::lists::output`]).
//! 3. Every destination with a list is delivered to once ([`crate::deliver::egress`], [`crate::deliver::tx_ring`]).
//!
//! A bridge with mirrors or observers takes the [detour](crate::decide::detour), which does the same and more.

use crate::bridge::picture::BridgeState;
use crate::bridge::port::PortIndex;
use crate::decide::batch::Batch;
use crate::decide::detour;
use crate::decide::steps::{deliver, open_port, packets_of, say};
use crate::deliver::tools::Tools;
use crate::lists::scratchpad::Scratchpad;
use crate::rx::RxBatch;

/// Switches a batch: the logic decides, lists form, destinations are delivered to.
#[inline]
pub(crate) fn forward(
    batch: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    ingress: PortIndex,
) {
    if let Some(aside) = bridge.aside() {
        if let Some(watch) = aside.looks_past(ingress) {
            return detour::beside(batch, pad, tools, bridge, ingress, watch);
        }
        if let Some(audience) = detour::audience(pad, ingress, batch.packets, aside) {
            return detour::forward(batch, pad, tools, bridge, ingress, audience);
        }
    }
    straight(batch, pad, bridge, ingress);
    deliver(batch, pad, tools, bridge);
}

/// Decides with nothing beside it: no mirror copies, and nobody looks on.
#[inline(always)]
pub(crate) fn straight(batch: &mut RxBatch, pad: &mut Scratchpad, bridge: &BridgeState, ingress: PortIndex) {
    let up = bridge.port(ingress).filter(|port| port.up);
    if let Some(guards) = up.and_then(|port| port.guards.as_deref()) {
        guards.admit(batch, &mut pad.drops);
        if batch.is_empty() {
            return;
        }
    }
    match open_port(bridge, ingress) {
        Ok(port) => {
            pad.begin(bridge.lane_count());
            let mut packets = packets_of(batch, pad, bridge, ingress, port);
            bridge.logic.forward(&mut packets);
            packets.finish();
        }
        Err(reason) => pad.drops.add(reason, batch.len() as u32),
    }
}

/// Delivers packets that come from no port, to where `decide` says: a logic whose time has come, or the control plane.
pub(crate) fn originate(
    batch: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    decide: impl FnOnce(&mut Batch<'_>),
) {
    if let Some(aside) = bridge.aside()
        && let Some(audience) = detour::audience(pad, PortIndex::NONE, batch.packets, aside)
    {
        return detour::originate(batch, pad, tools, bridge, audience, decide);
    }
    say(batch, pad, bridge, decide);
    deliver(batch, pad, tools, bridge);
}
