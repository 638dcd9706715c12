//! Packets through the program, from ports and from controllers, and what comes of them.

use openflow::action::{Action, SampleDirection, SetField};
use openflow::error::ErrorCode;
use openflow::field::FieldId;
use openflow::message::{Body, PacketIn, PacketIn2, PacketOut, PacketProperty, PortConfig};
use openflow::oxm::Oxm;
use openflow::property::{Aligned64, Bytes, Fields};
use openflow::{Message, PortNo, Version, version};
use pipeline::interp::{Effect as Raw, Exit, Received};
use pipeline::ir::{Constant, DigestId};
use pipeline::state::Update;

use super::Switch;
use super::pauses::Arrived;
use crate::buffers::Buffers;
use crate::connection::{ConnectionId, Notice};
use crate::datapath::{Datapath, exact, exact_match};
use crate::exec;
use crate::failure::Failure;
use crate::flows::{FlowChange, Selection};
use crate::lower::{LEARNED_VERSION, Lowered, Lowering, Owner};
use crate::program::Layout;
use crate::program::outputs::{self, Record};
use crate::tables::Miss;

/// What a packet causes at ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A packet leaves through a port.
    Output {
        /// The port.
        port: PortNo,
        /// The packet.
        packet: Vec<u8>,
        /// The port's queue; 0: none in particular.
        queue: u16,
    },
    /// A packet goes where the bridge would send it without flows (`NORMAL`).
    Normal {
        /// The port that it came from.
        in_port: PortNo,
        /// The packet.
        packet: Vec<u8>,
        /// The queue of the ports that it goes to; 0: none in particular.
        queue: u16,
    },
    /// A packet is sampled.
    Sample {
        /// What the action says of it.
        sample: Sample,
        /// The port that it came from.
        in_port: PortNo,
        /// The packet as it was received.
        packet: Vec<u8>,
    },
    /// A packet, or a copy of it, is dropped, for a reason in words.
    Drop(String),
}

/// What a `sample` action says of a packet that it chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Set of collectors.
    pub collectors: u32,
    /// Observation domain.
    pub domain: u32,
    /// Observation point.
    pub point: u32,
    /// The port to state; [`PortNo::ANY`]: none.
    pub port: PortNo,
    /// Packets that are sampled, of 65,536.
    pub probability: u16,
    /// Where the packet is observed.
    pub direction: SampleDirection,
}

impl Sample {
    /// Reads the values of the program's digest.
    pub(super) fn of(values: &[Constant]) -> Self {
        let number = |at: usize| values.get(at).map_or(0, |value| value.value.low_u64());
        Self {
            collectors: number(0) as u32,
            domain: number(1) as u32,
            point: number(2) as u32,
            port: PortNo(number(3) as u32),
            probability: number(4) as u16,
            direction: match number(5) {
                1 => SampleDirection::Ingress,
                2 => SampleDirection::Egress,
                _ => SampleDirection::Default,
            },
        }
    }
}

/// Bytes of a packet at least: an Ethernet header.
pub(super) const MIN_PACKET: usize = 14;

/// Number of packet-outs in the program's table of injected actions.
const INJECTED: u32 = 1;

impl Switch {
    /// Processes a packet that arrived at a port, at a time in nanoseconds.
    pub fn packet(&mut self, port: PortNo, packet: &[u8], now: u64) -> Vec<Effect> {
        let Some(entry) = self.ports.get_mut(&port.0) else {
            return vec![Effect::Drop("no such port".to_owned())];
        };
        entry.counters.rx_packets += 1;
        entry.counters.rx_bytes += packet.len() as u64;
        if entry.config.intersects(PortConfig::PORT_DOWN | PortConfig::NO_RECV) {
            entry.counters.rx_dropped += 1;
            return vec![Effect::Drop("the port is configured to receive nothing".to_owned())];
        }
        let mut effects = Vec::new();
        let arrived = Arrived { port: port.0, bytes: packet, flags: self.received_flags(), resumed: &[] };
        self.run(&arrived, now, &mut effects);
        self.after_changes();
        effects
    }

