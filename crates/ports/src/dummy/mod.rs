//! Dummy ports: endpoints within the process, for tests that need neither privileges nor network devices.
//!
//! Frames enter by [`Dummies::receive`] (the commands `netdev-dummy/*` of `ovs-appctl`) or by a stream, and leave to a
//! capture file or to streams, as with Open vSwitch's interfaces of type `dummy`. They are not offered to operators:
//! only the database of a daemon that runs with `--enable-dummy` names them.
//!
//! - [`incoming`](self): the worker's receive queue; `outgoing`: frames that workers send; `capture`: classic pcap
//!   files; `stream`: the far ends of streams.
//!
//! Invariants:
//! - [`Dummies::receive`] returns after the frames were switched and everything sent by that is in the capture files.
//! - A worker writes to files of the port itself: a dummy port is for tests, and may delay a worker.
//! - A port keeps its address as long as it is open.

mod capture;
mod incoming;
mod options;
mod outgoing;
mod stream;
mod traffic;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fabric::rx::MAX_PACKET;
use fabric::switch::PortRef;
use fabric::{Attachment, Caps, Egress, RxQueue, Switch, TxRing};
use packet::MacAddr;
use tokio::task::JoinHandle;

use crate::{Environment, Link, OpenError, Port, Spec, Status};
use incoming::{FrameQueue, Incoming};
pub use options::Options;
use outgoing::{Outgoing, Written};
use traffic::Traffic;

/// Address of the first port, from which the others count on. Open vSwitch gives the same.
const FIRST_ADDRESS: u32 = 0xaa55_0000;

/// All dummy ports of a switch.
#[derive(Debug, Clone, Default)]
pub struct Dummies(Arc<Mutex<Registry>>);

#[derive(Default)]
struct Registry {
    ports: BTreeMap<String, Weak<DummyState>>,
    /// Number of ports made so far.
    made: u32,
    /// Frames between the ports.
    traffic: Arc<Traffic>,
    observer: Option<Observer>,
}

/// Is told of frames that come through streams, before they are switched: the port's name and the frame. It may block.
pub type Observer = Arc<dyn Fn(&str, &[u8]) + Send + Sync>;

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("ports", &self.ports).finish_non_exhaustive()
    }
}

/// Reasons for not taking frames or a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DummyError {
    /// No dummy port has this name.
    #[error("no such dummy netdev")]
    Unknown,
    /// The port's frames are not switched.
    #[error("the frames were not switched within {0:?}")]
    Stuck(std::time::Duration),
}

/// State of the stream that a port connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    /// The port connects to none.
    None,
    /// It is connected.
    Connected,
    /// It is not connected.
    Disconnected,
}

impl Dummies {
    /// Puts frames into a port, and waits until they have been switched.
    ///
    /// # Errors
    /// There is no such port, or workers do not take the frames.
    pub fn receive(&self, name: &str, frames: Vec<Vec<u8>>) -> Result<(), DummyError> {
        self.get(name).ok_or(DummyError::Unknown)?.receive(frames)
    }

    /// Sets the link of a port, or of all, up or down.
    ///
    /// # Errors
    /// There is no such port.
    pub fn set_up(&self, name: Option<&str>, up: bool) -> Result<(), DummyError> {
        let ports = match name {
            Some(name) => vec![self.get(name).ok_or(DummyError::Unknown)?],
            None => self.all().into_iter().map(|(_, port)| port).collect(),
        };
        for port in ports {
            port.set_up(up);
        }
        Ok(())
    }

    /// Returns the state of the stream that a port connects to; [`StreamState::None`] also for unknown ports.
    pub fn stream_state(&self, name: &str) -> StreamState {
        self.get(name).map_or(StreamState::None, |port| port.outgoing.stream_state())
    }

    /// Returns the names of all ports that connect to a stream, with its state.
    pub fn stream_states(&self) -> Vec<(String, StreamState)> {
        let states = self.all().into_iter().map(|(name, port)| (name, port.outgoing.stream_state()));
        states.filter(|(_, state)| *state != StreamState::None).collect()
    }

