//! Calls of modules outside of workers: each runs on a thread of its own, and the caller waits for a limited time.
//!
//! WebAssembly is interrupted anyway. Native code cannot be stopped: a call that does not return keeps its thread and
//! its memory until the process ends.
//!
//! Invariant: at most [`MOST_LATE`] threads are left behind. While there are so many, further calls are refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::BatchHead;
use crate::call::Host;
use crate::log::LogSource;
use crate::module::{Because, Runner};
use crate::table::SharedTable;
use crate::window::Window;

/// Time allowed for a call.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// Threads left behind by calls that did not return.
const MOST_LATE: usize = 4;

/// A call that has not returned in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateCall {
    /// The module.
    pub module: Arc<str>,
    /// Its bridge, if it has one yet.
    pub bridge: Option<Arc<str>>,
    /// The function that was called.
    pub function: &'static str,
    /// Start of the call.
    pub since: Instant,
}

/// Calls that have not returned in time, each with its flag.
static LATE: Mutex<Vec<(Arc<AtomicBool>, LateCall)>> = Mutex::new(Vec::new());

fn late() -> MutexGuard<'static, Vec<(Arc<AtomicBool>, LateCall)>> {
    LATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the calls outside of workers that have not returned in time and still keep a thread busy.
pub fn late_calls() -> Vec<LateCall> {
    late().iter().map(|(_, call)| call.clone()).collect()
}

/// A call in progress.
#[derive(Clone)]
struct Running {
    has_returned: Arc<AtomicBool>,
    call: LateCall,
}

impl Running {
    /// Begins a call, unless too many are late.
    fn new(source: &LogSource, function: &'static str) -> Result<Self, String> {
        if late().len() >= MOST_LATE {
            return Err(format!(
                "`{function}` is not called: {MOST_LATE} earlier calls of native modules have not returned; restart the daemon"
            ));
        }
        let LogSource { module, bridge, .. } = source.clone();
        let call = LateCall { module, bridge, function, since: Instant::now() };
        Ok(Self { has_returned: Arc::default(), call })
    }

    /// The caller gives up. Returns the message.
    fn give_up(self) -> String {
        let function = self.call.function;
        let mut late = late();
        // Under the lock, so that a call that returns now finds itself in the list.
        if !self.has_returned.load(Ordering::Relaxed) {
            late.push((self.has_returned, self.call));
        }
        format!("`{function}` has not returned within {} s; {KEEPS_A_THREAD}", LIMIT.as_secs())
    }

    /// The call has returned.
    fn end(self) {
        let mut late = late();
        self.has_returned.store(true, Ordering::Relaxed);
        late.retain(|(flag, _)| !Arc::ptr_eq(flag, &self.has_returned));
    }
}

/// End of the message for a call that did not return in time.
const KEEPS_A_THREAD: &str =
    "native code cannot be stopped, so it keeps a thread busy until the daemon is restarted";

/// Whether an error is that of a call that did not return in time.
pub(crate) fn is_late(message: &str) -> bool {
    message.ends_with(KEEPS_A_THREAD)
}

/// Does `work`, which calls `function` of the module `source`, on a thread of its own.
pub(crate) fn within<T: Send + 'static>(
    source: &LogSource,
    function: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let running = Running::new(source, function)?;
    let (done, result) = sync_channel(1);
    let returned = running.clone();
    spawn(move || {
        // A caller that gave up does not receive it.
        let _ = done.send(work());
        returned.end();
    })?;
    match result.recv_timeout(LIMIT) {
        Ok(result) => Ok(result),
        Err(RecvTimeoutError::Disconnected) => Err(format!("`{function}` failed; this is a bug in mswitch")),
        Err(RecvTimeoutError::Timeout) => Err(running.give_up()),
    }
}

