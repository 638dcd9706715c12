//! The configuration of one interface at one moment.
//!
//! Invariant: a snapshot holds everything that [`crate::plan`] moves, in an order in which the kernel takes it again:
//! addresses in the kernel's order, routes that a gateway depends on before routes through the gateway.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::link::{self, Interface, Link, Listed};
use crate::netlink::{Connection, Refusal};
use crate::objects::nexthop_messages::{RTM_GETNEXTHOP, RTM_NEWNEXTHOP};
use crate::objects::{Address, Key, NTF_PROXY, Neighbour, Nexthop, Object, Rank, Route, Rule, V4, V6};

/// Longest wait for new IPv6 addresses.
const SETTLING: Duration = Duration::from_millis(100);

/// Addresses, routes, neighbours, rules and settings of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The interface that the objects name.
    pub interface: Interface,
    /// Its MAC address, MTU and settings.
    pub link: Link,
    /// Addresses, neighbours, routes, next hops and rules, in the order in which they are added.
    pub objects: Vec<Object>,
}

impl Snapshot {
    /// Reads the configuration of interface `name` of the calling thread's network namespace.
    pub fn of(name: &str) -> Result<Self, Error> {
        let unreadable = Error::unreadable(name);
        let mut connection = Connection::open().map_err(&unreadable)?;
        let listed = link::by_name(&mut connection, name).map_err(&unreadable)?;
        let listed = listed.ok_or_else(|| Error::Missing(name.to_owned()))?;
        Self::read(&mut connection, listed).map_err(unreadable)
    }

    /// Reads the configuration of an interface that was looked up before.
    pub(crate) fn read(connection: &mut Connection, of: Listed) -> Result<Self, Refusal> {
        let Listed { interface, link, .. } = of;
        let mut objects = Vec::new();
        objects.extend(addresses(connection, interface.index)?.into_iter().map(Object::Address));
        objects.extend(neighbours(connection, interface.index)?.into_iter().map(Object::Neighbour));
        let nexthops = nexthops(connection, interface.index)?;
        let ids: Vec<u32> = nexthops.iter().filter_map(Nexthop::id).collect();
        objects.extend(nexthops.into_iter().map(Object::Nexthop));
        objects.extend(rules(connection, &interface.name)?.into_iter().map(Object::Rule));
        objects.extend(routes(connection, interface.index, &ids)?.into_iter().map(Object::Route));
        objects.sort_by_key(order);
        Ok(Self { interface, link, objects })
    }

    /// Returns whether there is nothing to move.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns whether the kernel's route to the prefix of an IPv4 address is there, if the address has one.
    pub(crate) fn has_prefix_of(&self, address: &Address) -> bool {
        address.prefix_v4().is_none_or(|prefix| self.routes().any(|route| route.is_prefix(prefix)))
    }

    /// Returns the addresses.
    pub fn addresses(&self) -> impl DoubleEndedIterator<Item = &Address> {
        self.objects.iter().filter_map(|object| match object {
            Object::Address(address) => Some(address),
            _ => None,
        })
    }

    /// Returns the snapshot as it is at another interface.
    #[must_use]
    pub fn moved(&self, to: &Interface) -> Self {
        Self {
            interface: to.clone(),
            link: self.link.clone(),
            objects: self.objects.iter().map(|object| object.moved(&self.interface, to)).collect(),
        }
    }

    /// Returns the snapshot as it is `seconds` later: lifetimes are shorter, and what has expired is gone. Routes do not
    /// prefer an expired address as their source any more, because the kernel would refuse them.
    #[must_use]
    pub fn aged(&self, seconds: u32) -> Self {
        let lives = |address: &&Address| address.aged(seconds).is_some();
        let living: HashSet<IpAddr> = self.addresses().filter(lives).filter_map(Address::local).collect();
        let expired: HashSet<IpAddr> =
            self.addresses().filter_map(Address::local).filter(|local| !living.contains(local)).collect();
        let orphan = |route: &Route| route.source().is_some_and(|source| expired.contains(&source));
        let age = |object: &Object| match object {
            Object::Address(address) => address.aged(seconds).map(Object::Address),
            // The kernel's route to a prefix goes with the address.
            Object::Route(route) if orphan(route) && route.is_kernels() => None,
            Object::Route(route) if orphan(route) => route.without_source().aged(seconds).map(Object::Route),
            Object::Route(route) => route.aged(seconds).map(Object::Route),
            other => Some(other.clone()),
        };
        Self { objects: self.objects.iter().filter_map(age).collect(), ..self.clone() }
    }

