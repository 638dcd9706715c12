//! Flow monitors: controllers follow changes of tables.
//!
//! Version 1.4 made a standard of Nicira's extension, ONF an extension to 1.3: the events' numbers differ by one.

use crate::error::{ErrorCode, Fault};
use crate::instruction::Instructions;
use crate::matching::Match;
use crate::message::Form;
use crate::version::PortNo;
use crate::wire::{Coder, Step};

bitflags::bitflags! {
    /// What a monitor reports.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MonitorFlags: u16 {
        /// The flows that are there.
        const INITIAL = 1;
        /// Additions.
        const ADD = 1 << 1;
        /// Removals.
        const REMOVED = 1 << 2;
        /// Changes.
        const MODIFY = 1 << 3;
        /// Instructions too.
        const INSTRUCTIONS = 1 << 4;
        /// The controller's own changes in full.
        const NO_ABBREV = 1 << 5;
        /// Only the controller's own changes.
        const ONLY_OWN = 1 << 6;
    }
}

/// Asks for a monitor.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MonitorRequest {
    /// The monitor.
    pub monitor: u32,
    /// What it reports.
    pub flags: MonitorFlags,
    /// Port that flows must output to; [`PortNo::ANY`]: any.
    pub out_port: PortNo,
    /// Group that flows must refer to, since version 1.4.
    pub out_group: u32,
    /// The table, or all.
    pub table_id: u8,
    /// What to do, since version 1.4: 0 add, 1 modify, 2 delete.
    pub command: u8,
    /// Which flows.
    pub matching: Match,
}

impl MonitorRequest {
    pub(super) fn walk_form<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        c.u32(&mut self.monitor)?;
        match form {
            Form::Standard => {
                c.record(&mut self.out_port)?;
                c.u32(&mut self.out_group)?;
                c.flags16(&mut self.flags)?;
                c.u8(&mut self.table_id)?;
                c.u8(&mut self.command)?;
                self.matching.walk_typed(c)
            }
            Form::Nicira => {
                c.flags16(&mut self.flags)?;
                c.port16(&mut self.out_port)?;
                let len = c.length()?;
                c.u8(&mut self.table_id)?;
                c.zeros(5, ErrorCode::NxBrcMustBeZero)?;
                self.matching.walk_fields(c, len)
            }
            Form::Onf => {
                c.flags16(&mut self.flags)?;
                let len = c.length()?;
                c.record(&mut self.out_port)?;
                c.u8(&mut self.table_id)?;
                c.zeros(3, ErrorCode::NxBrcMustBeZero)?;
                self.matching.walk_measured(c, len)
            }
        }
    }

    /// Refuses a request that no switch accepts.
    pub(crate) fn check(&self, form: Form) -> Result<(), ErrorCode> {
        if form == Form::Standard && self.command > 2 {
            return Err(ErrorCode::MofcBadCommand);
        }
        let reports = MonitorFlags::ADD | MonitorFlags::REMOVED | MonitorFlags::MODIFY;
        let known = match form {
            Form::Standard => MonitorFlags::all(),
            _ => MonitorFlags::all() - MonitorFlags::ONLY_OWN,
        };
        if self.command != 2 && (!self.flags.intersects(reports) || !known.contains(self.flags)) {
            return Err(ErrorCode::MofcBadFlags);
        }
        if self.out_port.to_16_bits().is_none() {
            return Err(ErrorCode::BacBadOutPort);
        }
        self.matching.check()
    }
}

/// What happened to a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FlowEvent {
    /// It was there when the monitor was made, since version 1.4.
    Initial,
    /// It is new.
    #[default]
    Added,
    /// It has gone, for a reason as in [`FlowRemoved`](crate::message::FlowRemoved).
    Removed(u8),
    /// Its instructions have changed.
    Modified,
}

/// A report of a monitor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FlowUpdate {
    /// A flow.
    Full {
        /// What happened.
        event: FlowEvent,
        /// The flow's table.
        table_id: u8,
        /// The flow's priority.
        priority: u16,
        /// The flow's idle timeout.
        idle_timeout: u16,
        /// The flow's hard timeout.
        hard_timeout: u16,
        /// The flow's cookie.
        cookie: u64,
        /// The flow's match.
        matching: Match,
        /// The flow's instructions, if they were asked for.
        instructions: Instructions,
    },
    /// A change that the controller itself made, with the transaction id of its flow-mod.
    Abbreviated(u32),
    /// Reports pause: the controller reads too slowly. Since version 1.4; a message of its own before.
    Paused,
    /// Reports go on.
    Resumed,
}

