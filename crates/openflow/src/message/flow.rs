//! Flows: changes of tables, and their removal.

use crate::error::ErrorCode;
use crate::instruction::{Instruction, Instructions};
use crate::matching::Match;
use crate::message::Form;
use crate::oxm::{Oxm, OxmId};
use crate::stats::FlowStats;
use crate::version::{PortNo, Version, table};
use crate::wire::{Coder, Step, numbers};

numbers! {
    /// What to do with flows.
    pub enum FlowModCommand: u8 / u8 else FmfcBadCommand {
        /// Adds a flow, or replaces the one with the same match and priority.
        #[default]
        Add = 0,
        /// Changes the instructions of all flows within the match.
        Modify = 1,
        /// Changes the instructions of the flow with the same match and priority.
        ModifyStrict = 2,
        /// Removes all flows within the match.
        Delete = 3,
        /// Removes the flow with the same match and priority.
        DeleteStrict = 4,
    }
}

bitflags::bitflags! {
    /// Options of a flow.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct FlowModFlags: u16 {
        /// Its removal is reported.
        const SEND_FLOW_REM = 1;
        /// It is refused if it overlaps another one.
        const CHECK_OVERLAP = 1 << 1;
        /// Counters restart, since version 1.2; emergency flow in 1.0.
        const RESET_COUNTS = 1 << 2;
        /// Packets are not counted, since version 1.3.
        const NO_PKT_COUNTS = 1 << 3;
        /// Bytes are not counted, since version 1.3.
        const NO_BYT_COUNTS = 1 << 4;
    }
}

impl FlowModFlags {
    /// The options that a version has.
    fn known(version: Version) -> Self {
        match version {
            Version::V1_0 | Version::V1_1 => FlowModFlags::SEND_FLOW_REM | FlowModFlags::CHECK_OVERLAP,
            Version::V1_2 => {
                FlowModFlags::SEND_FLOW_REM | FlowModFlags::CHECK_OVERLAP | FlowModFlags::RESET_COUNTS
            }
            _ => FlowModFlags::all(),
        }
    }
}

/// Changes flows.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowMod {
    /// The cookie: of the flow, or under `cookie_mask` of flows to change.
    pub cookie: u64,
    /// Bits of the cookie that flows to change must have, since version 1.1. Nicira's form has the cookie in its match
    /// ([`cookie_of`]).
    pub cookie_mask: u64,
    /// The table. In version 1.0 the upper byte of the command: the table if the extension `flow_mod_table_id` is
    /// enabled, else 0.
    pub table_id: u8,
    /// What to do.
    pub command: FlowModCommand,
    /// Idle timeout in seconds; 0: none.
    pub idle_timeout: u16,
    /// Hard timeout in seconds; 0: none.
    pub hard_timeout: u16,
    /// Priority.
    pub priority: u16,
    /// Buffered packet that the flow applies to.
    pub buffer_id: u32,
    /// Port that flows to remove must output to; [`PortNo::ANY`]: any.
    pub out_port: PortNo,
    /// Group that flows to remove must refer to, since version 1.1.
    pub out_group: u32,
    /// Options.
    pub flags: FlowModFlags,
    /// Precedence against eviction, since version 1.4.
    pub importance: u16,
    /// The packets.
    pub matching: Match,
    /// What to do with them.
    pub instructions: Instructions,
}

/// The pseudo-field of Nicira's matches for a flow's cookie.
const COOKIE: OxmId = OxmId { class: 1, experimenter: 0, field: 30 };

/// Whether a field is the pseudo-field, whose number is that of `mpls_ttl`, too, but not its length.
pub(crate) fn is_cookie(oxm: &Oxm) -> bool {
    oxm.id == COOKIE && oxm.value.len() == 8
}

/// The cookie and its mask that a match in Nicira's form asks for.
pub fn cookie_of(fields: &[Oxm]) -> Option<(u64, u64)> {
    let oxm = fields.iter().find(|oxm| is_cookie(oxm))?;
    Some((oxm.value_number() as u64, oxm.mask_number() as u64))
}

/// A cookie in a match in Nicira's form.
pub fn cookie_field(cookie: u64, mask: u64) -> Oxm {
    let mask = (mask != u64::MAX).then(|| mask.to_be_bytes().as_slice().into());
    Oxm { id: COOKIE, value: cookie.to_be_bytes().as_slice().into(), mask }
}

/// Refuses a match that no switch accepts, apart from the cookie in Nicira's form.
pub(crate) fn check_match(matching: &Match, form: Form) -> Result<(), ErrorCode> {
    match matching {
        Match::Fields(fields) if form == Form::Nicira && cookie_of(fields).is_some() => {
            let cookies = fields.iter().filter(|oxm| is_cookie(oxm)).count();
            if cookies > 1 {
                return Err(ErrorCode::BmcDupField);
            }
            let others: Vec<Oxm> = fields.iter().filter(|oxm| !is_cookie(oxm)).cloned().collect();
            Match::Fields(others).check()
        }
        _ => matching.check(),
    }
}