    /// Whether no frame is on its way from one of the ports to another, through a stream.
    pub fn are_idle(&self) -> bool {
        self.registry().traffic.is_idle()
    }

    /// Waits no longer for frames that are lost: their connection has ended.
    pub fn give_up(&self) {
        self.registry().traffic.give_up();
    }

    /// Sets who is told of frames that come through streams; `None` for nobody.
    pub fn observe(&self, observer: Option<Observer>) {
        self.registry().observer = observer;
    }

    /// Tells the observer of a frame that comes through a stream.
    async fn tell(&self, name: &Arc<str>, frame: Vec<u8>) -> Vec<u8> {
        let Some(observer) = self.registry().observer.clone() else { return frame };
        let name = name.clone();
        let told = tokio::task::spawn_blocking(move || {
            observer(&name, &frame);
            frame
        });
        // Without its observer the frame is lost, as on a wire.
        told.await.unwrap_or_default()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: &str) -> Option<Arc<DummyState>> {
        self.registry().ports.get(name)?.upgrade()
    }

    fn all(&self) -> Vec<(String, Arc<DummyState>)> {
        let registry = self.registry();
        registry.ports.iter().filter_map(|(name, port)| Some((name.clone(), port.upgrade()?))).collect()
    }

    /// Returns the next address.
    fn next_address(&self) -> MacAddr {
        let mut registry = self.registry();
        let [a, b, c, d] = FIRST_ADDRESS.wrapping_add(registry.made).to_be_bytes();
        registry.made = registry.made.wrapping_add(1);
        MacAddr([0xaa, 0x55, a, b, c, d])
    }
}

/// Opens a dummy port.
pub fn open(options: &Options, at: PortRef, env: &Environment) -> Result<Box<dyn Port>, OpenError> {
    options.check()?;
    let settings = env.switch.settings(at).map_err(|error| OpenError(error.to_string()))?;
    let failed = |error: std::io::Error| OpenError(format!("cannot make a queue: {error}"));
    let incoming = Arc::new(Incoming::new().map_err(failed)?);
    let outgoing = Arc::new(Outgoing::default());
    // A port with an address of its own counts, too.
    let counted = env.dummies.next_address();
    let state = Arc::new(DummyState {
        switch: env.switch.clone(),
        runtime: env.runtime.clone(),
        at,
        address: options.address.unwrap_or(counted),
        incoming,
        outgoing,
        dummies: env.dummies.clone(),
        name: settings.name.as_str().into(),
        changeable: Mutex::new(Changeable { link_up: true, ..Changeable::default() }),
    });
    let name = settings.name;
    state.configure(options)?;
    state.settle(&mut state.changeable())?;
    env.dummies.registry().ports.insert(name.clone(), Arc::downgrade(&state));
    Ok(Box::new(DummyPort { state, name }))
}

/// State of a port, shared with commands.
struct DummyState {
    switch: Arc<Switch>,
    runtime: tokio::runtime::Handle,
    at: PortRef,
    address: MacAddr,
    incoming: Arc<Incoming>,
    outgoing: Arc<Outgoing>,
    dummies: Dummies,
    name: Arc<str>,
    changeable: Mutex<Changeable>,
}

#[derive(Default)]
struct Changeable {
    options: Options,
    link_up: bool,
    attached: bool,
    closed: bool,
    streams: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for DummyState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DummyState").field("at", &self.at).finish_non_exhaustive()
    }
}

