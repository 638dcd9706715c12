//! Types, headers, variables, stages.

use super::{BlockId, HeaderId, HeaderTypeId, ParserId, StackId, StageId, UnionId};
use crate::bits::Bits;

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// True or false; one bit in storage.
    Bool,
    /// Unsigned, of 1 to 2,048 bits.
    Bit(u16),
    /// Two's complement, of 1 to 2,048 bits.
    Int(u16),
}

impl Type {
    /// Width in storage, bits.
    pub fn width(self) -> u16 {
        match self {
            Type::Bool => 1,
            Type::Bit(width) | Type::Int(width) => width,
        }
    }
}

/// A constant. The value's width is the type's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Constant {
    /// Type.
    pub ty: Type,
    /// Value.
    pub value: Bits,
}

impl Constant {
    /// An unsigned constant.
    pub fn bit(width: u16, value: u64) -> Self {
        Self { ty: Type::Bit(width), value: Bits::from_u64(width, value) }
    }

    /// A truth value.
    pub fn bool(value: bool) -> Self {
        Self { ty: Type::Bool, value: Bits::from_bool(value) }
    }

    /// A constant of this type.
    pub fn of(ty: Type, value: &Bits) -> Self {
        Self { ty, value: value.resize(ty.width()) }
    }
}

/// Type of a header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldType {
    /// A value.
    Scalar(Type),
    /// A string of bits whose length, at most this, the parser determines. It has no value in expressions: it can only
    /// be copied with its header, measured ([`super::Expr::FieldLength`]), hashed ([`super::Item`]) and emitted.
    Varbit(u16),
}

/// A field of a header type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: FieldType,
}

/// Layout of a header: its fields in wire order, big-endian, without padding. Fixed fields together take whole bytes;
/// at most one field is variable.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HeaderType {
    /// Name.
    pub name: String,
    /// Fields.
    pub fields: Vec<Field>,
}

impl HeaderType {
    /// Bits of the fixed fields.
    pub fn fixed_bits(&self) -> usize {
        let width = |field: &Field| match field.ty {
            FieldType::Scalar(ty) => usize::from(ty.width()),
            FieldType::Varbit(_) => 0,
        };
        self.fields.iter().map(width).sum()
    }

    /// Whether a field is variable.
    pub fn has_varbit(&self) -> bool {
        self.fields.iter().any(|field| matches!(field.ty, FieldType::Varbit(_)))
    }
}

/// Role of a header instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeaderPlace {
    /// On its own.
    Single,
    /// Element of a stack, with its index.
    Element(StackId, u32),
    /// Member of a union.
    Member(UnionId),
}

/// A header instance: storage for the fields, and whether it is valid. Storage is zero when a packet arrives. It keeps
/// its content while invalid: reading an invalid header gives what was last written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Header {
    /// Name; for a union's member, within the union; empty for a stack's element.
    pub name: String,
    /// Type.
    pub ty: HeaderTypeId,
    /// Role.
    pub place: HeaderPlace,
}

/// A stack: instances `first..first + size`, all of one type, and the index of the next one to extract.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Name.
    pub name: String,
    /// First element.
    pub first: HeaderId,
    /// Number of elements.
    pub size: u32,
}

/// A union: instances `first..first + size`, of which at most one is valid: validating one invalidates the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Union {
    /// Name.
    pub name: String,
    /// First member.
    pub first: HeaderId,
    /// Number of members.
    pub size: u32,
}

/// A variable. It lives as long as the packet and starts as zero in every pass.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Var {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: Type,
    /// What the environment fills in when a pass enters a stage: the low bits of the slot's 64.
    pub slot: Option<Slot>,
}

macro_rules! slots {
    ($($(#[$doc:meta])* $name:ident = $text:literal)*) => {
        /// Intrinsic metadata that a variable may be bound to.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Slot {
            $($(#[$doc])* $name),*
        }

        impl Slot {
            /// All slots.
            pub const ALL: &[Slot] = &[$(Slot::$name),*];

            /// Name in the text form.
            pub fn name(self) -> &'static str {
                match self {
                    $(Slot::$name => $text),*
                }
            }
        }
    };
}

slots! {
    /// Port that the packet was received from.
    IngressPort = "ingress_port"
    /// Port that the packet is going to; 0 before a destination is known.
    EgressPort = "egress_port"
    /// Length of the packet as it entered the stage, bytes.
    PacketLength = "packet_length"
    /// Time of reception, nanoseconds.
    IngressTime = "ingress_time"
    /// Time at which the packet entered this stage, nanoseconds.
    StageTime = "stage_time"
    /// How the packet came into being: 0 for a received one, else [`super::Send::instance`].
    Instance = "instance"
    /// Replica number, from the replication list.
    Replica = "replica"
    /// Parser error, an [`super::ErrorId`].
    ParserError = "parser_error"
    /// Traffic class.
    Class = "class"
    /// Egress queue depth when the packet was queued.
    EnqueueDepth = "enqueue_depth"
    /// Egress queue depth when the packet left the queue.
    DequeueDepth = "dequeue_depth"
    /// Time spent in the egress queue, nanoseconds.
    QueueDelay = "queue_delay"
    /// The fabric's flow hash.
    FlowHash = "flow_hash"
    /// Bits that the receive path sets about the packet (checksums verified, and so on).
    Flags = "flags"
}

/// A stage: one round of parsing, deciding and deparsing.
///
/// A packet enters; the parser, if any, extracts headers; `control` runs, then `finish` (after `exit` too, but not
/// after a drop). Packets that statements send pass to the next stage or, from the last one, to the port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stage {
    /// Name.
    pub name: String,
    /// Parser; without one, the stage continues with the headers of the stage before.
    pub parser: Option<ParserId>,
    /// Statements.
    pub control: BlockId,
    /// Statements that run after `control`, also if it ended by `exit`.
    pub finish: Option<BlockId>,
    /// Statements that emit headers in front of the payload; without one, valid headers are emitted by number.
    pub deparser: Option<BlockId>,
    /// Stage that sent packets enter before they leave.
    pub next: Option<StageId>,
}
