//! Bundles (OpenFlow 1.4.1, section 7.3.9): messages that take effect together, or not at all.

use openflow::Message;
use openflow::error::{ErrorCode, reply};
use openflow::message::{Body, BundleAdd, BundleControl, BundleControlKind, BundleFlags};
use openflow::version::table;

use super::Switch;
use super::packets::check_packet_out;
use crate::connection::{Connection, ConnectionId, FlowModCounts, OpenBundle};
use crate::flows::{FlowChange, no_table};
use crate::program::TABLES;

type Done = Result<(), ErrorCode>;

/// What errors about a bundle echo of the message that opened it.
fn echoed(message: &[u8]) -> Vec<u8> {
    message.get(..openflow::error::MAX_OFFENDING).unwrap_or(message).to_vec()
}

impl Switch {
    pub(super) fn bundle_control(
        &mut self,
        id: ConnectionId,
        message: &Message,
        control: &BundleControl,
        bytes: &[u8],
        now: u64,
    ) -> Done {
        let limit = self.settings.limits.bundles as usize;
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let bundles = &mut connection.bundles;
        let done = match control.kind {
            BundleControlKind::OpenRequest => {
                if bundles.contains_key(&control.bundle) {
                    bundles.remove(&control.bundle);
                    return Err(ErrorCode::BfcBadId);
                }
                if bundles.len() >= limit {
                    return Err(ErrorCode::BfcOutOfBundles);
                }
                let request = echoed(bytes);
                let new = OpenBundle { flags: control.flags, request, used: now, ..OpenBundle::default() };
                bundles.insert(control.bundle, new);
                BundleControlKind::OpenReply
            }
            BundleControlKind::CloseRequest => {
                let bundle = bundles.get_mut(&control.bundle).ok_or(ErrorCode::BfcBadId)?;
                if bundle.is_closed {
                    bundles.remove(&control.bundle);
                    return Err(ErrorCode::BfcBundleClosed);
                }
                if bundle.flags != control.flags {
                    bundles.remove(&control.bundle);
                    return Err(ErrorCode::BfcBadFlags);
                }
                bundle.is_closed = true;
                bundle.used = now;
                BundleControlKind::CloseReply
            }
            BundleControlKind::CommitRequest => {
                let bundle = bundles.remove(&control.bundle).ok_or(ErrorCode::BfcBadId)?;
                if bundle.flags != control.flags {
                    return Err(ErrorCode::BfcBadFlags);
                }
                self.commit_bundle(id, message, &bundle, now)?;
                BundleControlKind::CommitReply
            }
            BundleControlKind::DiscardRequest => {
                bundles.remove(&control.bundle).ok_or(ErrorCode::BfcBadId)?;
                BundleControlKind::DiscardReply
            }
            _ => return Err(ErrorCode::BfcBadType),
        };
        // Replies have no flags, as in Open vSwitch.
        let flags = BundleFlags::empty();
        let reply = BundleControl { kind: done, properties: vec![], flags, ..control.clone() };
        self.answer(id, message, Body::BundleControl(reply))
    }

    pub(super) fn bundle_add(
        &mut self,
        id: ConnectionId,
        message: &Message,
        add: &BundleAdd,
        bytes: &[u8],
        now: u64,
    ) -> Done {
        let inner = add.inner().map_err(|error| error.code)?;
        if inner.xid != message.xid {
            return Err(ErrorCode::BfcMsgBadXid);
        }
        if inner.version != message.version {
            return Err(ErrorCode::BfcBadVersion);
        }
        let supported = matches!(
            inner.body,
            Body::FlowMod(_) | Body::GroupMod(_) | Body::PortMod(_) | Body::MeterMod(_) | Body::PacketOut(_)
        );
        if !supported {
            return Err(ErrorCode::BfcMsgUnsup);
        }
        if let Body::FlowMod(flow) = &inner.body
            && flow.table_id >= TABLES
            && flow.table_id != table::ALL
        {
            return Err(no_table(flow.table_id));
        }
        let limits = self.settings.limits;
        let held_by_all: usize = self.connections.values().map(Connection::bundle_bytes).sum();
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let held = connection.bundle_bytes();
        if !connection.bundles.contains_key(&add.bundle)
            && connection.bundles.len() >= limits.bundles as usize
        {
            return Err(ErrorCode::BfcOutOfBundles);
        }
        // A message may open its bundle.
        let new = || OpenBundle { flags: add.flags, request: echoed(bytes), ..OpenBundle::default() };
        let bundle = connection.bundles.entry(add.bundle).or_insert_with(new);
        if bundle.is_closed {
            return Err(ErrorCode::BfcBundleClosed);
        }
        if bundle.flags != add.flags {
            return Err(ErrorCode::BfcBadFlags);
        }
        let full = bundle.messages.len() >= limits.bundle_messages as usize;
        let len = add.message.len();
        if full || held + len > limits.bundle_bytes || held_by_all + len > limits.all_bundle_bytes {
            return Err(ErrorCode::BfcMsgTooMany);
        }
        bundle.used = now;
        bundle.bytes += len;
        bundle.messages.push(add.message.clone());
        Ok(())
    }

