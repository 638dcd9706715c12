//! Actions: what a flow, a group's bucket or a packet-out does to packets.
//!
//! An [`Action`] has one meaning in all versions that have it; the table in this module says under which number each
//! version knows it, in the standard or as Nicira's or ONF's extension. Actions of unknown type are kept
//! ([`Action::Unknown`]); [`check`](Action::check) says how a switch refuses them.

mod check;
mod controller;
mod encap;
mod learn;
mod parts;
mod registers;
mod sample;
mod spread;
mod standard;
mod tracking;

pub(crate) use check::check_instructions;
pub use check::check_list;
pub use controller::{Controller, Controller2, ControllerProperty, DecTtlIds};
pub use encap::{Decap, Encap, EncapProperty};
pub use learn::{Learn, Learn2, LearnDestination, LearnFlags, LearnSource, LearnSpec};
pub use registers::{
    CheckPacketLarger, CopyField, DeleteField, OutputReg, OutputReg2, RegLoad, RegLoad2, RegMove, SetField,
    Stack, WriteMetadata,
};
pub use sample::{Observation, Sample, Sample2, Sample3, Sample4, SampleDirection};
pub use spread::{Bundle, BundleLoad, HashFields, Multipath};
pub use standard::{
    Conjunction, Enqueue, EtherAddress, FinTimeout, Note, Output, OutputTrunc, Resubmit, ResubmitTable,
};
pub use tracking::{CtFlags, Nat, NatFlags, NatRange, Nest, Track, Zone};

use crate::error::ErrorCode;
use crate::version::Version::{self, V1_0, V1_1, V1_2, V1_3, V1_4, V1_5};
use crate::version::vendor::{NICIRA, ONF};
use crate::wire::{Coder, Record, Step};

/// Action type of extensions.
const EXPERIMENTER: u16 = 0xffff;
/// Vendor of the standard's own actions in the table.
const STANDARD: u32 = 0;

/// The content of an action behind its header.
pub(crate) trait Content {
    /// Names the fields in wire order.
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step;
}

macro_rules! integer_contents {
    ($($int:ident $bytes:literal)*) => {$(
        impl Content for $int {
            fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
                c.align($bytes)?;
                c.$int(self)
            }
        }
    )*};
}
integer_contents!(u8 1 u16 2 u32 4 u64 8);

/// Numbers of an action: who defines it, first and last version, number.
type Number = (u32, Version, Version, u16);

macro_rules! content {
    ($c:ident $field:ident) => {};
    ($c:ident $field:ident $content:ty) => {
        <$content as Content>::walk_content($field, $c)?
    };
}

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident $(($content:ty))? = [$($number:expr),+];)*) => {
        /// An action.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Action {
            $($(#[$doc])* $variant $(($content))?,)*
            /// An action of unknown type: its type and what follows type and length.
            Unknown(u16, Vec<u8>),
        }

        impl Action {
            /// The numbers under which versions know the action.
            fn numbers(&self) -> &'static [Number] {
                match self {
                    $(actions!(@pattern $variant $(($content))?) => &[$($number),+],)*
                    Action::Unknown(..) => &[],
                }
            }

            /// An action of the type with a number, with its fields zero.
            fn blank(vendor: u32, version: Version, number: u16) -> Option<Self> {
                $(if [$($number),+].iter().any(|n| is(n, vendor, version, number)) {
                    return Some(actions!(@blank $variant $($content)?));
                })*
                None
            }

            fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
                match self {
                    $(actions!(@bind $variant content $($content)?) => { content!(c content $($content)?); })*
                    Action::Unknown(_, body) => c.rest(body)?,
                }
                Ok(())
            }
        }
    };
    (@pattern $variant:ident ($content:ty)) => { Action::$variant(_) };
    (@pattern $variant:ident) => { Action::$variant };
    (@blank $variant:ident $content:ty) => { Action::$variant(Default::default()) };
    (@blank $variant:ident) => { Action::$variant };
    (@bind $variant:ident $name:ident $content:ty) => { Action::$variant($name) };
    (@bind $variant:ident $name:ident) => { Action::$variant };
}

fn is((whose, first, last, known): &Number, vendor: u32, version: Version, number: u16) -> bool {
    *known == number && *whose == vendor && (*first..=*last).contains(&version)
}