fn spawn(body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let spawned = std::thread::Builder::new().name("mswitch-module".into()).spawn(body);
    spawned.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

/// A module's request to its batch.
type Request = Box<dyn FnOnce(&mut dyn Host) + Send>;

/// An instance of the module `source` for one batch, which decides on a thread of its own while the caller answers its
/// requests.
pub(crate) struct Bounded {
    source: Arc<LogSource>,
    runner: Option<Box<dyn Runner>>,
    /// Outlives the runner, wherever that is.
    tables: Arc<[SharedTable]>,
    window: Window,
    head: BatchHead,
}

impl Bounded {
    pub(crate) fn new(source: Arc<LogSource>, runner: Box<dyn Runner>, tables: Arc<[SharedTable]>) -> Self {
        let (window, head) = (runner.window(), *runner.head());
        Self { source, runner: Some(runner), tables, window, head }
    }
}

impl Runner for Bounded {
    fn window(&self) -> Window {
        self.window
    }

    fn head(&self) -> &BatchHead {
        &self.head
    }

    /// The window is used by one side at a time: by the module, or, while that waits for an answer, by the host.
    /// After an error it is not used here any more.
    fn decide(&mut self, because: Because, host: &mut dyn Host) -> Result<u32, String> {
        let running = Running::new(&self.source, because.function())?;
        let Some(mut runner) = self.runner.take() else { return Err("its instance is gone".into()) };
        let tables = self.tables.clone();
        let (requests, asked) = sync_channel::<Request>(0);
        let (done, result) = sync_channel(1);
        let returned = running.clone();
        spawn(move || {
            let outputs = runner.decide(because, &mut Proxy(requests));
            // Returned with the runner, which the caller's window belongs to.
            let _ = done.send((outputs, runner));
            returned.end();
            drop(tables);
        })?;
        let deadline = Instant::now() + LIMIT;
        loop {
            match asked.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(request) => request(host),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err(running.give_up()),
            }
        }
        let (outputs, runner) =
            result.recv().map_err(|_| "it failed; this is a bug in mswitch".to_owned())?;
        self.runner = Some(runner);
        outputs
    }

    fn command(&mut self, _: u32, _: &mut dyn Host) -> Result<i32, String> {
        Err("this instance takes no commands".into())
    }
}

/// The module's side of a batch that another thread has.
struct Proxy(SyncSender<Request>);

impl Proxy {
    /// Asks the batch; `otherwise` if the caller has given up.
    fn ask<T: Send + 'static>(
        &mut self,
        otherwise: T,
        ask: impl FnOnce(&mut dyn Host) -> T + Send + 'static,
    ) -> T {
        let (done, answer): (SyncSender<T>, Receiver<T>) = sync_channel(1);
        let request: Request = Box::new(move |host| _ = done.send(ask(host)));
        match self.0.send(request) {
            Ok(()) => answer.recv().unwrap_or(otherwise),
            Err(_) => otherwise,
        }
    }
}

impl Host for Proxy {
    fn pull(&mut self, packet: u32, bytes: u32) -> u32 {
        self.ask(0, move |host| host.pull(packet, bytes))
    }

    fn copy(&mut self, packet: u32) -> i32 {
        self.ask(-1, move |host| host.copy(packet))
    }

    fn is_up(&mut self, port: u32) -> bool {
        self.ask(false, move |host| host.is_up(port))
    }

    fn originate(&mut self, bytes: &[u8]) -> i32 {
        let bytes = bytes.to_vec();
        self.ask(-1, move |host| host.originate(&bytes))
    }

    fn read(&mut self, packet: u32, from: u32, out: &mut [u8]) -> u32 {
        let mut bytes = vec![0; out.len()];
        let (n, bytes) = self.ask((0, Vec::new()), move |host| {
            let n = host.read(packet, from, &mut bytes);
            (n, bytes)
        });
        out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        n
    }

    fn retain(&mut self, packet: u32) -> i32 {
        self.ask(-1, move |host| host.retain(packet))
    }

    fn release(&mut self, held: u32) -> i32 {
        self.ask(-1, move |host| host.release(held))
    }

    fn remark(&mut self, packet: u32, text: &[u8], kind: u32, value: u64) {
        let text = text.to_vec();
        self.ask((), move |host| host.remark(packet, &text, kind, value));
    }

    fn port(&mut self, name: &[u8]) -> i32 {
        let name = name.to_vec();
        self.ask(-1, move |host| host.port(&name))
    }
}
