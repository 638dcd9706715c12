//! pcap ports: they replay one file and record to another.
//!
//! A port replays a capture file into the switch, records the frames sent to it in another, or both. Threads of the
//! port read and write the files; workers access memory only:
//!
//! - [`reader`] reads capture files, `pace` computes when a frame is due, `replay` is the thread that uses both and
//!   puts frames on the `frame_ring`, the worker's receive queue;
//! - `slots` is the ring that workers fill, `record` the thread that empties it to a file of [`pcapng`].
//!
//! Invariants: the port is attached unless one of its files has failed; it attaches itself again when the file
//! recovers. Nothing of the port is left when [`Port::close`] returns, and all frames sent to it until then are in the
//! file, unless a file does not respond: then a thread is left with it.

mod frame_ring;
mod options;
mod pace;
pub mod pcapng;
pub mod reader;
mod record;
mod replay;
pub(crate) mod slots;
mod speed;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fabric::OnFault;
use fabric::rx::MAX_PACKET;
use fabric::switch::PortRef;
use fabric::{Attachment, Caps, Egress, Fault, RxQueue, Switch, TxRing, clock};

use crate::log_limit::{Admitted, LogLimit};
use crate::{Environment, Link, OpenError, Port, Status};
use frame_ring::{FrameQueue, FrameRing};
pub use options::Options;
use record::{Recorded, Recorder, Recording};
use replay::{Capture, Progress, Replay};
use slots::{Filling, Slots};
pub use speed::{Rounds, Speed};

/// Opens a pcap port. A file that cannot be replayed or recorded to is refused; one that fails later takes the port
/// down.
pub fn open(options: &Options, at: PortRef, env: &Environment) -> Result<Box<dyn Port>, OpenError> {
    options.check()?;
    let settings = env.switch.settings(at).map_err(|error| OpenError(error.to_string()))?;
    let failed = |what: &str, error: std::io::Error| OpenError(format!("cannot make {what}: {error}"));
    let replayed = match &options.read {
        None => None,
        Some(path) => {
            let ring =
                FrameRing::new(!settings.admin_up).map_err(|error| failed("a replay's queue", error))?;
            Some((path, Capture::open(path).map_err(OpenError)?, Arc::new(ring)))
        }
    };
    let recorded = match &options.write {
        None => None,
        Some(path) => {
            let slots = Slots::new().map_err(|error| failed("a recording's queue", error))?;
            // Measured once, now, not while frames wait.
            clock::frequency();
            Some((Recording::open(path, options, &settings.name).map_err(OpenError)?, slots))
        }
    };

    let state = Arc::new(PortState {
        switch: env.switch.clone(),
        runtime: env.runtime.clone(),
        at,
        name: settings.name,
        ring: replayed.as_ref().map(|(_, _, ring)| ring.clone()),
        egress: recorded.as_ref().map(|(_, slots)| Arc::new(TxRing::new(Filling(slots.clone()), (), 0))),
        health: Mutex::default(),
        fault: OnceLock::new(),
        log: LogLimit::default(),
    });
    let mut port = PcapPort {
        state: state.clone(),
        options: options.clone(),
        progress: Arc::default(),
        recorded: Arc::default(),
        recorder: None,
        stopped: Arc::default(),
        threads: Mutex::default(),
    };
    if let Some((recording, slots)) = recorded {
        port.recorder = Some(slots.clone());
        let (recorded, stopped) = (port.recorded.clone(), port.stopped.clone());
        let recorder = Recorder { recording, slots, recorded, stopped, port: state.clone() };
        let thread = Worker::start("mswitch-record", move || recorder.run())?;
        port.threads().record = Some(thread);
    }
    state.settle(&mut state.health());
    if let Some(why) = state.health().refused.take() {
        return Err(OpenError(why));
    }
    if let Some((path, capture, ring)) = replayed {
        let replay = Replay {
            path: path.clone(),
            speed: options.speed,
            rounds: options.rounds,
            ring,
            progress: port.progress.clone(),
            port: state,
        };
        let thread = Worker::start("mswitch-replay", move || replay.run(capture))?;
        port.threads().replay = Some(thread);
    }
    Ok(Box::new(port))
}

