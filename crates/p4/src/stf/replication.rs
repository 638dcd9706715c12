//! Multicast groups and mirror sessions as the behavioural model's command line configures them: groups of nodes, which
//! have a replica number and ports; sessions that copy to a port or to a group.

use std::collections::BTreeMap;

use pipeline::ir::ReplicasId;
use pipeline::state::{Replica, Replication, Update};

/// The program's lists of replicas by their meaning.
pub(super) const MULTICAST: ReplicasId = ReplicasId(0);
pub(super) const CLONE: ReplicasId = ReplicasId(1);

/// Groups and sessions.
#[derive(Debug, Default)]
pub(super) struct Replicator {
    nodes: Vec<Node>,
    /// Nodes of each group.
    groups: BTreeMap<u32, Vec<usize>>,
    sessions: BTreeMap<u32, Session>,
}

#[derive(Debug)]
struct Node {
    replica: u16,
    ports: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
enum Session {
    Port(u32),
    Group(u32),
}

impl Replicator {
    /// Creates a group.
    pub(super) fn create_group(&mut self, group: u32) -> Vec<Update> {
        self.groups.entry(group).or_default();
        self.updates()
    }

    /// Creates a node; its number is that of nodes before it.
    pub(super) fn create_node(&mut self, replica: u16, ports: Vec<u32>) {
        self.nodes.push(Node { replica, ports });
    }

    /// Replaces the ports of a node.
    pub(super) fn update_node(&mut self, node: u32, ports: Vec<u32>) -> Result<Vec<Update>, String> {
        let count = self.nodes.len();
        let found = self.nodes.get_mut(node as usize);
        found.ok_or_else(|| format!("node {node} does not exist ({count} were created)"))?.ports = ports;
        Ok(self.updates())
    }

    /// Adds a node to a group.
    pub(super) fn associate(&mut self, group: u32, node: u32) -> Result<Vec<Update>, String> {
        let count = self.nodes.len();
        if node as usize >= count {
            return Err(format!("node {node} does not exist ({count} were created)"));
        }
        let nodes = self.groups.get_mut(&group);
        nodes
            .ok_or_else(|| format!("group {group} does not exist: mc_mgrp_create {group}"))?
            .push(node as usize);
        Ok(self.updates())
    }

    /// Lets a session copy to a port.
    pub(super) fn mirror_to_port(&mut self, session: u32, port: u32) -> Vec<Update> {
        self.sessions.insert(session, Session::Port(port));
        self.updates()
    }

    /// Lets a session copy to a group.
    pub(super) fn mirror_to_group(&mut self, session: u32, group: u32) -> Vec<Update> {
        self.sessions.insert(session, Session::Group(group));
        self.updates()
    }

    /// Removes a session.
    pub(super) fn remove_session(&mut self, session: u32) -> Result<Vec<Update>, String> {
        self.sessions.remove(&session).ok_or_else(|| no_session(session))?;
        Ok(vec![Update::Replication(CLONE, session, None)])
    }

    /// What a session does.
    pub(super) fn describe(&self, session: u32) -> Result<String, String> {
        match self.sessions.get(&session).ok_or_else(|| no_session(session))? {
            Session::Port(port) => Ok(format!("session {session} copies to port {port}")),
            Session::Group(group) => Ok(format!("session {session} copies to group {group}")),
        }
    }

    /// All lists as they are now.
    fn updates(&self) -> Vec<Update> {
        let groups = self.groups.keys().map(|id| (MULTICAST, *id, self.replicas(*id)));
        let sessions = self.sessions.iter().map(|(id, session)| match session {
            Session::Port(port) => (CLONE, *id, vec![Replica { port: *port, instance: 0 }]),
            Session::Group(group) => (CLONE, *id, self.replicas(*group)),
        });
        let update = |(list, id, replicas)| {
            Update::Replication(list, id, Some(Replication { replicas, class: None, limit: None }))
        };
        groups.chain(sessions).map(update).collect()
    }

    fn replicas(&self, group: u32) -> Vec<Replica> {
        let nodes = self.groups.get(&group).into_iter().flatten().filter_map(|node| self.nodes.get(*node));
        let of = |node: &Node| {
            let instance = node.replica;
            node.ports.iter().map(move |port| Replica { port: *port, instance }).collect::<Vec<_>>()
        };
        nodes.flat_map(of).collect()
    }
}

fn no_session(session: u32) -> String {
    format!("session {session} does not exist")
}
