//! Destinations: ports, further stages.

use pipeline::interp::{Dropped, Exit, Limit};
use pipeline::ir::{Dest, Packet as Source, Send, StageId, Via};

use super::pass::{About, Arrival, Content, Pass};
use super::{Effect, Form, Machine, Packet};
use crate::flow;
use crate::layout::word;

/// One destination of a packet that is sent.
#[derive(Clone, Copy)]
struct Copy {
    to: Exit,
    port: Option<u32>,
    replica: u16,
}

impl Copy {
    fn port(port: u32, replica: u16) -> Self {
        Self { to: Exit::Port(port), port: Some(port), replica }
    }

    fn elsewhere(to: Exit) -> Self {
        Self { to, port: None, replica: 0 }
    }
}

/// What all copies share.
#[derive(Clone, Copy)]
struct Way {
    stage: Option<StageId>,
    class: Option<u8>,
    queue: Option<u16>,
    limit: Option<u32>,
    depth: u64,
}

impl About {
    /// What is known about a packet that a statement sends with these operands.
    fn sent_by(self, send: &Send, class: u64, queue: u64, limit: u64) -> Self {
        let limit = send.limit.as_ref().map(|_| u32::try_from(limit).unwrap_or(u32::MAX));
        Self {
            class: send.class.as_ref().map(|_| class.min(255) as u8).or(self.class),
            queue: send.queue.as_ref().map(|_| queue.min(65_535) as u16).or(self.queue),
            limit: least(limit, self.limit),
            ..self
        }
    }
}