    pub(super) fn run(&mut self, arrived: &Arrived<'_>, now: u64, effects: &mut Vec<Effect>) {
        let outcome = self.follow(arrived, now, false);
        let (port, bytes) = (arrived.port, arrived.bytes);
        let received = Received::whole(bytes, port);
        let mut room = exec::EFFECTS;
        let fails = failure(&outcome.effects).is_some();
        for effect in outcome.effects {
            match effect {
                Raw::Output { .. } if fails => {}
                Raw::Output { to, packet: form, queue, .. } => {
                    let bytes = form.bytes(&received);
                    let first = effects.len();
                    let fits = self.leave(port, to, bytes, queue.unwrap_or(0), room, effects);
                    room = room.saturating_sub(effects.len() - first);
                    if !fits {
                        effects.push(Effect::Drop("the packet leaves too many times".to_owned()));
                        break;
                    }
                }
                Raw::Controller { reason, packet: form, limit, data, .. } => {
                    if let Some(record) = Record::read(&data) {
                        self.packet_in(&record, reason, limit, &form.bytes(&received), Some(arrived), now);
                    }
                }
                Raw::Digest { digest, values } => {
                    self.digest(digest, &values, (PortNo(port), bytes), now, effects)
                }
                Raw::Drop(reason) => effects.push(Effect::Drop(reason.text(&self.datapath.state))),
            }
        }
    }

    /// Sends a packet to a port, or to several, but adds no more than `room` effects; `false`: there are more.
    fn leave(
        &mut self,
        in_port: u32,
        to: Exit,
        packet: Vec<u8>,
        queue: u16,
        room: usize,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let flood = to == Exit::Flood;
        let numbers: Vec<u32> = match to {
            Exit::Port(number) => vec![number],
            Exit::Fallback if room == 0 => return false,
            Exit::Fallback => {
                effects.push(Effect::Normal { in_port: PortNo(in_port), packet, queue });
                return true;
            }
            Exit::Flood | Exit::All => {
                let takes = |number: &u32, config: PortConfig| {
                    *number != in_port && !(flood && config.contains(PortConfig::NO_FLOOD))
                };
                self.ports.iter().filter(|(n, port)| takes(n, port.config)).map(|(n, _)| *n).collect()
            }
        };
        let fits = numbers.len() <= room;
        for number in numbers.into_iter().take(room) {
            let Some(port) = self.ports.get_mut(&number) else {
                effects.push(Effect::Drop("no such port".to_owned()));
                continue;
            };
            if port.config.intersects(PortConfig::PORT_DOWN | PortConfig::NO_FWD) || !port.info.is_up {
                port.counters.tx_dropped += 1;
                effects.push(Effect::Drop("the port does not send".to_owned()));
                continue;
            }
            port.counters.tx_packets += 1;
            port.counters.tx_bytes += packet.len() as u64;
            effects.push(Effect::Output { port: PortNo(number), packet: packet.clone(), queue });
        }
        fits
    }

    pub(super) fn digest(
        &mut self,
        digest: DigestId,
        values: &[Constant],
        (in_port, packet): (PortNo, &[u8]),
        now: u64,
        effects: &mut Vec<Effect>,
    ) {
        let number = |at: usize| values.get(at).map_or(0, |value| value.value.low_u64());
        if digest == Layout::get().sample {
            let sample = Sample::of(values);
            effects.push(Effect::Sample { sample, in_port, packet: packet.to_vec() });
            return;
        }
        // The flow that teaches may have gone meanwhile; a flow that cannot be is not learned.
        if let Some(learned) = values.get(1) {
            let _: Result<(), ErrorCode> = self.learn(number(0) as u32, &learned.value, now);
        }
    }