/// Time for a thread to end before it is left alone: its file may be on a network file system.
const ENDING: Duration = Duration::from_secs(2);

/// A thread of a port.
struct Worker {
    name: &'static str,
    /// Closed when the thread ends; nothing is ever sent.
    ended: Receiver<()>,
}

impl Worker {
    fn start(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<Self, OpenError> {
        let (alive, ended) = channel();
        let started = std::thread::Builder::new().name(name.into()).spawn(move || {
            let _alive = alive;
            work();
        });
        started.map_err(|error| OpenError(format!("cannot start the thread {name}: {error}")))?;
        Ok(Self { name, ended })
    }

    /// Waits for its end. A thread whose file does not respond ends later, and then touches nothing of the port's.
    fn end(self, port: &str) {
        if self.ended.recv_timeout(ENDING) == Err(RecvTimeoutError::Timeout) {
            let after = ENDING.as_secs();
            tracing::warn!(
                port,
                thread = self.name,
                "the port's file does not respond within {after} s; closing the port without it"
            );
        }
    }
}

/// Describes the failure to open a file, with the remedy.
fn cannot(what: &str, path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    match error.kind() {
        std::io::ErrorKind::NotFound => format!("cannot {what} {path}: no such file"),
        std::io::ErrorKind::PermissionDenied => {
            let user = rustix::process::geteuid().as_raw();
            format!("cannot {what} {path}: {error}; allow it for user {user}, which the daemon runs as")
        }
        _ => format!("cannot {what} {path}: {error}"),
    }
}

/// One of a port's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Replay,
    Record,
}

/// State of a port, shared by its threads and the switch.
struct PortState {
    switch: Arc<Switch>,
    runtime: tokio::runtime::Handle,
    at: PortRef,
    name: String,
    ring: Option<Arc<FrameRing>>,
    egress: Option<Arc<TxRing<Filling>>>,
    /// The lock is held while attaching and detaching, so workers must not take it.
    health: Mutex<Health>,
    /// Fault that a worker reported, which ended the port.
    fault: OnceLock<Fault>,
    log: LogLimit,
}

#[derive(Default)]
struct Health {
    replay: Option<String>,
    record: Option<String>,
    /// Error with which the switch refused the port.
    refused: Option<String>,
    attached: bool,
    closed: bool,
}

impl Health {
    /// Returns the reason why traffic cannot pass.
    fn reason(&self) -> Option<String> {
        if self.closed {
            return Some("the port is closed".into());
        }
        let found: Vec<&str> =
            [&self.replay, &self.record, &self.refused].into_iter().flatten().map(String::as_str).collect();
        (!found.is_empty()).then(|| found.join("; "))
    }
}

impl PortState {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches the port if all is well with it, else detaches it.
    fn settle(self: &Arc<Self>, health: &mut Health) {
        let well = !health.closed && health.replay.is_none() && health.record.is_none();
        if well == health.attached {
            return;
        }
        if !well {
            health.attached = false;
            if let Err(error) = self.switch.detach(self.at) {
                // The port was removed from the switch, and thus detached.
                tracing::debug!(port = self.name, %error, "pcap port was detached already");
            }
            return;
        }
        health.refused = self.switch.attach(self.at, self.attachment()).err().map(|error| error.to_string());
        health.attached = health.refused.is_none();
    }

