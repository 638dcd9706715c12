//! The path of a batch through a bridge that is mirrored or observed: as [`crate::decide::forward`], plus copies for
//! the mirrors and notes for the observers.

use crate::bridge::port::PortIndex;
use crate::bridge::state::{BridgeState, Monitoring, PortEntry};
use crate::clock;
use crate::counters::DropReason;
use crate::decide::batch::Batch;
use crate::decide::forward::decide_plain;
use crate::decide::steps::{begin, decide_originated, deliver, open_port, packets_of};
use crate::deliver::tools::Tools;
use crate::lists::scratchpad::Scratchpad;
use crate::observe::explain::{Remark, Text, Value};
use crate::observe::interest::Interest;
use crate::observe::notes::Notes;
use crate::observe::observer::Sightings;
use crate::observe::observers::Observers;
use crate::rx::RxBatch;
use crate::rx::record::state;

/// Observers that are shown a batch, and their interest in its ingress port; `None` if it is only mirrored.
pub(crate) struct Audience<'a>(Option<(&'a Observers, Interest)>);

/// Asks the observers whether they pick a batch. `None` if none does and the bridge has no mirrors: then only
/// forwarding is left to do.
pub(crate) fn audience<'a>(
    pad: &mut Scratchpad,
    ingress: PortIndex,
    packets: usize,
    monitoring: &'a Monitoring,
) -> Option<Audience<'a>> {
    let (worker, picked) = (pad.notes.worker, &mut pad.notes.picked);
    let observers = monitoring.observers.as_ref();
    let picked =
        observers.and_then(|observers| Some((observers, observers.ask(worker, ingress, packets, picked)?)));
    (picked.is_some() || monitoring.mirrors.is_some()).then_some(Audience(picked))
}

/// Switches a batch.
#[inline(never)]
pub(crate) fn forward(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    ingress: PortIndex,
    audience: Audience<'_>,
) {
    shown(rx, pad, tools, bridge, ingress, audience, |rx, pad, bridge| {
        decide(rx, pad, bridge, ingress);
    });
}

/// Switches a batch from a port that no observer looks at. If one of its packets goes, or would have gone, to a port
/// that is observed, the observers are asked and shown the batch.
#[inline(never)]
pub(crate) fn forward_unobserved_ingress(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    ingress: PortIndex,
    observers: &Observers,
) {
    pad.notes.begin_refusals();
    decide_plain(rx, pad, bridge, ingress);
    if !pad.notes.refusals.is_empty() || pad.has_list(|lane| observers.shows_sent(lane)) {
        return show_leaving(rx, pad, tools, bridge, ingress, observers);
    }
    pad.notes.end();
    deliver(rx, pad, tools, bridge);
}

/// Finishes [`forward_unobserved_ingress`] for a batch that may be shown.
#[inline(never)]
fn show_leaving(
    rx: &RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    ingress: PortIndex,
    observers: &Observers,
) {
    let Notes { worker, picked, .. } = &mut pad.notes;
    let wanted = observers.ask(*worker, ingress, rx.packets, picked);
    pad.notes.begin_lists(rx, bridge.lane_count());
    pad.note_lists(|lane| observers.shows_sent(lane));
    deliver(rx, pad, tools, bridge);
    pad.notes.end();
    if wanted.is_some() {
        show(rx, pad, bridge, ingress, observers);
    }
}