    fn learn(&mut self, number: u32, values: &pipeline::bits::Bits, now: u64) -> Result<(), ErrorCode> {
        let Some(template) = self.datapath.model.learns.get(&number).cloned() else { return Ok(()) };
        if let Some(fin) = template.fin {
            return self.datapath.shorten(number, fin, now);
        }
        let flow = template.flow(values);
        let form = openflow::message::Form::Nicira;
        let size = template.size();
        let change = FlowChange::new(flow, size, LEARNED_VERSION, form, true, &self.datapath)?;
        if self.datapath.refresh(&change, now) {
            return Ok(());
        }
        if template.limit > 0 {
            let cookie = (template.cookie(), u64::MAX);
            let learned = Selection { table: template.table(), cookie, ..Selection::all() };
            if learned.of(self.datapath.model.tables()).len() >= template.limit as usize {
                return Ok(());
            }
        }
        let events = self.datapath.apply_flow_mod(&change, now)?;
        self.tell(&events, None, now);
        Ok(())
    }

    /// Tells controllers of a packet.
    ///
    /// With `arrived`, a packet that pauses can be resumed.
    pub(super) fn packet_in(
        &mut self,
        record: &Record,
        reason: u8,
        limit: Option<u16>,
        packet: &[u8],
        arrived: Option<&Arrived<'_>>,
        now: u64,
    ) {
        let quiet = |port: &crate::ports::PortEntry| port.config.contains(PortConfig::NO_PACKET_IN);
        if self.ports.get(&record.in_port).is_some_and(quiet) {
            return;
        }
        let pauses = reason & outputs::PAUSE != 0;
        let reason = match reason & !outputs::PAUSE {
            // Flows that a packet-out's packet meets (OpenFlow 1.4, section 7.4.1).
            outputs::ACTION if arrived.is_some_and(|arrived| arrived.flags as u32 == INJECTED) => {
                outputs::PACKET_OUT
            }
            reason => reason,
        };
        let (site, user_data) =
            record.user_data.split_at_checked(if pauses { 4 } else { 0 }).unwrap_or_default();
        // Other forms have no place for what resumes a packet.
        let can_resume = |connection: &crate::connection::Connection| connection.packet_in_format == 2;
        let waits = pauses && self.connections.values().any(can_resume);
        let waiting = arrived.filter(|_| waits).and_then(|arrived| self.pause(arrived, site, now));
        let of_table = self.datapath.model.settings.get(usize::from(record.table));
        let by_default = of_table.is_some_and(|settings| settings.miss == Miss::Default);
        // Flows that send what nothing else matches, and misses of tables.
        let missed = reason == outputs::NO_MATCH && record.cookie == outputs::NO_COOKIE;
        let mut buffer: Option<Option<u32>> = None;
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let Some(version) = connection.version else { continue };
            if connection.controller_id != record.controller
                || missed && by_default && version >= Version::V1_3
            {
                continue;
            }
            let stated = match reason {
                outputs::TABLE_MISS if version >= Version::V1_3 => outputs::NO_MATCH,
                outputs::TABLE_MISS => outputs::ACTION,
                reason => reason,
            };
            // Versions before 1.4 do not tell apart what sends a packet.
            let sent =
                if version < Version::V1_4 && (3..=5).contains(&stated) { outputs::ACTION } else { stated };
            if !connection.wants(Notice::PacketIn, sent) {
                continue;
            }
            let limit = limit.unwrap_or(connection.miss_send_len);
            let cuts = limit != 0xffff && usize::from(limit) < packet.len();
            let kept = match cuts {
                true => *buffer.get_or_insert_with(|| self.buffers.keep(record.in_port, packet)),
                false => None,
            };
            // Without a buffer the whole packet goes.
            let data = packet.get(..usize::from(limit)).filter(|_| cuts && kept.is_some()).unwrap_or(packet);
            let full = if data.len() < packet.len() { Some(packet.len() as u32) } else { None };
            let sent = Sent { reason: sent, user_data, data, full, buffer: kept, waiting };
            let message = to_message(version, connection.packet_in_format, record, &sent);
            connection.notify(message, self.settings.limits.backlog);
        }
    }

    /// A packet of a controller.
    pub(super) fn packet_out(
        &mut self,
        request: &PacketOut,
        version: Version,
        now: u64,
    ) -> Result<(), ErrorCode> {
        let named = request.fields.iter().find_map(|oxm| match oxm.field()?.id {
            FieldId::InPortOxm => Some(oxm.value_number() as u32),
            FieldId::InPort => Some(PortNo::from_16_bits(oxm.value_number() as u16).0),
            _ => None,
        });
        let in_port =
            if version >= Version::V1_5 { named.unwrap_or(PortNo::CONTROLLER.0) } else { request.in_port.0 };
        let kept;
        let packet = match request.buffer_id {
            version::NO_BUFFER => &request.data,
            number => {
                // A packet of refused actions stays where it is.
                injected(&mut self.datapath, request)?;
                kept = self.buffers.take(number).ok_or(ErrorCode::BrcBufferUnknown)?;
                &kept.bytes
            }
        };
        if packet.len() < MIN_PACKET {
            return Err(ErrorCode::BrcBadPacket);
        }
        self.injecting(request, now, |switch, flags| {
            let mut effects = std::mem::take(&mut switch.effects);
            let arrived = Arrived { port: in_port, bytes: packet, flags, resumed: &[] };
            switch.run(&arrived, now, &mut effects);
            switch.effects = effects;
        })
    }

    /// Has the actions of a packet-out in the tables while `run` runs, with the flags of its packet.
    pub(super) fn injecting<T>(
        &mut self,
        request: &PacketOut,
        now: u64,
        run: impl FnOnce(&mut Self, u64) -> T,
    ) -> Result<T, ErrorCode> {
        let lowered = injected(&mut self.datapath, request)?;
        let layout = Layout::get();
        let ((copies, learns), _) = self.datapath.change(now, |datapath, transaction| {
            transaction.is_private = true;
            let (call, copies, learns) = datapath.install(lowered, transaction)?;
            transaction.updates.push(Update::Insert(layout.injected, exact(INJECTED, call)));
            Ok((copies, learns))
        })?;
        let flags = u64::from(INJECTED) | self.received_flags();
        let result = run(self, flags);
        // What was just put there can be removed.
        let _ = self.datapath.change(now, |datapath, transaction| {
            transaction.is_private = true;
            datapath.uninstall(&copies, &learns, transaction);
            // What a packet-out teaches stays.
            transaction.unlearned.clear();
            transaction.updates.push(Update::DeleteMatch(layout.injected, exact_match(INJECTED), 0));
            Ok(())
        });
        Ok(result)
    }

    /// Takes a packet from its buffer through the tables.
    pub(super) fn packet_of_buffer(&mut self, number: u32, now: u64) -> Result<(), ErrorCode> {
        let kept = self.buffers.take(number).ok_or(ErrorCode::BrcBufferUnknown)?;
        let mut effects = std::mem::take(&mut self.effects);
        let flags = self.received_flags();
        let arrived = Arrived { port: kept.in_port, bytes: &kept.bytes, flags, resumed: &[] };
        self.run(&arrived, now, &mut effects);
        self.effects = effects;
        Ok(())
    }
}

