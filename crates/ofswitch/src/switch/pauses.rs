//! Packets that pause at controllers (`controller(pause)`) until those resume them (NXT_RESUME).
//!
//! What the switch needs to resume a packet stays here; controllers get a number for it. The packet's way is replayed
//! from its reception ([`pipeline::interp::resume`]), so it has to be the same: if flows that it met have changed
//! meanwhile, it cannot be resumed.
//!
//! Invariant: a ring bounds the packets and their bytes; new ones replace the oldest. A packet is resumed once.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use openflow::error::ErrorCode;
use openflow::field::FieldId;
use openflow::message::{PacketIn2, PacketProperty};
use openflow::oxm::Oxm;
use openflow::property::Bytes;
use pipeline::bits::Bits;
use pipeline::interp::{self, Effect as Raw, Event, Outcome, Replay, Resumed};
use pipeline::ir::VarId;

use super::Switch;
use super::packets::MIN_PACKET;
use crate::exec::{self, Packet, Surroundings};
use crate::program::outputs;
use crate::program::{Layout, TUNNEL};

/// Packets that wait at most, and their bytes.
const PACKETS: usize = 256;
const BYTES: usize = 4 << 20;
/// Pauses of one packet at most.
const PAUSES: usize = 64;
/// Longest packet that a controller may return.
const LONGEST: usize = 65_535;

/// How a packet was received, and what has come back for it so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrived<'a> {
    pub(super) port: u32,
    pub(super) bytes: &'a [u8],
    pub(super) flags: u64,
    pub(super) resumed: &'a [Resumed],
}

/// A packet that waits.
#[derive(Debug)]
struct Waiting {
    number: u64,
    port: u32,
    flags: u64,
    bytes: Vec<u8>,
    resumed: Vec<Resumed>,
    /// Which pause of its way it is at.
    at: usize,
    /// What it met up to there.
    way: u64,
}

impl Waiting {
    fn size(&self) -> usize {
        self.bytes.len() + self.resumed.iter().map(|resumed| resumed.packet.len()).sum::<usize>()
    }
}

/// The packets that wait.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    next: u64,
}

impl Pauses {
    fn add(&mut self, mut waiting: Waiting) -> u64 {
        self.next += 1;
        waiting.number = self.next;
        self.bytes += waiting.size();
        self.waiting.push_back(waiting);
        while self.waiting.len() > PACKETS || self.bytes > BYTES {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.bytes -= oldest.size();
        }
        self.next
    }

    fn take(&mut self, number: u64) -> Option<Waiting> {
        let at = self.waiting.iter().position(|waiting| waiting.number == number)?;
        let waiting = self.waiting.remove(at)?;
        self.bytes -= waiting.size();
        Some(waiting)
    }
}

/// Type of the one property of continuations, outside of Open vSwitch's.
const NUMBER: u16 = 0x7f00;

/// The content of a continuation: padding, then a property with a number.
pub(super) fn continuation(number: u64) -> PacketProperty {
    let mut bytes = vec![0; 4];
    bytes.extend(NUMBER.to_be_bytes());
    // Header, padding and number.
    bytes.extend(16u16.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(number.to_be_bytes());
    PacketProperty::Continuation(Bytes(bytes))
}

fn number_in(continuation: &[u8]) -> Option<u64> {
    let [0, 0, 0, 0, a, b, 0, 16, 0, 0, 0, 0, number @ ..] = continuation else { return None };
    let is_number = u16::from_be_bytes([*a, *b]) == NUMBER;
    Some(u64::from_be_bytes(*number.first_chunk()?)).filter(|_| is_number)
}

/// What a packet met in front of its pause number `at`; `None`: it does not get there.
fn way(outcome: &Outcome, at: usize) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut left = at;
    for event in &outcome.trace {
        match event {
            Event::Lookup(table, _, hit) => (0, table, hit).hash(&mut hasher),
            Event::Action(action, args) => (1, action, args).hash(&mut hasher),
            Event::Bucket(groups, group, bucket) => (2, groups, group, bucket).hash(&mut hasher),
            Event::Block(block) if *block == Layout::get().pause => match left.checked_sub(1) {
                None => return Some(hasher.finish()),
                Some(less) => left = less,
            },
            _ => {}
        }
    }
    None
}

/// The number of the pause at which a packet was given away from a site, not before pause `first`, in the order of the
/// packet's way.
fn pause_at(outcome: &Outcome, site: &[u8], first: usize) -> Option<usize> {
    let (mut pauses, mut gives) = (0, false);
    for event in &outcome.trace {
        match event {
            Event::Effect(Raw::Controller { reason, data, .. }) => {
                let own = outputs::Record::read(data);
                gives =
                    reason & outputs::PAUSE != 0 && own.is_some_and(|own| own.user_data.starts_with(site));
            }
            Event::Block(block) if *block == Layout::get().pause => {
                if std::mem::take(&mut gives) && pauses >= first {
                    return Some(pauses);
                }
                pauses += 1;
            }
            _ => {}
        }
    }
    None
}