/// Delivers packets that come from no port.
pub(crate) fn originate(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    audience: Audience<'_>,
    decide: impl FnOnce(&mut Batch<'_>),
) {
    shown(rx, pad, tools, bridge, PortIndex::NONE, audience, |rx, pad, bridge| {
        decide_originated(rx, pad, bridge, decide);
    });
}

/// Decides up to delivery: puts the mirrors' copies on the lists, and notes drops and, if the notes ask for them, the
/// logic's remarks. Returns false if the logic was to explain and could not.
pub(crate) fn decide(
    batch: &mut RxBatch,
    pad: &mut Scratchpad,
    bridge: &BridgeState,
    ingress: PortIndex,
) -> bool {
    hold_back(batch, pad, bridge, ingress);
    pad.notes.arrived(batch);
    if batch.is_empty() {
        return true;
    }
    let port = match open_port(bridge, ingress) {
        Ok(port) => port,
        Err(reason) => {
            let obstacle = || {
                let port = bridge.port(ingress);
                port.map_or_else(|| Text::of("is not a port of this bridge"), PortEntry::obstacle)
            };
            for packet in 0..batch.len() as u16 {
                let remark =
                    || Remark::new(packet, "{} {}", &[Value::Port(ingress), Value::Text(obstacle())]);
                pad.notes.journal.add(remark);
                pad.drop_packet(packet, reason);
            }
            return true;
        }
    };
    begin(batch, pad, bridge, Some(port));
    let mirrors = bridge.monitoring().and_then(|monitoring| monitoring.mirrors.as_ref());
    if let Some(mirrors) = mirrors {
        mirrors.received(batch, pad, bridge, ingress);
    }
    let explained = pad.notes.journal.open;
    let mut packets = packets_of(batch, pad, bridge, ingress, port);
    let mut said = true;
    if explained {
        said = bridge.logic.explain(&mut packets);
    } else {
        bridge.logic.forward(&mut packets);
    }
    packets.finish();
    pad.notes.forgotten(batch);
    if let Some(mirrors) = mirrors {
        mirrors.sent(batch, pad, bridge, ingress);
    }
    said
}

/// Removes packets beyond the port's rates from the batch, but keeps them for observers.
fn hold_back(batch: &mut RxBatch, pad: &mut Scratchpad, bridge: &BridgeState, ingress: PortIndex) {
    let up = bridge.port(ingress).filter(|port| port.up);
    let Some(rate_limits) = up.and_then(|port| port.rate_limits.as_deref()) else { return };
    let Scratchpad { drops, notes, rehearsal, .. } = pad;
    let mut held = |reason, count| {
        drops.add(reason, count);
        notes.held(reason, count);
    };
    if *rehearsal {
        rate_limits.rehearse(batch, held);
    } else {
        rate_limits.hold_each(batch, true, &mut held);
    }
}

/// Delivers the lists that `decide` fills. If observers picked the batch, notes are taken and it is shown to them.
#[inline(never)]
fn shown(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    ingress: PortIndex,
    audience: Audience<'_>,
    decide: impl FnOnce(&mut RxBatch, &mut Scratchpad, &BridgeState),
) {
    let Some((observers, wanted)) = audience.0 else {
        decide(rx, pad, bridge);
        return deliver(rx, pad, tools, bridge);
    };
    pad.notes.begin(wanted, bridge.lane_count());
    decide(rx, pad, bridge);
    pad.note_lists(|lane| observers.shows_sent(lane));
    deliver(rx, pad, tools, bridge);
    pad.notes.end();
    if wanted.received {
        settle(rx, pad, observers);
    }
    show(rx, pad, bridge, ingress, observers);
}

/// Shows a delivered batch to the observers that picked it, if it holds anything for them.
fn show(rx: &RxBatch, pad: &Scratchpad, bridge: &BridgeState, ingress: PortIndex, observers: &Observers) {
    let refused = pad.notes.refusals.iter().any(|refusal| observers.shows_sent(refusal.lane));
    let Some(at) = pad.notes.at.or_else(|| refused.then(clock::since_epoch)) else { return };
    let vlan = bridge.port(ingress).map(|port| &port.settings.vlan);
    for (slot, _) in observers.slots().iter().zip(&pad.notes.picked).filter(|(_, picked)| **picked) {
        let omitted = pad.notes.omitted;
        let sightings = Sightings { at, omitted, slot, observers, rx, pad, vlan, ingress };
        slot.observer.observe(pad.notes.worker, &sightings);
    }
}

/// Determines where received packets went, from the lists after delivery.
fn settle(rx: &RxBatch, pad: &mut Scratchpad, observers: &Observers) {
    let mut fates = std::mem::take(&mut pad.notes.fates);
    let mut went = |version: u16, lane: u32, refusal: Option<DropReason>| {
        // A mirror's copy is no delivery of the packet.
        let record = rx.records.get(usize::from(version)).filter(|record| !record.has(state::MIRRORED));
        let Some(fate) = record.and_then(|record| fates.get_mut(usize::from(record.packet))) else { return };
        if fate.deliveries == 0 {
            fate.egress = observers.port_of(lane);
        }
        match refusal {
            Some(reason) => fate.dropped = Some(reason),
            None if fate.list != Some(lane) => {
                fate.list = Some(lane);
                fate.deliveries += 1;
            }
            None => {}
        }
    };
    for (lane, head) in &pad.notes.lists {
        for (version, refusal) in pad.outputs_from(*head) {
            went(version, *lane, refusal);
        }
    }
    for refusal in &pad.notes.refusals {
        went(refusal.version, refusal.lane, Some(refusal.reason));
    }
    pad.notes.fates = fates;
}