    /// Returns the shortest lifetime of an object in seconds, if one expires.
    pub(crate) fn shortest_lifetime(&self) -> Option<u32> {
        self.objects.iter().filter_map(Object::lifetime).min()
    }

    /// Returns whether `newer`, of the same interface, has an object that this snapshot lacks, or one that lives more
    /// than twice as long as here.
    pub(crate) fn is_outdated_by(&self, newer: &Self) -> bool {
        let known: HashMap<Key, Option<u32>> =
            self.objects.iter().map(|object| (object.key(), object.lifetime())).collect();
        newer.objects.iter().any(|object| match (known.get(&object.key()), object.lifetime()) {
            (None, _) | (Some(Some(_)), None) => true,
            (Some(Some(known)), Some(lifetime)) => lifetime / 2 > *known,
            (Some(None), _) => false,
        })
    }

    /// Returns what identifies the objects.
    pub(crate) fn keys(&self) -> HashSet<Key> {
        self.objects.iter().map(Object::key).collect()
    }

    /// Returns the snapshot without the objects of `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let (mut rest, known) = (self.clone(), other.keys());
        rest.objects.retain(|object| !known.contains(&object.key()));
        rest
    }

    /// Returns the snapshot with what `newer`, of the same interface, has in addition. Where both have an object,
    /// lifetimes are those of `newer`, and its routes take the place of routes with the same destination and metric.
    #[must_use]
    pub fn merged(&self, newer: &Self) -> Self {
        let mut merged = self.clone();
        let slots: HashSet<_> = newer.routes().map(Route::slot).collect();
        let newest = newer.keys();
        merged.objects.retain(|object| match object {
            Object::Route(route) => !slots.contains(&route.slot()) || newest.contains(&object.key()),
            _ => true,
        });
        let places: HashMap<Key, usize> =
            merged.objects.iter().enumerate().map(|(place, object)| (object.key(), place)).collect();
        for object in &newer.objects {
            let known = places.get(&object.key()).and_then(|place| merged.objects.get_mut(*place));
            match (known, object) {
                (Some(Object::Address(known)), Object::Address(object)) => {
                    *known = known.with_lifetimes_of(object)
                }
                (Some(Object::Route(known)), Object::Route(route)) => *known = route.with_rank(known.rank),
                (Some(known), _) => *known = object.clone(),
                (None, _) => merged.objects.push(object.clone()),
            }
        }
        merged.objects.sort_by_key(order);
        merged
    }

    /// Returns the first object of this snapshot that `present` lacks. States that the kernel changes by itself, such
    /// as those of neighbours in use, are not expected to last.
    pub(crate) fn missing_in(&self, present: &Self) -> Option<&Object> {
        let present = present.keys();
        self.objects.iter().find(|object| match object {
            Object::Neighbour(neighbour) if !neighbour.is_kept() => false,
            object => !present.contains(&object.key()),
        })
    }

    fn routes(&self) -> impl Iterator<Item = &Route> {
        self.objects.iter().filter_map(|object| match object {
            Object::Route(route) => Some(route),
            _ => None,
        })
    }
}

/// Place of an object among those of a snapshot: each depends on none behind it.
fn order(object: &Object) -> u8 {
    match object {
        Object::Address(_) => 0,
        Object::Neighbour(_) => 1,
        Object::Route(route) if !route.has_gateway() => 2,
        Object::Nexthop(_) => 3,
        Object::Rule(_) => 4,
        Object::Route(_) => 5,
    }
}

/// Returns the body of a request for all objects of a family; the header has this length.
fn family(family: u8, length: usize) -> Vec<u8> {
    let mut body = vec![0; length];
    body[0] = family;
    body
}

/// Lists objects of a kind that the kernel may lack.
fn list_if_known(
    connection: &mut Connection,
    kind: u16,
    listed: u16,
    body: &[u8],
) -> Result<Vec<Vec<u8>>, Refusal> {
    match connection.list(kind, listed, body) {
        Err(Refusal { errno: Errno::OPNOTSUPP | Errno::AFNOSUPPORT, .. }) => Ok(Vec::new()),
        done => done,
    }
}

