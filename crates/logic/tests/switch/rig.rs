//! A switch and in-memory clients. Nothing here sleeps: every wait has a condition and a deadline.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fabric::port::Caps;
use fabric::switch::{BridgeId, PortRef};
use fabric::{
    Attachment, DropReason, Egress, Fault, OutputList, PortSettings, QueueCounters, RxBatch, RxQueue, Switch,
    SwitchOptions, Tools, VlanMode,
};
use logic::{GroupEntry, Learning, Logic, MacTable};
use packet::Offload;
use rustix::event::{EventfdFlags, eventfd};

const DEADLINE: Duration = Duration::from_secs(30);

/// Frames of a client: those waiting, the number sent, and the number that the switch has finished with.
#[derive(Default)]
struct Sent {
    waiting: VecDeque<Vec<u8>>,
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
            let Some(frame) = state.waiting.pop_front() else { break };
            landing[..frame.len()].copy_from_slice(&frame);
            batch.landed(0, frame.len(), Offload::NONE)?;
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
    frames: Mutex<Vec<Vec<u8>>>,
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
            frames.push(frame);
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

    /// Sends and waits until the switch has finished.
    pub fn send_and_settle(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        self.send(frames);
        self.settle();
    }

    /// Takes the frames delivered since the last call.
    pub fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.outbox.frames.lock().unwrap())
    }

    /// Waits for `n` frames in all, then takes them.
    pub fn take_all(&self, n: usize) -> Vec<Vec<u8>> {
        let frames = self.outbox.frames.lock().unwrap();
        let (mut frames, timeout) =
            self.outbox.progress.wait_timeout_while(frames, DEADLINE, |frames| frames.len() < n).unwrap();
        assert!(!timeout.timed_out(), "{} of {n} frames delivered", frames.len());
        std::mem::take(&mut *frames)
    }
}

/// A switch with one bridge, or more.
pub struct Rig {
    pub switch: Switch,
    pub bridge: BridgeId,
}

impl Rig {
    pub fn new(workers: usize, logic: Arc<dyn Logic>) -> Self {
        let options = SwitchOptions { workers: vec![None; workers], ..SwitchOptions::default() };
        let switch = Switch::start(&options).unwrap();
        let bridge = switch.add_bridge("br0", logic).unwrap();
        Self { switch, bridge }
    }

    /// Adds a port with a client to the first bridge.
    pub fn port(&self, name: &str, vlan: VlanMode) -> Client {
        self.port_of(self.bridge, name, vlan)
    }

    pub fn port_of(&self, bridge: BridgeId, name: &str, vlan: VlanMode) -> Client {
        self.port_with(bridge, PortSettings { vlan, ..PortSettings::new(name) })
    }

    /// Adds a port to the first bridge, with changed settings.
    pub fn protected(&self, name: &str, change: impl FnOnce(&mut PortSettings)) -> Client {
        let mut settings = PortSettings::new(name);
        change(&mut settings);
        self.port_with(self.bridge, settings)
    }

    /// Changes the settings of a port while it runs.
    pub fn set(&self, client: &Client, change: impl FnOnce(&mut PortSettings)) {
        let mut settings = self.switch.settings(client.at).unwrap();
        change(&mut settings);
        self.switch.set_port(client.at, settings).unwrap();
    }

    fn port_with(&self, bridge: BridgeId, settings: PortSettings) -> Client {
        let client = Client::new(self.switch.add_port(bridge, settings).unwrap());
        self.attach(&client);
        client
    }

    pub fn attach(&self, client: &Client) {
        let attachment = Attachment {
            rx: vec![Box::new(Queue { inbox: client.inbox.clone(), taken: 0 })],
            tx: vec![client.outbox.clone()],
            caps: Caps::default(),
            mtu: 9000,
            on_fault: Arc::new(|fault| panic!("{fault}")),
        };
        self.switch.attach(client.at, attachment).unwrap();
    }

    /// Adds `N` ports without VLAN settings.
    pub fn plain_ports<const N: usize>(&self) -> [Client; N] {
        std::array::from_fn(|i| self.port(&format!("p{i}"), VlanMode::Transparent))
    }

    /// Counts the frames from a port dropped for a reason.
    pub fn drops(&self, client: &Client, reason: DropReason) -> u64 {
        self.switch.counters(client.at).unwrap().rx.iter().map(|q| q.drops[reason as usize]).sum()
    }
}

/// Makes a logic.
pub fn make(name: &str, params: &[(&str, &str)]) -> Arc<dyn Logic> {
    let params: Vec<_> = params.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    logic::build(name, &params, &[]).unwrap()
}

/// Makes a learning bridge whose table tests can reach.
pub fn learning(params: &[(&str, &str)]) -> Arc<Learning> {
    let params: Vec<_> = params.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    Arc::new(Learning::new(&params).unwrap())
}

/// Returns the table of stations of a logic that has one.
pub fn stations(logic: &Arc<dyn Logic>) -> &dyn MacTable {
    logic.views().stations.unwrap()
}

/// Returns the members and routers that a logic knows.
pub fn groups(logic: &Arc<dyn Logic>) -> Vec<GroupEntry> {
    logic.views().groups.unwrap().entries()
}

/// Waits for a condition that no client can observe.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "timed out waiting for {what}");
        std::thread::yield_now();
    }
}