impl Machine<'_> {
    /// Sends the packet; `to` is the port's or the list's number, where there is one.
    pub(super) fn send(
        &self,
        send: &Send,
        class: u64,
        queue: u64,
        limit: u64,
        to: u64,
        depth: u64,
    ) -> Result<(), Dropped> {
        let (about, stage) = (self.scratch.pass.borrow().about, self.stage());
        let number = u32::try_from(to).unwrap_or(u32::MAX);
        let about = about.sent_by(send, class, queue, limit);
        let mut way = Way {
            stage: match send.via {
                Via::Next => self.code.program.stages.get(stage.index()).and_then(|stage| stage.next),
                Via::Stage(stage) => Some(stage),
                Via::Direct => None,
            },
            class: about.class,
            queue: about.queue,
            limit: about.limit,
            depth,
        };
        match &send.to {
            // A number that is no port's is a port that does not exist.
            Dest::Port(_) => self.copy(send, Copy::port(number, 0), &way),
            Dest::Replicas(id, _) => {
                let list = self.view.replicas.get(id.index()).and_then(|lists| lists.get(number));
                let Some(list) = list else { return Ok(()) };
                way.class = list.class.or(way.class);
                way.limit = least(list.limit, way.limit);
                list.replicas
                    .iter()
                    .try_for_each(|replica| self.copy(send, Copy::port(replica.port, replica.instance), &way))
            }
            Dest::Fallback => self.copy(send, Copy::elsewhere(Exit::Fallback), &way),
            Dest::Same => self.copy(send, Copy::elsewhere(Exit::All), &way),
            Dest::Flood | Dest::All => {
                let flood = send.to == Dest::Flood;
                if way.stage.is_none() {
                    let to = if flood { Exit::Flood } else { Exit::All };
                    return self.copy(send, Copy::elsewhere(to), &way);
                }
                // Copies that differ by port must be made here.
                let ports = self.env.borrow().ports(self.received.get().port, flood);
                ports.into_iter().try_for_each(|port| self.copy(send, Copy::port(port, 0), &way))
            }
        }
    }

    /// Lets the packet, as it is, go on in the second stage of specialised code, on its way to a port. Behind packets
    /// that wait it waits, too. Returns how the first stage ends.
    pub(super) fn enter_next(&self, send: &Send, class: u64, queue: u64, limit: u64, to: u64) -> i64 {
        if self.code.sends_on {
            if !self.scratch.waiting.borrow().is_empty() {
                let sent = self.send(send, class, queue, limit, to, 0);
                return sent.map_or_else(flow::drop_code, |()| flow::NEXT);
            }
            if !self.begin_pass() {
                return flow::drop_code(Dropped::Limit(Limit::Passes));
            }
        }
        let port = u32::try_from(to).unwrap_or(u32::MAX);
        let (about, len) = {
            let mut pass = self.scratch.pass.borrow_mut();
            if send.class.is_some() || send.queue.is_some() || send.limit.is_some() {
                pass.about = pass.about.sent_by(send, class, queue, limit);
            }
            (pass.about.egress, pass.about.replica, pass.about.instance) = (Some(port), 0, send.instance);
            if self.code.measures {
                pass.len = pass.payload.len().saturating_add(self.header_bytes());
            }
            (pass.about, pass.len)
        };
        self.enter_on(&about, len);
        flow::ON
    }

    /// Sends the packet, as it is, to a port outside of the program.
    #[inline]
    pub(super) fn output(&self, port: u32, queue: Option<u16>, depth: u64) -> Result<(), Dropped> {
        let pass = self.scratch.pass.borrow();
        let (to, class, queue) = (Exit::Port(port), pass.about.class, queue.or(pass.about.queue));
        let limit = pass.about.limit;
        let written = if limit.is_none() { self.current(&pass) } else { None };
        drop(pass);
        // Taken apart: loading it as a whole would stall until the stores of its parts have reached the cache.
        let Packet { head, from, to: end } = match written {
            Some(written) => written,
            None => self.formed(Source::Current, limit, depth)?,
        };
        let packet = Packet { head: head.start..head.end, from, to: end };
        if !self.effect(|| Effect::Output { to, packet, class, queue }) {
            return Err(Dropped::Limit(Limit::Effects));
        }
        self.set_word(word::SENT, 1);
        Ok(())
    }

    /// The packet as it leaves, cut to a limit.
    #[inline(always)]
    fn packet(&self, source: Source, limit: Option<u32>, depth: u64) -> Result<Packet, Dropped> {
        if let (Source::Current, None) = (source, limit)
            && let Some(packet) = self.current(&self.scratch.pass.borrow())
        {
            return Ok(packet);
        }
        // Taken apart: loading it as a whole would stall until the stores of its parts have reached the cache.
        let Packet { head, from, to } = self.formed(source, limit, depth)?;
        Ok(Packet { head: head.start..head.end, from, to })
    }

    /// The packet as it leaves now, if it need not be put together from several parts.
    #[inline(always)]
    fn current(&self, pass: &Pass) -> Option<Packet> {
        if !self.is_unchanged(pass) {
            return self.write(pass);
        }
        let Form { head, from, to } = &pass.original;
        head.is_empty().then_some(Packet { head: 0..0, from: *from, to: *to })
    }

    #[inline(never)]
    fn formed(&self, source: Source, limit: Option<u32>, depth: u64) -> Result<Packet, Dropped> {
        self.form(source, depth)?;
        limit.iter().for_each(|limit| self.scratch.form.borrow_mut().cut(*limit));
        Ok(self.keep_form())
    }

    /// A packet that was changed as it would leave now, if its headers have a writer and are all that is in front of its
    /// payload.
    #[inline]
    fn write(&self, pass: &Pass) -> Option<Packet> {
        let (function, most) = self.code.writer(self.stage())?;
        let Form { head, from, to } = &pass.payload;
        if pass.truncate.is_some() || !head.is_empty() {
            return None;
        }
        let head = self.effects.borrow_mut().keep_written(most, |at| {
            // A writer calls nothing that borrows the effects.
            self.execute(function, at.cast(), 0) as usize
        });
        Some(Packet { head, from: *from, to: *to })
    }

    fn copy(&self, send: &Send, copy: Copy, way: &Way) -> Result<(), Dropped> {
        match way.stage {
            Some(stage) => self.enter_stage(send, stage, copy, way)?,
            None => self.leave(send, copy, way)?,
        }
        self.set_word(word::SENT, 1);
        Ok(())
    }

    /// Makes the bytes that leave, in `scratch.form`.
    fn form(&self, source: Source, depth: u64) -> Result<(), Dropped> {
        match source {
            Source::Original => {
                let (pass, mut form) = (self.scratch.pass.borrow(), self.scratch.form.borrow_mut());
                form.copy_from(&pass.original);
                Ok(())
            }
            Source::Current => self.deparse(depth),
        }
    }

    /// Keeps the bytes of `scratch.form` for an effect.
    pub(super) fn keep_form(&self) -> Packet {
        let form = self.scratch.form.borrow();
        let head = self.effects.borrow_mut().keep(&form.head);
        Packet { head, from: form.from, to: form.to }
    }

    fn leave(&self, send: &Send, copy: Copy, way: &Way) -> Result<(), Dropped> {
        let packet = self.packet(send.packet, way.limit, way.depth)?;
        match self.effect(|| Effect::Output { to: copy.to, packet, class: way.class, queue: way.queue }) {
            true => Ok(()),
            false => Err(Dropped::Limit(Limit::Effects)),
        }
    }

    fn enter_stage(&self, send: &Send, stage: StageId, copy: Copy, way: &Way) -> Result<(), Dropped> {
        let code = self.code;
        let own = self.stage();
        let (about, len) = {
            let pass = self.scratch.pass.borrow();
            (pass.about, pass.len)
        };
        let rounds = about.rounds + u32::from(stage <= own);
        if rounds > code.limits.rounds {
            return Err(Dropped::Limit(Limit::Rounds));
        }
        if self.scratch.waiting.borrow().len() >= code.limits.passes as usize {
            return Err(Dropped::Limit(Limit::Passes));
        }
        let own_parser = code.program.stages.get(stage.index()).and_then(|stage| stage.parser);
        let content = match (send.packet, own_parser) {
            (Source::Current, None) => {
                Content::Parsed(self.snapshot(), self.scratch.pass.borrow().original.clone(), len)
            }
            (source, _) => {
                let vars = &code.program.vars;
                let carried = send.carry.iter().filter_map(|id| {
                    let from = code.layout.var(*id);
                    let words = i32::from(vars.get(id.index())?.ty.width().div_ceil(64));
                    Some((*id, self.words(from, from + 8 * words).to_vec()))
                });
                let carried = carried.collect();
                self.form(source, way.depth)?;
                let mut form = self.scratch.form.borrow().clone();
                // A packet that only enters a stage again is cut where it enters; others where they leave.
                if copy.port.is_none() {
                    way.limit.iter().for_each(|limit| form.cut(*limit));
                }
                Content::Bytes(form, carried)
            }
        };
        let about = About {
            parser: own_parser.or(about.parser),
            egress: copy.port,
            replica: copy.replica,
            instance: send.instance,
            class: way.class,
            queue: way.queue,
            limit: if copy.port.is_none() { None } else { way.limit },
            rounds,
        };
        self.scratch.waiting.borrow_mut().push_back(Arrival { stage, content, about });
        Ok(())
    }
}

fn least(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        _ => a.or(b),
    }
}