    /// Discards bundles that have not been used for long, and tells their owners.
    pub(super) fn expire_bundles(&mut self, now: u64) {
        let idle = u64::try_from(self.settings.bundle_idle.as_nanos()).unwrap_or(u64::MAX);
        for connection in self.connections.values_mut() {
            let Some(version) = connection.version else { continue };
            let is_over = |bundle: &OpenBundle| now.saturating_sub(bundle.used) >= idle;
            let over: Vec<_> = connection.bundles.extract_if(.., |_, bundle| is_over(bundle)).collect();
            for (_, bundle) in over {
                connection.send(reply(ErrorCode::BfcTimeout, &bundle.request, version));
            }
        }
    }

    /// Applies a bundle's messages in their order. A refused one is told of by its own error, and the bundle by that of a
    /// failed message.
    fn commit_bundle(&mut self, id: ConnectionId, message: &Message, bundle: &OpenBundle, now: u64) -> Done {
        let names_tables = self.connections.get(&id).is_some_and(|connection| connection.names_tables);
        let ports = self.ports.clone();
        let mut changed_ports = Vec::new();
        let mut packets = Vec::new();
        let mut counts = FlowModCounts::default();
        let mut failed: Option<(usize, ErrorCode)> = None;
        let (own_ports, buffers) = (&mut self.ports, &self.buffers);
        let result = self.datapath.change_many(now, |datapath, transaction| {
            transaction.begin_bundle();
            for (at, bytes) in bundle.messages.iter().enumerate() {
                let mut one = || -> Result<(), ErrorCode> {
                    let inner = Message::decode(bytes).map_err(|error| error.code)?;
                    match inner.body {
                        Body::FlowMod(flow) => {
                            let (size, version) = (bytes.len(), inner.version);
                            let change =
                                FlowChange::new(*flow, size, version, inner.form, names_tables, datapath)?;
                            counts += FlowModCounts::one(change.command);
                            datapath.flow_mod(&change, now, transaction)
                        }
                        Body::GroupMod(group) => datapath.group_mod(&group, now, transaction),
                        Body::MeterMod(meter) => datapath.meter_mod(&meter, now, transaction),
                        Body::PortMod(port) => {
                            let entry = own_ports.get_mut(&port.number.0).ok_or(ErrorCode::PmfcBadPort)?;
                            if entry.configure(&port)? {
                                changed_ports.push(port.number.0);
                            }
                            Ok(())
                        }
                        Body::PacketOut(packet) => {
                            check_packet_out(datapath, buffers, &packet)?;
                            packets.push((packet, bytes));
                            Ok(())
                        }
                        _ => Err(ErrorCode::BfcMsgUnsup),
                    }
                };
                if let Err(code) = one() {
                    failed = Some((at, code));
                    return Err(code);
                }
            }
            Ok(())
        });
        match result {
            Ok(((), events)) => {
                self.count_flow_mods(id, counts);
                self.tell(&events, Some((id, message.xid)), now);
                if !changed_ports.is_empty() {
                    self.ports_configured();
                }
                changed_ports.into_iter().for_each(|number| self.tell_configured(number));
                for (packet, bytes) in packets {
                    // Packets are sent when everything else has taken effect; one that later messages of the bundle make
                    // impossible is told of by itself.
                    if let Err(code) = self.packet_out(&packet, message.version, now) {
                        self.refuse_inner(id, code, bytes, message.version);
                    }
                }
                Ok(())
            }
            Err(_) => {
                self.ports = ports;
                if let Some((at, code)) = failed
                    && let Some(bytes) = bundle.messages.get(at)
                {
                    let bytes = bytes.clone();
                    self.refuse_inner(id, code, &bytes, message.version);
                }
                Err(ErrorCode::BfcMsgFailed)
            }
        }
    }
}
