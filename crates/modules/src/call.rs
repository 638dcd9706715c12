//! A batch during a module's call: the list of packets in the window, the functions that the module calls meanwhile,
//! and the translation of its outputs to the fabric's verbs.
//!
//! Invariants: which packet, slot and VLAN an entry of the list stands for is remembered in [`Shadow`]s, which a
//! module cannot reach; it names packets by their place in the list only.

use fabric::arena::SLOT_LEN;
use fabric::explain::VALUES;
use fabric::{Batch, DropReason, PortIndex, Text, Value};
use logic::vlan::Frame;
use packet::ether::MacAddr;
use packet::offload::{Gso, Offload};

use crate::abi::{Packet, flag, kind, verb};
use crate::held_packets::HeldPackets;
use crate::ports::PortNames;
use crate::window::{SPARE, Window};

/// Bytes of an Ethernet header, which a packet keeps whatever is taken from its front.
const ETHERNET: u32 = 14;

/// Most deliveries of a batch: each packet of a usual batch to two thousand ports.
pub(crate) const MAX_DELIVERIES: usize = 128 << 10;

/// Functions of the switch that a module can call. Without a batch, as at a module's start, most do nothing.
pub(crate) trait Host {
    /// Makes the first bytes of a packet visible; returns their number.
    fn pull(&mut self, _packet: u32, _bytes: u32) -> u32 {
        0
    }
    /// Copies a packet; returns the copy's number, or -1.
    fn copy(&mut self, _packet: u32) -> i32 {
        -1
    }
    /// Whether the bridge has a port and it is up.
    fn is_up(&mut self, _port: u32) -> bool {
        false
    }
    /// Makes a packet of these bytes; returns its number, or -1.
    fn originate(&mut self, _bytes: &[u8]) -> i32 {
        -1
    }
    /// Copies bytes of a packet from an offset on; returns their number.
    fn read(&mut self, _packet: u32, _from: u32, _out: &mut [u8]) -> u32 {
        0
    }
    /// Keeps a packet beyond this batch; returns its number there, or -1.
    fn retain(&mut self, _packet: u32) -> i32 {
        -1
    }
    /// Returns a held packet to the batch; returns its number there, or -1.
    fn release(&mut self, _held: u32) -> i32 {
        -1
    }
    /// Adds a remark to a packet, with a value of a [`kind`] in the place of `{}`.
    fn remark(&mut self, _packet: u32, _text: &[u8], _kind: u32, _value: u64) {}
    /// Returns the index of the port of this name, [`NO_PORT`](crate::abi::NO_PORT) or
    /// [`ASK_AGAIN`](crate::abi::ASK_AGAIN).
    fn port(&mut self, name: &[u8]) -> i32;
}

/// The switch's record of an entry in a window's list of packets.
#[derive(Clone, Copy)]
pub(crate) struct Shadow {
    frame: Frame,
    /// Offsets of the header, as the module was told, and of its slot.
    header: u32,
    slot: u32,
    vlan: u16,
    /// Whether it has pending offloads, which its header must continue to fit.
    open: bool,
    /// Dropped and counted already.
    gone: bool,
}

impl Shadow {
    /// The record of no packet.
    pub(crate) const NONE: Shadow =
        Shadow { frame: Frame::NONE, header: 0, slot: 0, vlan: 0, open: false, gone: true };
}

/// See the module.
pub(crate) struct Call<'c, 'b> {
    pub(crate) batch: &'c mut Batch<'b>,
    pub(crate) window: Window,
    pub(crate) shadows: &'c mut [Shadow],
    /// Packets that the worker keeps.
    pub(crate) held: &'c mut HeldPackets,
    /// Room for the ports of a set.
    pub(crate) ports: &'c mut Vec<PortIndex>,
    /// The bridge's ports.
    pub(crate) names: &'c PortNames,
    /// Packets in the list.
    pub(crate) versions: usize,
    /// Deliveries left to it.
    pub(crate) budget: usize,
    /// Whether the fabric keeps the headers in the window's slots; if not, they are copied to and from its spare
    /// ones.
    pub(crate) in_place: bool,
}

impl Call<'_, '_> {
    /// Adds a packet to the list; false if there is no room.
    #[inline(always)]
    pub(crate) fn list(&mut self, frame: Frame) -> bool {
        let (i, v) = (self.versions, frame.version());
        let layout = self.window.layout();
        let slot = match self.in_place {
            true => layout.slots + v.number() * SLOT_LEN,
            false if i < SPARE => layout.spare + i * SLOT_LEN,
            false => return false,
        };
        let Some(shadow) = self.shadows.get_mut(i) else { return false };
        let header = (slot + self.batch.start(v)) as u32;
        let bytes = self.batch.header(v);
        let header_len = bytes.len() as u16;
        if !self.in_place {
            self.window.write(header as usize, bytes);
        }
        let offload = self.batch.offload(v);
        let (open, flags) = (!offload.is_none(), flags_of(&offload));
        *shadow = Shadow { frame, header, slot: slot as u32, vlan: frame.vid(), open, gone: false };
        let len = self.batch.len(v);
        self.window.set_packet(i, Packet { header, len, header_len, vlan: frame.vid(), flags, reserved: 0 });
        self.versions = i + 1;
        true
    }

