//! Multicast groups and clone sessions.
#![allow(deprecated)] // Older controllers write `egress_port`.

use std::collections::HashSet;

use p4runtime_proto::v1::{
    CloneSessionEntry, MulticastGroupEntry, Replica, replica::PortKind, update::Type as Kind,
};
use pipeline::ir::ReplicasId;
use pipeline::state::{Replica as Copy, Replication, Update as Step};

use super::profile::check_existence;
use super::table::metadata;
use super::work::{Work, refusal};
use crate::{Failure, bytestring};

impl Work<'_> {
    pub(super) fn multicast_group(&mut self, kind: Kind, group: &MulticastGroupEntry) -> Result<(), Failure> {
        let id = group.multicast_group_id;
        self.change_multicast(kind, id, group)
            .map_err(|failure| failure.at(format_args!("multicast group {id}")))
    }

    fn change_multicast(&mut self, kind: Kind, id: u32, group: &MulticastGroupEntry) -> Result<(), Failure> {
        let list = exists_in_program(self.schema.multicast)?;
        if id == 0 {
            return Err(Failure::invalid("a multicast group's id is not 0"));
        }
        let before = self.book.multicast.get(&id).map(|group| group.replicas.len() as u64);
        check_existence(kind, before.is_some())?;
        let all = self.book.replicas.get(&()).copied().unwrap_or(0).saturating_sub(before.unwrap_or(0));
        if kind == Kind::Delete {
            self.change(Step::Replication(list, id, None)).map_err(refusal)?;
            self.book.multicast.set(id, None);
            self.book.replicas.set((), Some(all));
            return Ok(());
        }
        if kind == Kind::Insert && self.book.multicast.len() >= self.schema.limits.groups {
            return Err(Failure::exhausted(format!("there are {} already", self.schema.limits.groups)));
        }
        let replicas = self.replicas(&group.replicas)?;
        let all = all + replicas.len() as u64;
        if all > self.schema.limits.replicas {
            let most = self.schema.limits.replicas;
            return Err(Failure::exhausted(format!(
                "all groups together would have {all} replicas (at most {most})"
            )));
        }
        let kept = MulticastGroupEntry {
            multicast_group_id: id,
            replicas: group.replicas.iter().map(canonical).collect(),
            metadata: metadata(&group.metadata)?,
        };
        let replication = Replication { replicas, class: None, limit: None };
        self.change(Step::Replication(list, id, Some(replication))).map_err(refusal)?;
        self.book.multicast.set(id, Some(kept));
        self.book.replicas.set((), Some(all));
        Ok(())
    }

    pub(super) fn clone_session(&mut self, kind: Kind, session: &CloneSessionEntry) -> Result<(), Failure> {
        let id = session.session_id;
        self.change_session(kind, id, session)
            .map_err(|failure| failure.at(format_args!("clone session {id}")))
    }

    fn change_session(&mut self, kind: Kind, id: u32, session: &CloneSessionEntry) -> Result<(), Failure> {
        let list = exists_in_program(self.schema.clones)?;
        if id == 0 {
            return Err(Failure::invalid("a clone session's id is not 0"));
        }
        check_existence(kind, self.book.clones.get(&id).is_some())?;
        if kind == Kind::Delete {
            self.change(Step::Replication(list, id, None)).map_err(refusal)?;
            self.book.clones.set(id, None);
            return Ok(());
        }
        if kind == Kind::Insert && self.book.clones.len() >= self.schema.limits.groups {
            return Err(Failure::exhausted(format!("there are {} already", self.schema.limits.groups)));
        }
        let class = u8::try_from(session.class_of_service).map_err(|_| {
            Failure::out_of_range(format!(
                "the class of service is {} (at most 255)",
                session.class_of_service
            ))
        })?;
        let limit = u32::try_from(session.packet_length_bytes).map_err(|_| {
            Failure::invalid(format!("the packet length is negative ({})", session.packet_length_bytes))
        })?;
        let replication = Replication {
            replicas: self.replicas(&session.replicas)?,
            class: Some(class).filter(|class| *class > 0),
            limit: Some(limit).filter(|limit| *limit > 0),
        };
        let kept = CloneSessionEntry {
            replicas: session.replicas.iter().map(canonical).collect(),
            ..session.clone()
        };
        self.change(Step::Replication(list, id, Some(replication))).map_err(refusal)?;
        self.book.clones.set(id, Some(kept));
        Ok(())
    }

    fn replicas(&self, given: &[Replica]) -> Result<Vec<Copy>, Failure> {
        let most = self.schema.limits.replicas_each;
        if given.len() > most {
            return Err(Failure::exhausted(format!("it has {} replicas (at most {most})", given.len())));
        }
        let mut seen = HashSet::with_capacity(given.len());
        let copy = |replica: &Replica| {
            let port = match &replica.port_kind {
                Some(PortKind::EgressPort(port)) => *port,
                Some(PortKind::Port(port)) => {
                    bytestring::small(port).map_err(|failure| failure.at("port"))?
                }
                None => return Err(Failure::invalid("a replica has no port")),
            };
            if !replica.backup_replicas.is_empty() {
                return Err(Failure::unimplemented("replicas have no backups here"));
            }
            let instance = u16::try_from(replica.instance).map_err(|_| {
                Failure::invalid(format!("a replica's instance is {} (at most 65535)", replica.instance))
            })?;
            if !seen.insert((port, instance)) {
                return Err(Failure::invalid(format!(
                    "port {port} with instance {instance} is listed twice"
                )));
            }
            Ok(Copy { port, instance })
        };
        given.iter().map(copy).collect()
    }
}

fn exists_in_program(list: Option<ReplicasId>) -> Result<ReplicasId, Failure> {
    list.ok_or_else(|| Failure::unimplemented("the program's architecture replicates no packets"))
}

fn canonical(replica: &Replica) -> Replica {
    let port_kind = match &replica.port_kind {
        Some(PortKind::Port(port)) => Some(PortKind::Port(super::profile::canonical_port(port))),
        other => other.clone(),
    };
    Replica { port_kind, ..replica.clone() }
}
