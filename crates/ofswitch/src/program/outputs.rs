//! Sending packets: to ports known and computed, and to controllers with what accompanies them.
//!
//! A packet for a controller carries a record of fixed layout ([`Record`]) in front of the action's user data.

use openflow::PortNo;
use openflow::field::FieldId;
use pipeline::ir::{ActionId, BinOp, Constant, Dest, Expr, Program, Send, Stmt, Type, Via};

use super::terms::{bit, items, resize, var, when};
use super::vars::{TUNNEL, Vars};

/// Reason of a packet that no flow matched, for [`Stmt::Controller`].
pub(crate) const NO_MATCH: u8 = 0;
/// Reason of a packet that an action sends.
pub(crate) const ACTION: u8 = 1;
/// Reason of a packet whose TTL is invalid.
pub(crate) const INVALID_TTL: u8 = 2;
/// Reason of a packet that the action set sends.
pub(crate) const ACTION_SET: u8 = 3;
/// Reason of a packet that a group sends.
pub(crate) const GROUP: u8 = 4;
/// Reason of a packet that a packet-out sends.
pub(crate) const PACKET_OUT: u8 = 5;
/// Reason, inside the switch, of a packet that a flow sends because nothing else matched.
pub(crate) const TABLE_MISS: u8 = 0x80;

/// Part of a reason, inside the switch: the packet pauses. The user data follows a number of the action, 4 bytes.
pub(crate) const PAUSE: u8 = 0x40;

/// Cookie of packets that no flow sends.
pub(crate) const NO_COOKIE: u64 = u64::MAX;

/// What accompanies a packet to a controller, as the program sends it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) table: u8,
    pub(crate) controller: u16,
    pub(crate) cookie: u64,
    pub(crate) in_port: u32,
    pub(crate) metadata: u64,
    /// Fields of tunnels that are not zero.
    pub(crate) tunnel: Vec<(FieldId, u128)>,
    pub(crate) mark: u32,
    /// `xxreg0` to `xxreg3`.
    pub(crate) registers: [u128; 4],
    pub(crate) user_data: Vec<u8>,
}

impl Record {
    /// Reads the record.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        fn number<const N: usize>(data: &mut &[u8]) -> Option<u128> {
            let (head, rest) = data.split_first_chunk::<N>()?;
            *data = rest;
            Some(head.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
        }
        let mut data = data;
        let d = &mut data;
        Some(Record {
            table: number::<1>(d)? as u8,
            controller: number::<2>(d)? as u16,
            cookie: number::<8>(d)? as u64,
            in_port: number::<4>(d)? as u32,
            metadata: number::<8>(d)? as u64,
            tunnel: {
                let mut fields = Vec::new();
                for id in TUNNEL {
                    let (value, rest) = d.split_at_checked(id.field().bytes)?;
                    *d = rest;
                    let value = value.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
                    fields.extend((value != 0).then_some((id, value)));
                }
                fields
            },
            mark: number::<4>(d)? as u32,
            registers: [number::<16>(d)?, number::<16>(d)?, number::<16>(d)?, number::<16>(d)?],
            user_data: data.to_vec(),
        })
    }
}

/// Whose action sends a packet to a controller: table, cookie, controller.
pub(crate) struct Sender {
    pub(crate) table: Expr,
    pub(crate) cookie: Expr,
    pub(crate) controller: Expr,
}

impl Sender {
    /// Nobody in particular.
    pub(crate) fn nobody() -> Self {
        Sender { table: bit(8, 0xff), cookie: bit(64, NO_COOKIE), controller: bit(16, 0) }
    }
}

/// Sends the packet to a controller.
pub(crate) fn to_controller(
    v: &Vars,
    reason: Expr,
    limit: Option<Expr>,
    sender: Sender,
    user_data: impl IntoIterator<Item = Expr>,
) -> Stmt {
    let meta = |id| v.fields.get(&id).map_or_else(|| bit(64, 0), |id| var(*id));
    let mut data = vec![sender.table, sender.controller, sender.cookie, var(v.in_port)];
    data.push(meta(FieldId::Metadata));
    // In whole bytes.
    data.extend(TUNNEL.into_iter().map(|id| resize(meta(id), id.field().bytes as u16 * 8)));
    data.push(v.fields.get(&FieldId::PktMark).map_or_else(|| bit(32, 0), |id| var(*id)));
    data.extend(v.registers.iter().map(|id| var(*id)));
    data.extend(user_data);
    Stmt::Controller(reason, limit, items(data))
}

fn send(v: &Vars, to: Dest, via: Via, limit: Option<Expr>) -> Stmt {
    Stmt::from(Send { via, limit, queue: Some(var(v.queue)), ..Send::current(to) })
}

/// Sends the packet to a port that is no reserved one, unless it came from there.
pub(crate) fn to_port(v: &Vars, port: Expr, limit: Option<Expr>) -> Stmt {
    when(var(v.in_port).op(BinOp::Ne, port.clone()), vec![send(v, Dest::Port(port), Via::Direct, limit)])
}

/// Sends the packet to a reserved port, if it is one that needs neither controllers nor tables.
pub(crate) fn to_reserved(v: &Vars, port: PortNo, limit: Option<Expr>) -> Option<Stmt> {
    Some(match port {
        PortNo::IN_PORT => send(v, Dest::Port(var(v.in_port)), Via::Direct, limit),
        PortNo::FLOOD => send(v, Dest::Flood, Via::Direct, limit),
        PortNo::ALL => send(v, Dest::All, Via::Direct, limit),
        PortNo::NORMAL => send(v, Dest::Fallback, Via::Direct, limit),
        _ => return None,
    })
}

/// Declares the output to a port that is known only when the packet is there. Its parameters are the port, bytes for a
/// controller, the reason, table and cookie.
pub(super) fn declare(p: &mut Program, v: &Vars) -> ActionId {
    let params = [
        ("port", Type::Bit(32)),
        ("max_len", Type::Bit(16)),
        ("reason", Type::Bit(8)),
        ("table", Type::Bit(8)),
        ("cookie", Type::Bit(64)),
    ];
    let case = |port: PortNo, body: Vec<Stmt>| (vec![Constant::bit(32, port.0.into())], body);
    let reserved = [PortNo::IN_PORT, PortNo::FLOOD, PortNo::ALL, PortNo::NORMAL];
    let mut cases: Vec<_> =
        reserved.into_iter().filter_map(|port| Some(case(port, vec![to_reserved(v, port, None)?]))).collect();
    let sender = Sender { table: Expr::Param(3), cookie: Expr::Param(4), controller: bit(16, 0) };
    let controller = to_controller(v, Expr::Param(2), Some(Expr::Param(1)), sender, []);
    cases.push(case(PortNo::CONTROLLER, vec![controller]));
    cases.push(case(PortNo::ANY, vec![]));
    cases.push(case(PortNo::UNSET, vec![]));
    cases.push(case(PortNo::TABLE, vec![]));
    let body = Stmt::Switch(Expr::Param(0), cases, vec![to_port(v, Expr::Param(0), None)]);
    p.add_action("output", &params, vec![body])
}
