//! Learning: a packet's values go to the switch, which makes a flow of them.
//!
//! The flow appears when the packet has been processed: what follows the action does not see it yet.

use std::sync::Arc;

use openflow::Version;
use openflow::action::{
    Action, FinTimeout, Learn, LearnDestination, LearnFlags, LearnSource, LearnSpec, Output, RegLoad,
};
use openflow::error::ErrorCode;
use openflow::field::{Field, FieldId};
use openflow::instruction::Instructions;
use openflow::matching::Match;
use openflow::message::{FlowMod, FlowModCommand, FlowModFlags};
use openflow::oxm::{Oxm, Subfield};
use openflow::{PortNo, version};
use pipeline::bits::Bits;
use pipeline::ir::Stmt;

use super::{Lowering, Step};
use crate::program::terms::{bit, both, concat, either, field, resize, valid, when};
use crate::program::{LEARNED_BITS, headers};

/// Bits of TCP's flags (RFC 9293, section 3.1).
const FIN: u16 = 0;
const RST: u16 = 2;

/// A learned flow but for its packet's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    learn: Learn,
    /// Flows with the same cookie at most; 0: unlimited.
    pub(crate) limit: u32,
    /// Nothing is learned: these are the timeouts of the flow itself once its TCP connection ends.
    pub(crate) fin: Option<FinTimeout>,
}

impl Lowering<'_> {
    pub(super) fn learn_action(&mut self, action: &Action) -> Option<Step> {
        Some(match action {
            Action::Learn(learn) => self.learn(learn, 0),
            // Whether a flow is there would be known too late.
            Action::Learn2(learn) if learn.learn.flags.contains(LearnFlags::WRITE_RESULT) => {
                self.drop_for(self.layout.reasons.unsupported)
            }
            Action::Learn2(learn) => self.learn(&learn.learn, learn.limit),
            // Several flows may run a bucket, with timeouts of their own: it changes none of them.
            Action::FinTimeout(_) if self.is_bucket() => Ok(()),
            Action::FinTimeout(fin) => {
                self.fin_timeout(*fin);
                Ok(())
            }
            _ => return None,
        })
    }

    /// Reports the end of a TCP connection: a packet with FIN or RST.
    fn fin_timeout(&mut self, fin: FinTimeout) {
        let number = self.world.number();
        let template = Template { learn: Learn::default(), limit: 0, fin: Some(fin) };
        self.learns.push((number, Arc::new(template)));
        let number = self.number(32, number.into());
        let tcp = self.layout.headers.tcp;
        let flag = |at: u16| field(tcp, headers::tcp::FLAGS).slice(at, at).equals(bit(1, 1));
        let ends = both(valid(tcp), either(flag(FIN), flag(RST)));
        let report = Stmt::Digest(self.layout.learn, vec![number, bit(LEARNED_BITS, 0)]);
        self.push(when(ends, vec![report]));
    }

    fn learn(&mut self, learn: &Learn, limit: u32) -> Step {
        if self.layout.table(learn.table).is_none() {
            return Err(ErrorCode::BacBadArgument);
        }
        let mut values = None;
        for spec in &learn.specs {
            if let LearnDestination::Load(header, _) = spec.destination
                && !header.field().is_some_and(|field| self.is_writable(field))
            {
                return Err(ErrorCode::BacBadSetArgument);
            }
            // The length of a tunnel's option is known only here.
            if let LearnDestination::Match(header, offset) | LearnDestination::Load(header, offset) =
                spec.destination
                && header.field().is_some_and(Field::is_variable)
            {
                self.read_at(&header, offset, spec.bits)?;
            }
            let LearnSource::Field(header, offset) = spec.source else { continue };
            let value = self.read_at(&header, offset, spec.bits)?;
            values = Some(match values {
                None => value,
                Some(before) => concat(before, value),
            });
        }
        if template_bits(learn) > usize::from(LEARNED_BITS) {
            return Err(ErrorCode::BacTooMany);
        }
        let number = self.world.number();
        self.learns.push((number, Arc::new(Template { learn: learn.clone(), limit, fin: None })));
        let number = self.number(32, number.into());
        let values = values.map_or(bit(LEARNED_BITS, 0), |values| resize(values, LEARNED_BITS));
        self.push(Stmt::Digest(self.layout.learn, vec![number, values]));
        Ok(())
    }
}

fn template_bits(learn: &Learn) -> usize {
    let from_packet = |source: &LearnSource| matches!(source, LearnSource::Field(..));
    learn.specs.iter().filter(|spec| from_packet(&spec.source)).map(|spec| usize::from(spec.bits)).sum()
}

impl Template {
    /// Bytes of a message that would add a learned flow, about.
    pub(crate) fn size(&self) -> usize {
        let spec = |spec: &LearnSpec| 24 + usize::from(spec.bits) / 4;
        64 + self.learn.specs.iter().map(spec).sum::<usize>()
    }

