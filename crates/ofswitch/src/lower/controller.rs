//! Nicira's actions that send packets to controllers.

use openflow::action::{Action, ControllerProperty};
use openflow::error::ErrorCode;
use pipeline::ir::{Constant, Stmt};

use super::{Lowering, Step};
use crate::program::outputs::{ACTION, PAUSE, TABLE_MISS, to_controller};
use crate::program::terms::set;

/// User data of one action at most, bytes.
const USER_DATA: usize = 4096;
/// Bytes of one constant.
const CHUNK: usize = 64;

impl Lowering<'_> {
    pub(super) fn controller_action(&mut self, action: &Action) -> Option<Step> {
        Some(match action {
            Action::Controller(to) => self.controller(to.max_len, to.controller_id, to.reason, &[]),
            Action::Controller2(to) => self.controller2(&to.0),
            _ => return None,
        })
    }

    fn controller(&mut self, max_len: u16, id: u16, reason: u8, user_data: &[u8]) -> Step {
        if user_data.len() > USER_DATA {
            return Err(ErrorCode::BacBadLen);
        }
        // Flows that match what no other flow does report a miss, unless they state another reason.
        let missed = reason & !PAUSE == ACTION && self.owner.reason == TABLE_MISS;
        let reason = self.number(8, if missed { TABLE_MISS | reason & PAUSE } else { reason }.into());
        let max_len = self.number(16, max_len.into());
        let sender = self.sender(id);
        let chunk = |bytes: &[u8]| super::places::constant((bytes.len() * 8) as u16, bytes);
        let chunks: Vec<Constant> = user_data.chunks(CHUNK).map(chunk).collect();
        let data: Vec<_> = chunks.into_iter().map(|constant| self.param(constant)).collect();
        self.push(to_controller(&self.layout.vars, reason, Some(max_len), sender, data));
        Ok(())
    }

    fn controller2(&mut self, properties: &[ControllerProperty]) -> Step {
        let (mut max_len, mut id, mut reason, mut meter, mut pauses) = (0xffff, 0, ACTION, None, false);
        let mut user_data: &[u8] = &[];
        for property in properties {
            match property {
                ControllerProperty::MaxLen(value) => max_len = value.value,
                ControllerProperty::ControllerId(value) => id = value.value,
                ControllerProperty::Reason(value) => reason = *value,
                ControllerProperty::UserData(data) => user_data = &data.0,
                ControllerProperty::MeterId(value) => meter = Some(*value),
                ControllerProperty::Pause(_) => pauses = true,
                ControllerProperty::Other(property) => return Err(property.refusal()),
            }
        }
        if pauses {
            // The meter limits the packets themselves: they are with the controllers.
            meter.map_or(Ok(()), |meter| self.meter(meter))?;
            return self.pause(id, reason, user_data);
        }
        let Some(meter) = meter else { return self.controller(max_len, id, reason, user_data) };
        // The meter limits what controllers get, not the packet's way.
        self.copy_of(|lowering| {
            lowering.meter(meter)?;
            lowering.controller(max_len, id, reason, user_data)
        })
    }

    /// Gives the packet away until a controller resumes it. It gets the whole packet.
    fn pause(&mut self, id: u16, reason: u8, user_data: &[u8]) -> Step {
        let site = self.world.number().to_be_bytes();
        self.controller(0xffff, id, reason | PAUSE, &[&site, user_data].concat())?;
        self.push(Stmt::Call(self.layout.pause));
        Ok(())
    }

    /// Applies a meter.
    pub(super) fn meter(&mut self, meter: u32) -> Step {
        if !self.world.has_meter(meter) {
            return Err(ErrorCode::MmfcUnknownMeter);
        }
        let id = self.number(32, meter.into());
        self.push(set(self.layout.vars.meter, id));
        self.push(Stmt::Call(self.layout.run_meter));
        Ok(())
    }
}
