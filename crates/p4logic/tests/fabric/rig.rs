//! A switch with in-memory clients and a P4 bridge. Nothing here sleeps: every wait has a condition and a deadline.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fabric::port::Caps;
use fabric::switch::{BridgeId, PortRef};
use fabric::{
    Attachment, DropReason, Egress, Fault, OutputList, PortSettings, QueueCounters, RxBatch, RxQueue, Switch,
    SwitchOptions, Tools,
};
use logic::Logic;
use p4logic::{P4, PortFacts, Settings};
use p4runtime_proto::v1::stream_message_response::Update as Told;
use p4runtime_proto::v1::{ForwardingPipelineConfig, PacketIn};
use p4switch::{Device, InstallAction, Program};
use packet::Offload;
use rustix::event::{EventfdFlags, eventfd};

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
    asked: AtomicUsize,
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

    /// Frames that the test has not taken.
    fn depth(&self, _: &QueueCounters) -> u32 {
        self.asked.fetch_add(1, Relaxed);
        self.frames.lock().unwrap().len() as u32
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

    /// Times that the switch has asked how many frames wait here.
    pub fn asked(&self) -> usize {
        self.outbox.asked.load(Relaxed)
    }

    /// Frames delivered so far.
    pub fn delivered(&self) -> usize {
        self.outbox.frames.lock().unwrap().len()
    }
}

/// Which code runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Code,
    /// Code that the logic makes faster by itself.
    Itself,
    Interpreter,
}

pub const ALL: [By; 3] = [By::Code, By::Itself, By::Interpreter];

/// Ports of a rig, numbered from 1.
pub const PORTS: usize = 4;

pub const L3: &str = include_str!("../programs/l3.p4");
pub const OPS: &str = include_str!("../programs/ops.p4");
pub const DEPTHS: &str = include_str!("../programs/depths.p4");

/// A program's configuration, as controllers send it.
pub fn config(text: &str) -> ForwardingPipelineConfig {
    let program = Program::text("p.p4", text, &p4::preprocess::Options::default()).unwrap();
    ForwardingPipelineConfig {
        p4info: Some((*program.info).clone()),
        p4_device_config: text.as_bytes().to_vec(),
        ..ForwardingPipelineConfig::default()
    }
}

/// A switch with one bridge and its clients, and what its controller was told.
pub struct Rig {
    pub clients: Vec<Client>,
    pub logic: Arc<P4>,
    pub switch: Arc<Switch>,
    pub bridge: BridgeId,
    told: Arc<(Mutex<VecDeque<Told>>, Condvar)>,
    caps: Caps,
}

impl Rig {
    /// A bridge that runs a program.
    pub fn new(by: By, program: &str) -> Self {
        let rig = Self::with(by, 1, Caps::default());
        rig.install(program);
        rig
    }

    /// A bridge without a program.
    pub fn with(by: By, workers: usize, caps: Caps) -> Self {
        let options = SwitchOptions { workers: vec![None; workers], ..SwitchOptions::default() };
        let switch = Arc::new(Switch::start(&options).unwrap());
        let logic = match by {
            By::Code => P4::untended(Settings::default()),
            By::Itself => P4::new(Settings::default()),
            By::Interpreter => P4::interpreted(Settings::default()),
        };
        let logic = logic.unwrap();
        let bridge = switch.add_bridge("br0", logic.clone()).unwrap();
        logic.set_injector(switch.injector(bridge).unwrap());
        let told: Arc<(Mutex<VecDeque<Told>>, Condvar)> = Arc::default();
        let listener = told.clone();
        logic.listen(Box::new(move |message, _| {
            listener.0.lock().unwrap().extend(message.update);
            listener.1.notify_all();
            true
        }));
        let mut rig = Self { clients: vec![], logic, switch, bridge, told, caps };
        (1..=PORTS).for_each(|n| rig.add_port(PortSettings::new(format!("p{n}"))));
        rig
    }

    pub fn install(&self, program: &str) {
        self.logic.install(InstallAction::VerifyAndCommit, Some(&config(program))).unwrap();
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
        self.logic.set_ports(&[PortFacts { index: client.at.port, number: None }]);
        self.clients.push(client);
    }

    /// The client at a port with this number.
    pub fn at(&self, number: usize) -> &Client {
        &self.clients[number - 1]
    }

    /// Sends frames from a port and returns what each port has got when all have been switched.
    pub fn run(&self, from: usize, frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<Vec<u8>>> {
        let run = self.run_with(from, frames.into_iter().map(|frame| (frame, Offload::NONE)).collect());
        run.into_iter().map(|frames| frames.into_iter().map(|(frame, _)| frame).collect()).collect()
    }

    pub fn run_with(&self, from: usize, frames: Vec<(Vec<u8>, Offload)>) -> Vec<Vec<(Vec<u8>, Offload)>> {
        self.at(from).send_with(frames);
        self.settle(from);
        self.clients.iter().map(|client| client.take_until(|_| true)).collect()
    }

    /// Waits until all frames of a port, and all that came of them, are where they go.
    pub fn settle(&self, from: usize) {
        self.at(from).settle();
        wait_for("the logic's thread", || self.logic.is_settled().then_some(()));
    }

    /// Waits for so many packets for the controller.
    pub fn packet_ins<const N: usize>(&self) -> [PacketIn; N] {
        let packets = [(); N].map(|()| match self.told() {
            Told::Packet(packet) => packet,
            other => panic!("{other:?}"),
        });
        assert_eq!(self.told.0.lock().unwrap().len(), 0);
        packets
    }

    /// Waits for what the controller is told next.
    pub fn told(&self) -> Told {
        let told = self.told.0.lock().unwrap();
        let (mut told, timeout) =
            self.told.1.wait_timeout_while(told, DEADLINE, |told| told.is_empty()).unwrap();
        assert!(!timeout.timed_out(), "the controller is told nothing");
        told.pop_front().unwrap()
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

    /// A figure of the program's code.
    pub fn figure(&self, name: &str) -> String {
        let tables = self.logic.tables();
        let code = tables.iter().find(|table| table.name == "code").unwrap();
        code.rows.iter().find(|row| row[0] == name).unwrap()[1].clone()
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
