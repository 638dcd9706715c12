//! The intermediate representation: what a program is, without what it does (that is [`crate::interp`]).
//!
//! A [`Program`] is immutable. Everything in it refers to everything else by number: a [`HeaderId`] is an index into
//! [`Program::headers`], and so on. Every expression has a type that follows from its parts alone ([`Expr`]); nothing
//! converts by itself. The representation knows no control protocol and no source language: both front ends lower their
//! constructs into these.
//!
//! - `types.rs`: types, constants, headers, variables and what the environment fills in;
//! - `expr.rs`: expressions and places;
//! - `stmt.rs`: statements and actions;
//! - `parser.rs`: parser graphs;
//! - `table.rs`: tables, their entries, and the other objects that a control plane fills.

mod expr;
mod parser;
mod stmt;
mod table;
mod types;

pub use expr::{BinOp, Expr, HeaderRef, Item, LValue, UnOp};
pub use parser::{Case, Keyset, Parser, ParserOp, ParserState, Select, Target, Transition};
pub use stmt::{
    Action, ActionCall, Applied, Args, Dest, EmitRef, ExternArg, HashKind, Packet, Param, Send, Stmt, Via,
};
pub use table::{
    Counter, CounterKind, Digest, Direction, Entry, EntryResult, Extern, GroupTable, Key, KeyMatch, Match,
    MatchKind, Matches, Meter, MeterUnit, Profile, Register, Selection, Table, ValueSet,
};
pub use types::{
    Constant, Field, FieldType, Header, HeaderPlace, HeaderType, Slot, Stack, Stage, Type, Union, Var,
};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// Position in the program's list.
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of a position in the program's list.
            pub fn at(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
        }
    )*};
}

ids! {
    /// A header type.
    HeaderTypeId
    /// A header instance: single, an element of a stack, or a member of a union.
    HeaderId
    /// A header stack.
    StackId
    /// A header union.
    UnionId
    /// A variable.
    VarId
    /// An action: of the program, or one that the control plane defined later (numbers behind the program's).
    ActionId
    /// A table.
    TableId
    /// A block of statements.
    BlockId
    /// A parser.
    ParserId
    /// A stage.
    StageId
    /// An array of counters.
    CounterId
    /// An array of meters.
    MeterId
    /// An array of registers.
    RegisterId
    /// A function of the environment.
    ExternId
    /// A kind of digest.
    DigestId
    /// A table of groups.
    GroupTableId
    /// An action profile.
    ProfileId
    /// A table of replication lists.
    ReplicasId
    /// A parser's value set.
    ValueSetId
    /// A parser error.
    ErrorId
    /// A reason for drops.
    ReasonId
}

impl ErrorId {
    /// No error.
    pub const NONE: ErrorId = ErrorId(0);
    /// An extraction or a lookahead beyond the packet's end.
    pub const PACKET_TOO_SHORT: ErrorId = ErrorId(1);
    /// A selection without a matching case.
    pub const NO_MATCH: ErrorId = ErrorId(2);
    /// The next element of a full stack, or the last of an empty one.
    pub const STACK_OUT_OF_BOUNDS: ErrorId = ErrorId(3);
    /// A variable field longer than its maximum.
    pub const HEADER_TOO_SHORT: ErrorId = ErrorId(4);
    /// More states than [`crate::interp::Limits::parser_states`].
    pub const TIMEOUT: ErrorId = ErrorId(5);
    /// A length that is no multiple of 8 bits.
    pub const INVALID_ARGUMENT: ErrorId = ErrorId(6);
    /// Names of the errors that every program has; a program's own follow.
    pub const STANDARD: [&str; 7] = [
        "NoError",
        "PacketTooShort",
        "NoMatch",
        "StackOutOfBounds",
        "HeaderTooShort",
        "ParserTimeout",
        "ParserInvalidArgument",
    ];
}

/// A match-action program. [`crate::validate()`] says which programs may run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Program {
    /// Name.
    pub name: String,
    /// Layouts of headers.
    pub header_types: Vec<HeaderType>,
    /// Header instances. Elements of a stack and members of a union follow one another.
    pub headers: Vec<Header>,
    /// Header stacks, in the order of their first elements.
    pub stacks: Vec<Stack>,
    /// Header unions, in the order of their first members.
    pub unions: Vec<Union>,
    /// Variables: metadata, locals and temporaries.
    pub vars: Vec<Var>,
    /// Parser errors behind [`ErrorId::STANDARD`].
    pub errors: Vec<String>,
    /// Reasons for drops.
    pub reasons: Vec<String>,
    /// Sets of values that parsers select by.
    pub value_sets: Vec<ValueSet>,
    /// Counter arrays.
    pub counters: Vec<Counter>,
    /// Meter arrays.
    pub meters: Vec<Meter>,
    /// Register arrays.
    pub registers: Vec<Register>,
    /// Functions of the environment.
    pub externs: Vec<Extern>,
    /// Digests.
    pub digests: Vec<Digest>,
    /// Names of the tables of replication lists: multicast groups and mirror sessions.
    pub replicas: Vec<String>,
    /// Action profiles.
    pub profiles: Vec<Profile>,
    /// Tables of groups.
    pub groups: Vec<GroupTable>,
    /// Actions.
    pub actions: Vec<Action>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Parsers.
    pub parsers: Vec<Parser>,
    /// Blocks of statements by name.
    pub blocks: Vec<(String, Vec<Stmt>)>,
    /// Stages; a received packet enters the first one.
    pub stages: Vec<Stage>,
}

impl Program {
    /// Name of a parser error.
    pub fn error_name(&self, error: ErrorId) -> &str {
        let own = error.index().checked_sub(ErrorId::STANDARD.len());
        let name = match own {
            None => ErrorId::STANDARD.get(error.index()).copied(),
            Some(i) => self.errors.get(i).map(String::as_str),
        };
        name.unwrap_or("?")
    }

    /// The type of a header instance.
    pub fn header_type(&self, header: HeaderId) -> Option<&HeaderType> {
        self.header_types.get(self.headers.get(header.index())?.ty.index())
    }

    /// The stack that an instance is an element of.
    pub fn stack_type(&self, stack: StackId) -> Option<&HeaderType> {
        self.header_type(self.stacks.get(stack.index())?.first)
    }

    /// Full name of a header instance: `eth`, `vlan[0]`, `l3.ipv4`.
    pub fn header_name(&self, header: HeaderId) -> String {
        let Some(instance) = self.headers.get(header.index()) else { return "?".into() };
        match instance.place {
            HeaderPlace::Single => instance.name.clone(),
            HeaderPlace::Element(stack, i) => {
                format!("{}[{i}]", self.stacks.get(stack.index()).map_or("?", |s| &s.name))
            }
            HeaderPlace::Member(union) => {
                format!("{}.{}", self.unions.get(union.index()).map_or("?", |u| &u.name), instance.name)
            }
        }
    }
}