/// The failure of a packet with these effects, if it is one.
pub(super) fn failure(effects: &[Raw]) -> Option<Failure> {
    effects.iter().find_map(|effect| match effect {
        Raw::Drop(dropped) => Failure::of(*dropped),
        _ => None,
    })
}

/// Actions that give a packet the fields, other than its ingress port, that a controller states.
fn given(request: &PacketOut) -> Vec<Action> {
    let is_port = |oxm: &&Oxm| {
        oxm.field().is_none_or(|field| {
            matches!(field.id, FieldId::InPort | FieldId::InPortOxm | FieldId::PacketType)
        })
    };
    let others = request.fields.iter().filter(|oxm| !is_port(oxm));
    others.map(|oxm| Action::SetField(SetField(oxm.clone()))).collect()
}

/// The actions of a packet-out.
fn injected(datapath: &mut Datapath, request: &PacketOut) -> Result<Lowered, ErrorCode> {
    let owner = Owner { table: 0xff, cookie: outputs::NO_COOKIE, reason: outputs::PACKET_OUT };
    datapath.lower(None, |world| {
        let mut lowering = Lowering::new(world, owner);
        lowering.list(&given(request))?;
        lowering.list(&request.actions)?;
        Ok(lowering.finish())
    })
}

/// Refuses a packet-out that could not be sent now. `buffers`: the packets that it may name.
pub(super) fn check_packet_out(
    datapath: &mut Datapath,
    buffers: &Buffers,
    request: &PacketOut,
) -> Result<(), ErrorCode> {
    injected(datapath, request)?;
    let length = match request.buffer_id {
        version::NO_BUFFER => request.data.len(),
        number => buffers.get(number).ok_or(ErrorCode::BrcBufferUnknown)?.bytes.len(),
    };
    if length < MIN_PACKET { Err(ErrorCode::BrcBadPacket) } else { Ok(()) }
}