    fn attachment(self: &Arc<Self>) -> Attachment {
        let rx = self.ring.iter().map(|ring| Box::new(FrameQueue::new(ring.clone())) as Box<dyn RxQueue>);
        Attachment {
            rx: rx.collect(),
            tx: self.egress.iter().map(|egress| egress.clone() as Arc<dyn Egress>).collect(),
            // Frames are recorded as they would be on a wire.
            caps: Caps::default(),
            mtu: MAX_PACKET,
            on_fault: self.on_fault(),
        }
    }

    /// Returns the handler that workers call when a queue fails. It does not block them: the detaching, which waits for
    /// workers, happens on another thread.
    fn on_fault(self: &Arc<Self>) -> OnFault {
        // The switch keeps this while the port is attached; it must not keep the port alive.
        let state = Arc::downgrade(self);
        Arc::new(move |fault| {
            let Some(state) = state.upgrade() else { return };
            if state.fault.set(fault).is_ok() {
                let runtime = state.runtime.clone();
                runtime.spawn(async move { tokio::task::spawn_blocking(move || state.close()).await });
            }
        })
    }

    fn close(self: &Arc<Self>) {
        let mut health = self.health();
        health.closed = true;
        self.settle(&mut health);
    }

    /// Reports that a file has failed, or with `None` that it recovered. Returns when the port has followed.
    fn report(self: &Arc<Self>, side: Side, problem: Option<String>) {
        let mut health = self.health();
        let known = match side {
            Side::Replay => &mut health.replay,
            Side::Record => &mut health.record,
        };
        if *known == problem {
            return;
        }
        if let Some(Admitted { suppressed }) = self.log.admit() {
            match &problem {
                Some(reason) => tracing::warn!(port = self.name, reason, suppressed, "pcap port is down"),
                None => tracing::info!(port = self.name, suppressed, "pcap port is up again"),
            }
        }
        *known = problem;
        self.settle(&mut health);
    }
}

#[derive(Default)]
struct Threads {
    replay: Option<Worker>,
    record: Option<Worker>,
}

struct PcapPort {
    state: Arc<PortState>,
    options: Options,
    progress: Arc<Progress>,
    recorded: Arc<Recorded>,
    recorder: Option<Arc<Slots>>,
    /// Whether the recorder gets no more frames.
    stopped: Arc<AtomicBool>,
    threads: Mutex<Threads>,
}

impl PcapPort {
    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let Threads { replay, record } = std::mem::take(&mut *self.threads());
        if let Some(ring) = &self.state.ring {
            ring.stop();
        }
        if let Some(replay) = replay {
            replay.end(&self.state.name);
        }
        self.state.close();
        self.stopped.store(true, Ordering::SeqCst);
        if let Some(slots) = &self.recorder {
            slots.wake();
        }
        if let Some(record) = record {
            record.end(&self.state.name);
        }
    }
}

impl Port for PcapPort {
    fn status(&self) -> Status {
        let reason = self.lost().or_else(|| self.state.health().reason());
        let link = reason.map_or(Link::Up, Link::Down);
        let mut details = Vec::new();
        if let (Some(path), Some(ring)) = (&self.options.read, &self.state.ring) {
            details.push(("read".to_owned(), path.display().to_string()));
            details.push(("speed".to_owned(), self.options.speed.to_string()));
            details.extend(self.progress.describe(self.options.rounds, ring.is_halted()));
        }
        if let Some(path) = &self.options.write {
            details.push(("write".to_owned(), path.display().to_string()));
            details.push(self.recorded.describe());
        }
        Status { link, details }
    }

    fn set_admin(&self, up: bool) {
        let Some(ring) = &self.state.ring else { return };
        if up {
            ring.resume();
        } else if !ring.halt() {
            let why = "frames are still in flight; those that come too late are dropped";
            tracing::warn!(port = self.state.name, "{why}");
        }
    }

    fn lost(&self) -> Option<String> {
        self.state.fault.get().map(ToString::to_string)
    }

    fn close(&self) {
        self.end();
    }
}

impl Drop for PcapPort {
    fn drop(&mut self) {
        self.end();
    }
}
