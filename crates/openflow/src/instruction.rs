//! Instructions: what a flow does with a packet, since version 1.1.
//!
//! A flow of version 1.0 has a list of actions; it stands for the instruction that applies them ([`Instructions`]).

use crate::action::{Action, check_instructions, walk_list};
use crate::error::ErrorCode;
use crate::oxm::Oxm;
use crate::version::Version;
use crate::wire::{Coder, Record, Step};

/// An instruction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Instruction {
    /// Continues in a later table.
    GotoTable(u8),
    /// Sets bits of the metadata.
    WriteMetadata {
        /// The value.
        value: u64,
        /// The bits to set.
        mask: u64,
    },
    /// Adds actions to the action set.
    WriteActions(Vec<Action>),
    /// Applies actions at once.
    ApplyActions(Vec<Action>),
    /// Clears the action set.
    ClearActions,
    /// Applies a meter. An action since version 1.5.
    Meter(u32),
    /// Sends statistics when thresholds are exceeded, since version 1.5: flags and thresholds as they came.
    StatTrigger(Vec<u8>),
    /// An instruction of unknown type: its type and what follows type and length.
    Unknown(u16, Vec<u8>),
}

impl Default for Instruction {
    fn default() -> Self {
        Instruction::Unknown(EXPERIMENTER, Vec::new())
    }
}

const EXPERIMENTER: u16 = 0xffff;

impl Instruction {
    fn kind(&self) -> u16 {
        match self {
            Instruction::GotoTable(_) => 1,
            Instruction::WriteMetadata { .. } => 2,
            Instruction::WriteActions(_) => 3,
            Instruction::ApplyActions(_) => 4,
            Instruction::ClearActions => 5,
            Instruction::Meter(_) => 6,
            Instruction::StatTrigger(_) => 7,
            Instruction::Unknown(kind, _) => *kind,
        }
    }

    fn blank(kind: u16, version: Version) -> Self {
        match kind {
            1 => Instruction::GotoTable(0),
            2 => Instruction::WriteMetadata { value: 0, mask: 0 },
            3 => Instruction::WriteActions(Vec::new()),
            4 => Instruction::ApplyActions(Vec::new()),
            5 => Instruction::ClearActions,
            6 if (Version::V1_3..=Version::V1_4).contains(&version) => Instruction::Meter(0),
            7 if version >= Version::V1_5 => Instruction::StatTrigger(Vec::new()),
            _ => Instruction::Unknown(kind, Vec::new()),
        }
    }
}

impl Record for Instruction {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(2, ErrorCode::BicBadLen, |c| {
            c.refuse_if(C::READS && c.left() % 8 != 0, ErrorCode::BicBadLen)?;
            let mut kind = self.kind();
            c.u16(&mut kind)?;
            c.pad(2)?;
            if C::READS {
                *self = Instruction::blank(kind, c.version());
            } else if matches!(self, Instruction::Meter(_))
                && Instruction::blank(kind, c.version()) != Instruction::Meter(0)
            {
                return Err(crate::error::Fault::Inexpressible("the instruction meter"));
            }
            match self {
                Instruction::GotoTable(table) => {
                    c.u8(table)?;
                    c.pad(3)
                }
                Instruction::WriteMetadata { value, mask } => {
                    c.pad(4)?;
                    c.u64(value)?;
                    c.u64(mask)
                }
                Instruction::WriteActions(actions) | Instruction::ApplyActions(actions) => {
                    c.pad(4)?;
                    walk_list(c, actions)
                }
                Instruction::ClearActions => c.pad(4),
                Instruction::Meter(meter) => c.u32(meter),
                Instruction::StatTrigger(body) | Instruction::Unknown(_, body) => c.rest(body),
            }
        })
    }
}

/// A flow's instructions; in version 1.0 a list of actions, which is one instruction that applies them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Instructions(
    /// The instructions, at most one of each type.
    pub Vec<Instruction>,
);

impl Instructions {
    /// The instruction that applies actions; none without actions.
    pub fn apply(actions: Vec<Action>) -> Self {
        Instructions(if actions.is_empty() { Vec::new() } else { vec![Instruction::ApplyActions(actions)] })
    }

    /// The actions that are applied at once.
    pub fn applied(&self) -> &[Action] {
        self.0
            .iter()
            .find_map(|instruction| match instruction {
                Instruction::ApplyActions(actions) => Some(actions.as_slice()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Refuses instructions that no switch accepts in a flow with the match `fields`: unknown ones, one type twice,
    /// wrong actions.
    pub fn check(&self, version: Version, fields: &[Oxm]) -> Result<(), ErrorCode> {
        for (at, instruction) in self.0.iter().enumerate() {
            let earlier = self.0.get(..at).unwrap_or_default();
            if earlier.iter().any(|other| other.kind() == instruction.kind()) {
                return Err(ErrorCode::BicDupInst);
            }
            match instruction {
                Instruction::Unknown(EXPERIMENTER, _) => return Err(ErrorCode::BicBadExperimenter),
                Instruction::Unknown(..) => return Err(ErrorCode::BicUnknownInst),
                Instruction::StatTrigger(_) => return Err(ErrorCode::BicUnsupInst),
                Instruction::WriteActions(_)
                | Instruction::ApplyActions(_)
                | Instruction::GotoTable(_)
                | Instruction::WriteMetadata { .. }
                | Instruction::ClearActions
                | Instruction::Meter(_) => {}
            }
        }
        let written = self.0.iter().find_map(|instruction| match instruction {
            Instruction::WriteActions(actions) => Some(actions.as_slice()),
            _ => None,
        });
        check_instructions(self.applied(), written.unwrap_or_default(), version, fields)
    }
}

impl Instructions {
    /// A list of actions that are applied.
    pub(crate) fn walk_actions<C: Coder>(&mut self, c: &mut C) -> Step {
        if C::READS {
            let mut actions = Vec::new();
            walk_list(c, &mut actions)?;
            *self = Instructions::apply(actions);
            return Ok(());
        }
        match self.0.as_mut_slice() {
            [] => Ok(()),
            [Instruction::ApplyActions(actions)] => walk_list(c, actions),
            _ => Err(crate::error::Fault::Inexpressible("instructions other than apply_actions")),
        }
    }
}

impl Record for Instructions {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        match c.version() {
            Version::V1_0 => self.walk_actions(c),
            _ => c.reporting(ErrorCode::BicBadLen, |c| c.list(&mut self.0)),
        }
    }
}
