//! Destinations: ports, further stages, the controller.

use super::pass::{Arrival, Content, Pass};
use super::{Dropped, Effect, Exit, Flow, Form, Limit, Machine};
use crate::ir::{Constant, Dest, Expr, Item, Packet, Send, StageId, Via};

/// One destination of a packet that is sent.
struct Copy {
    to: Exit,
    port: Option<u32>,
    replica: u16,
}

impl Machine<'_> {
    pub(super) fn send(&mut self, send: &Send, pass: &mut Pass, params: &[Constant]) -> Flow {
        let mut class = self.optional(&send.class, pass, params).map(|n| n.min(255) as u8).or(pass.class);
        let queue = self.optional(&send.queue, pass, params).map(|n| n.min(65_535) as u16).or(pass.queue);
        let limit = self.optional(&send.limit, pass, params).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let mut limit = least(limit, pass.limit);
        let own_next = self.program.stages.get(pass.stage.index()).and_then(|stage| stage.next);
        let stage = match send.via {
            Via::Next => own_next,
            Via::Stage(stage) => Some(stage),
            Via::Direct => None,
        };
        let copies = match &send.to {
            Dest::Port(port) => {
                // A number that is no port's is a port that does not exist.
                let port = u32::try_from(self.number(port, pass, params)).unwrap_or(u32::MAX);
                vec![Copy { to: Exit::Port(port), port: Some(port), replica: 0 }]
            }
            Dest::Replicas(list, id) => {
                let id = u32::try_from(self.number(id, pass, params)).unwrap_or(u32::MAX);
                let Some(list) = self.state.replication(*list, id) else { return Flow::Next };
                class = list.class.or(class);
                limit = least(list.limit, limit);
                let copy = |replica: &crate::state::Replica| Copy {
                    to: Exit::Port(replica.port),
                    port: Some(replica.port),
                    replica: replica.instance,
                };
                list.replicas.iter().map(copy).collect()
            }
            Dest::Fallback => vec![Copy { to: Exit::Fallback, port: None, replica: 0 }],
            Dest::Same => vec![Copy { to: Exit::All, port: None, replica: 0 }],
            Dest::Flood | Dest::All => {
                let flood = send.to == Dest::Flood;
                match stage {
                    // Copies that differ by port must be made here.
                    Some(_) => {
                        let ports = self.env.ports(self.received.port, flood);
                        let copy = |port| Copy { to: Exit::Port(port), port: Some(port), replica: 0 };
                        ports.into_iter().map(copy).collect()
                    }
                    None => {
                        let to = if flood { Exit::Flood } else { Exit::All };
                        vec![Copy { to, port: None, replica: 0 }]
                    }
                }
            }
        };
        for copy in copies {
            let sent = match stage {
                Some(stage) => self.enter_stage(send, stage, &copy, (class, queue, limit), pass),
                None => self.leave(send, &copy, (class, queue, limit), pass),
            };
            if let Err(reason) = sent {
                return Flow::Drop(reason);
            }
            pass.sent = true;
        }
        Flow::Next
    }

    fn optional(&self, value: &Option<Expr>, pass: &mut Pass, params: &[Constant]) -> Option<u64> {
        value.as_ref().map(|value| self.number(value, pass, params))
    }

    /// The bytes that leave.
    fn form(&mut self, packet: Packet, pass: &mut Pass) -> Result<Form, Dropped> {
        match packet {
            Packet::Original => Ok(pass.original.clone()),
            Packet::Current => self.deparse(pass),
        }
    }

    fn leave(
        &mut self,
        send: &Send,
        copy: &Copy,
        (class, queue, limit): (Option<u8>, Option<u16>, Option<u32>),
        pass: &mut Pass,
    ) -> Result<(), Dropped> {
        let mut packet = self.form(send.packet, pass)?;
        limit.iter().for_each(|limit| packet.cut(*limit));
        match self.effect(Effect::Output { to: copy.to, packet, class, queue }) {
            true => Ok(()),
            false => Err(Dropped::Limit(Limit::Effects)),
        }
    }

    fn enter_stage(
        &mut self,
        send: &Send,
        stage: StageId,
        copy: &Copy,
        (class, queue, limit): (Option<u8>, Option<u16>, Option<u32>),
        pass: &mut Pass,
    ) -> Result<(), Dropped> {
        let rounds = pass.rounds + u32::from(stage <= pass.stage);
        if rounds > self.limits.rounds {
            return Err(Dropped::Limit(Limit::Rounds));
        }
        if self.waiting.len() >= self.limits.passes as usize {
            return Err(Dropped::Limit(Limit::Passes));
        }
        let own_parser = self.program.stages.get(stage.index()).and_then(|stage| stage.parser);
        let content = match (send.packet, own_parser) {
            (Packet::Current, None) => Content::Parsed(Box::new(pass.data.clone()), pass.original.clone()),
            (packet, _) => {
                let carried = send.carry.iter();
                let carried =
                    carried.filter_map(|var| Some((*var, pass.data.vars.get(var.index())?.clone())));
                let carried = carried.collect();
                let mut form = self.form(packet, pass)?;
                // A packet that only enters a stage again is cut where it enters; others where they leave.
                if copy.port.is_none() {
                    limit.iter().for_each(|limit| form.cut(*limit));
                }
                Content::Bytes(form, carried)
            }
        };
        self.waiting.push_back(Arrival {
            stage,
            content,
            parser: own_parser.or(pass.parser),
            egress: copy.port,
            replica: copy.replica,
            instance: send.instance,
            class,
            queue,
            limit: if copy.port.is_none() { None } else { limit },
            rounds,
        });
        Ok(())
    }

    pub(super) fn send_to_controller(
        &mut self,
        reason: &Expr,
        limit: &Option<Expr>,
        data: &[Item],
        pass: &mut Pass,
        params: &[Constant],
    ) -> Flow {
        let reason = self.number(reason, pass, params) as u8;
        let limit = self.optional(limit, pass, params).map(|limit| limit as u16);
        let data = self.bytes(data, pass, params);
        let packet = match self.deparse(pass) {
            Ok(packet) => packet,
            Err(reason) => return Flow::Drop(reason),
        };
        pass.sent = true;
        let origin = pass.origin;
        match self.effect(Effect::Controller { reason, packet, limit, data, origin }) {
            true => Flow::Next,
            false => Flow::Drop(Dropped::Limit(Limit::Effects)),
        }
    }
}

fn least(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        _ => a.or(b),
    }
}
