//! Patch ports: their connection, and their status without one.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use fabric::switch::{BridgeId, PortRef};
use fabric::{Batch, PortSettings, Switch, SwitchLogic, SwitchOptions};
use ports::{Environment, Link, Port, Spec, patch};

struct Hub;

impl SwitchLogic for Hub {
    fn forward(&self, batch: &mut Batch<'_>) {
        batch.packets().for_each(|v| batch.broadcast(v));
    }
}

struct Lab {
    env: Environment,
    bridges: [BridgeId; 2],
    _runtime: tokio::runtime::Runtime,
}

impl Lab {
    fn new() -> Self {
        let switch = Arc::new(Switch::start(&SwitchOptions::default()).unwrap());
        let bridges = ["br0", "br1"].map(|name| switch.add_bridge(name, Arc::new(Hub)).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = Environment::new(switch, runtime.handle().clone());
        Self { env, bridges, _runtime: runtime }
    }

    fn add(&self, bridge: usize, settings: PortSettings) -> PortRef {
        self.env.switch.add_port(self.bridges[bridge], settings).unwrap()
    }

    fn try_open(&self, at: PortRef, peer: &str) -> Result<Box<dyn Port>, String> {
        let options = patch::Options { peer: peer.parse().unwrap() };
        ports::open(&Spec::Patch(options), at, &self.env).map_err(|error| error.to_string())
    }

    fn open(&self, bridge: usize, name: &str, peer: &str) -> (PortRef, Box<dyn Port>) {
        let at = self.add(bridge, PortSettings::new(name));
        (at, self.try_open(at, peer).unwrap())
    }

    fn is_up(&self, at: PortRef) -> bool {
        self.env.switch.counters(at).unwrap().up
    }
}

fn reason(port: &dyn Port) -> String {
    match port.status().link {
        Link::Up => "up".into(),
        Link::Down(reason) => reason,
    }
}

#[test]
fn ports_that_name_each_other_are_connected() {
    let lab = Lab::new();
    let (a_at, a) = lab.open(0, "a", "br1/b");
    assert_eq!(reason(&*a), "there is no patch port br1/b; add it with peer = \"br0/a\"");
    assert!(!lab.is_up(a_at));
    let (b_at, b) = lab.open(1, "b", "br0/a");
    assert_eq!((reason(&*a), reason(&*b)), ("up".into(), "up".into()));
    assert!(lab.is_up(a_at) && lab.is_up(b_at));
    assert_eq!(a.status().details, [("peer".to_owned(), "br1/b".to_owned())]);
    b.close();
    b.close();
    assert_eq!(reason(&*a), "there is no patch port br1/b; add it with peer = \"br0/a\"");
    assert!(!lab.is_up(a_at) && !lab.is_up(b_at));
    // The same again, dropped instead of closed.
    let b = lab.try_open(b_at, "br0/a").unwrap();
    assert_eq!(reason(&*a), "up");
    drop(b);
    assert!(!lab.is_up(a_at));
}

#[test]
fn ports_that_name_others_are_not_connected() {
    let lab = Lab::new();
    let (_, a) = lab.open(0, "a", "br1/b");
    let (b_at, b) = lab.open(1, "b", "br1/c");
    assert_eq!(reason(&*a), "br1/b names br1/c as its peer; give it peer = \"br0/a\"");
    assert_eq!(reason(&*b), "there is no patch port br1/c; add it with peer = \"br1/b\"");
    // Two ports of one bridge may be connected.
    let (c_at, c) = lab.open(1, "c", "br1/b");
    assert_eq!((reason(&*a), reason(&*b), reason(&*c)), (reason(&*a), "up".into(), "up".into()));
    assert!(lab.is_up(b_at) && lab.is_up(c_at));
    // A third that names one of them changes nothing for them, and neither does its removal.
    let (_, d) = lab.open(0, "d", "br1/c");
    assert_eq!(reason(&*d), "br1/c names br1/b as its peer; give it peer = \"br0/d\"");
    drop((a, d));
    assert!(lab.is_up(b_at) && lab.is_up(c_at));
    let itself = lab.try_open(lab.add(0, PortSettings::new("e")), "br0/e").err().unwrap();
    assert_eq!(itself, "peer: br0/e is this port itself; name the patch port at the other end");
}

#[test]
fn an_end_that_is_down_takes_the_other_down() {
    let lab = Lab::new();
    let down = PortSettings { admin_up: false, ..PortSettings::new("a") };
    let a_at = lab.add(0, down.clone());
    let a = lab.try_open(a_at, "br1/b").unwrap();
    let (b_at, b) = lab.open(1, "b", "br0/a");
    assert_eq!(
        (reason(&*a), reason(&*b)),
        ("administratively down".into(), "its peer br0/a is administratively down".into())
    );
    lab.env.switch.set_port(a_at, PortSettings { admin_up: true, ..down }).unwrap();
    a.set_admin(true);
    assert!(reason(&*b) == "up" && lab.is_up(a_at) && lab.is_up(b_at));
    a.set_admin(false);
    assert!(reason(&*b) != "up" && !lab.is_up(b_at));
}

#[test]
fn removing_a_bridge_disconnects_its_patch_ports() {
    let lab = Lab::new();
    let (a_at, a) = lab.open(0, "a", "br1/b");
    let (_, b) = lab.open(1, "b", "br0/a");
    // The ports of a bridge are normally closed before the bridge is removed; if not, the other end goes down when the
    // port is closed.
    lab.env.switch.remove_bridge(lab.bridges[1]).unwrap();
    b.close();
    assert!(!lab.is_up(a_at));
    assert_eq!(reason(&*a), "there is no patch port br1/b; add it with peer = \"br0/a\"");
}