impl Default for FlowUpdate {
    fn default() -> Self {
        FlowUpdate::Abbreviated(0)
    }
}

const PAUSED: u16 = 5;

impl FlowUpdate {
    /// The event's number, from which the extensions subtract one.
    fn number(&self) -> u16 {
        match self {
            FlowUpdate::Full { event, .. } => match event {
                FlowEvent::Initial => 0,
                FlowEvent::Added => 1,
                FlowEvent::Removed(_) => 2,
                FlowEvent::Modified => 3,
            },
            FlowUpdate::Abbreviated(_) => 4,
            FlowUpdate::Paused => PAUSED,
            FlowUpdate::Resumed => 6,
        }
    }

    fn blank(number: u16) -> Option<Self> {
        let event = match number {
            0 => FlowEvent::Initial,
            1 => FlowEvent::Added,
            2 => FlowEvent::Removed(0),
            3 => FlowEvent::Modified,
            4 => return Some(FlowUpdate::Abbreviated(0)),
            PAUSED => return Some(FlowUpdate::Paused),
            6 => return Some(FlowUpdate::Resumed),
            _ => return None,
        };
        Some(FlowUpdate::Full {
            event,
            table_id: 0,
            priority: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            cookie: 0,
            matching: Match::default(),
            instructions: Instructions::default(),
        })
    }

    pub(super) fn walk_form<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        let standard = form == Form::Standard;
        c.entry(0, ErrorCode::BrcBadLen, |c| {
            c.pad(2)?;
            let fault = c.fault(ErrorCode::NxBrcFmBadEvent);
            let shift = u16::from(!standard);
            let Some(mut number) = self.number().checked_sub(if C::READS { 0 } else { shift }) else {
                return Err(Fault::Inexpressible("an initial flow in an extension's monitor"));
            };
            if !C::READS && !standard && self.number() >= PAUSED {
                return Err(Fault::Inexpressible("a pause in an extension's monitor"));
            }
            c.u16(&mut number)?;
            if C::READS {
                let number = number.checked_add(shift).filter(|number| standard || *number < PAUSED);
                *self = number.and_then(FlowUpdate::blank).ok_or(fault)?;
            }
            self.walk_rest(c, form)
        })
    }

    fn walk_rest<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        let (event, table_id, priority, idle_timeout, hard_timeout, cookie, matching, instructions) =
            match self {
                FlowUpdate::Abbreviated(xid) => return c.u32(xid),
                FlowUpdate::Paused | FlowUpdate::Resumed => return c.zeros(4, ErrorCode::NxBrcMustBeZero),
                FlowUpdate::Full {
                    event,
                    table_id,
                    priority,
                    idle_timeout,
                    hard_timeout,
                    cookie,
                    matching,
                    instructions,
                } => (event, table_id, priority, idle_timeout, hard_timeout, cookie, matching, instructions),
            };
        let mut nothing = 0;
        let reason = match event {
            FlowEvent::Removed(reason) => reason,
            _ => &mut nothing,
        };
        if form == Form::Standard {
            c.u8(table_id)?;
            c.u8(reason)?;
            c.u16(idle_timeout)?;
            c.u16(hard_timeout)?;
            c.u16(priority)?;
            c.pad(4)?;
            c.u64(cookie)?;
            matching.walk_typed(c)?;
            return c.record(instructions);
        }
        c.pad(1)?;
        c.u8(reason)?;
        c.u16(priority)?;
        c.u16(idle_timeout)?;
        c.u16(hard_timeout)?;
        let len = c.length()?;
        c.u8(table_id)?;
        c.pad(1)?;
        c.u64(cookie)?;
        if form == Form::Onf {
            matching.walk_measured(c, len)?;
            return c.record(instructions);
        }
        matching.walk_fields(c, len)?;
        instructions.walk_actions(c)
    }
}