    /// The cookie of learned flows.
    pub(crate) fn cookie(&self) -> u64 {
        self.learn.cookie
    }

    /// The table of learned flows.
    pub(crate) fn table(&self) -> u8 {
        self.learn.table
    }

    /// Table and cookie of learned flows, if they are deleted with the last flow that teaches them.
    pub(crate) fn deletes(&self) -> Option<(u8, u64)> {
        self.learn.flags.contains(LearnFlags::DELETE_LEARNED).then_some((self.table(), self.cookie()))
    }

    /// The flow for a packet's values, as a change of the tables in Nicira's form.
    pub(crate) fn flow(&self, values: &Bits) -> FlowMod {
        let mut left = template_bits(&self.learn) as u64;
        let mut fields: Vec<(FieldId, Oxm)> = Vec::new();
        let mut actions = Vec::new();
        let (idle, hard) = (self.learn.fin_idle_timeout, self.learn.fin_hard_timeout);
        if idle != 0 || hard != 0 {
            actions.push(Action::FinTimeout(FinTimeout { idle, hard }));
        }
        for spec in &self.learn.specs {
            let value = match &spec.source {
                LearnSource::Field(..) => {
                    left = left.saturating_sub(spec.bits.into());
                    values.shr(left).resize(spec.bits.max(1))
                }
                LearnSource::Immediate(bytes) => Bits::from_bytes((bytes.len() * 8).max(1) as u16, bytes),
            };
            match spec.destination {
                LearnDestination::Match(header, offset) => {
                    let part = Subfield { header, offset, bits: spec.bits };
                    add_pattern(&mut fields, &part, &value);
                }
                // A load has 64 bits at most; the low ones come first.
                LearnDestination::Load(header, offset) => {
                    let mut done = 0;
                    while done < spec.bits {
                        let bits = (spec.bits - done).min(64);
                        let destination = Subfield { header, offset: offset + done, bits };
                        let value = value.resize(spec.bits).shr(done.into()).resize(bits).low_u64();
                        actions.push(Action::RegLoad(RegLoad { destination, value }));
                        done += bits;
                    }
                }
                LearnDestination::Output => {
                    let number = value.low_u64() as u32;
                    let port =
                        if spec.bits <= 16 { PortNo::from_16_bits(number as u16) } else { PortNo(number) };
                    actions.push(Action::Output(Output { port, max_len: 0 }));
                }
            }
        }
        let mut flags = FlowModFlags::empty();
        flags.set(FlowModFlags::SEND_FLOW_REM, self.learn.flags.contains(LearnFlags::SEND_FLOW_REM));
        FlowMod {
            cookie: self.learn.cookie,
            table_id: self.learn.table,
            // A flow that is there already is refreshed: its timeouts start anew.
            command: FlowModCommand::Add,
            idle_timeout: self.learn.idle_timeout,
            hard_timeout: self.learn.hard_timeout,
            priority: self.learn.priority,
            buffer_id: version::NO_BUFFER,
            out_port: PortNo::ANY,
            out_group: version::group::ANY,
            flags,
            matching: Match::Fields(fields.into_iter().map(|(_, oxm)| oxm).collect()),
            instructions: Instructions::apply(actions),
            ..FlowMod::default()
        }
    }
}

/// Adds part of a field to patterns, to the same field's if there is one.
fn add_pattern(fields: &mut Vec<(FieldId, Oxm)>, part: &Subfield, value: &Bits) {
    let Some(field) = part.header.field() else { return };
    let width = (part.header.width() * 8).max(1) as u16;
    let shifted = value.resize(part.bits.max(1)).resize(width).shl(part.offset.into());
    let mask = Bits::ones(part.bits.max(1)).resize(width).shl(part.offset.into());
    // A value that says that there is no tag has no more bits.
    let merge = |old: &[u8], new: &Bits| Bits::from_bytes(width, old).or(new).to_bytes();
    if let Some((_, oxm)) = fields.iter_mut().find(|(id, _)| *id == field.id) {
        let value = merge(&oxm.value, &shifted);
        let mask = oxm.mask.as_ref().map(|old| merge(old, &mask));
        *oxm =
            Oxm { id: oxm.id, value: value.as_slice().into(), mask: mask.map(|mask| mask.as_slice().into()) };
        return;
    }
    let all = u32::from(part.bits) >= u32::from(field.bits);
    let mask = (!all).then(|| mask.to_bytes().as_slice().into());
    fields.push((field.id, Oxm { id: part.header.id, value: shifted.to_bytes().as_slice().into(), mask }));
}

/// The version whose rules learned flows follow.
pub(crate) const VERSION: Version = Version::V1_3;
