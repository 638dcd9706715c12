//! Execution of effects: turns a program's effects into outputs of the fabric.
//!
//! The received packet is its first version. The last form of a packet is made in place; each earlier one that is not
//! the received one gets a version of its own, so that all of them refer to the bytes as they were received.

use fabric::{Batch, DropReason, PortIndex, Text, Value, VersionId};
use match_action::{Form, Run, append, replace};
use pipeline::interp::Dropped;
use xdp::Finished;

use crate::effect::EffectRef;
use crate::offload;
use crate::plane::Local;
use crate::ports::PortMap;
use crate::running::{Running, of_notes};
use crate::tally::{Lost, bump};
use crate::upcalls::Purpose;

/// Executes effects on the packets of a batch.
pub(crate) struct Executor<'a> {
    pub(crate) local: &'a Local,
    pub(crate) ports: &'a PortMap,
    pub(crate) running: &'a Running,
    /// P4 number of the ingress port.
    pub(crate) number: u32,
    /// Whether the logic's thread has something to do.
    pub(crate) has_upcalls: bool,
}

/// Versions of a packet that are being made.
#[derive(Default)]
struct Made<'e> {
    /// The last form that was made, with its class.
    last: Option<(Form<'e>, u8, VersionId)>,
    /// Whether an output refers to the received version.
    is_sent: bool,
}

