//! The other actions: comments, sampling, lengths, meters, and what is only stored.

use openflow::PortNo;
use openflow::action::{Action, Observation, Sample, SampleDirection, Track, Zone};
use openflow::error::ErrorCode;
use pipeline::ir::{BinOp, Expr, LValue, Stmt};

use super::{Lowering, Step};
use crate::program::terms::{bit, mux, resize, var, when};

impl Lowering<'_> {
    pub(super) fn misc_action(&mut self, action: &Action) -> Option<Step> {
        let reasons = &self.layout.reasons;
        Some(match action {
            // A conjunction's clause is part of a match. Open vSwitch's tests of its caches change no packet.
            Action::Note(_) | Action::Conjunction(_) | Action::DebugSlow | Action::DebugRecirc => Ok(()),
            Action::Meter(meter) => self.meter(*meter),
            Action::CheckPacketLarger(check) => {
                let limit = self.number(32, check.limit.into());
                let larger = var(self.layout.vars.length).op(BinOp::Gt, limit);
                self.write(&check.destination, mux(larger, bit(1, 1), bit(1, 0)))
            }
            Action::Sample(sample) => self.sample(sample, PortNo::ANY, SampleDirection::Default),
            Action::Sample2(sample) => self.sample(&sample.sample, sample.port, SampleDirection::Default),
            Action::Sample3(sample) => self.sample(&sample.sample, sample.port, sample.direction),
            Action::Sample4(sample) => {
                let domain = self.observation(&sample.domain);
                let point = self.observation(&sample.point);
                match (domain, point) {
                    (Ok(domain), Ok(point)) => {
                        let place = (sample.port, sample.direction);
                        self.sampled(sample.probability, sample.collectors, domain, point, place)
                    }
                    (Err(code), _) | (_, Err(code)) => Err(code),
                }
            }
            Action::Track(track) => self.track(track),
            Action::Nat(_) | Action::CtClear => self.drop_for(reasons.tracking),
            Action::Encap(_) | Action::Decap(_) | Action::DecNshTtl => self.drop_for(reasons.unsupported),
            Action::DeleteField(_) => self.drop_for(reasons.unsupported),
            _ => return None,
        })
    }

    /// Tracking: packets are dropped, but what the action refers to has to be right.
    fn track(&mut self, track: &Track) -> Step {
        if let Zone::Field(part) = &track.zone {
            self.read(part)?;
        }
        self.nested(|lowering| lowering.list(&track.actions))?;
        self.drop_for(self.layout.reasons.tracking)
    }

    fn observation(&mut self, observation: &Observation) -> Result<Expr, ErrorCode> {
        match observation {
            Observation::Id(id) => Ok(self.number(32, (*id).into())),
            Observation::Field(part) if part.bits <= 32 => Ok(resize(self.read(part)?, 32)),
            Observation::Field(_) => Err(ErrorCode::BacBadSetLen),
        }
    }

    fn sample(&mut self, sample: &Sample, port: PortNo, direction: SampleDirection) -> Step {
        let (domain, point) = (self.number(32, sample.domain.into()), self.number(32, sample.point.into()));
        self.sampled(sample.probability, sample.collectors, domain, point, (port, direction))
    }

    fn sampled(
        &mut self,
        probability: u16,
        collectors: u32,
        domain: Expr,
        point: Expr,
        (port, direction): (PortNo, SampleDirection),
    ) -> Step {
        let random = self.layout.vars.random;
        self.push(Stmt::Random(LValue::Var(random), bit(16, 0), bit(16, 0xffff)));
        let limit = self.number(16, probability.into());
        let (port, direction) = (self.number(32, port.0.into()), self.number(8, direction as u64));
        let values = vec![self.number(32, collectors.into()), domain, point, port, limit.clone(), direction];
        let taken = either_all(var(random).op(BinOp::Lt, limit), probability);
        self.push(when(taken, vec![Stmt::Digest(self.layout.sample, values)]));
        Ok(())
    }
}

/// A probability of all ones samples every packet.
fn either_all(condition: Expr, probability: u16) -> Expr {
    if probability == u16::MAX { crate::program::terms::truth(true) } else { condition }
}