/// Ingress port, metadata and registers, as match fields.
fn metadata(version: Version, record: &Record) -> Vec<Oxm> {
    let mut fields = vec![match (version < Version::V1_2, PortNo(record.in_port).to_16_bits()) {
        (true, Some(port)) => Oxm::number(FieldId::InPort, version, port.into()),
        _ => Oxm::number(FieldId::InPortOxm, version, record.in_port.into()),
    }];
    let numbers = [(FieldId::Metadata, u128::from(record.metadata)), (FieldId::PktMark, record.mark.into())];
    fields.extend(record.tunnel.iter().map(|(id, value)| Oxm::number(*id, version, *value)));
    fields.extend(numbers.into_iter().filter(|(_, n)| *n != 0).map(|(id, n)| Oxm::number(id, version, n)));
    for (n, words) in (0u8..).zip(record.registers) {
        for (word, part) in (0u8..4).zip([96, 64, 32, 0]) {
            let value = words >> part & 0xffff_ffff;
            if let (Some(id), true) = (FieldId::reg(n * 4 + word), value != 0) {
                fields.push(Oxm::number(id, version, value));
            }
        }
    }
    fields
}

/// What a packet-in says of one packet.
struct Sent<'a> {
    reason: u8,
    user_data: &'a [u8],
    /// The packet, or its start.
    data: &'a [u8],
    /// The packet's length, if only its start is there.
    full: Option<u32>,
    buffer: Option<u32>,
    /// The number with which it can be resumed.
    waiting: Option<u64>,
}

/// A packet-in in the form that a connection chose.
fn to_message(version: Version, format: u32, record: &Record, sent: &Sent<'_>) -> Message {
    let Sent { reason, user_data, data, full, buffer, waiting } = *sent;
    // Open vSwitch says that a flow of its own sends what no flow of a table matches.
    let missed = reason == outputs::NO_MATCH && record.cookie == outputs::NO_COOKIE;
    let cookie = if missed && record.table != version::table::ALL { 0 } else { record.cookie };
    // Packets of controllers meet no table.
    let table = if record.table == version::table::ALL { 0 } else { record.table };
    let fields =
        metadata(if format == 1 && version < Version::V1_2 { Version::V1_0 } else { version }, record);
    if format == 2 {
        let mut properties = vec![PacketProperty::Packet(Bytes(data.to_vec()))];
        properties.extend(full.map(PacketProperty::FullLen));
        properties.extend(buffer.map(PacketProperty::BufferId));
        properties.push(PacketProperty::TableId(table));
        properties.push(PacketProperty::Cookie(Aligned64(cookie)));
        properties.push(PacketProperty::Reason(reason));
        properties.push(PacketProperty::Metadata(Fields(fields)));
        if !user_data.is_empty() {
            properties.push(PacketProperty::UserData(Bytes(user_data.to_vec())));
        }
        properties.extend(waiting.map(super::pauses::continuation));
        return Message::new(version, 0, Body::PacketIn2(PacketIn2(properties)));
    }
    let total = full.unwrap_or(data.len() as u32);
    let packet = PacketIn {
        buffer_id: buffer.unwrap_or(version::NO_BUFFER),
        total_len: u16::try_from(total).unwrap_or(u16::MAX),
        reason,
        table_id: table,
        cookie,
        in_port: PortNo(record.in_port),
        in_phy_port: PortNo(record.in_port),
        fields,
        data: data.to_vec(),
    };
    let mut message = Message::new(version, 0, Body::PacketIn(packet));
    if format == 1 {
        message.form = openflow::message::Form::Nicira;
    }
    message
}
