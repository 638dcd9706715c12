//! Statements and actions.

use super::{
    ActionId, BlockId, Constant, CounterId, DigestId, Expr, ExternId, GroupTableId, HeaderRef, Item, LValue,
    MeterId, ReasonId, RegisterId, ReplicasId, StackId, StageId, TableId, Type, UnionId, VarId,
};

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Stmt {
    /// Assigns a value to a place of the same type.
    Set(LValue, Expr),
    /// Copies a header, its validity included, over another of the same type.
    CopyHeader(HeaderRef, HeaderRef),
    /// Makes a header valid and, in a union, the others invalid. Its fields keep their content.
    SetValid(HeaderRef),
    /// Makes a header invalid. Its fields keep their content.
    SetInvalid(HeaderRef),
    /// Moves a stack's elements up by some places; elements beyond its end are lost, those that become free are zero
    /// and invalid.
    Push(StackId, u32),
    /// Moves a stack's elements down by some places; the first ones are lost, those that become free are zero and
    /// invalid.
    Pop(StackId, u32),
    /// Computes a hash of a list; the result is truncated to the place's type, a `Bit`, or extended with zeros.
    Hash(LValue, HashKind, Vec<Item>),
    /// Updates an Internet checksum, a `Bit(16)`, for data that changes from one list to another of the same length,
    /// without the rest of the data (RFC 1624). Protocols in which 0 means "no checksum" need an `if` around it.
    UpdateChecksum(LValue, Vec<Item>, Vec<Item>),
    /// Draws a `Bit` between two bounds, both included; the first bound if it is greater than the second.
    Random(LValue, Expr, Expr),
    /// Reads a register; zero beyond the array.
    RegisterRead(LValue, RegisterId, Expr),
    /// Writes a register; ignored beyond the array.
    RegisterWrite(RegisterId, Expr, Expr),
    /// Executes statements while no other packet accesses a register. They contain neither calls nor tables.
    Atomic(Vec<Stmt>),
    /// Counts the packet; ignored beyond the array.
    Count(CounterId, Expr),
    /// Meters the packet: 0 green, 1 yellow, 2 red, a `Bit`. Optionally takes its colour so far into account. Green
    /// beyond the array and where no rate is configured.
    Meter(LValue, MeterId, Expr, Option<Expr>),
    /// The same with the meter of the entry that was hit last; green after a miss.
    MeterEntry(LValue, TableId, Option<Expr>),
    /// Sends the packet or a copy of it.
    Send(Box<Send>),
    /// Runs a group's buckets, each on a copy of the packet's headers and variables; ignored if there is no such group.
    Group(GroupTableId, Expr),
    /// Hands the packet to the controller: with a reason (`Bit(8)`), at most so many bytes (`Bit(16)`), and a list of
    /// data.
    Controller(Expr, Option<Expr>, Vec<Item>),
    /// Sends values to the control plane.
    Digest(DigestId, Vec<Expr>),
    /// Drops the packet and ends the pass.
    Drop(ReasonId),
    /// Shortens the packet, with its headers, to at most so many bytes, a `Bit(32)`, when it is deparsed.
    Truncate(Expr),
    /// Inserts bytes in front of the payload.
    Insert(Vec<Item>),
    /// Removes so many bytes, a `Bit(32)`, from the front of the payload.
    Remove(Expr),
    /// Deparses and parses the packet again in the same stage; variables keep their values, headers start anew.
    Reparse,
    /// Looks a table up and runs the action found.
    Apply(TableId, Box<Applied>),
    /// Runs an action of the program with arguments.
    Do(ActionId, Vec<Expr>),
    /// Branches.
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    /// Branches by the first case that contains the value; else to the last list.
    Switch(Expr, Vec<(Vec<Constant>, Vec<Stmt>)>, Vec<Stmt>),
    /// Runs a block, then continues.
    Call(BlockId),
    /// Ends the current block, and runs another in its place. In an action: ends the action and the block that it runs
    /// in.
    Goto(BlockId),
    /// Ends the action or block that contains it.
    Return,
    /// Ends the stage's control; its finish follows.
    Exit,
    /// Calls a function of the environment.
    Extern(ExternId, Vec<ExternArg>),
    /// Appends valid headers to the packet. Only in deparsers.
    Emit(EmitRef),
}

impl Stmt {
    /// Steps that the statement counts as: lists are read value by value.
    pub fn steps(&self) -> u32 {
        let values = match self {
            Stmt::Hash(_, _, items) | Stmt::Insert(items) | Stmt::Controller(_, _, items) => items.len(),
            Stmt::UpdateChecksum(_, before, after) => before.len() + after.len(),
            Stmt::Digest(_, values) => values.len(),
            _ => 0,
        };
        u32::try_from(values).unwrap_or(u32::MAX).saturating_mul(STEPS_PER_VALUE).saturating_add(1)
    }
}