impl Switch {
    /// Runs the program on a packet, from its reception or from its last pause on.
    pub(super) fn follow(&mut self, arrived: &Arrived<'_>, now: u64, rehearses: bool) -> Outcome {
        let Arrived { port, bytes, flags, resumed } = *arrived;
        let packet = Packet { bytes, port, flags, now };
        let ports = &self.ports;
        let is_live = |number: u32| ports.get(&number).is_some_and(|port| port.is_live());
        let mut random = self.random;
        let mut surroundings = Surroundings { now, random: &mut random, is_live: &is_live };
        let state = &self.datapath.state;
        let outcome = if resumed.is_empty() && !rehearses {
            exec::run(state, &mut surroundings, &packet)
        } else {
            // What came back is new as a whole.
            let limits = interp::Limits { headers: LONGEST + exec::LIMITS.headers, ..exec::LIMITS };
            let replay = Replay { pause: Layout::get().pause, resumed };
            interp::resume(state, &mut surroundings, &packet.received(), &limits, replay, rehearses)
        };
        if !rehearses {
            self.random = random;
        }
        outcome
    }

    /// Keeps a packet that pauses; returns its number, unless it cannot be resumed. `site`: the action that it pauses
    /// at.
    pub(super) fn pause(&mut self, arrived: &Arrived<'_>, site: &[u8], now: u64) -> Option<u64> {
        if arrived.resumed.len() >= PAUSES {
            return None;
        }
        let outcome = self.follow(arrived, now, true);
        let first = arrived.resumed.last().map_or(0, |resumed| resumed.at + 1);
        let at = pause_at(&outcome, site, first)?;
        let way = way(&outcome, at)?;
        let Arrived { port, bytes, flags, resumed } = *arrived;
        let (bytes, resumed) = (bytes.to_vec(), resumed.to_vec());
        Some(self.pauses.add(Waiting { number: 0, port, flags, bytes, resumed, at, way }))
    }

    /// Continues with a packet that paused.
    pub(super) fn resume(&mut self, request: &PacketIn2, now: u64) -> Result<(), ErrorCode> {
        let (mut packet, mut fields, mut number) = (None, &[][..], None);
        for property in &request.0 {
            match property {
                PacketProperty::Packet(bytes) => packet = Some(&bytes.0),
                PacketProperty::Metadata(metadata) => fields = &metadata.0,
                PacketProperty::Continuation(bytes) => number = number_in(&bytes.0),
                _ => {}
            }
        }
        let packet = packet.filter(|packet| (MIN_PACKET..=LONGEST).contains(&packet.len()));
        let packet = packet.ok_or(ErrorCode::BrcBadPacket)?.clone();
        let Waiting { port, flags, bytes, mut resumed, at, way: before, .. } =
            number.and_then(|number| self.pauses.take(number)).ok_or(ErrorCode::NxResumeStale)?;
        let vars = metadata(fields, packet.len());
        resumed.push(Resumed { at, packet, vars });
        let arrived = Arrived { port, bytes: &bytes, flags, resumed: &resumed };
        if way(&self.follow(&arrived, now, true), at) != Some(before) {
            return Err(ErrorCode::NxResumeStale);
        }
        let mut effects = std::mem::take(&mut self.effects);
        self.run(&arrived, now, &mut effects);
        self.effects = effects;
        Ok(())
    }
}

/// Variables from the metadata that comes with a packet; those that it does not name are zero.
fn metadata(fields: &[Oxm], len: usize) -> Vec<(VarId, Bits)> {
    let v = &Layout::get().vars;
    let value = |wanted: FieldId| {
        fields.iter().find(|oxm| oxm.field().is_some_and(|field| field.id == wanted)).map(Oxm::value_number)
    };
    let wide = |width: u16, value: u128| Bits::from_u128(width, value);
    let mut vars = vec![(v.length, wide(32, len as u128))];
    let in_port = value(FieldId::InPortOxm).or_else(|| value(FieldId::InPort));
    vars.extend(in_port.map(|port| (v.in_port, wide(32, port))));
    for id in [FieldId::Metadata, FieldId::PktMark].into_iter().chain(TUNNEL) {
        let var = v.fields.get(&id).copied();
        vars.extend(var.map(|var| (var, wide(id.field().bits, value(id).unwrap_or(0)))));
    }
    for (n, var) in (0u8..).zip(v.registers) {
        let word = |word: u8| FieldId::reg(n * 4 + word).and_then(value).unwrap_or(0) & 0xffff_ffff;
        let whole = (0..4).fold(0, |whole, at| whole << 32 | word(at));
        vars.push((var, wide(128, whole)));
    }
    vars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continuations_are_numbers() {
        let PacketProperty::Continuation(bytes) = continuation(0x0102_0304_0506_0708) else { panic!() };
        assert_eq!(number_in(&bytes.0), Some(0x0102_0304_0506_0708));
        assert_eq!(number_in(&bytes.0[..19]), None);
        assert_eq!(number_in(&[]), None);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut pauses = Pauses::default();
        let waiting = || Waiting {
            number: 0,
            port: 1,
            flags: 0,
            bytes: vec![0; 30_000],
            resumed: vec![],
            at: 0,
            way: 0,
        };
        let numbers: Vec<u64> = (0..200).map(|_| pauses.add(waiting())).collect();
        assert!(pauses.bytes <= BYTES);
        assert!(pauses.take(numbers[0]).is_none());
        assert!(pauses.take(numbers[199]).is_some());
        assert!(pauses.take(numbers[199]).is_none(), "it is resumed once");
        let bytes: usize = pauses.waiting.iter().map(Waiting::size).sum();
        assert_eq!(pauses.bytes, bytes);
    }
}
