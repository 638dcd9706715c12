//! A switch with in-memory clients and an OpenFlow bridge. Nothing here sleeps: every wait has a condition and a
//! deadline.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fabric::port::Caps;
use fabric::switch::{BridgeId, PortRef};
use fabric::{
    Attachment, DropReason, Egress, Fault, OutputList, PortIndex, PortSettings, QueueCounters, RxBatch,
    RxQueue, Switch, SwitchOptions, Tools,
};
use logic::Logic;
use oflogic::{OpenFlow, PortFacts};
use ofswitch::{ConnectionId, ConnectionKind, Settings};
use openflow::message::{Body, FlowModCommand, Hello, PacketIn, Versions};
use openflow::multipart::{Multipart, Reply, Request};
use openflow::{Message, Version, text};
use packet::Offload;
use rustix::event::{EventfdFlags, eventfd};

use crate::frames::{MARKER, frame};

const DEADLINE: Duration = Duration::from_secs(30);
/// The same for what one thread does for the bridges of all tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// Frames of a client: those waiting, the number sent, and the number that the switch has finished with.
#[derive(Default)]
struct Sent {
    waiting: VecDeque<(Vec<u8>, Offload)>,
    sent: u64,
    done: u64,
}

struct Inbox {
    state: Mutex<Sent>,
    progress: Condvar,
    signal: OwnedFd,
}

struct Queue {
    inbox: Arc<Inbox>,
    taken: u64,
}

impl RxQueue for Queue {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        let mut state = self.inbox.state.lock().unwrap();
        while batch.has_room() {
            let Some(landing) = batch.landing() else { break };
            let Some((frame, offload)) = state.waiting.pop_front() else { break };
            landing[..frame.len()].copy_from_slice(&frame);
            batch.landed(0, frame.len(), offload)?;
            self.taken += 1;
        }
        Ok(())
    }

    fn complete(&mut self, _: &mut Tools) -> Result<(), Fault> {
        if self.taken > 0 {
            self.inbox.state.lock().unwrap().done += std::mem::take(&mut self.taken);
            self.inbox.progress.notify_all();
        }
        Ok(())
    }

    fn set_signalled(&mut self, _on: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        self.inbox.signal.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}

#[derive(Default)]
struct Outbox {
    frames: Mutex<Vec<(Vec<u8>, Offload)>>,
    progress: Condvar,
}

impl Egress for Outbox {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        _tools: &mut Tools,
    ) -> Result<(), Fault> {
        let mut frames = self.frames.lock().unwrap();
        let mut bytes = 0;
        list.for_each(|output| {
            let mut frame = output.header().to_vec();
            output.for_each_payload(|at, n| {
                // SAFETY: the payload lies in the batch's landing area, which stays unchanged until `complete`.
                frame.extend_from_slice(unsafe { std::slice::from_raw_parts(at, n) });
            });
            assert_eq!(frame.len(), output.len() as usize);
            bytes += frame.len() as u64;
            frames.push((frame, output.offload()));
        });
        counters.add_batch(list.len() as u64, bytes);
        self.progress.notify_all();
        Ok(())
    }
}

/// Client of one port.
pub struct Client {
    pub at: PortRef,
    inbox: Arc<Inbox>,
    outbox: Arc<Outbox>,
}

impl Client {
    fn new(at: PortRef) -> Self {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let inbox = Inbox { state: Mutex::default(), progress: Condvar::new(), signal };
        Self { at, inbox: Arc::new(inbox), outbox: Arc::default() }
    }

    /// Queues frames for the switch.
    pub fn send(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        self.send_with(frames.into_iter().map(|frame| (frame, Offload::NONE)));
    }

    pub fn send_with(&self, frames: impl IntoIterator<Item = (Vec<u8>, Offload)>) {
        let mut state = self.inbox.state.lock().unwrap();
        let before = state.waiting.len();
        state.waiting.extend(frames);
        state.sent += (state.waiting.len() - before) as u64;
        rustix::io::write(&self.inbox.signal, &1u64.to_ne_bytes()).unwrap();
    }

    /// Waits until the switch has finished with all frames sent, drops counted and copies delivered.
    pub fn settle(&self) {
        let state = self.inbox.state.lock().unwrap();
        let (state, timeout) =
            self.inbox.progress.wait_timeout_while(state, DEADLINE, |s| s.done < s.sent).unwrap();
        assert!(!timeout.timed_out(), "{} of {} frames switched", state.done, state.sent);
    }