impl DummyState {
    fn changeable(&self) -> MutexGuard<'_, Changeable> {
        self.changeable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the files and starts the streams of `options`, in place of those before.
    fn configure(&self, options: &Options) -> Result<(), OpenError> {
        let mut changeable = self.changeable();
        let open = |path: &Option<std::path::PathBuf>| path.as_deref().map(capture::open).transpose();
        self.incoming.set_capture(open(options.received_in())?);
        self.outgoing.set_capture(open(options.sent_in())?);
        let streams = (&options.stream, &options.pstream);
        if streams != (&changeable.options.stream, &changeable.options.pstream) {
            if let Some(before) = changeable.streams.take() {
                before.abort();
            }
            self.outgoing.set_stream_state(StreamState::None);
            let ends = stream::Ends {
                incoming: self.incoming.clone(),
                outgoing: self.outgoing.clone(),
                traffic: self.dummies.registry().traffic.clone(),
                dummies: self.dummies.clone(),
                name: self.name.clone(),
            };
            changeable.streams = stream::start(&self.runtime, options, ends)?;
        }
        changeable.options = options.clone();
        Ok(())
    }

    /// Attaches the port if its link is up, else detaches it.
    fn settle(&self, changeable: &mut Changeable) -> Result<(), OpenError> {
        let wanted = changeable.link_up && !changeable.closed;
        if wanted == changeable.attached {
            return Ok(());
        }
        if wanted {
            // A ring that was detached sends nothing any more.
            let written = Written::new(self.outgoing.clone())
                .map_err(|error| OpenError(format!("cannot make a queue: {error}")))?;
            let egress = Arc::new(TxRing::new(written, (), 0)) as Arc<dyn Egress>;
            let attachment = Attachment {
                rx: vec![Box::new(FrameQueue::new(self.incoming.clone())) as Box<dyn RxQueue>],
                tx: vec![egress],
                // Frames are captured as they would be on a wire.
                caps: Caps::default(),
                mtu: MAX_PACKET,
                // The queues are in the process's own memory, which does not fail.
                on_fault: Arc::new(|_| {}),
            };
            self.switch.attach(self.at, attachment).map_err(|error| OpenError(error.to_string()))?;
        } else if let Err(error) = self.switch.detach(self.at) {
            // The port was removed from the switch, and thus detached.
            tracing::debug!(%error, "dummy port was detached already");
        }
        changeable.attached = wanted;
        Ok(())
    }

    fn set_up(&self, up: bool) {
        let mut changeable = self.changeable();
        changeable.link_up = up;
        if let Err(error) = self.settle(&mut changeable) {
            tracing::warn!(%error, "a dummy port stays down");
        }
    }

    fn receive(&self, frames: Vec<Vec<u8>>) -> Result<(), DummyError> {
        if !self.changeable().attached {
            // As with a cable that is not plugged in.
            return Ok(());
        }
        self.incoming.receive_all(frames)
    }

    fn close(&self) {
        let mut changeable = self.changeable();
        changeable.closed = true;
        if let Some(streams) = changeable.streams.take() {
            streams.abort();
        }
        // Detaching does not fail.
        let _ = self.settle(&mut changeable);
    }
}

struct DummyPort {
    state: Arc<DummyState>,
    name: String,
}

impl Port for DummyPort {
    fn status(&self) -> Status {
        let changeable = self.state.changeable();
        let link = match () {
            () if changeable.closed => Link::Down("the port is closed".into()),
            () if !changeable.link_up => Link::Down("the link is set down".into()),
            () => Link::Up,
        };
        Status { link, details: vec![("address".into(), self.state.address.to_string())] }
    }

    fn address(&self) -> Option<MacAddr> {
        Some(self.state.address)
    }

    fn reconfigure(&self, spec: &Spec) -> Result<bool, OpenError> {
        let Spec::Dummy(options) = spec else { return Ok(false) };
        let keeps_address = options.address.is_none_or(|address| address == self.state.address);
        if !keeps_address {
            return Ok(false);
        }
        options.check()?;
        self.state.configure(options)?;
        Ok(true)
    }

    fn close(&self) {
        self.state.close();
        let mut registry = self.state.dummies.registry();
        // Another port may have the name by now.
        let own = |port: &Weak<DummyState>| std::ptr::eq(port.as_ptr(), Arc::as_ptr(&self.state));
        if registry.ports.get(&self.name).is_some_and(own) {
            registry.ports.remove(&self.name);
        }
    }
}

impl Drop for DummyPort {
    fn drop(&mut self) {
        self.close();
    }
}
