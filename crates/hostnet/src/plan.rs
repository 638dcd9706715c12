//! Plans: ordered operations that move a configuration from one interface to another.
//!
//! A plan makes before it breaks. First the target has every address and every route, then the source loses them, so
//! that a local address is never absent and a destination never without a route. Sockets notice nothing.
//!
//! Invariants: running a plan again, or from any state that an interrupted plan has left, leads to the same end,
//! because adding what exists and removing what is gone succeed. So one plan, [`restore`], serves detaching, rolling
//! back and recovering.

use std::fmt;

use crate::Error;
use crate::link::{Change, Interface, Link, NO_LINK_LOCAL};
use crate::netlink::{Connection, Refusal};
use crate::objects::{Address, How, Object, Rank};
use crate::snapshot::{self, Snapshot};

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Changes a setting of an interface.
    Set {
        /// The interface.
        on: Interface,
        /// The change.
        change: Change,
    },
    /// Adds an object to an interface.
    Add {
        /// The interface.
        on: Interface,
        /// The object, as it is at that interface.
        object: Object,
        /// Its place among equal objects.
        how: How,
    },
    /// Removes an object from an interface.
    Remove {
        /// The interface.
        on: Interface,
        /// The object, as it is at that interface.
        object: Object,
    },
    /// Waits until new IPv6 addresses of an interface are in use: the kernel makes their local routes with a delay.
    Settle {
        /// The interface.
        on: Interface,
    },
}

impl Operation {
    /// Returns the interface that the operation changes.
    #[must_use]
    pub fn on(&self) -> &Interface {
        match self {
            Self::Set { on, .. } | Self::Add { on, .. } | Self::Remove { on, .. } | Self::Settle { on } => on,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Set { on, change } => f.write_str(&change.describe(on)),
            Self::Add { on, object, how: How::Replace } => write!(f, "replace {object} of {on}"),
            Self::Add { on, object, .. } => write!(f, "add {object} to {on}"),
            Self::Remove { on, object } => write!(f, "remove {object} from {on}"),
            Self::Settle { on } => write!(f, "wait for the IPv6 addresses of {on}"),
        }
    }
}

/// What carries operations out: the kernel, or a model of it in tests.
pub(crate) trait Machine {
    /// Carries out one operation.
    fn apply(&mut self, operation: &Operation) -> Result<(), Refusal>;
}

impl Machine for Connection {
    fn apply(&mut self, operation: &Operation) -> Result<(), Refusal> {
        match operation {
            Operation::Set { on, change } => change.make(self, on),
            Operation::Add { object, how, .. } => object.add(self, *how),
            Operation::Remove { object, .. } => object.remove(self),
            Operation::Settle { on } => snapshot::settle(self, on.index),
        }
    }
}

/// Carries out one operation; a failure names it.
pub(crate) fn apply(machine: &mut impl Machine, operation: &Operation) -> Result<(), Error> {
    let explain = |refusal| Error::refused(operation.to_string(), operation.on(), refusal);
    machine.apply(operation).map_err(explain)
}

/// An ordered list of operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    operations: Vec<Operation>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.operations.iter().try_for_each(|operation| writeln!(f, "{operation}"))
    }
}

impl Plan {
    /// Returns the operations in their order.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Carries the operations out, up to the first that fails.
    pub(crate) fn run(&self, machine: &mut impl Machine) -> Result<(), Error> {
        self.operations.iter().try_for_each(|operation| apply(machine, operation))
    }

    fn set(&mut self, on: &Interface, changes: impl IntoIterator<Item = Change>) {
        self.operations.extend(changes.into_iter().map(|change| Operation::Set { on: on.clone(), change }));
    }

    fn add(&mut self, on: &Interface, object: Object, how: How) {
        self.operations.push(Operation::Add { on: on.clone(), object, how });
    }

    fn remove(&mut self, on: &Interface, object: Object) {
        self.operations.push(Operation::Remove { on: on.clone(), object });
    }

    /// Adds all objects of a snapshot to its interface.
    fn add_all(&mut self, snapshot: &Snapshot) {
        let on = &snapshot.interface;
        for address in snapshot.addresses() {
            let address = address.undetected();
            // A prefix that somebody has removed must not come back with its address.
            let removed = snapshot.link.up && !snapshot.has_prefix_of(&address);
            let address = if removed { address.without_prefix() } else { address };
            self.add(on, Object::Address(address), How::Behind);
        }
        if snapshot.addresses().any(Address::is_v6) {
            self.operations.push(Operation::Settle { on: on.clone() });
        }
        // The same addresses again, with their own flags: detection does not start for an address in use.
        for address in
            snapshot.addresses().filter(|address| address.is_v6() && address.undetected() != **address)
        {
            self.add(on, Object::Address(address.clone()), How::Behind);
        }
        for object in &snapshot.objects {
            let how = match object {
                Object::Address(_) => continue,
                Object::Route(route) if route.is_multipath() => How::Replace,
                Object::Route(route) if route.rank == Rank::First => {
                    // The kernel may have made the route with the address, behind that of another interface.
                    self.remove(on, object.clone());
                    How::InFront
                }
                Object::Nexthop(_) => How::Replace,
                Object::Route(_) | Object::Rule(_) | Object::Neighbour(_) => How::Behind,
            };
            self.add(on, object.clone(), how);
        }
    }