    /// Waits for `n` frames, then takes them.
    pub fn take(&self, n: usize) -> Vec<Vec<u8>> {
        let taken = self.take_until(|frames| frames.len() >= n);
        taken.into_iter().map(|(frame, _)| frame).collect()
    }

    /// Waits until what arrived satisfies a condition, then takes it.
    pub fn take_until(&self, done: impl Fn(&[(Vec<u8>, Offload)]) -> bool) -> Vec<(Vec<u8>, Offload)> {
        let frames = self.outbox.frames.lock().unwrap();
        let (mut frames, timeout) =
            self.outbox.progress.wait_timeout_while(frames, DEADLINE, |frames| !done(frames)).unwrap();
        assert!(!timeout.timed_out(), "only {frames:02x?} arrived");
        std::mem::take(&mut *frames)
    }

    /// Frames delivered so far.
    pub fn delivered(&self) -> usize {
        self.outbox.frames.lock().unwrap().len()
    }
}

/// Which code runs the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Code for any flows.
    Code,
    /// Code that is specialised for the flows before packets come.
    Specialised,
    /// Code that the logic specialises by itself.
    Itself,
    Interpreter,
}

pub const ALL: [By; 3] = [By::Code, By::Specialised, By::Interpreter];

/// Ports of a rig, numbered from 1.
pub const PORTS: usize = 4;

pub const VERSION: Version = Version::V1_3;

/// A switch with one bridge, its clients and a controller.
pub struct Rig {
    pub clients: Vec<Client>,
    pub controller: ConnectionId,
    pub logic: Arc<OpenFlow>,
    pub switch: Arc<Switch>,
    pub bridge: BridgeId,
    by: By,
    caps: Caps,
}

impl Rig {
    pub fn new(by: By) -> Self {
        Self::with(by, 1, Caps::default())
    }

    pub fn with(by: By, workers: usize, caps: Caps) -> Self {
        let options = SwitchOptions { workers: vec![None; workers], ..SwitchOptions::default() };
        let switch = Arc::new(Switch::start(&options).unwrap());
        let logic = match by {
            By::Code | By::Specialised => OpenFlow::untended(Settings::default()),
            By::Itself => OpenFlow::new(Settings::default()),
            By::Interpreter => OpenFlow::interpreted(Settings::default()),
        };
        let logic = logic.unwrap();
        let bridge = switch.add_bridge("br0", logic.clone()).unwrap();
        logic.set_injector(switch.injector(bridge).unwrap());
        let counters = Arc::downgrade(&switch);
        logic.set_statistics(move |port| counters.upgrade()?.try_counters(PortRef { bridge, port }));
        let controller = connect(&logic);
        let mut rig = Self { clients: vec![], controller, logic, switch, bridge, by, caps };
        (1..=PORTS).for_each(|n| rig.add_port(PortSettings::new(format!("p{n}"))));
        rig.messages();
        rig
    }

    /// Adds a port with a client.
    pub fn add_port(&mut self, settings: PortSettings) {
        let client = Client::new(self.switch.add_port(self.bridge, settings).unwrap());
        let attachment = Attachment {
            rx: vec![Box::new(Queue { inbox: client.inbox.clone(), taken: 0 })],
            tx: vec![client.outbox.clone()],
            caps: self.caps,
            mtu: 9000,
            on_fault: Arc::new(|fault| panic!("{fault}")),
        };
        self.switch.attach(client.at, attachment).unwrap();
        self.logic.set_ports(&[facts(client.at.port, true)]);
        self.clients.push(client);
    }

    /// The client at a port with this number.
    pub fn at(&self, number: usize) -> &Client {
        &self.clients[number - 1]
    }

    /// Sends a message of the controller.
    pub fn send(&self, body: Body) {
        self.send_as(self.controller, VERSION, body);
    }

    pub fn send_as(&self, connection: ConnectionId, version: Version, body: Body) {
        let bytes = Message::new(version, 9, body).encode().unwrap();
        self.logic.switch().with(|switch, now| switch.receive(connection, &bytes, now));
    }

    /// Messages that wait for the controller.
    pub fn messages(&self) -> Vec<Body> {
        let next = || self.logic.switch().with(|switch, _| switch.next_message(self.controller));
        std::iter::from_fn(next).map(|bytes| Message::decode(&bytes).unwrap().body).collect()
    }

