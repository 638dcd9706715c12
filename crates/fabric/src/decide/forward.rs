//! The path of a batch through a bridge, once it is taken and its private headers are loaded.
//!
//! 1. The rate limits of the port drop packets that exceed them (`policing`).
//! 2. The bridge's logic is called once and names destinations ([`crate::decide::batch`]); each output goes on its
//!    destination's list ([`crate::lists::output`]).
//! 3. Every destination with a list is delivered to once ([`crate::deliver::egress`], [`crate::deliver::tx_ring`]).
//!
//! A bridge with mirrors or observers takes the [detour](crate::decide::detour), which does the same and more.

use crate::bridge::port::PortIndex;
use crate::bridge::state::BridgeState;
use crate::decide::batch::Batch;
use crate::decide::detour;
use crate::decide::steps::{begin, decide_originated, deliver, open_port, packets_of};
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
    if let Some(monitoring) = bridge.monitoring() {
        if let Some(observers) = monitoring.ignores_ingress(ingress) {
            return detour::forward_unobserved_ingress(batch, pad, tools, bridge, ingress, observers);
        }
        if let Some(audience) = detour::audience(pad, ingress, batch.packets, monitoring) {
            return detour::forward(batch, pad, tools, bridge, ingress, audience);
        }
    }
    decide_plain(batch, pad, bridge, ingress);
    deliver(batch, pad, tools, bridge);
}

/// Decides without mirrors and observers.
#[inline(always)]
pub(crate) fn decide_plain(
    batch: &mut RxBatch,
    pad: &mut Scratchpad,
    bridge: &BridgeState,
    ingress: PortIndex,
) {
    let up = bridge.port(ingress).filter(|port| port.up);
    if let Some(rate_limits) = up.and_then(|port| port.rate_limits.as_deref()) {
        rate_limits.admit(batch, &mut pad.drops);
        if batch.is_empty() {
            return;
        }
    }
    match open_port(bridge, ingress) {
        Ok(port) => {
            begin(batch, pad, bridge, Some(port));
            let mut packets = packets_of(batch, pad, bridge, ingress, port);
            bridge.logic.forward(&mut packets);
            packets.finish();
        }
        Err(reason) => pad.drops.add(reason, batch.len() as u32),
    }
}

/// Delivers packets that come from no port, as `decide` says: a logic's [`wake`](crate::SwitchLogic::wake) or the
/// control plane.
pub(crate) fn originate(
    batch: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    decide: impl FnOnce(&mut Batch<'_>),
) {
    if let Some(monitoring) = bridge.monitoring()
        && let Some(audience) = detour::audience(pad, PortIndex::NONE, batch.packets, monitoring)
    {
        return detour::originate(batch, pad, tools, bridge, audience, decide);
    }
    decide_originated(batch, pad, bridge, decide);
    deliver(batch, pad, tools, bridge);
}
