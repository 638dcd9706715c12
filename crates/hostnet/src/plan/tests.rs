//! Plans as data, and their invariants on a model of the kernel.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use rustix::io::Errno;

use super::*;
use crate::link::RP_FILTER;
use crate::objects::tests::{address, multipath, route};

/// A kernel that knows which object is at which interface, and fails when told to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Model {
    present: BTreeSet<(u32, String)>,
    /// Operations until one is refused.
    budget: usize,
}

/// Names an object to the model; flags are no part of it.
fn name(object: &Object) -> String {
    object.to_string().replace(" nodad", "").replace(" noprefixroute", "")
}

impl Machine for Model {
    fn apply(&mut self, operation: &Operation) -> Result<(), Refusal> {
        self.budget =
            self.budget.checked_sub(1).ok_or(Refusal { errno: Errno::NOBUFS, explanation: None })?;
        match operation {
            Operation::Set { .. } | Operation::Settle { .. } => {}
            Operation::Add { on, object, how } => {
                if *how == How::Replace && matches!(object, Object::Route(_)) {
                    // A route with several next hops has one place in the table.
                    self.present.retain(|(_, other)| *other != name(object));
                }
                self.present.insert((on.index, name(object)));
            }
            Operation::Remove { on, object } => {
                self.present.remove(&(on.index, name(object)));
            }
        }
        Ok(())
    }
}

impl Model {
    fn of(snapshot: &Snapshot) -> Self {
        let at = |object: &Object| (snapshot.interface.index, name(object));
        Self { present: snapshot.objects.iter().map(at).collect(), budget: usize::MAX }
    }

    /// Returns whether every object is at one interface at least.
    fn has_all(&self, snapshot: &Snapshot) -> bool {
        let is_at = |interface: u32, object: &Object| self.present.contains(&(interface, name(object)));
        snapshot.objects.iter().all(|object| is_at(2, object) || is_at(3, object))
    }
}

fn link() -> Link {
    Link {
        mac: Some(crate::Mac([2, 0, 0, 0, 0, 1])),
        mtu: 9000,
        up: true,
        master: None,
        address_generation: Some(0),
        ipv4: [("proxy_arp".to_owned(), 1), (RP_FILTER.to_owned(), 1)].into(),
        ipv6: [("accept_ra".to_owned(), 0)].into(),
    }
}

fn source(objects: Vec<Object>) -> Snapshot {
    Snapshot { interface: Interface { index: 2, name: "eth0".into() }, link: link(), objects }
}

fn target() -> Snapshot {
    let link = Link {
        mac: Some(crate::Mac([2, 0, 0, 0, 0, 9])),
        mtu: 1500,
        up: false,
        ipv4: [("proxy_arp".to_owned(), 0), (RP_FILTER.to_owned(), 0)].into(),
        ipv6: [("accept_ra".to_owned(), 1)].into(),
        ..link()
    };
    Snapshot { interface: Interface { index: 3, name: "host0".into() }, link, objects: vec![] }
}

fn lines(plan: &Plan) -> Vec<String> {
    plan.to_string().lines().map(str::to_owned).collect()
}

fn typical() -> Snapshot {
    source(vec![
        Object::Address(address("10.0.0.5/24", 2, 600)),
        Object::Address(address("fd00::5/64", 2, u32::MAX)),
        Object::Route(route("10.0.0.0/24", None, 2).with_rank(Rank::First)),
        Object::Route(route("0.0.0.0/0", Some("10.0.0.254"), 2)),
        Object::Route(multipath(&[2, 5])),
    ])
}

#[test]
fn the_target_is_prepared_before_anything_leaves() {
    assert_eq!(
        lines(&prepare(&typical(), &target(), 2)),
        [
            "set net.ipv6.conf.host0.addr_gen_mode to 1",
            "set the MAC address of `host0` to 02:00:00:00:00:01",
            "set the MTU of `host0` to 9000",
            "set net.ipv6.conf.host0.accept_ra to 0",
            "set net.ipv4.conf.host0.proxy_arp to 1",
            "set net.ipv4.conf.host0.rp_filter to 2",
            "set net.ipv4.conf.eth0.rp_filter to 2",
            "set `host0` up",
        ]
    );
}

#[test]
fn a_move_makes_before_it_breaks() {
    assert_eq!(
        lines(&commit(&typical(), &target())),
        [
            "add address 10.0.0.5/24 noprefixroute valid for 600 s to `host0`",
            "add address fd00::5/64 nodad to `host0`",
            "wait for the IPv6 addresses of `host0`",
            "add address fd00::5/64 to `host0`",
            "remove route 10.0.0.0/24 from `host0`",
            "add route 10.0.0.0/24 to `host0`",
            "add route default via 10.0.0.254 to `host0`",
            "replace route default with 2 next hops of `host0`",
            "set net.ipv6.conf.eth0.addr_gen_mode to 1",
            "remove route default via 10.0.0.254 from `eth0`",
            "remove route 10.0.0.0/24 from `eth0`",
            "remove address fd00::5/64 from `eth0`",
            "remove address 10.0.0.5/24 valid for 600 s from `eth0`",
            "set net.ipv4.conf.host0.rp_filter to 1",
        ]
    );
}