    /// Applies the module's changes of entry `i` to the fabric's version.
    #[inline(always)]
    pub(crate) fn follow(&mut self, i: usize) -> Result<(), String> {
        let (packet, Some(shadow)) = (self.window.packet(i), self.shadows.get(i).copied()) else {
            return Ok(());
        };
        let plain = packet.header == shadow.header && packet.vlan == shadow.vlan && !shadow.open;
        if !plain || !self.in_place {
            self.follow_changes(i, packet, shadow)?;
        }
        Ok(())
    }

    fn follow_changes(&mut self, i: usize, packet: Packet, mut shadow: Shadow) -> Result<(), String> {
        if shadow.gone {
            return Ok(());
        }
        let v = shadow.frame.version();
        if packet.header != shadow.header {
            let end = shadow.header + self.batch.header(v).len() as u32;
            let last = end.saturating_sub(ETHERNET);
            if !(shadow.slot..=last).contains(&packet.header) {
                let moved = |to: u32| i64::from(to) - i64::from(shadow.header);
                return Err(format!(
                    "packet {i}: its header moved by {:+} bytes, allowed {:+} to {:+}",
                    moved(packet.header),
                    moved(shadow.slot),
                    moved(last)
                ));
            }
            shadow.gone = !self.batch.set_start(v, (packet.header - shadow.slot) as usize);
            shadow.header = packet.header;
        }
        if !self.in_place && !shadow.gone {
            let at = shadow.header as usize;
            if let Some(header) = self.batch.header_mut(v) {
                self.window.read(at, header);
            }
        }
        if !shadow.gone && packet.vlan != shadow.vlan {
            shadow.gone = !shadow.frame.retag(self.batch, packet.vlan);
            shadow.vlan = packet.vlan;
        }
        if !shadow.gone {
            shadow.gone = !self.batch.still_describes(shadow.frame.version());
        }
        if let Some(slot) = self.shadows.get_mut(i) {
            *slot = shadow;
        }
        Ok(())
    }

    /// Carries out output `i`.
    #[inline(always)]
    pub(crate) fn carry_out(&mut self, i: usize) -> Result<(), String> {
        let output = self.window.output(i);
        let at = usize::from(output.packet);
        let shadow = match self.shadows.get(at) {
            Some(shadow) if at < self.versions => *shadow,
            _ => return Err(format!("output {i}: there is no packet {at}, the batch has {}", self.versions)),
        };
        if shadow.gone {
            return Ok(());
        }
        let v = shadow.frame.version();
        match output.verb {
            verb::SEND => shadow.frame.send(self.batch, PortIndex(output.port)),
            verb::FLOOD => {
                self.spend(self.batch.live_ports().len())?;
                shadow.frame.flood(self.batch);
            }
            verb::FLOOD_UNKNOWN => {
                self.spend(self.batch.live_ports().len())?;
                if self.batch.may_flood_unknown(v) {
                    shadow.frame.flood(self.batch);
                }
            }
            verb::REFLECT => self.batch.reflect(v),
            verb::DROP => self.batch.discard(v, DropReason::Logic),
            verb::SEND_SET => {
                self.window.read_set(output.port, self.ports);
                self.spend(self.ports.len())?;
                shadow.frame.flood_among(self.batch, &*self.ports);
            }
            verb::CONSUME => self.batch.consume(v),
            other => {
                return Err(format!(
                    "output {i}: unknown verb {other}, expected {} to {}",
                    verb::SEND,
                    verb::CONSUME
                ));
            }
        }
        Ok(())
    }

    /// Takes deliveries off the budget. Deliveries to single ports are limited by the number of outputs.
    fn spend(&mut self, deliveries: usize) -> Result<(), String> {
        let left = self.budget.checked_sub(deliveries);
        self.budget = left.ok_or_else(|| format!("more than {MAX_DELIVERIES} deliveries of one batch"))?;
        Ok(())
    }

    /// The record of an entry with the module's changes applied; `None` for packets that do not exist or were
    /// dropped.
    fn current(&mut self, packet: u32) -> Option<Shadow> {
        let at = packet as usize;
        if at >= self.versions {
            return None;
        }
        // A header that cannot be is reported when the module has returned.
        self.follow(at).ok()?;
        self.shadows.get(at).copied().filter(|shadow| !shadow.gone)
    }

    /// Adds a packet to the list that was not received; returns its number, or -1.
    fn list_more(&mut self, frame: Frame) -> i32 {
        let number = self.versions;
        if !self.list(frame) {
            self.batch.discard(frame.version(), DropReason::BatchLimit);
            return -1;
        }
        self.window.set_versions(self.versions as u32);
        i32::try_from(number).unwrap_or(-1)
    }
}

fn flags_of(offload: &Offload) -> u16 {
    let checksum = if offload.needs_csum { flag::CHECKSUM } else { 0 };
    checksum | if offload.gso == Gso::None { 0 } else { flag::SEGMENTS }
}

