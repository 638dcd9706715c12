//! Dummy ports: frames in and out, capture files, streams and links.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fabric::switch::BridgeId;
use fabric::{Batch, PortSettings, Switch, SwitchLogic, SwitchOptions};
use ports::dummy::{DummyError, Options, StreamState};
use ports::{Environment, Link, Port, Spec};

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
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let env = Environment::new(switch, runtime.handle().clone());
        Self { env, bridges, _runtime: runtime }
    }

    fn open(&self, bridge: usize, name: &str, options: Options) -> Box<dyn Port> {
        let at = self.env.switch.add_port(self.bridges[bridge], PortSettings::new(name)).unwrap();
        ports::open(&Spec::Dummy(options), at, &self.env).unwrap()
    }
}

const FRAME: [u8; 60] = [0x52; 60];

/// Frames of a capture file.
fn captured(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let mut rest = &bytes[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(*rest[8..].first_chunk().unwrap()) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    frames
}

#[test]
fn a_frame_is_in_the_files_when_receive_returns() {
    let lab = Lab::new();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let a = lab.open(0, "p1", Options { rxq_pcap: Some(path("rx")), ..Options::default() });
    let b = lab.open(0, "p2", Options { tx_pcap: Some(path("tx")), ..Options::default() });
    assert_eq!(a.address().unwrap().to_string(), "aa:55:aa:55:00:00");
    assert_eq!(b.address().unwrap().to_string(), "aa:55:aa:55:00:01");
    // More than wait at once.
    lab.env.dummies.receive("p1", vec![FRAME.to_vec(); 250]).unwrap();
    assert_eq!(captured(&path("rx")), vec![FRAME.to_vec(); 250]);
    assert_eq!(captured(&path("tx")), vec![FRAME.to_vec(); 250]);

    // The file can be another one while the port is open.
    let other = Spec::Dummy(Options { pcap: Some(path("both")), ..Options::default() });
    assert_eq!(b.reconfigure(&other), Ok(true));
    lab.env.dummies.receive("p1", vec![FRAME.to_vec()]).unwrap();
    assert_eq!((captured(&path("tx")).len(), captured(&path("both")).len()), (250, 1));

    // Without a link nothing passes.
    lab.env.dummies.set_up(Some("p2"), false).unwrap();
    assert_eq!(b.status().link, Link::Down("the link is set down".into()));
    lab.env.dummies.receive("p1", vec![FRAME.to_vec()]).unwrap();
    assert_eq!(captured(&path("both")).len(), 1);
    lab.env.dummies.set_up(None, true).unwrap();
    lab.env.dummies.receive("p1", vec![FRAME.to_vec()]).unwrap();
    assert_eq!(captured(&path("both")).len(), 2);

    b.close();
    assert_eq!(lab.env.dummies.receive("p2", vec![FRAME.to_vec()]), Err(DummyError::Unknown));
    assert_eq!(lab.env.dummies.set_up(Some("p2"), true), Err(DummyError::Unknown));
}

#[test]
fn streams_join_two_bridges_and_reconnect() {
    let lab = Lab::new();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let socket = path("socket");
    let active = Options { stream: Some(format!("unix:{}", socket.display())), ..Options::default() };
    let passive = Options { pstream: Some(format!("punix:{}", socket.display())), ..Options::default() };
    let _a = lab.open(0, "a", active);
    assert_eq!(lab.env.dummies.stream_state("a"), StreamState::Disconnected, "nothing listens yet");
    let b = lab.open(1, "b", passive.clone());
    let _out = lab.open(1, "out", Options { tx_pcap: Some(path("tx")), ..Options::default() });
    let _in = lab.open(0, "in", Options::default());
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    };
    let connected = || lab.env.dummies.stream_state("a") == StreamState::Connected;
    wait("the stream connects", &connected);
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let observe =
        move |port: &str, frame: &[u8]| list.lock().unwrap().push((port.to_owned(), frame.to_vec()));
    lab.env.dummies.observe(Some(Arc::new(observe)));
    lab.env.dummies.receive("in", vec![FRAME.to_vec()]).unwrap();
    wait("the frame crosses", &|| captured(&path("tx")) == [FRAME.to_vec()]);
    assert_eq!(*told.lock().unwrap(), [("b".to_owned(), FRAME.to_vec())], "of streams only");
    lab.env.dummies.observe(None);

    b.close();
    wait("the stream ends", &|| !connected());
    let _b = lab.open(1, "b2", passive);
    wait("the stream connects again", &connected);
    lab.env.dummies.receive("in", vec![FRAME.to_vec()]).unwrap();
    wait("another frame crosses", &|| captured(&path("tx")).len() == 2);
    assert_eq!(lab.env.dummies.stream_states(), [("a".to_owned(), StreamState::Connected)]);
}