#[test]
fn rules_outlive_a_host_port_and_are_removed_by_name() {
    let wanted = source(vec![Object::Address(address("10.0.0.5/24", 2, 600))]);
    let rule = Object::Address(address("10.0.0.9/24", 3, 600));
    let away = Away { source: link(), target: None, rules: vec![rule], relaxed: 2 };
    assert_eq!(
        lines(&restore(&wanted, &away)),
        [
            "add address 10.0.0.5/24 noprefixroute valid for 600 s to `eth0`",
            "remove address 10.0.0.9/24 valid for 600 s from `eth0`",
            "set net.ipv4.conf.eth0.rp_filter to 1",
        ]
    );
}

#[test]
fn a_host_that_is_cut_off_is_reached_before_its_routes_return() {
    let mut before = typical();
    before.objects.push(Object::Route(route("10.7.0.0/16", Some("10.0.0.254"), 2)));
    assert_eq!(
        lines(&reconnect(&before)),
        [
            "add address 10.0.0.5/24 noprefixroute valid for 600 s to `eth0`",
            "add address fd00::5/64 nodad to `eth0`",
            "wait for the IPv6 addresses of `eth0`",
            "add address fd00::5/64 to `eth0`",
            "remove route 10.0.0.0/24 from `eth0`",
            "add route 10.0.0.0/24 to `eth0`",
            "add route default via 10.0.0.254 to `eth0`",
        ]
    );
}

#[test]
fn a_prefix_that_was_removed_stays_removed() {
    let address = Object::Address(address("10.0.0.5/24", 2, u32::MAX));
    let prefix = |kernel: bool| {
        let route = route("10.0.0.0/24", None, 2);
        Object::Route(if kernel { route.made_by_kernel() } else { route })
    };
    for (objects, line) in [
        (vec![address.clone(), prefix(true)], "add address 10.0.0.5/24 to `host0`"),
        (vec![address.clone(), prefix(false)], "add address 10.0.0.5/24 noprefixroute to `host0`"),
        (vec![address.clone()], "add address 10.0.0.5/24 noprefixroute to `host0`"),
    ] {
        assert_eq!(lines(&commit(&source(objects), &target()))[0], line);
    }
}

#[test]
fn a_refusal_names_the_operation() {
    let mut model = Model { budget: 1, ..Model::of(&typical()) };
    assert_eq!(
        commit(&typical(), &target()).run(&mut model).unwrap_err().to_string(),
        "cannot add address fd00::5/64 nodad to `host0`: No buffer space available"
    );
}

fn objects() -> impl Strategy<Value = Vec<Object>> {
    let octet = 1_u8..6;
    let one = (0..5, octet.clone(), octet).prop_map(|(kind, a, b)| match kind {
        0 => Object::Address(address(&format!("10.{a}.0.{b}/24"), 2, u32::MAX)),
        1 => Object::Address(address(&format!("fd0{a}::{b}/64"), 2, 600)),
        2 => Object::Route(route(&format!("10.{a}.{b}.0/24"), None, 2).with_rank(Rank::First)),
        3 => Object::Route(route(&format!("10.{a}.{b}.0/24"), Some("10.0.0.254"), 2)),
        _ => Object::Route(multipath(&[2, u32::from(a) + 10])),
    });
    vec(one, 0..12).prop_map(|mut list| {
        let mut seen = BTreeSet::new();
        list.retain(|object| seen.insert(object.to_string()));
        list
    })
}

/// Returns the target as it would be read from the model.
fn read_target(model: &Model, wanted: &Snapshot) -> Snapshot {
    let mut now = wanted.moved(&target().interface);
    now.objects.retain(|object| model.present.contains(&(3, name(object))));
    now
}

proptest! {
    /// Nothing is ever absent, whatever an interface holds, and all of it moves.
    #[test]
    fn no_object_is_absent_at_any_moment(list in objects()) {
        let before = source(list);
        let mut model = Model::of(&before);
        for operation in commit(&before, &target()).operations() {
            apply(&mut model, operation).unwrap();
            // A route that the kernel may have made behind an equal one is removed before it is added.
            prop_assert!(model.has_all(&before), "{operation}");
        }
        prop_assert!(model.present.iter().all(|(interface, _)| *interface == 3));
        prop_assert_eq!(model.present.len(), before.objects.len());
    }

    /// Wherever a move stops, restoring leads to the state before, and so does restoring twice.
    #[test]
    fn an_interrupted_move_is_undone(list in objects(), budget in 0_usize..60, again in 0_usize..60) {
        let before = source(list);
        let mut model = Model { budget, ..Model::of(&before) };
        let _ = commit(&before, &target()).run(&mut model);
        for budget in [again, usize::MAX, usize::MAX] {
            let away = Away { source: link(), target: Some(read_target(&model, &before)), rules: vec![], relaxed: 2 };
            model.budget = budget;
            let plan = restore(&before, &away);
            for operation in plan.operations() {
                let _ = apply(&mut model, operation);
            }
        }
        prop_assert_eq!(model.present, Model::of(&before).present);
    }
}