impl Executor<'_> {
    /// Executes the only effect on a received packet that is not traced, if it is a plain one: an output to another port,
    /// in no class, of the packet as it was received or without pending offloads. Returns whether it is.
    #[inline]
    pub(crate) fn sends(
        &self,
        batch: &mut Batch<'_>,
        v: VersionId,
        effect: &EffectRef<'_>,
        run: &mut Run,
    ) -> bool {
        let EffectRef::Output { to, form, class: 0 } = effect else { return false };
        *to != self.running.cpu_port
            && self.plain_port(batch, *to).is_some_and(|port| run.add_as(batch, v, form, port))
    }

    /// The port of this number, if it is another one than the ingress port.
    #[inline]
    pub(crate) fn plain_port(&self, batch: &Batch<'_>, number: u32) -> Option<PortIndex> {
        self.ports.index(number).filter(|port| *port != batch.ingress())
    }

    /// Whether a packet's offloads can be described in all forms in which it leaves.
    pub(crate) fn describes<'e>(
        &self,
        batch: &Batch<'_>,
        v: VersionId,
        mut effects: impl Iterator<Item = EffectRef<'e>>,
        memory: &mut Vec<u8>,
    ) -> bool {
        if batch.offload(v).is_none() {
            return true;
        }
        effects.all(|effect| match effect {
            EffectRef::Output { to, form, .. } => {
                to == self.running.cpu_port || offload::describes(batch, v, &form, memory)
            }
            EffectRef::Digest(..) | EffectRef::Drop(_) => true,
        })
    }

    /// Executes the program's effects on a packet.
    pub(crate) fn execute<'e>(
        &mut self,
        batch: &mut Batch<'_>,
        v: VersionId,
        effects: impl ExactSizeIterator<Item = EffectRef<'e>>,
    ) {
        let (mut made, mut left) = (Made::default(), effects.len());
        for effect in effects {
            left -= 1;
            match effect {
                EffectRef::Output { to, form, .. } if to == self.running.cpu_port => {
                    remark(batch, v, "it goes to the controllers", &[]);
                    self.upcall(batch, v, &form, Purpose::Controllers);
                }
                EffectRef::Output { to, form, class } => {
                    let version = made.version(batch, v, &form, class, left == 0);
                    if let Some(version) = version {
                        self.output(batch, version, to);
                    }
                }
                EffectRef::Digest(id, values) => {
                    remark(batch, v, "the controllers get a digest of it", &[]);
                    self.digest(batch, || Purpose::Digest(id, values.to_vec()));
                }
                EffectRef::Drop(reason) => self.dropped(batch, v, reason),
            }
        }
        if batch.is_open(v) {
            // Only digests.
            batch.consume(v);
        }
    }

    /// Sends a packet that XDP has finished to where it leaves; returns whether it is one. Its port's guards do not see it,
    /// as they do not see those that stay in XDP.
    pub(crate) fn finish(&mut self, batch: &mut Batch<'_>, v: VersionId) -> bool {
        let Some(finished) = batch.note(v).and_then(Finished::of) else { return false };
        remark(batch, v, "XDP has finished it", &[]);
        let program = &self.running.program.checked;
        let is_own = finished.program == of_notes(self.running.number);
        if let Some((id, values)) = finished.digest(program).filter(|_| is_own) {
            remark(batch, v, "the controllers get a digest of it", &[]);
            self.digest(batch, || Purpose::Digest(id, values));
        }
        match finished.port {
            Some(to) => {
                let form = Form { head: &[], from: 0, to: batch.len(v) };
                let class = finished.class.unwrap_or(0);
                self.execute(batch, v, std::iter::once(EffectRef::Output { to, form, class }));
            }
            None => batch.consume(v),
        }
        true
    }

    fn output(&self, batch: &mut Batch<'_>, v: VersionId, number: u32) {
        let Some(port) = self.ports.index(number) else {
            self.count(batch, Lost::NoPort);
            remark(batch, v, "no port has the number {}", &[Value::Number(number.into())]);
            return batch.discard(v, DropReason::NoDestination);
        };
        remark(batch, v, "it goes to {}", &[Value::Port(port)]);
        match port == batch.ingress() {
            true => batch.reflect(v),
            false => batch.send(v, port),
        }
    }

    /// Counts a packet that the logic drops.
    fn count(&self, batch: &Batch<'_>, what: Lost) {
        if !batch.is_rehearsal() {
            self.local.tally.lose(what);
        }
    }

    fn dropped(&self, batch: &mut Batch<'_>, v: VersionId, reason: Dropped) {
        self.count(batch, Lost::of(reason));
        let (counted, name) = match reason {
            Dropped::Reason(id) => {
                let name = self.running.program.checked.reasons.get(id.index());
                (DropReason::Logic, name.map_or("", String::as_str))
            }
            Dropped::NoDestination => (DropReason::NoDestination, "the program sends it nowhere"),
            Dropped::Limit(_) | Dropped::NoExtern(_) => (DropReason::Logic, "it causes too much work"),
        };
        if batch.is_explained() {
            remark(batch, v, "it is dropped: {}", &[Value::Text(Text::of(name))]);
        }
        batch.discard(v, counted);
    }

    /// Hands a packet in a form of its own to the logic's thread.
    pub(crate) fn upcall(&mut self, batch: &mut Batch<'_>, v: VersionId, form: &Form<'_>, purpose: Purpose) {
        if batch.is_rehearsal() {
            return batch.consume(v);
        }
        let program = self.running.number;
        let pushed = self.local.upcalls.push(false, |slot| {
            (slot.purpose, slot.program) = (purpose, program);
            slot.packet.clear();
            slot.packet.extend_from_slice(form.head);
            append(batch, v, form.from, form.to, &mut slot.packet);
            offload::complete(batch, v, form, &mut slot.packet);
        });
        if self.has_pushed(pushed) {
            return batch.consume(v);
        }
        batch.discard(v, DropReason::ControllerQueue);
    }

    /// Hands a digest to the logic's thread; the packet goes its way also if there is no room.
    fn digest(&mut self, batch: &Batch<'_>, purpose: impl FnOnce() -> Purpose) {
        if batch.is_rehearsal() {
            return;
        }
        let program = self.running.number;
        let pushed = self.local.upcalls.push(false, |slot| {
            (slot.purpose, slot.program) = (purpose(), program);
            slot.packet.clear();
        });
        self.has_pushed(pushed);
    }

    fn has_pushed(&mut self, pushed: bool) -> bool {
        let tally = &self.local.tally;
        bump(if pushed { &tally.upcalls } else { &tally.upcalls_lost });
        self.has_upcalls |= pushed;
        pushed
    }
}

impl<'e> Made<'e> {
    /// The version of a packet that has a form, in a class; `None` if it was dropped. The last one may be the received
    /// version itself.
    fn version(
        &mut self,
        batch: &mut Batch<'_>,
        v: VersionId,
        form: &Form<'e>,
        class: u8,
        is_last: bool,
    ) -> Option<VersionId> {
        let is_received = form.is_received(batch.header(v), batch.len(v));
        if is_received && class == 0 {
            self.is_sent = true;
            return Some(v);
        }
        if let Some((last, its, version)) = &self.last
            && last == form
            && *its == class
        {
            return Some(*version);
        }
        let version = if is_last && !self.is_sent { v } else { batch.copy(v)? };
        if !is_received && !replace(batch, version, form.head, form.from, form.to) {
            return None;
        }
        if class != 0 {
            batch.set_class(version, class.into());
        }
        self.last = Some((*form, class, version));
        Some(version)
    }
}

/// Records a finding if the batch is traced.
#[inline]
pub(crate) fn remark(batch: &mut Batch<'_>, v: VersionId, text: &'static str, values: &[Value]) {
    if batch.is_explained() {
        batch.remark(v, text, values);
    }
}