impl FlowMod {
    /// Refuses a change that no switch accepts.
    pub(crate) fn check(&self, version: Version, form: Form) -> Result<(), ErrorCode> {
        check_match(&self.matching, form)?;
        if !FlowModFlags::known(version).contains(self.flags) {
            return Err(ErrorCode::FmfcBadFlags);
        }
        let deletes = matches!(self.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
        if version > Version::V1_0 {
            let all_tables = self.table_id == table::ALL;
            if all_tables && (version == Version::V1_1 || !deletes) {
                return Err(ErrorCode::FmfcBadTableId);
            }
            if self.out_port.to_16_bits().is_none() {
                return Err(ErrorCode::BacBadOutPort);
            }
        }
        self.instructions.check(version, &self.matching.to_fields()?)?;
        // A packet goes on to later tables only.
        let backwards = |instruction: &Instruction| match instruction {
            Instruction::GotoTable(table) => *table <= self.table_id && self.table_id != table::ALL,
            _ => false,
        };
        match self.instructions.0.iter().any(backwards) {
            true => Err(ErrorCode::BicBadTableId),
            false => Ok(()),
        }
    }

    pub(crate) fn walk_form<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        let extension = form == Form::Nicira;
        if !extension && c.version() > Version::V1_0 {
            return self.walk_11(c);
        }
        if !extension {
            self.matching.walk_fixed10(c)?;
        }
        c.u64(&mut self.cookie)?;
        c.u8(&mut self.table_id)?;
        c.record(&mut self.command)?;
        self.walk_times(c)?;
        c.u32(&mut self.buffer_id)?;
        c.port16(&mut self.out_port)?;
        c.flags16(&mut self.flags)?;
        if extension {
            let len = c.length()?;
            c.pad(6)?;
            self.matching.walk_fields(c, len)?;
        }
        c.record(&mut self.instructions)
    }

    fn walk_11<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u64(&mut self.cookie)?;
        c.u64(&mut self.cookie_mask)?;
        c.u8(&mut self.table_id)?;
        c.record(&mut self.command)?;
        self.walk_times(c)?;
        c.u32(&mut self.buffer_id)?;
        c.port(&mut self.out_port)?;
        c.u32(&mut self.out_group)?;
        c.flags16(&mut self.flags)?;
        if c.version() >= Version::V1_4 {
            c.u16(&mut self.importance)?;
        } else {
            c.pad(2)?;
        }
        self.matching.walk_typed(c)?;
        c.record(&mut self.instructions)
    }

    fn walk_times<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u16(&mut self.idle_timeout)?;
        c.u16(&mut self.hard_timeout)?;
        c.u16(&mut self.priority)
    }
}

/// A flow has gone.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowRemoved {
    /// The flow's match.
    pub matching: Match,
    /// The flow's cookie.
    pub cookie: u64,
    /// The flow's priority.
    pub priority: u16,
    /// Why: 0 idle, 1 hard timeout, 2 deleted, 3 group deleted, 4 meter deleted, 5 evicted.
    pub reason: u8,
    /// The flow's table. Nicira's form has it plus one, and 0 if unknown; version 1.0 lacks it.
    pub table_id: u8,
    /// The flow's idle timeout in seconds.
    pub idle_timeout: u16,
    /// The flow's hard timeout in seconds, since version 1.2.
    pub hard_timeout: u16,
    /// The flow's statistics.
    pub stats: FlowStats,
}

impl FlowRemoved {
    pub(crate) fn walk_form<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        let version = c.version();
        let extension = form == Form::Nicira;
        if !extension && version == Version::V1_5 {
            return self.walk_15(c);
        }
        if !extension && version == Version::V1_0 {
            self.matching.walk_fixed10(c)?;
        }
        c.u64(&mut self.cookie)?;
        c.u16(&mut self.priority)?;
        c.u8(&mut self.reason)?;
        if !extension && version == Version::V1_0 {
            c.pad(1)?;
        } else {
            c.u8(&mut self.table_id)?;
        }
        self.stats.walk_duration(c)?;
        c.u16(&mut self.idle_timeout)?;
        if extension {
            let len = c.length()?;
            self.stats.walk_counts(c)?;
            return self.matching.walk_fields(c, len);
        }
        if version >= Version::V1_2 {
            c.u16(&mut self.hard_timeout)?;
        } else {
            c.pad(2)?;
        }
        self.stats.walk_counts(c)?;
        if version > Version::V1_0 { self.matching.walk_typed(c) } else { Ok(()) }
    }

    fn walk_15<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u8(&mut self.table_id)?;
        c.u8(&mut self.reason)?;
        c.u16(&mut self.priority)?;
        c.u16(&mut self.idle_timeout)?;
        c.u16(&mut self.hard_timeout)?;
        c.u64(&mut self.cookie)?;
        self.matching.walk_typed(c)?;
        self.stats.walk_typed(c)
    }
}
