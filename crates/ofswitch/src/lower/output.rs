//! Outputs, groups and queues.

use openflow::PortNo;
use openflow::action::{Action, Output};
use openflow::error::ErrorCode;
use openflow::oxm::Subfield;
use pipeline::ir::{Expr, Stmt};

use super::{Lowering, Step};
use crate::program::outputs::{to_controller, to_port, to_reserved};
use crate::program::terms::{bit, resize, set, var};

impl Lowering<'_> {
    pub(super) fn output_action(&mut self, action: &Action) -> Option<Step> {
        Some(match action {
            Action::Output(output) => self.output(output, None),
            Action::OutputTrunc(output) => {
                let limit = self.number(32, output.max_len.into());
                self.output(&Output { port: output.port, max_len: 0xffff }, Some(limit))
            }
            Action::OutputReg(output) => self.output_field(&output.source, output.max_len),
            Action::OutputReg2(output) => self.output_field(&output.source, output.max_len),
            Action::Enqueue(enqueue) => {
                let v = &self.layout.vars;
                // The output in between draws no random numbers.
                let before = var(v.queue);
                let keep = set(v.random, before);
                let restore = set(v.queue, var(v.random));
                let queue = self.queue(enqueue.queue);
                self.push(keep);
                self.push(set(self.layout.vars.queue, queue));
                let done = self.output(&Output { port: enqueue.port, max_len: 0 }, None);
                self.push(restore);
                done
            }
            Action::SetQueue(queue) => {
                let queue = self.queue(*queue);
                self.push(set(self.layout.vars.queue, queue));
                Ok(())
            }
            Action::PopQueue => {
                self.push(set(self.layout.vars.queue, bit(16, 0)));
                Ok(())
            }
            Action::Group(group) => self.group(*group),
            _ => return None,
        })
    }

    /// The number of a queue. No port has queues with larger numbers than fit.
    pub(super) fn queue(&mut self, queue: u32) -> Expr {
        self.number(16, queue.min(u16::MAX.into()).into())
    }

    fn output(&mut self, output: &Output, limit: Option<Expr>) -> Step {
        let v = &self.layout.vars;
        if let Some(stmt) = to_reserved(v, output.port, limit.clone()) {
            self.push(stmt);
            return Ok(());
        }
        let stmt = match output.port {
            PortNo::CONTROLLER => {
                let reason = self.number(8, self.owner.reason.into());
                let max_len = self.number(16, output.max_len.into());
                let sender = self.sender(0);
                to_controller(v, reason, Some(max_len), sender, [])
            }
            PortNo::TABLE => return self.output_to_tables(),
            PortNo::ANY | PortNo::UNSET => return Ok(()),
            port => {
                let port = self.number(32, port.0.into());
                to_port(v, port, limit)
            }
        };
        self.push(stmt);
        Ok(())
    }

    /// Outputs to the port that a field names.
    fn output_field(&mut self, source: &Subfield, max_len: u16) -> Step {
        let port = self.read(source)?;
        let port = match source.bits {
            // A reserved port's number in 16 bits.
            16 => {
                let reserved = port.clone().op(pipeline::ir::BinOp::Ge, bit(16, 0xff00));
                let upper = crate::program::terms::mux(reserved, bit(16, 0xffff), bit(16, 0));
                crate::program::terms::concat(upper, port)
            }
            _ => resize(port, 32),
        };
        let max_len = self.number(16, max_len.into());
        let reason = self.number(8, u64::from(self.owner.reason));
        let sender = self.sender(0);
        let args = vec![port, max_len, reason, sender.table, sender.cookie];
        self.push(Stmt::Do(self.layout.output, args));
        Ok(())
    }

    fn group(&mut self, group: u32) -> Step {
        if !self.world.has_group(group) {
            return Err(ErrorCode::BacBadOutGroup);
        }
        let id = self.number(32, group.into());
        self.push(set(self.layout.group, id));
        if !self.is_bucket() {
            let (sender, v) = (self.sender(0), &self.layout.vars);
            self.push(set(v.group_table, sender.table));
            self.push(set(v.group_cookie, sender.cookie));
        }
        self.push(Stmt::Call(self.layout.run_group));
        Ok(())
    }
}
