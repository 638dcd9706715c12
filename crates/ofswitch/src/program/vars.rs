//! Variables: what accompanies a packet through the tables.

use std::collections::BTreeMap;

use openflow::field::FieldId;
use pipeline::ir::{Expr, Program, Slot, Type, VarId};

use super::terms::{bit, var};

/// Elements of the stack that `push` and `pop` use, of 128 bits each.
pub(crate) const STACK: u16 = 16;
/// Bytes of tunnel metadata, of all options together.
pub(crate) const TUNNEL_METADATA: u16 = 256;

/// Fields of tunnels that actions may set and that controllers get with a packet, but for the options.
///
/// No port is a tunnel's here, so they begin as zero and are more registers: they stay with the packet within a bridge.
pub(crate) const TUNNEL: [FieldId; 12] = [
    FieldId::TunId,
    FieldId::TunSrc,
    FieldId::TunDst,
    FieldId::TunIpv6Src,
    FieldId::TunIpv6Dst,
    FieldId::TunFlags,
    FieldId::TunGbpId,
    FieldId::TunGbpFlags,
    FieldId::TunErspanIdx,
    FieldId::TunErspanVer,
    FieldId::TunErspanDir,
    FieldId::TunErspanHwid,
];

/// Fields that are variables of their own, with their own width.
///
/// Those of connection tracking stay zero: no packet is tracked.
pub(crate) const METADATA: &[FieldId] = &[
    FieldId::DpHash,
    FieldId::RecircId,
    FieldId::ConjId,
    FieldId::TunId,
    FieldId::TunSrc,
    FieldId::TunDst,
    FieldId::TunIpv6Src,
    FieldId::TunIpv6Dst,
    FieldId::TunFlags,
    FieldId::TunGbpId,
    FieldId::TunGbpFlags,
    FieldId::TunErspanIdx,
    FieldId::TunErspanVer,
    FieldId::TunErspanDir,
    FieldId::TunErspanHwid,
    FieldId::TunGtpuFlags,
    FieldId::TunGtpuMsgtype,
    FieldId::Metadata,
    FieldId::PktMark,
    FieldId::CtState,
    FieldId::CtZone,
    FieldId::CtMark,
    FieldId::CtLabel,
    FieldId::CtNwProto,
    FieldId::CtNwSrc,
    FieldId::CtNwDst,
    FieldId::CtIpv6Src,
    FieldId::CtIpv6Dst,
    FieldId::CtTpSrc,
    FieldId::CtTpDst,
];

/// The variables.
#[derive(Debug, Clone)]
pub(crate) struct Vars {
    /// Variables of [`METADATA`].
    pub(crate) fields: BTreeMap<FieldId, VarId>,
    /// `xxreg0` to `xxreg3`: all registers are parts of these.
    pub(crate) registers: [VarId; 4],
    pub(crate) tunnel_metadata: VarId,
    /// The port that the packet came from, or another that an action set.
    pub(crate) in_port: VarId,
    /// The port that the next lookup matches: `in_port`, or the one that `resubmit` pretends.
    pub(crate) match_port: VarId,
    /// How many `resubmit`s the lookup is in: then a miss has no consequence. The upper bit: it is a packet-out's
    /// output to the tables, whose miss may be told to controllers, but does not end the packet-out.
    pub(crate) nested: VarId,
    /// How many of them do not lead to a later table: loops are of these.
    pub(crate) recursion: VarId,
    /// `resubmit`s so far.
    pub(crate) resubmits: VarId,
    pub(crate) eth_type: VarId,
    pub(crate) nw_proto: VarId,
    /// Bit 0: a fragment; bit 1: not the first.
    pub(crate) ip_frag: VarId,
    pub(crate) ext_headers: VarId,
    pub(crate) queue: VarId,
    pub(crate) stack: VarId,
    pub(crate) depth: VarId,
    /// What the caller of the program says about the packet: see [`crate::exec::Kind`].
    pub(crate) kind: VarId,
    pub(crate) ingress: VarId,
    pub(crate) length: VarId,
    /// The flow that runs a group: its table and cookie, for packets that buckets send to controllers.
    pub(crate) group_table: VarId,
    pub(crate) group_cookie: VarId,
    pub(crate) color: VarId,
    pub(crate) meter: VarId,
    pub(crate) hash: VarId,
    pub(crate) best: VarId,
    pub(crate) live: VarId,
    pub(crate) chosen: VarId,
    pub(crate) random: VarId,
}

impl Vars {
    /// Whether the lookup is not one of a `resubmit`.
    pub(crate) fn is_not_resubmitted(&self) -> Expr {
        var(self.nested).slice(14, 0).equals(bit(15, 0))
    }

    /// Declares the variables.
    pub(super) fn declare(p: &mut Program) -> Self {
        let mut fields = BTreeMap::new();
        for id in METADATA {
            fields.insert(*id, p.add_var(id.field().name, Type::Bit(id.field().bits)));
        }
        let mut bits = |name: &str, width| p.add_var(name, Type::Bit(width));
        Vars {
            fields,
            registers: [bits("xxreg0", 128), bits("xxreg1", 128), bits("xxreg2", 128), bits("xxreg3", 128)],
            tunnel_metadata: bits("tun_metadata", TUNNEL_METADATA * 8),
            in_port: bits("in_port", 32),
            match_port: bits("match_port", 32),
            eth_type: bits("eth_type", 16),
            nw_proto: bits("nw_proto", 8),
            ip_frag: bits("ip_frag", 2),
            ext_headers: bits("ext_headers", 9),
            queue: bits("queue", 16),
            stack: bits("stack_content", STACK * 128),
            depth: bits("stack_depth", 8),
            group_table: bits("group_table", 8),
            group_cookie: bits("group_cookie", 64),
            color: bits("color", 2),
            meter: bits("meter_id", 32),
            hash: bits("hash", 32),
            best: bits("best_hash", 32),
            chosen: bits("chosen", 32),
            random: bits("random", 16),
            nested: p.add_var("nested", Type::Bit(16)),
            recursion: p.add_var("recursion", Type::Bit(8)),
            resubmits: p.add_var("resubmits", Type::Bit(16)),
            live: p.add_var("is_live", Type::Bool),
            kind: p.add_slot("kind", 64, Slot::Flags),
            ingress: p.add_slot("ingress", 32, Slot::IngressPort),
            length: p.add_slot("length", 32, Slot::PacketLength),
        }
    }
}
