//! A switch with four ports, its agent, and a controller of the tests.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ofagent::{Agent, ControllerState, Settings, SharedSwitch, Target};
use ofswitch::{Effect, PortInfo, Switch};
use openflow::message::{Body, Header, Hello, Versions};
use openflow::{Message, PortNo, Version};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::time::timeout;

pub(crate) const VERSION: Version = Version::V1_3;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A switch and its agent, in a directory of their own.
pub(crate) struct World {
    pub(crate) directory: TempDir,
    pub(crate) switch: Arc<SharedSwitch>,
    pub(crate) effects: Arc<Mutex<Vec<Effect>>>,
    pub(crate) agent: Agent,
}

impl World {
    /// `change` changes settings that suit tests, given the directory.
    pub(crate) fn new(change: impl FnOnce(&mut Settings, &Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings {
            management: Some(directory.path().join("br0.mgmt")),
            snoop: Some(directory.path().join("br0.snoop")),
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_millis(40),
            ..Settings::default()
        };
        change(&mut settings, directory.path());
        let effects = Arc::new(Mutex::new(vec![]));
        let sink = effects.clone();
        let switch = Switch::new(ofswitch::Settings::default());
        let switch = SharedSwitch::new(switch, move |new| sink.lock().unwrap().extend(new));
        for number in 1..=4 {
            set_port(&switch, number, true);
        }
        let agent = Agent::start(&Handle::current(), switch.clone(), settings).unwrap();
        World { directory, switch, effects, agent }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Waits for a state of the agent.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let poll = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let ended = timeout(PATIENCE, poll).await;
        assert!(ended.is_ok(), "never {what}: {:#?}", self.agent.controllers());
    }

    /// The only controller.
    pub(crate) fn controller(&self) -> ControllerState {
        let [controller] = self.agent.controllers().try_into().unwrap();
        controller
    }
}

pub(crate) fn set_port(switch: &SharedSwitch, number: u32, is_up: bool) {
    let name = format!("p{number}");
    let info = PortInfo { is_up, ..PortInfo::new(PortNo(number), name, [2, 0, 0, 0, 0, number as u8]) };
    switch.with(|switch, now| switch.set_port(info, now)).unwrap();
}

pub(crate) fn unix(path: &Path) -> Target {
    format!("unix:{}", path.display()).parse().unwrap()
}

pub(crate) fn punix(path: &Path) -> Target {
    format!("punix:{}", path.display()).parse().unwrap()
}

/// The other end of a connection.
pub(crate) struct Peer<S> {
    pub(crate) stream: S,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// Exchanges hellos.
    pub(crate) async fn greet(stream: S) -> Self {
        let mut peer = Peer { stream };
        assert!(matches!(peer.read().await.unwrap().body, Body::Hello(_)));
        peer.send(1, Body::Hello(Hello::new(Versions::from_iter([VERSION])))).await;
        peer
    }

    pub(crate) async fn send(&mut self, xid: u32, body: Body) {
        let bytes = Message::new(VERSION, xid, body).encode().unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// The next message; `None` at the end.
    pub(crate) async fn read(&mut self) -> Option<Message> {
        let read = async {
            let mut bytes = vec![0; 8];
            self.stream.read_exact(&mut bytes).await.ok()?;
            bytes.resize(usize::from(Header::peek(&bytes).unwrap().length), 0);
            self.stream.read_exact(&mut bytes[8..]).await.ok()?;
            Some(Message::decode(&bytes).unwrap())
        };
        timeout(PATIENCE, read).await.expect("a message, or the end")
    }

    /// Sends a request and reads its reply, past asynchronous messages.
    pub(crate) async fn ask(&mut self, body: Body) -> Body {
        self.send(77, body).await;
        loop {
            let message = self.read().await.expect("a reply");
            if message.xid == 77 {
                return message.body;
            }
        }
    }

    /// All messages so far have been processed.
    pub(crate) async fn barrier(&mut self) {
        assert_eq!(self.ask(Body::BarrierRequest).await, Body::BarrierReply);
    }
}