/// Waits until new addresses of an interface are in use, for at most [`SETTLING`]: without a carrier they never are.
pub(crate) fn settle(connection: &mut Connection, interface: u32) -> Result<(), Refusal> {
    let deadline = Instant::now() + SETTLING;
    while addresses(connection, interface)?.iter().any(Address::is_pending) && Instant::now() < deadline {
        // The kernel's work has no descriptor to wait for.
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn addresses(connection: &mut Connection, interface: u32) -> Result<Vec<Address>, Refusal> {
    let mut found = Vec::new();
    for number in [V4, V6] {
        let list = list_if_known(connection, libc::RTM_GETADDR, libc::RTM_NEWADDR, &family(number, 8))?;
        let mut list: Vec<Address> = list.iter().filter_map(|message| Address::parse(message)).collect();
        list.retain(|address| address.interface == interface && address.family == number);
        if number == V6 {
            // The kernel lists the newest first, and prefers it as a source where no other rule decides.
            list.reverse();
        }
        found.extend(list);
    }
    Ok(found)
}

fn neighbours(connection: &mut Connection, interface: u32) -> Result<Vec<Neighbour>, Refusal> {
    let mut found = Vec::new();
    for number in [V4, V6] {
        for flags in [0, NTF_PROXY] {
            let mut body = family(number, 12);
            body[10] = flags;
            let list = list_if_known(connection, libc::RTM_GETNEIGH, libc::RTM_NEWNEIGH, &body)?;
            found.extend(list.iter().filter_map(|message| Neighbour::parse(message)));
        }
    }
    found.retain(|neighbour| neighbour.interface == interface);
    Ok(found)
}

fn nexthops(connection: &mut Connection, interface: u32) -> Result<Vec<Nexthop>, Refusal> {
    let list = list_if_known(connection, RTM_GETNEXTHOP, RTM_NEWNEXTHOP, &family(0, 8))?;
    let list: Vec<Nexthop> = list.iter().filter_map(|message| Nexthop::parse(message)).collect();
    let (own, others): (Vec<_>, Vec<_>) =
        list.into_iter().partition(|nexthop| nexthop.interface() == Some(interface));
    let ids: Vec<u32> = own.iter().filter_map(Nexthop::id).collect();
    let groups = others.into_iter().filter(|group| group.members().iter().any(|member| ids.contains(member)));
    Ok(own.into_iter().chain(groups).collect())
}

/// Returns the rules that name an interface.
pub(crate) fn rules(connection: &mut Connection, interface: &str) -> Result<Vec<Rule>, Refusal> {
    let mut found = Vec::new();
    for number in [V4, V6] {
        let list = list_if_known(connection, libc::RTM_GETRULE, libc::RTM_NEWRULE, &family(number, 12))?;
        found.extend(list.iter().filter_map(|message| Rule::parse(message)));
    }
    found.retain(|rule| rule.names(interface));
    Ok(found)
}

fn routes(connection: &mut Connection, interface: u32, nexthops: &[u32]) -> Result<Vec<Route>, Refusal> {
    let mut found = Vec::new();
    for number in [V4, V6] {
        let list = list_if_known(connection, libc::RTM_GETROUTE, libc::RTM_NEWROUTE, &family(number, 12))?;
        let list: Vec<Route> = list.iter().filter_map(|message| Route::parse(message)).collect();
        found.extend(ranked(list, |route| {
            route.leaves_through(interface) || route.nexthop().is_some_and(|id| nexthops.contains(&id))
        }));
    }
    Ok(found)
}

/// Returns the routes that are `own`, with their places among equal routes.
fn ranked(list: Vec<Route>, own: impl Fn(&Route) -> bool) -> Vec<Route> {
    let mut slots: HashMap<_, Vec<bool>> = HashMap::new();
    for route in &list {
        slots.entry(route.slot()).or_default().push(own(route));
    }
    let rank = |route: &Route| {
        let of_slot = slots.get(&route.slot()).map(Vec::as_slice).unwrap_or_default();
        match (of_slot.first(), of_slot.iter().all(|own| *own)) {
            (_, true) | (None, _) => Rank::Only,
            (Some(true), _) => Rank::First,
            (Some(false), _) => Rank::Last,
        }
    };
    let found = list.iter().filter(|route| own(route));
    found.map(|route| route.with_rank(rank(route))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::tests::{address, multipath, route};

    pub(crate) fn snapshot(objects: Vec<Object>) -> Snapshot {
        let interface = Interface { index: 2, name: "eth0".into() };
        Snapshot { interface, link: Link::default(), objects }
    }

    #[test]
    fn ranks_say_which_of_equal_routes_is_used() {
        let own = |interface: u32| move |route: &Route| route.leaves_through(interface);
        let list = vec![
            route("10.0.0.0/24", None, 2),
            route("10.0.0.0/24", None, 3),
            route("10.1.0.0/24", None, 2),
            multipath(&[3]),
        ];
        let ranks = |interface| {
            ranked(list.clone(), own(interface)).iter().map(|route| route.rank).collect::<Vec<_>>()
        };
        assert_eq!(ranks(2), [Rank::First, Rank::Only]);
        assert_eq!(ranks(3), [Rank::Last, Rank::Only]);
    }

    #[test]
    fn merging_keeps_the_old_and_prefers_the_new() {
        let old = snapshot(vec![
            Object::Address(address("10.0.0.5/24", 2, 600)),
            Object::Address(address("10.0.0.6/24", 2, u32::MAX)),
            Object::Route(route("0.0.0.0/0", Some("10.0.0.254"), 2)),
            Object::Route(route("10.9.0.0/16", Some("10.0.0.254"), 2)),
        ]);
        let new = snapshot(vec![
            Object::Address(address("10.0.0.5/24", 2, 3600)),
            Object::Address(address("10.0.0.7/24", 2, u32::MAX)),
            Object::Route(route("0.0.0.0/0", Some("10.0.0.253"), 2)),
            Object::Route(route("10.8.0.0/16", None, 2)),
        ]);
        let merged: Vec<String> = old.merged(&new).objects.iter().map(ToString::to_string).collect();
        assert_eq!(
            merged,
            [
                "address 10.0.0.5/24 valid for 3600 s",
                "address 10.0.0.6/24",
                "address 10.0.0.7/24",
                "route 10.8.0.0/16",
                "route 10.9.0.0/16 via 10.0.0.254",
                "route default via 10.0.0.253",
            ]
        );
        let rest: Vec<String> = new.without(&old).objects.iter().map(ToString::to_string).collect();
        assert_eq!(rest, ["address 10.0.0.7/24", "route default via 10.0.0.253", "route 10.8.0.0/16"]);
    }

    #[test]
    fn leases_run_on_in_the_journal() {
        let old = snapshot(vec![
            Object::Address(address("10.0.0.5/24", 2, 600)),
            Object::Address(address("10.0.0.6/24", 2, u32::MAX)),
        ]);
        let aged: Vec<String> = old.aged(700).objects.iter().map(ToString::to_string).collect();
        assert_eq!(aged, ["address 10.0.0.6/24"]);
    }

    #[test]
    fn routes_outlive_the_source_address_that_they_prefer() {
        let old = snapshot(vec![
            Object::Address(address("10.0.0.5/24", 2, 600)),
            Object::Address(address("10.0.0.6/24", 2, u32::MAX)),
            Object::Route(route("10.0.0.0/24", None, 2).preferring([10, 0, 0, 5]).made_by_kernel()),
            Object::Route(route("10.7.0.0/16", None, 2).preferring([10, 0, 0, 6])),
            Object::Route(route("10.8.0.0/16", None, 2).preferring([10, 9, 0, 1])),
            Object::Route(route("0.0.0.0/0", Some("10.0.0.254"), 2).preferring([10, 0, 0, 5])),
        ]);
        let lines = |seconds| old.aged(seconds).objects.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(lines(100).len(), 6);
        assert_eq!(
            lines(700),
            [
                "address 10.0.0.6/24",
                "route 10.7.0.0/16 src 10.0.0.6",
                "route 10.8.0.0/16 src 10.9.0.1",
                "route default via 10.0.0.254",
            ]
        );
    }

    #[test]
    fn a_renewed_lifetime_is_news_before_half_of_it_has_passed() {
        let leased = |seconds| snapshot(vec![Object::Address(address("10.0.0.5/24", 2, seconds))]);
        assert!(!leased(3600).is_outdated_by(&leased(3600)));
        assert!(!leased(1900).is_outdated_by(&leased(3600)));
        assert!(leased(1700).is_outdated_by(&leased(3600)));
        assert!(leased(1700).is_outdated_by(&leased(u32::MAX)));
        assert!(!leased(u32::MAX).is_outdated_by(&leased(3600)));
        assert!(snapshot(vec![]).is_outdated_by(&leased(3600)));
        assert!(!leased(3600).is_outdated_by(&snapshot(vec![])));
        assert_eq!((leased(60).shortest_lifetime(), leased(u32::MAX).shortest_lifetime()), (Some(60), None));
    }
}
