//! The way of a batch through a bridge that is mirrored or observed: as [`crate::decide::forward`], with copies for the mirrors and
//! notes for the observers.

use crate::bridge::picture::{Aside, BridgeState, PortEntry};
use crate::bridge::port::PortIndex;
use crate::clock;
use crate::counters::DropReason;
use crate::decide::batch::Batch;
use crate::decide::forward::straight;
use crate::decide::steps::{deliver, open_port, packets_of, say};
use crate::deliver::tools::Tools;
use crate::lists::scratchpad::Scratchpad;
use crate::observe::explain::{Remark, Value};
use crate::observe::interest::Interest;
use crate::observe::notes::Notes;
use crate::observe::observer::Sightings;
use crate::observe::observers::Watch;
use crate::rx::RxBatch;
use crate::rx::record::state;

/// The observers that are shown a batch, and what they want to see of its ingress port; none if it is only mirrored.
pub(crate) struct Audience<'a>(Option<(&'a Watch, Interest)>);

/// Asks the observers whether they pick a batch. `None` if none does and the bridge is not mirrored either: there is
/// nothing to do besides forwarding.
pub(crate) fn audience<'a>(
    pad: &mut Scratchpad,
    ingress: PortIndex,
    packets: usize,
    aside: &'a Aside,
) -> Option<Audience<'a>> {
    let (worker, picked) = (pad.notes.worker, &mut pad.notes.picked);
    let watch = aside.watch.as_ref();
    let picked = watch.and_then(|watch| Some((watch, watch.ask(worker, ingress, packets, picked)?)));
    (picked.is_some() || aside.mirrors.is_some()).then_some(Audience(picked))
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

/// Switches a batch from a port that no observer looks at. Only where one of its packets goes, or would have gone, to a port
/// that one looks at, they are asked and shown it.
#[inline(never)]
pub(crate) fn beside(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    ingress: PortIndex,
    watch: &Watch,
) {
    pad.notes.begin_beside();
    straight(rx, pad, bridge, ingress);
    if !pad.notes.refusals.is_empty() || pad.has_list(|lane| watch.shows_sent(lane)) {
        return seen_leaving(rx, pad, tools, bridge, ingress, watch);
    }
    pad.notes.end();
    deliver(rx, pad, tools, bridge);
}

/// The rest of [`beside`], for a batch that may be seen.
#[inline(never)]
fn seen_leaving(
    rx: &RxBatch,
    pad: &mut Scratchpad,
    tools: &mut Tools,
    bridge: &BridgeState,
    ingress: PortIndex,
    watch: &Watch,
) {
    let Notes { worker, picked, .. } = &mut pad.notes;
    let wanted = watch.ask(*worker, ingress, rx.packets, picked);
    pad.notes.begin_lists(rx, bridge.lane_count());
    pad.note_lists(|lane| watch.shows_sent(lane));
    deliver(rx, pad, tools, bridge);
    pad.notes.end();
    if wanted.is_some() {
        show(rx, pad, bridge, ingress, watch);
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
        say(rx, pad, bridge, decide);
    });
}

/// Decides up to where lists are delivered: mirrors' copies are put on the lists, and notes are taken of what is dropped and,
/// if they were begun so, of what the logic says. Returns false where it was to say something and could not.
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
            let obstacle = bridge.port(ingress).map_or("is not a port of this bridge", PortEntry::obstacle);
            for packet in 0..batch.len() as u16 {
                let values = [Value::Port(ingress), Value::Word(obstacle)];
                pad.notes.journal.add(|| Remark::new(packet, "{} {}", &values));
                pad.drop_packet(packet, reason);
            }
            return true;
        }
    };
    pad.begin(bridge.lane_count());
    let mirrors = bridge.aside().and_then(|aside| aside.mirrors.as_ref());
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

/// Takes out of the batch what the port may not send now, but keeps it for those who look on.
fn hold_back(batch: &mut RxBatch, pad: &mut Scratchpad, bridge: &BridgeState, ingress: PortIndex) {
    let up = bridge.port(ingress).filter(|port| port.up);
    let Some(guards) = up.and_then(|port| port.guards.as_deref()) else { return };
    let Scratchpad { drops, notes, rehearsal, .. } = pad;
    let mut held = |reason, count| {
        drops.add(reason, count);
        notes.held(reason, count);
    };
    if *rehearsal {
        guards.rehearse(batch, held);
    } else {
        guards.hold_each(batch, true, &mut held);
    }
}

/// Delivers what `decide` puts on the lists. If observers picked the batch, notes are taken and it is shown to them.
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
    let Some((watch, wanted)) = audience.0 else {
        decide(rx, pad, bridge);
        return deliver(rx, pad, tools, bridge);
    };
    pad.notes.begin(wanted, bridge.lane_count());
    decide(rx, pad, bridge);
    pad.note_lists(|lane| watch.shows_sent(lane));
    deliver(rx, pad, tools, bridge);
    pad.notes.end();
    if wanted.received {
        settle(rx, pad, watch);
    }
    show(rx, pad, bridge, ingress, watch);
}

/// Shows a batch that has been delivered to those who picked it, if there is something to see.
fn show(rx: &RxBatch, pad: &Scratchpad, bridge: &BridgeState, ingress: PortIndex, watch: &Watch) {
    let refused = pad.notes.refusals.iter().any(|refusal| watch.shows_sent(refusal.lane));
    let Some(at) = pad.notes.at.or_else(|| refused.then(clock::since_epoch)) else { return };
    let vlan = bridge.port(ingress).map(|port| &port.settings.vlan);
    for (slot, _) in watch.slots().iter().zip(&pad.notes.picked).filter(|(_, picked)| **picked) {
        let omitted = pad.notes.omitted;
        let sightings = Sightings { at, omitted, slot, watch, rx, pad, vlan, ingress };
        slot.observer.observe(pad.notes.worker, &sightings);
    }
}

/// Where received packets went, by the lists as they are after delivery.
fn settle(rx: &RxBatch, pad: &mut Scratchpad, watch: &Watch) {
    let mut fates = std::mem::take(&mut pad.notes.fates);
    let mut went = |version: u16, lane: u32, refusal: Option<DropReason>| {
        // What a mirror copied is no delivery of the packet.
        let record = rx.records.get(usize::from(version)).filter(|record| !record.has(state::MIRRORED));
        let Some(fate) = record.and_then(|record| fates.get_mut(usize::from(record.packet))) else { return };
        if fate.deliveries == 0 {
            fate.egress = watch.port_of(lane);
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