/// Steps of a value of up to 2,048 bits in a list.
const STEPS_PER_VALUE: u32 = 4;

/// Kinds of hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashKind {
    /// Internet checksum (RFC 1071), 16 bits.
    Csum16,
    /// CRC-16/ARC: polynomial 0x8005, reflected, from 0.
    Crc16,
    /// CRC-32 of IEEE 802.3.
    Crc32,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// The list's last 64 bits.
    Identity,
    /// Exclusive or of 16-bit words.
    Xor16,
    /// Toeplitz hash with Microsoft's key, 32 bits.
    Toeplitz,
}

impl HashKind {
    /// All kinds.
    pub const ALL: &[HashKind] = &[
        HashKind::Csum16,
        HashKind::Crc16,
        HashKind::Crc32,
        HashKind::Crc32c,
        HashKind::Identity,
        HashKind::Xor16,
        HashKind::Toeplitz,
    ];

    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            HashKind::Csum16 => "csum16",
            HashKind::Crc16 => "crc16",
            HashKind::Crc32 => "crc32",
            HashKind::Crc32c => "crc32c",
            HashKind::Identity => "identity",
            HashKind::Xor16 => "xor16",
            HashKind::Toeplitz => "toeplitz",
        }
    }
}

/// Form of the packet that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Packet {
    /// As it is now.
    Current,
    /// As it was when its stage (or the one that parsed it) received it.
    Original,
}

/// Destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dest {
    /// A port: a `Bit`.
    Port(Expr),
    /// All ports except the ingress port, and those excluded from flooding.
    Flood,
    /// All ports except the ingress port.
    All,
    /// What the bridge does without a program: its fallback logic.
    Fallback,
    /// The replicas of a list: its number, a `Bit`.
    Replicas(ReplicasId, Expr),
    /// No port: for packets that enter a stage again.
    Same,
}

/// Way to the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via {
    /// The stage's next stage; without one, directly.
    Next,
    /// This stage: resubmitting, recirculating, cloning.
    Stage(StageId),
    /// Directly, without another stage.
    Direct,
}

/// The operands of [`Stmt::Send`]. The packet is captured at once; other stages see it after this one ends.
///
/// A stage with a parser gets the packet's bytes: current ones deparsed, original ones as received. Its variables start
/// as zero, except those carried. A stage without a parser gets headers and variables as they are or, for an original
/// packet, as the parser of the sending stage makes them anew, and only carried variables.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Send {
    /// Form of the packet.
    pub packet: Packet,
    /// Destination.
    pub to: Dest,
    /// Way there.
    pub via: Via,
    /// Value of [`super::Slot::Instance`] in the stage that it enters.
    pub instance: u8,
    /// Traffic class, a `Bit`.
    pub class: Option<Expr>,
    /// Egress queue, a `Bit`.
    pub queue: Option<Expr>,
    /// Most bytes that are sent, a `Bit`.
    pub limit: Option<Expr>,
    /// Variables that keep their values.
    pub carry: Vec<VarId>,
}

/// Branches after a table: first by hit or miss, then by the action that ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Applied {
    /// After a hit.
    pub hit: Vec<Stmt>,
    /// After a miss.
    pub miss: Vec<Stmt>,
    /// After these actions.
    pub actions: Vec<(ActionId, Vec<Stmt>)>,
    /// After any other action.
    pub other: Vec<Stmt>,
}

/// Argument of an extern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ExternArg {
    /// A value.
    In(Expr),
    /// A place for a result.
    Out(LValue),
}

/// Operand of [`Stmt::Emit`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EmitRef {
    /// A header.
    Header(HeaderRef),
    /// All valid elements, in order.
    Stack(StackId),
    /// The valid member.
    Union(UnionId),
}

/// Parameter of an action.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Param {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: Type,
}

/// An action: statements with parameters, whose values come from the entry that was hit.
///
/// The body is the action's *shape*: flows whose actions differ only in constants share one shape and have parameters
/// of their own. A control plane may define further actions at run time ([`crate::state::State::define`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Action {
    /// Name.
    pub name: String,
    /// Parameters.
    pub params: Vec<Param>,
    /// Statements.
    pub body: Vec<Stmt>,
}

/// Arguments of a call: all who keep the call share them.
pub type Args = std::sync::Arc<[Constant]>;

/// An action with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ActionCall {
    /// Action.
    pub action: ActionId,
    /// Arguments, of the parameters' types.
    pub args: Args,
}
