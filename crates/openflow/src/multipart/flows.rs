//! Statistics and descriptions of flows.

use crate::error::ErrorCode;
use crate::instruction::Instructions;
use crate::matching::Match;
use crate::message::{FlowModFlags, Form};
use crate::stats::FlowStats;
use crate::version::{PortNo, Version};
use crate::wire::{Coder, Record, Step};

/// Asks for flows, or for sums over them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowStatsRequest {
    /// The table, or all.
    pub table_id: u8,
    /// Port that flows must output to; [`PortNo::ANY`]: any.
    pub out_port: PortNo,
    /// Group that flows must refer to, since version 1.1.
    pub out_group: u32,
    /// Cookie that flows must have, since version 1.1. Nicira's form has it in its match
    /// ([`cookie_of`](crate::message::cookie_of)).
    pub cookie: u64,
    /// Bits of the cookie that flows must have, since version 1.1.
    pub cookie_mask: u64,
    /// Which flows.
    pub matching: Match,
}

impl FlowStatsRequest {
    pub(super) fn walk_form<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        if form == Form::Nicira {
            c.port16(&mut self.out_port)?;
            let len = c.length()?;
            c.u8(&mut self.table_id)?;
            c.pad(3)?;
            return self.matching.walk_fields(c, len);
        }
        if c.version() == Version::V1_0 {
            self.matching.walk_fixed10(c)?;
            c.u8(&mut self.table_id)?;
            c.pad(1)?;
            return c.port(&mut self.out_port);
        }
        c.u8(&mut self.table_id)?;
        c.pad(3)?;
        c.port(&mut self.out_port)?;
        c.u32(&mut self.out_group)?;
        c.pad(4)?;
        c.u64(&mut self.cookie)?;
        c.u64(&mut self.cookie_mask)?;
        self.matching.walk_typed(c)
    }
}

/// A flow.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowEntry {
    /// The table.
    pub table_id: u8,
    /// Priority.
    pub priority: u16,
    /// Idle timeout in seconds.
    pub idle_timeout: u16,
    /// Hard timeout in seconds.
    pub hard_timeout: u16,
    /// Seconds since the last packet plus one, in Nicira's form; 0: unknown.
    pub idle_age: u16,
    /// Seconds since the last change plus one, in Nicira's form; 0: unknown.
    pub hard_age: u16,
    /// Options, since version 1.3.
    pub flags: FlowModFlags,
    /// Precedence against eviction, since version 1.4.
    pub importance: u16,
    /// Cookie.
    pub cookie: u64,
    /// Which packets.
    pub matching: Match,
    /// What happens to them.
    pub instructions: Instructions,
    /// Statistics.
    pub stats: FlowStats,
}

impl FlowEntry {
    pub(super) fn walk_form<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        c.entry(0, ErrorCode::BrcBadLen, |c| {
            c.pad(2)?;
            match (form, c.version()) {
                (Form::Standard, Version::V1_5) => self.walk_15(c),
                _ => self.walk_before_15(c, form == Form::Nicira),
            }
        })
    }

    fn walk_before_15<C: Coder>(&mut self, c: &mut C, extension: bool) -> Step {
        let version = c.version();
        let fixed10 = !extension && version == Version::V1_0;
        c.u8(&mut self.table_id)?;
        c.pad(1)?;
        if fixed10 {
            self.matching.walk_fixed10(c)?;
        }
        self.stats.walk_duration(c)?;
        c.u16(&mut self.priority)?;
        c.u16(&mut self.idle_timeout)?;
        c.u16(&mut self.hard_timeout)?;
        let mut match_len = None;
        if extension {
            match_len = Some(c.length()?);
            c.u16(&mut self.idle_age)?;
            c.u16(&mut self.hard_age)?;
        } else {
            let mut pad = 6;
            if version >= Version::V1_3 {
                c.flags16(&mut self.flags)?;
                pad -= 2;
            }
            if version >= Version::V1_4 {
                c.u16(&mut self.importance)?;
                pad -= 2;
            }
            c.pad(pad)?;
        }
        c.u64(&mut self.cookie)?;
        self.stats.walk_counts(c)?;
        match match_len {
            Some(len) => self.matching.walk_fields(c, len)?,
            None if fixed10 => {}
            None => self.matching.walk_typed(c)?,
        }
        c.record(&mut self.instructions)
    }

    fn walk_15<C: Coder>(&mut self, c: &mut C) -> Step {
        c.pad(2)?;
        c.u8(&mut self.table_id)?;
        c.pad(1)?;
        c.u16(&mut self.priority)?;
        c.u16(&mut self.idle_timeout)?;
        c.u16(&mut self.hard_timeout)?;
        c.flags16(&mut self.flags)?;
        c.u16(&mut self.importance)?;
        c.u64(&mut self.cookie)?;
        self.matching.walk_typed(c)?;
        self.stats.walk_typed(c)?;
        c.record(&mut self.instructions)
    }
}

/// A flow's statistics without its description, in version 1.5.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowStatsEntry {
    /// The table.
    pub table_id: u8,
    /// Why it is reported: 0 asked for, 1 threshold exceeded.
    pub reason: u8,
    /// Priority.
    pub priority: u16,
    /// Which packets.
    pub matching: Match,
    /// Statistics.
    pub stats: FlowStats,
}

impl Record for FlowStatsEntry {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(0, ErrorCode::BrcBadLen, |c| {
            c.pad(4)?;
            c.u8(&mut self.table_id)?;
            c.u8(&mut self.reason)?;
            c.u16(&mut self.priority)?;
            self.matching.walk_typed(c)?;
            self.stats.walk_typed(c)
        })
    }
}

/// Sums over flows: packets, bytes and flows.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Aggregate(
    /// The sums.
    pub FlowStats,
);

impl Record for Aggregate {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        if c.version() >= Version::V1_5 {
            return self.0.walk_typed(c);
        }
        self.0.walk_counts(c)?;
        self.0.walk_flows(c)?;
        c.pad(4)
    }
}