/// Splits a text into the values of a remark; `...` at the end stands for the rest of a longer one.
pub(crate) fn parts(text: &[u8]) -> [Value; VALUES] {
    let text = String::from_utf8_lossy(text);
    let mut rest = &*text;
    let mut parts = [Value::None; VALUES];
    let last = VALUES - 1;
    for (i, part) in parts.iter_mut().enumerate().take_while(|_| !rest.is_empty()) {
        let at = if i == last { rest.len() } else { rest.floor_char_boundary(Text::MAX) };
        let (own, later) = rest.split_at(at);
        (*part, rest) = (Value::Text(Text::of(own)), later);
    }
    parts
}

/// Converts a number to a value of the kind that the module names.
fn shown(as_what: u32, value: u64) -> Value {
    match as_what {
        kind::PORT => Value::Port(PortIndex(value as u16)),
        kind::MAC => {
            let [a, b, c, d, e, f, ..] = value.to_le_bytes();
            Value::Mac(MacAddr([a, b, c, d, e, f]))
        }
        kind::IPV4 => {
            let address = std::net::Ipv4Addr::from((value as u32).to_le_bytes());
            Value::Text(Text::new(address.to_string().as_bytes()))
        }
        _ => Value::Number(value),
    }
}

impl Host for Call<'_, '_> {
    fn pull(&mut self, packet: u32, bytes: u32) -> u32 {
        let Some(shadow) = self.current(packet) else { return 0 };
        let (at, v) = (packet as usize, shadow.frame.version());
        let there = self.batch.pull(v, bytes as usize);
        let mut listed = self.window.packet(at);
        listed.header_len = there as u16;
        listed.header = shadow.header;
        self.window.set_packet(at, listed);
        if !self.in_place {
            self.window.write(shadow.header as usize, self.batch.header(v));
        }
        there as u32
    }

    fn copy(&mut self, packet: u32) -> i32 {
        if self.versions >= self.shadows.len() {
            return -1;
        }
        let Some(shadow) = self.current(packet) else { return -1 };
        let Some(v) = self.batch.copy(shadow.frame.version()) else { return -1 };
        self.list_more(shadow.frame.with_version(v))
    }

    fn is_up(&mut self, port: u32) -> bool {
        u16::try_from(port).is_ok_and(|port| self.batch.reaches(PortIndex(port)))
    }

    fn originate(&mut self, bytes: &[u8]) -> i32 {
        let Some(v) = self.batch.originate(bytes, Offload::NONE) else { return -1 };
        self.list_more(Frame::originated(self.batch, v))
    }

    fn read(&mut self, packet: u32, from: u32, out: &mut [u8]) -> u32 {
        let Some(shadow) = self.current(packet) else { return 0 };
        self.batch.read(shadow.frame.version(), from as usize, out) as u32
    }

    fn retain(&mut self, packet: u32) -> i32 {
        let Some(shadow) = self.current(packet) else { return -1 };
        let Some(number) = self.held.hold(self.batch, shadow.frame) else { return -1 };
        self.batch.consume(shadow.frame.version());
        number as i32
    }

    fn release(&mut self, held: u32) -> i32 {
        let Some((bytes, offload, frame)) = self.held.get(held as usize) else { return -1 };
        // Where this batch has no room for it, a later one may.
        let Some(v) = self.batch.originate(bytes, offload) else { return -1 };
        self.held.release(held as usize);
        let frame = frame.again(self.batch, v);
        self.list_more(frame)
    }

    fn remark(&mut self, packet: u32, text: &[u8], kind: u32, value: u64) {
        let Some(shadow) = self.shadows.get(packet as usize).filter(|_| (packet as usize) < self.versions)
        else {
            return;
        };
        if !self.batch.is_explained() {
            return;
        }
        let v = shadow.frame.version();
        let part = |part: &[u8]| Value::Text(Text::of(String::from_utf8_lossy(part)));
        match text.windows(2).position(|window| window == b"{}") {
            Some(at) => {
                let (before, after) = text.split_at(at);
                let (early, late) = before.split_at(before.len().min(Text::MAX));
                let after = after.get(2..).unwrap_or_default();
                let early = Value::Text(Text::new(early));
                self.batch.remark(v, "{}{}{}{}", &[early, part(late), shown(kind, value), part(after)]);
            }
            None => self.batch.remark(v, "{}{}{}{}", &parts(text)),
        }
    }

    fn port(&mut self, name: &[u8]) -> i32 {
        self.names.look(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let part = |part: &Value| match part {
            Value::Text(text) => text.to_string(),
            _ => String::new(),
        };
        parts(text.as_bytes()).iter().map(part).collect()
    }

    #[test]
    fn a_long_text_is_shown_whole_or_ends_with_dots() {
        for len in [0, 1, 61, 62, 63, 124, 247, 248] {
            let text: String = ('a'..='z').cycle().take(len).collect();
            assert_eq!(shown(&text), text);
        }
        let text = "a".repeat(249);
        assert_eq!(shown(&text), "a".repeat(245) + "...");
        // Letters of several bytes are not cut.
        let text = "\u{fc}".repeat(100) + "x";
        assert_eq!(shown(&format!("y{text}")), format!("y{text}"));
    }
}