    /// Removes all objects of a snapshot from its interface, in the opposite order.
    fn remove_all(&mut self, snapshot: &Snapshot) {
        for object in snapshot.objects.iter().rev() {
            match object {
                // These have left the interface when their replacements took their place.
                Object::Nexthop(_) => {}
                Object::Route(route) if route.is_multipath() || route.nexthop().is_some() => {}
                // Entries in use go with the last address, or expire.
                Object::Neighbour(neighbour) if !neighbour.is_kept() => {}
                object => self.remove(&snapshot.interface, object.clone()),
            }
        }
    }
}

/// Prepares the target: it becomes able to receive the source's packets, and nothing leaves the source. `relaxed` is
/// a reverse path filter that accepts packets at one interface while routes point to the other.
pub(crate) fn prepare(source: &Snapshot, target: &Snapshot, relaxed: u32) -> Plan {
    let (from, to) = (&source.interface, &target.interface);
    let mut plan = Plan::default();
    // The kernel must not make link-local addresses: the source's own will move.
    plan.set(to, target.link.generation(source.link.address_generation.map(|_| NO_LINK_LOCAL)));
    plan.set(to, target.link.changes_to(&source.link));
    plan.set(to, target.link.reverse_path(Some(relaxed)));
    plan.set(from, source.link.reverse_path(Some(relaxed)));
    if source.link.up && !target.link.up {
        plan.set(to, [Change::Up(true)]);
    }
    plan
}

/// Moves the objects to the prepared target.
pub(crate) fn commit(source: &Snapshot, target: &Snapshot) -> Plan {
    let (from, to) = (&source.interface, &target.interface);
    let mut plan = Plan::default();
    if source.addresses().any(Address::is_link_local_v6) {
        for address in target.addresses().filter(|address| address.is_link_local_v6()) {
            plan.remove(to, Object::Address(address.clone()));
        }
    }
    plan.add_all(&source.moved(to));
    plan.set(from, source.link.generation(source.link.address_generation.map(|_| NO_LINK_LOCAL)));
    plan.remove_all(source);
    plan.set(to, source.link.own_reverse_path());
    plan
}

/// Moves what a source has received after [`commit`].
pub(crate) fn follow(received: &Snapshot, target: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    plan.add_all(&received.moved(&target.interface));
    plan.remove_all(received);
    plan
}

/// Where the objects of a source are, and how the source is now.
#[derive(Debug, Clone)]
pub(crate) struct Away {
    /// Present state of the source.
    pub(crate) source: Link,
    /// Present state of the target and all objects on it that are not its own; `None` if it is gone.
    pub(crate) target: Option<Snapshot>,
    /// Rules that name the target: they outlive it.
    pub(crate) rules: Vec<Object>,
    /// Reverse path filter during the move.
    pub(crate) relaxed: u32,
}

/// Gives the source what its owner needs to reach it: addresses, prefixes and default routes. It needs no reading of
/// what is there, and comes before [`restore`] so that it does not wait for thousands of routes.
pub(crate) fn reconnect(wanted: &Snapshot) -> Plan {
    let urgent = |object: &&Object| match object {
        Object::Address(_) => true,
        Object::Route(route) => !route.is_multipath() && (!route.has_gateway() || route.is_default()),
        _ => false,
    };
    let few = Snapshot {
        interface: wanted.interface.clone(),
        link: wanted.link.clone(),
        objects: wanted.objects.iter().filter(urgent).cloned().collect(),
    };
    let mut plan = Plan::default();
    plan.add_all(&few);
    plan
}

/// Gives the source the objects of a snapshot, takes them from the target, and undoes the settings that the move
/// changed. All others are its owner's, who may have changed them since.
pub(crate) fn restore(wanted: &Snapshot, away: &Away) -> Plan {
    let on = &wanted.interface;
    let mut plan = Plan::default();
    if let Some(target) = &away.target {
        plan.set(&target.interface, target.link.reverse_path(Some(away.relaxed)));
        plan.set(on, away.source.reverse_path(Some(away.relaxed)));
    }
    plan.add_all(wanted);
    match &away.target {
        Some(target) => plan.remove_all(target),
        None => away.rules.iter().for_each(|rule| plan.remove(on, rule.clone())),
    }
    plan.set(on, away.source.generation(wanted.link.address_generation));
    // Relaxed just now, or by the move before.
    plan.set(on, wanted.link.own_reverse_path());
    plan
}

/// Removes objects from their interface.
pub(crate) fn discard(what: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    plan.remove_all(what);
    plan
}

/// Gives the target its own configuration back, once nobody sends packets for the source to it.
pub(crate) fn finish(before: &Snapshot, now: &Snapshot) -> Plan {
    let on = &now.interface;
    let mut plan = Plan::default();
    plan.set(on, now.link.changes_to(&before.link));
    plan.set(on, before.link.own_reverse_path());
    let missing = before.without(now).moved(on);
    plan.add_all(&missing);
    plan.set(on, now.link.generation(before.link.address_generation));
    if !before.link.up {
        plan.set(on, [Change::Up(false)]);
    }
    plan
}

#[cfg(test)]
mod tests;