actions! {
    /// Sends the packet to a port.
    Output(Output) = [(STANDARD, V1_0, V1_5, 0)];
    /// Sends the packet to a port's queue.
    Enqueue(Enqueue) = [(STANDARD, V1_0, V1_0, 11)];
    /// Processes the packet by a group.
    Group(u32) = [(NICIRA, V1_0, V1_0, 40), (STANDARD, V1_1, V1_5, 22)];
    /// Chooses the queue of later outputs.
    SetQueue(u32) = [(NICIRA, V1_0, V1_0, 4), (STANDARD, V1_1, V1_5, 21)];
    /// Undoes `set_queue`.
    PopQueue = [(NICIRA, V1_0, V1_5, 5)];
    /// Sets the VLAN id; adds a tag in version 1.0.
    SetVlanVid(u16) = [(STANDARD, V1_0, V1_5, 1)];
    /// Sets the VLAN priority; adds a tag in version 1.0.
    SetVlanPcp(u8) = [(STANDARD, V1_0, V1_5, 2)];
    /// Removes the VLAN tag.
    PopVlan = [(STANDARD, V1_0, V1_0, 3), (STANDARD, V1_1, V1_5, 18)];
    /// Adds a VLAN tag of an Ethernet type.
    PushVlan(u16) = [(STANDARD, V1_1, V1_5, 17)];
    /// Sets the Ethernet source.
    SetDlSrc(EtherAddress) = [(STANDARD, V1_0, V1_0, 4), (STANDARD, V1_1, V1_5, 3)];
    /// Sets the Ethernet destination.
    SetDlDst(EtherAddress) = [(STANDARD, V1_0, V1_0, 5), (STANDARD, V1_1, V1_5, 4)];
    /// Sets the IPv4 source.
    SetNwSrc(u32) = [(STANDARD, V1_0, V1_0, 6), (STANDARD, V1_1, V1_5, 5)];
    /// Sets the IPv4 destination.
    SetNwDst(u32) = [(STANDARD, V1_0, V1_0, 7), (STANDARD, V1_1, V1_5, 6)];
    /// Sets the DSCP, in the upper 6 bits.
    SetNwTos(u8) = [(STANDARD, V1_0, V1_0, 8), (STANDARD, V1_1, V1_5, 7)];
    /// Sets the ECN bits.
    SetNwEcn(u8) = [(STANDARD, V1_1, V1_5, 8)];
    /// Sets the TTL.
    SetNwTtl(u8) = [(STANDARD, V1_1, V1_5, 23)];
    /// Decrements the TTL.
    DecNwTtl = [(NICIRA, V1_0, V1_0, 18), (STANDARD, V1_1, V1_5, 24)];
    /// Decrements the TTL; expired packets go to some controllers.
    DecTtlIds(DecTtlIds) = [(NICIRA, V1_0, V1_5, 21)];
    /// Sets the source port.
    SetTpSrc(u16) = [(STANDARD, V1_0, V1_5, 9)];
    /// Sets the destination port.
    SetTpDst(u16) = [(STANDARD, V1_0, V1_5, 10)];
    /// Copies the TTL outwards.
    CopyTtlOut = [(STANDARD, V1_1, V1_5, 11)];
    /// Copies the TTL inwards.
    CopyTtlIn = [(STANDARD, V1_1, V1_5, 12)];
    /// Sets the MPLS label.
    SetMplsLabel(u32) = [(NICIRA, V1_0, V1_0, 30), (STANDARD, V1_1, V1_5, 13)];
    /// Sets the MPLS traffic class.
    SetMplsTc(u8) = [(NICIRA, V1_0, V1_0, 31), (STANDARD, V1_1, V1_5, 14)];
    /// Sets the MPLS TTL.
    SetMplsTtl(u8) = [(NICIRA, V1_0, V1_0, 25), (STANDARD, V1_1, V1_5, 15)];
    /// Decrements the MPLS TTL.
    DecMplsTtl = [(NICIRA, V1_0, V1_0, 26), (STANDARD, V1_1, V1_5, 16)];
    /// Adds an MPLS header of an Ethernet type.
    PushMpls(u16) = [(NICIRA, V1_0, V1_0, 23), (STANDARD, V1_1, V1_5, 19)];
    /// Removes an MPLS header in front of a payload of an Ethernet type.
    PopMpls(u16) = [(NICIRA, V1_0, V1_0, 24), (STANDARD, V1_1, V1_5, 20)];
    /// Adds a provider backbone bridging header.
    PushPbb(u16) = [(STANDARD, V1_3, V1_5, 26)];
    /// Removes a provider backbone bridging header.
    PopPbb = [(STANDARD, V1_3, V1_5, 27)];
    /// Sets a field.
    SetField(SetField) = [(STANDARD, V1_2, V1_5, 25)];
    /// Copies bits between fields.
    CopyField(CopyField) = [(ONF, V1_3, V1_4, 3200), (STANDARD, V1_5, V1_5, 28)];
    /// Applies a meter.
    Meter(u32) = [(STANDARD, V1_5, V1_5, 29)];
    /// Copies bits between fields.
    RegMove(RegMove) = [(NICIRA, V1_0, V1_4, 6)];
    /// Sets bits of a field.
    RegLoad(RegLoad) = [(NICIRA, V1_0, V1_4, 7)];
    /// Sets a field under a mask.
    RegLoad2(RegLoad2) = [(NICIRA, V1_0, V1_4, 33)];
    /// Looks the packet up again as if from another port.
    Resubmit(Resubmit) = [(NICIRA, V1_0, V1_5, 1)];
    /// Looks the packet up in a table.
    ResubmitTable(ResubmitTable) = [(NICIRA, V1_0, V1_5, 14)];
    /// Looks the packet up in a table, with the connection's original addresses.
    ResubmitTableCt(ResubmitTable) = [(NICIRA, V1_0, V1_5, 44)];
    /// Sets the tunnel's id of 32 bits.
    SetTunnel(u32) = [(NICIRA, V1_0, V1_5, 2)];
    /// Sets the tunnel's id of 64 bits.
    SetTunnel64(u64) = [(NICIRA, V1_0, V1_5, 9)];
    /// A comment.
    Note(Note) = [(NICIRA, V1_0, V1_5, 8)];
    /// Stores a hash's choice among links.
    Multipath(Multipath) = [(NICIRA, V1_0, V1_5, 10)];
    /// Sends the packet to one of several ports.
    Bundle(Bundle) = [(NICIRA, V1_0, V1_5, 12)];
    /// Stores one of several ports.
    BundleLoad(BundleLoad) = [(NICIRA, V1_0, V1_5, 13)];
    /// Sends the packet to the port that a field names.
    OutputReg(OutputReg) = [(NICIRA, V1_0, V1_5, 15)];
    /// Sends the packet to the port that a field of any class names.
    OutputReg2(OutputReg2) = [(NICIRA, V1_0, V1_5, 32)];
    /// Sends part of the packet to a port.
    OutputTrunc(OutputTrunc) = [(NICIRA, V1_0, V1_5, 39)];
    /// Adds a flow made from the packet.
    Learn(Learn) = [(NICIRA, V1_0, V1_5, 16)];
    /// Adds a flow made from the packet, up to a limit of flows.
    Learn2(Learn2) = [(NICIRA, V1_0, V1_5, 45)];
    /// Ends processing.
    Exit = [(NICIRA, V1_0, V1_5, 17)];
    /// Changes the flow's timeouts when a TCP connection ends.
    FinTimeout(FinTimeout) = [(NICIRA, V1_0, V1_5, 19)];
    /// Sends the packet to a controller.
    Controller(Controller) = [(NICIRA, V1_0, V1_5, 20)];
    /// Sends the packet to a controller, with user data or a continuation.
    Controller2(Controller2) = [(NICIRA, V1_0, V1_5, 37)];
    /// Sets bits of the metadata.
    WriteMetadata(WriteMetadata) = [(NICIRA, V1_0, V1_5, 22)];
    /// Pushes bits of a field to the stack.
    StackPush(Stack) = [(NICIRA, V1_0, V1_5, 27)];
    /// Pops bits of a field from the stack.
    StackPop(Stack) = [(NICIRA, V1_0, V1_5, 28)];
    /// Samples packets to collectors.
    Sample(Sample) = [(NICIRA, V1_0, V1_5, 29)];
    /// Samples packets of a port.
    Sample2(Sample2) = [(NICIRA, V1_0, V1_5, 38)];
    /// Samples packets of a port in a direction.
    Sample3(Sample3) = [(NICIRA, V1_0, V1_5, 41)];
    /// Samples packets, with observation ids from fields.
    Sample4(Sample4) = [(NICIRA, V1_0, V1_5, 51)];
    /// One clause of a conjunctive match.
    Conjunction(Conjunction) = [(NICIRA, V1_0, V1_5, 34)];
    /// Tracks the packet's connection.
    Track(Track) = [(NICIRA, V1_0, V1_5, 35)];
    /// Translates addresses.
    Nat(Nat) = [(NICIRA, V1_0, V1_5, 36)];
    /// Applies actions to a copy of the packet.
    Clone(Nest) = [(NICIRA, V1_0, V1_5, 42)];
    /// Forgets the packet's connection.
    CtClear = [(NICIRA, V1_0, V1_5, 43)];
    /// Adds a header.
    Encap(Encap) = [(NICIRA, V1_3, V1_5, 46)];
    /// Removes the outermost header.
    Decap(Decap) = [(NICIRA, V1_3, V1_5, 47)];
    /// Decrements the TTL of a network service header.
    DecNshTtl = [(NICIRA, V1_3, V1_5, 48)];
    /// Stores whether the packet is longer than a limit.
    CheckPacketLarger(CheckPacketLarger) = [(NICIRA, V1_0, V1_5, 49)];
    /// Removes tunnel metadata.
    DeleteField(DeleteField) = [(NICIRA, V1_0, V1_5, 50)];
    /// Forces packets to the slow path, for tests.
    DebugSlow = [(NICIRA, V1_0, V1_5, 254)];
    /// Forces recirculation, for tests.
    DebugRecirc = [(NICIRA, V1_0, V1_5, 255)];
}