    /// Sends a message that is accepted.
    pub fn ask(&self, body: Body) -> Vec<Body> {
        self.send(body);
        let messages = self.messages();
        assert!(!messages.iter().any(|message| matches!(message, Body::Error(_))), "{messages:?}");
        messages
    }

    pub fn flow_mod(&self, command: FlowModCommand, flow: &str) {
        let flow = text::parse_flow(flow, command, VERSION).unwrap();
        self.ask(Body::FlowMod(Box::new(flow)));
    }

    /// Adds flows.
    pub fn add(&self, flows: &[&str]) {
        flows.iter().for_each(|flow| self.flow_mod(FlowModCommand::Add, flow));
        if self.by == By::Specialised {
            self.specialise();
        }
    }

    /// Lets the logic specialise its code.
    pub fn specialise(&self) {
        self.logic.tick(0);
    }

    /// Whether packets run code that is specialised for the flows.
    pub fn is_specialised(&self) -> bool {
        let tables = self.logic.tables();
        let code = tables.iter().find(|table| table.name == "code").unwrap();
        code.rows.iter().any(|row| row[0] == "specialised for the flows" && row[1] == "yes")
    }

    /// Reply to a statistics request.
    pub fn statistics(&self, request: Request) -> Reply {
        let request = Multipart { more: false, content: request };
        match self.ask(Body::MultipartRequest(request)).pop() {
            Some(Body::MultipartReply(reply)) => reply.content,
            other => panic!("{other:?}"),
        }
    }

    /// Sends frames from a port and returns what each port gets: waits for a marker behind them, which a flow sends to
    /// all ports.
    pub fn run(&self, from: usize, frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<Vec<u8>>> {
        self.run_with(from, frames.into_iter().map(|frame| (frame, Offload::NONE)).collect())
            .into_iter()
            .map(|frames| frames.into_iter().map(|(frame, _)| frame).collect())
            .collect()
    }

    pub fn run_with(&self, from: usize, frames: Vec<(Vec<u8>, Offload)>) -> Vec<Vec<(Vec<u8>, Offload)>> {
        self.add(&["table=0,priority=65535,dl_type=0x9999,actions=ALL,IN_PORT"]);
        self.at(from).send_with(frames.into_iter().chain([(frame(7, 7, MARKER, 0, 60), Offload::NONE)]));
        let is_marker = |(frame, _): &(Vec<u8>, Offload)| frame[12..14] == MARKER;
        let take = |client: &Client| {
            let mut frames = client.take_until(|frames| frames.last().is_some_and(is_marker));
            frames.pop();
            frames
        };
        let taken = self.clients.iter().map(take).collect();
        self.at(from).settle();
        taken
    }

    /// Waits for so many packet-ins.
    pub fn packet_ins<const N: usize>(&self) -> [PacketIn; N] {
        let mut got = Vec::new();
        wait_for("packet-ins", || {
            got.extend(self.messages().into_iter().filter_map(|body| match body {
                Body::PacketIn(packet) => Some(packet),
                _ => None,
            }));
            (got.len() >= N).then_some(())
        });
        got.try_into().unwrap()
    }

    /// Counts the frames from a port dropped for a reason.
    pub fn drops(&self, from: usize, reason: DropReason) -> u64 {
        let counters = self.switch.counters(self.at(from).at).unwrap();
        counters.rx.iter().map(|q| q.drops[reason as usize]).sum()
    }

    /// A counter of the logic.
    pub fn counter(&self, name: &str) -> u64 {
        self.logic.counters().iter().find(|counter| counter.name == name).unwrap().value
    }
}

pub fn connect(logic: &OpenFlow) -> ConnectionId {
    logic.switch().with(|switch, now| {
        let controller = switch.connect(ConnectionKind::Controller).unwrap();
        let hello = Body::Hello(Hello::new(Versions::from_iter([VERSION])));
        switch.receive(controller, &Message::new(VERSION, 1, hello).encode().unwrap(), now);
        controller
    })
}

pub fn facts(index: PortIndex, is_up: bool) -> PortFacts {
    let address = [2, 0, 0, 0, 1, index.0 as u8];
    PortFacts {
        bond: None,
        in_tree: false,
        index,
        number: None,
        is_local: false,
        address,
        is_up,
        is_faulty: false,
        keeps_link: false,
        speed: 10_000_000,
        is_dummy: false,
        queues: vec![],
    }
}

/// Waits for a value.
pub fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