impl Default for Action {
    fn default() -> Self {
        Action::Unknown(EXPERIMENTER, Vec::new())
    }
}

impl Action {
    /// Whether `version` has the action.
    pub fn exists_in(&self, version: Version) -> bool {
        self.number_in(version).is_some()
    }

    /// Who defines the action in `version`, and its number there.
    fn number_in(&self, version: Version) -> Option<(u32, u16)> {
        let number = self.numbers().iter().find(|(_, first, last, _)| (*first..=*last).contains(&version))?;
        Some((number.0, number.3))
    }

    /// Type, and for extensions who defines it and its number there.
    fn walk_header<C: Coder>(&mut self, c: &mut C) -> Step {
        let known = self.number_in(c.version());
        let (mut vendor, mut number) = known.unwrap_or_default();
        let mut kind = match (&*self, known) {
            (Action::Unknown(kind, _), _) => *kind,
            (_, None) => return Err(crate::error::Fault::Inexpressible("an action")),
            (_, Some((STANDARD, number))) => number,
            (_, Some(_)) => EXPERIMENTER,
        };
        c.u16(&mut kind)?;
        c.pad(2)?;
        if C::READS {
            if kind != EXPERIMENTER {
                *self =
                    Action::blank(STANDARD, c.version(), kind).unwrap_or(Action::Unknown(kind, Vec::new()));
            }
        } else if vendor == STANDARD {
            return Ok(());
        }
        if kind == EXPERIMENTER {
            c.u32(&mut vendor)?;
            if C::READS && (vendor != NICIRA && vendor != ONF) {
                *self = Action::Unknown(kind, vendor.to_be_bytes().to_vec());
                return Ok(());
            }
            c.u16(&mut number)?;
            if C::READS {
                *self = Action::blank(vendor, c.version(), number).unwrap_or_else(|| {
                    let mut body = vendor.to_be_bytes().to_vec();
                    body.extend_from_slice(&number.to_be_bytes());
                    Action::Unknown(kind, body)
                });
            }
        }
        Ok(())
    }
}

impl Record for Action {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(2, ErrorCode::BacBadLen, |c| {
            c.refuse_if(C::READS && c.left() % 8 != 0, ErrorCode::BacBadLen)?;
            self.walk_header(c)?;
            if let (true, Action::Unknown(_, body)) = (C::READS, &mut *self) {
                let mut rest = Vec::new();
                c.rest(&mut rest)?;
                body.append(&mut rest);
                return Ok(());
            }
            self.walk_content(c)?;
            c.align(8)
        })
    }
}

/// Walks a list of actions up to the innermost entry's end.
pub(crate) fn walk_list<C: Coder>(c: &mut C, actions: &mut Vec<Action>) -> Step {
    c.deeper(ErrorCode::BacTooMany, |c| c.reporting(ErrorCode::BacBadLen, |c| c.list(actions)))
}
