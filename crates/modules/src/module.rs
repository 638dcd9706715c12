//! A module as a logic: its view for the switch, common to both kinds.
//!
//! A batch's way: its packets are listed in the worker's window (their headers are there already, because the fabric
//! keeps them in the window's slots); the module is called; its changes to the packets in the list (a header that
//! starts elsewhere, another VLAN) are applied to the fabric's versions, and then its outputs are carried out one by
//! one.
//!
//! A packet that is only traced goes through an instance that was made for it, with a copy of the tables.
//!
//! Invariant: a batch that a module fails on is dropped and counted as `logic-fault`, except for packets that it had
//! sent already.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fabric::worker::{MAX_THREADS, PerThread, Threads};
use fabric::{Arena, Batch, DropReason, PortIndex, PortSettings, SwitchLogic, VersionId, clock};
use logic::params::{self, ParamValue};
use logic::vlan::Vlans;
use logic::{
    CommandInfo, Counter, Faults, Logic, LogicDescription, LogicError, State, Table, TableSize, Values,
};

use crate::abi::{self, BatchHead, MAX_TABLES, Value};
use crate::bounded::{self, Bounded};
use crate::call::{self, Call, Host, MAX_DELIVERIES, Shadow};
use crate::description::{Description, TableInfo, Timer, Type};
use crate::held_packets::HeldPackets;
use crate::instance::{Instance, InstanceSlot};
use crate::log::{self, LogSource};
use crate::ports::PortNames;
use crate::table::SharedTable;
use crate::watchdog;
use crate::window::Window;

/// The largest file, bytes.
const MAX_FILE: u64 = 16 << 20;
/// Rows of a table that people are shown.
const MAX_ROWS: usize = 100_000;

/// How the files of a kind become modules.
pub(crate) struct Loader {
    /// The kind's prefix.
    pub(crate) prefix: &'static str,
    /// Reads a file.
    pub(crate) load: fn(&Path) -> Result<Box<dyn Source>, String>,
}

/// A module's code, of which instances are made.
pub(crate) trait Source: Send + Sync {
    /// Its description.
    fn description(&self) -> &Description;

    /// Makes an instance and starts it.
    fn instance(&self, setup: &Setup) -> Result<Box<dyn Runner>, String>;

    /// The same of an instance that shares nothing with others.
    fn instance_apart(&self, setup: &Setup) -> Result<Box<dyn Runner>, String> {
        self.instance(setup)
    }
}

/// Setup of an instance.
#[derive(Clone)]
pub(crate) struct Setup {
    /// Its lines in the log.
    pub(crate) log: Arc<LogSource>,
    /// Its tables.
    pub(crate) tables: Arc<[SharedTable]>,
    /// The values of its parameters.
    pub(crate) values: Arc<Values>,
    /// The bridge's ports.
    pub(crate) ports: Arc<PortNames>,
    /// Its worker.
    pub(crate) worker: usize,
}

/// Reason for calling a module with a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Because {
    /// Packets were received.
    OfPackets,
    /// The timer's interval is over.
    OfTime,
}

impl Because {
    /// Name of the function that is called.
    pub(crate) fn function(self) -> &'static str {
        match self {
            Because::OfPackets => abi::export::FORWARD,
            Because::OfTime => abi::export::TIMER,
        }
    }
}

/// An instance.
pub(crate) trait Runner: Send {
    /// The window that it shares with its worker.
    fn window(&self) -> Window;

    /// The part of the batch's head that is the same for all batches.
    fn head(&self) -> &BatchHead;

    /// Calls the module with the batch in its window; returns the number of outputs that it reports.
    fn decide(&mut self, because: Because, host: &mut dyn Host) -> Result<u32, String>;

    /// Carries out a command; returns the function's value.
    fn command(&mut self, number: u32, host: &mut dyn Host) -> Result<i32, String>;
}

/// Number of the instance for commands, beyond those of workers.
const COMMANDS: usize = MAX_THREADS;

/// See the module.
pub(crate) struct Module(Arc<Inner>);

/// The part of a module that the watchdog knows.
pub(crate) struct Inner {
    name: Arc<str>,
    /// The name of its bridge.
    bridge: OnceLock<Arc<str>>,
    /// The file that it was read from, and its state then.
    origin: Option<(PathBuf, Option<Stamp>)>,
    source: Box<dyn Source>,
    values: Arc<Values>,
    tables: Arc<[SharedTable]>,
    /// Instances of workers.
    slots: PerThread<InstanceSlot>,
    /// An instance is stuck, and those of the other workers are withdrawn.
    stuck: Mutex<bool>,
    /// The instance for commands.
    for_commands: OnceLock<InstanceSlot>,
    ports: Arc<PortNames>,
    /// The command that is being carried out, and since when.
    command: Mutex<Option<(String, Instant)>>,
    /// Commands and traces that did not return in time: their number, and the latest one's time and message.
    late: Mutex<(u64, Option<(Instant, String)>)>,
}

/// Writes a number of bytes in MiB, rounded up to tenths.
pub(crate) fn mib(bytes: u64) -> String {
    let tenths = (u128::from(bytes) * 10).div_ceil(1 << 20);
    match tenths % 10 {
        0 => format!("{} MiB", tenths / 10),
        tenth => format!("{}.{tenth} MiB", tenths / 10),
    }
}

/// A module's file, whole.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let is = std::fs::metadata(path).map_err(|error| error.to_string())?;
    // Other files may have no end, or block the reader.
    if !is.is_file() {
        return Err("not a regular file".into());
    }
    if is.len() > MAX_FILE {
        return Err(format!("the file has {}, more than {}", mib(is.len()), mib(MAX_FILE)));
    }
    std::fs::read(path).map_err(|error| error.to_string())
}

/// Checks that a module was built for this switch's version of the interface.
pub(crate) fn check_version(version: u32) -> Result<(), String> {
    match version == abi::VERSION {
        true => Ok(()),
        false => Err(format!(
            "built for version {version} of the interface; this switch supports version {}: rebuild it with this switch's SDK",
            abi::VERSION
        )),
    }
}

/// The error for a function that a module does not export.
pub(crate) fn not_exported(function: &str) -> String {
    format!("no exported function `{function}`")
}

/// The batch that a module has, for the functions that it calls.
///
/// # Safety
/// It is not used after `host` ends.
pub(crate) unsafe fn lasting(host: &mut dyn Host) -> NonNull<dyn Host> {
    let host: NonNull<dyn Host + '_> = NonNull::from(host);
    // SAFETY: only the lifetime differs, and the caller's promise stands in for it.
    unsafe { std::mem::transmute(host) }
}

/// The error for a module whose start returned this value.
pub(crate) fn refusal(window: &Window, returned: i32) -> String {
    let reason = window.answer(usize::try_from(returned.unsigned_abs()).unwrap_or(usize::MAX));
    match returned < 0 && reason.bytes().any(|byte| byte != 0) {
        true => format!("the module refuses to start: {reason}"),
        false => format!("the module refuses to start: `{}` returned {returned}", abi::export::START),
    }
}

/// State of a file: device, inode, size, and time of modification.
pub(crate) type Stamp = (u64, u64, u64, i64, i64);

fn stamp(file: &Path) -> Option<Stamp> {
    let is = std::fs::metadata(file).ok()?;
    Some((is.dev(), is.ino(), is.size(), is.mtime(), is.mtime_nsec()))
}

fn error(prefix: &str, file: &str, message: impl Into<String>) -> LogicError {
    LogicError::Module { file: format!("{prefix}:{file}"), message: message.into() }
}

fn load(loader: &Loader, file: &str) -> Result<Box<dyn Source>, LogicError> {
    if let Err(what) = watchdog::start() {
        return Err(error(loader.prefix, file, format!("no thread to look after modules: {what}")));
    }
    if file.is_empty() {
        return Err(LogicError::MissingFile { prefix: loader.prefix.into() });
    }
    (loader.load)(Path::new(file)).map_err(|message| error(loader.prefix, file, message))
}

/// Describes the module in a file.
pub(crate) fn describe(loader: &Loader, file: &str) -> Result<LogicDescription, LogicError> {
    let source = load(loader, file)?;
    Ok(named(loader, file, source.description()))
}

/// The description under the logic's name.
fn named(loader: &Loader, file: &str, description: &Description) -> LogicDescription {
    LogicDescription { name: format!("{}:{file}", loader.prefix), ..description.logic.clone() }
}

/// Makes the module in a file a logic.
pub(crate) fn build(
    loader: &Loader,
    file: &str,
    given: &[(String, String)],
) -> Result<Arc<dyn Logic>, LogicError> {
    // Before it is read: a change in between is noticed later.
    let origin = Some((PathBuf::from(file), stamp(Path::new(file))));
    let source = load(loader, file)?;
    let values = params::check(&named(loader, file, source.description()), given)?;
    let module = Module::new(format!("{}:{file}", loader.prefix), origin, source, values);
    let refused = |what| error(loader.prefix, file, format!("no memory for its tables: {what}"));
    Ok(Arc::new(module.map_err(refused)?))
}

impl Inner {
    fn description(&self) -> &Description {
        self.source.description()
    }

    /// An instance has failed.
    #[cold]
    fn failed(&self, worker: usize, message: &str) {
        log::post(&self.log(worker), message.as_bytes(), true);
        watchdog::failed();
    }

    /// Notes a command or trace that has not returned, as a failure; `message` is its error.
    #[cold]
    fn note_late(&self, what: &str, message: &str) {
        if bounded::is_late(message) {
            let message = format!("{what}: {message}");
            let mut late = self.late();
            *late = (late.0 + 1, Some((Instant::now(), message.clone())));
            drop(late);
            self.failed(COMMANDS, &message);
        }
    }

    fn late(&self) -> MutexGuard<'_, (u64, Option<(Instant, String)>)> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instance(&self, worker: usize) -> Result<Instance, String> {
        let runner = self.source.instance(&self.setup(self.tables.clone(), worker))?;
        Ok(self.ready(runner))
    }

    fn setup(&self, tables: Arc<[SharedTable]>, worker: usize) -> Setup {
        let (log, values, ports) = (self.log(worker).into(), self.values.clone(), self.ports.clone());
        Setup { log, tables, values, ports, worker }
    }

    /// The source of an instance's lines in the log.
    fn log(&self, worker: usize) -> LogSource {
        let (module, bridge) = (self.name.clone(), self.bridge.get().cloned());
        LogSource { module, bridge, worker: Some(worker).filter(|worker| *worker != COMMANDS) }
    }

    /// Makes an instance that shares nothing with others, with these tables.
    fn instance_apart(&self, tables: Arc<[SharedTable]>, worker: usize) -> Result<Instance, String> {
        let setup = self.setup(tables.clone(), worker);
        let runner = self.source.instance_apart(&setup)?;
        Ok(self.ready(Box::new(Bounded::new(setup.log, runner, tables))))
    }

    fn ready(&self, runner: Box<dyn Runner>) -> Instance {
        self.name_ports(&runner.window());
        Instance {
            runner,
            shadows: vec![Shadow::NONE; abi::MAX_VERSIONS],
            held: HeldPackets::new(self.description().retain),
            ports: Vec::with_capacity(abi::SET_LEN * 8),
        }
    }

    /// The timer's interval.
    fn period(&self) -> Option<Duration> {
        let time = match self.description().timer.as_ref()? {
            Timer::Every(time) => *time,
            Timer::Param(name) => match self.values.get(name)? {
                ParamValue::Duration(time) => u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
                _ => return None,
            },
        };
        Some(Duration::from_millis(time.clamp(*abi::PERIODS.start(), *abi::PERIODS.end())))
    }

    /// Restarts failed instances whose back-off is over. Returns whether others remain.
    pub(crate) fn restart(&self) -> bool {
        let mut left = false;
        for (worker, slot) in self.slots() {
            left |= slot.restart(|| {
                self.tables.iter().for_each(SharedTable::repair);
                self.instance(worker).inspect_err(|message| self.failed(worker, message))
            });
        }
        left
    }

    /// Number of failures of all instances, late commands and traces included.
    fn failures(&self) -> u64 {
        self.slots().map(|(_, slot)| u64::from(slot.failures())).sum::<u64>() + self.late().0
    }

    /// Time and message of the last of these failures.
    fn last_failure(&self) -> Option<(Instant, String)> {
        let late = self.late().1.clone();
        self.slots().filter_map(|(_, slot)| slot.last_failure()).chain(late).max_by_key(|(at, _)| *at)
    }

    /// All instances, with their numbers.
    fn slots(&self) -> impl Iterator<Item = (usize, &InstanceSlot)> {
        self.slots.iter().chain(self.for_commands.get().map(|slot| (COMMANDS, slot)))
    }

    /// The parameters that name a port: their places and the names.
    fn port_params(&self) -> impl Iterator<Item = (usize, &str)> {
        let params = self.description().logic.params.iter().enumerate();
        params.filter_map(|(i, param)| match self.values.get(&param.name) {
            Some(ParamValue::Port(name)) => Some((i, name.as_str())),
            _ => None,
        })
    }

    fn name_ports(&self, window: &Window) {
        for (i, name) in self.port_params() {
            window.set_value_number(i, self.ports.value(name));
        }
    }

    /// See [`watchdog::overran`].
    pub(crate) fn overran(&self, threads: &[usize]) {
        let is_stuck = |thread: &usize| self.slots.get(*thread).is_some_and(InstanceSlot::is_busy);
        let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        *stuck = threads.iter().any(is_stuck);
        self.slots.iter().for_each(|(_, slot)| slot.withdraw(*stuck));
    }

    /// Withdraws the instances that were made while another one is stuck.
    fn withdraw_new(&self) {
        let stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        self.slots.iter().for_each(|(_, slot)| slot.withdraw(*stuck));
    }

    /// Whether a command has not returned in time: a new instance can take others.
    fn has_hung_command(&self) -> bool {
        let command = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        let is_late = command.as_ref().is_some_and(|(_, since)| since.elapsed() >= bounded::LIMIT);
        is_late && self.for_commands.get().is_some_and(InstanceSlot::is_busy)
    }

    /// Carries out command `number`, called `name`. Returns whether it succeeded, and its answer.
    fn command(&self, number: usize, name: &str, arguments: &str) -> Result<(bool, String), String> {
        let begun = || self.command.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = self.for_commands.get() else { return Err("the module does not run".into()) };
        let answered = slot.with(|instance| {
            *begun() = Some((name.to_owned(), Instant::now()));
            let window = instance.runner.window();
            let head = BatchHead {
                text_len: arguments.len() as u32,
                now: clock::nanoseconds(),
                ports: self.ports.version(),
                ..*instance.runner.head()
            };
            window.set_head(&head);
            window.write(window.layout().text, arguments.as_bytes());
            let mut host = &*self.ports;
            let returned = watchdog::during(|| instance.runner.command(number as u32, &mut host))?;
            let len = usize::try_from(returned.unsigned_abs()).unwrap_or(usize::MAX);
            Ok((returned >= 0, window.answer(len)))
        });
        match (answered, &*begun()) {
            (Some(Ok(answer)), _) => Ok(answer),
            (Some(Err(message)), _) => {
                self.failed(COMMANDS, &message);
                Err(message)
            }
            (None, Some((other, since))) if slot.is_busy() => Err(format!(
                "command `{other}` has been running for {} s, and the module carries out one at a time; try again later, or set \
                 the logic again",
                since.elapsed().as_secs()
            )),
            (None, _) => Err(match slot.last_failure() {
                Some((_, failure)) => format!(
                    "an earlier command failed, and the module's instance for commands is being restarted; try again in a moment; \
                     the failure: {failure}"
                ),
                None => "the module is carrying out another command; try again in a moment".into(),
            }),
        }
    }

    fn forget_port(&self, port: PortIndex) {
        for (table, info) in self.tables.iter().zip(&self.description().tables) {
            if let Some(column) = info.column(Type::Port) {
                table.remove_where(|entry| value_of(info, entry, column) == u64::from(port.0));
            }
        }
    }
}

/// Returns a column of an entry's value.
fn value_of(info: &TableInfo, entry: &[u8], column: &crate::description::Column) -> u64 {
    let mut wide = [0; 8];
    for (to, from) in wide.iter_mut().zip(column.of(entry.get(info.key_len..).unwrap_or_default())) {
        *to = *from;
    }
    u64::from_le_bytes(wide)
}

/// Writes the parameters' values and texts to a window.
pub(crate) fn write_values(
    window: &Window,
    description: &Description,
    values: &Values,
) -> Result<(), String> {
    let mut text_at = window.layout().value_text;
    let end = text_at + abi::VALUE_TEXT_LEN;
    for (i, param) in description.logic.params.iter().enumerate() {
        let Some(value) = values.get(&param.name) else {
            window.set_value(i, Value { number: abi::NOTHING, ..Value::default() });
            continue;
        };
        let number = match value {
            ParamValue::Number(number) => *number,
            ParamValue::Switch(on) => u64::from(*on),
            ParamValue::Duration(time) => u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            ParamValue::Choice(word) => match &param.kind {
                logic::ParamKind::Choice(log) => {
                    log.iter().position(|other| other == word).unwrap_or(0) as u64
                }
                _ => 0,
            },
            ParamValue::Mac(mac) => mac.0.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
            ParamValue::Ip(std::net::IpAddr::V4(address)) => u64::from(u32::from_le_bytes(address.octets())),
            _ => abi::NOTHING,
        };
        let text = value.to_string();
        if text_at + text.len() > end {
            let room = abi::VALUE_TEXT_LEN;
            return Err(format!("its parameters' values have more than {room} bytes in total"));
        }
        window.write(text_at, text.as_bytes());
        window.set_value(i, Value { number, text: text_at as u32, text_len: text.len() as u32 });
        text_at += text.len();
    }
    Ok(())
}

/// The batch's head for a module with these addresses.
pub(crate) fn head_of(
    window: &Window,
    description: &Description,
    worker: usize,
    tables: [u64; MAX_TABLES],
    host: u64,
) -> BatchHead {
    let layout = window.layout();
    BatchHead {
        packet_at: layout.packets as u32,
        output_at: layout.outputs as u32,
        output_room: abi::MAX_OUTPUTS as u32,
        counter_at: layout.counters as u32,
        set_at: layout.sets as u32,
        value_at: layout.values as u32,
        state_at: layout.state as u32,
        state_len: layout.state_len as u32,
        text_at: layout.text as u32,
        answer_at: layout.text as u32,
        answer_room_at: layout.answer as u32,
        text_room: abi::TEXT_LEN as u32,
        worker: worker as u32,
        counter_count: description.counters.len() as u32,
        value_count: description.logic.params.len() as u32,
        tables,
        host,
        ..BatchHead::default()
    }
}

impl Module {
    /// A module with tables of its own, which are empty.
    pub(crate) fn new(
        name: String,
        origin: Option<(PathBuf, Option<Stamp>)>,
        source: Box<dyn Source>,
        values: Values,
    ) -> std::io::Result<Module> {
        let tables: std::io::Result<Arc<[_]>> =
            source.description().tables.iter().map(SharedTable::new).collect();
        let (tables, values, name) = (tables?, Arc::new(values), name.into());
        let (bridge, slots, stuck, for_commands, ports, command, late) = Default::default();
        Ok(Module(Arc::new(Inner {
            name,
            bridge,
            origin,
            source,
            values,
            tables,
            slots,
            stuck,
            for_commands,
            ports,
            command,
            late,
        })))
    }

    fn switch(
        &self,
        batch: &mut Batch<'_>,
        instance: &mut Instance,
        arena: Option<Arena>,
        because: Because,
    ) -> Result<(), String> {
        let Instance { runner, shadows, held, ports } = instance;
        let window = runner.window();
        let in_place = arena.is_some_and(|arena| batch.is_in(arena) && arena.at() == window.slots());
        let (vlans, security) = (Vlans::of(batch), batch.security());
        let (ingress, queue) = (batch.ingress().0, batch.ingress_queue());
        let (budget, names) = (MAX_DELIVERIES, &*self.0.ports);
        let mut call = Call { batch, window, shadows, held, ports, names, versions: 0, budget, in_place };
        for v in call.batch.packets() {
            if let Some(security) = security
                && !logic::admits(security, call.batch, v)
            {
                continue;
            }
            let Some(frame) = vlans.enter(call.batch, v) else { continue };
            if !call.list(frame) {
                call.batch.discard(v, DropReason::BatchLimit);
            }
        }
        let packets = call.versions as u32;
        if packets == 0 && because == Because::OfPackets {
            return Ok(());
        }
        let head = BatchHead {
            packets,
            versions: packets,
            ingress,
            queue,
            now: clock::nanoseconds(),
            explain: u32::from(call.batch.is_explained()),
            ports: names.version(),
            ..*runner.head()
        };
        window.set_head(&head);
        let outputs = runner.decide(because, &mut call)? as usize;
        if outputs > abi::MAX_OUTPUTS {
            return Err(format!("{outputs} outputs, more than {}", abi::MAX_OUTPUTS));
        }
        for i in 0..call.versions {
            call.follow(i)?;
        }
        for i in 0..outputs {
            call.carry_out(i)?;
        }
        Ok(())
    }

    /// Drops the packets that have no decision.
    #[cold]
    fn give_up(batch: &mut Batch<'_>) {
        let packets: Vec<VersionId> = batch.packets().filter(|v| batch.is_open(*v)).collect();
        for v in packets {
            batch.discard(v, DropReason::LogicFault);
        }
    }

    /// Calls the worker's instance.
    #[inline]
    fn decide(&self, batch: &mut Batch<'_>, because: Because) {
        let Some(slot) = self.0.slots.get(batch.worker()) else { return Self::give_up(batch) };
        match slot.with(|instance| self.switch(batch, instance, slot.arena(), because)) {
            Some(Ok(())) => {}
            Some(Err(message)) => {
                self.0.failed(batch.worker(), &message);
                Self::give_up(batch);
            }
            None => Self::give_up(batch),
        }
    }

    /// Calls an instance made for this batch.
    fn rehearse(&self, batch: &mut Batch<'_>) -> Result<(), String> {
        let tables: std::io::Result<Arc<[_]>> = self.0.tables.iter().map(SharedTable::copied).collect();
        let tables = tables.map_err(|error| format!("no memory for a copy of its tables: {error}"))?;
        let mut instance = self.0.instance_apart(tables, batch.worker())?;
        self.switch(batch, &mut instance, None, Because::OfPackets)
    }
}

impl SwitchLogic for Module {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.decide(batch, Because::OfPackets);
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        if !batch.is_rehearsal() {
            self.forward(batch);
        } else if let Err(message) = self.rehearse(batch) {
            self.0.note_late("a trace", &message);
            let parts = call::parts(message.as_bytes());
            for v in batch.packets() {
                batch.remark(v, "the module fails: {}{}{}{}", &parts);
            }
            Self::give_up(batch);
        }
        true
    }

    fn period(&self) -> Option<Duration> {
        self.0.period()
    }

    fn wake(&self, batch: &mut Batch<'_>) {
        self.decide(batch, Because::OfTime);
    }

    fn prepare(&self, threads: Threads) -> Result<(), String> {
        let make = |worker| {
            let made = self.0.instance(worker).inspect_err(|message| {
                // The caller refuses the logic, and with it goes the record of its failures.
                if bounded::is_late(message) {
                    log::post(&self.0.log(worker), message.as_bytes(), true);
                }
            });
            made.map_err(|message| format!("{}: {message}", self.0.name))
        };
        for number in threads.numbers() {
            self.0.slots.get(number).map_or(Ok(()), |slot| slot.renew(|| make(number)))?;
        }
        self.0.slots.prepare(threads, |number| make(number).map(InstanceSlot::new))?;
        self.0.withdraw_new();
        if self.0.for_commands.get().is_none() {
            let _ = self.0.for_commands.set(InstanceSlot::new(make(COMMANDS)?));
            watchdog::watch(Arc::downgrade(&self.0));
        }
        Ok(())
    }

    fn arena(&self, worker: usize) -> Option<Arena> {
        self.0.slots.get(worker).and_then(InstanceSlot::arena)
    }

    fn worker_removed(&self, worker: usize) {
        if let Some(slot) = self.0.slots.get(worker) {
            slot.end();
        }
    }

    fn ports_changed(&self, ports: &[(PortIndex, Arc<PortSettings>)]) {
        self.0.ports.set(ports.iter().map(|(at, settings)| (at.0, settings.name.clone())).collect());
        for (i, name) in self.0.port_params() {
            let number = self.0.ports.value(name);
            self.0.slots().for_each(|(_, slot)| slot.set_value(i, number));
        }
    }

    fn port_down(&self, port: PortIndex) {
        self.0.forget_port(port);
    }

    fn port_removed(&self, port: PortIndex) {
        self.0.forget_port(port);
    }
}

impl Logic for Module {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn label(&self) -> &str {
        &self.0.description().logic.name
    }

    fn params(&self) -> Vec<(String, String)> {
        self.0.values.to_text()
    }

    fn named_ports(&self) -> Vec<String> {
        self.0.port_params().map(|(_, name)| name.to_owned()).collect()
    }

    fn called_on(&self, thread: usize) -> Option<String> {
        self.0.slots.get(thread)?.is_busy().then(|| self.0.name.to_string())
    }

    fn faults(&self) -> Vec<Faults> {
        let Some((last, reason)) = self.0.last_failure() else { return Vec::new() };
        // A module's names may contain anything, and the reason is shown in one line.
        let reason = log::one_line(&reason);
        let restarting = self.0.slots.iter().any(|(_, slot)| slot.is_failed());
        vec![Faults { module: self.0.name.to_string(), count: self.0.failures(), reason, last, restarting }]
    }

    fn is_outdated(&self) -> bool {
        if self.0.has_hung_command() {
            return true;
        }
        // A file that was deleted is not a newer one.
        let Some((file, before)) = &self.0.origin else { return false };
        stamp(file).is_some_and(|stamp| Some(stamp) != *before)
    }

    fn counters(&self) -> Vec<Counter> {
        let counter = |(i, info): (usize, &crate::description::CounterInfo)| Counter {
            name: info.name.clone(),
            help: info.help.clone(),
            value: self.0.slots().fold(0, |sum, (_, slot)| sum.wrapping_add(slot.counter(i))),
        };
        let mut counters: Vec<_> = self.0.description().counters.iter().enumerate().map(counter).collect();
        let help = match self.0.last_failure() {
            None => "failures of the module".to_owned(),
            Some((_, message)) => format!("failures of the module; the last one: {message}"),
        };
        counters.push(Counter { name: "faults".into(), help, value: self.0.failures() });
        counters
    }

    fn tables(&self) -> Vec<Table> {
        let now = clock::seconds();
        let table = |(table, info): (&SharedTable, &TableInfo)| {
            let columns = info.key.iter().chain(&info.value).map(|column| column.name.clone()).collect();
            let row = |(_, entry): (usize, Vec<u8>)| {
                let (key, value) = entry.split_at(info.key_len.min(entry.len()));
                let keys = info.key.iter().map(|column| column.kind.show(column.of(key), now));
                let values = info.value.iter().map(|column| column.kind.show(column.of(value), now));
                keys.chain(values).collect()
            };
            let rows = table.entries().take(MAX_ROWS).map(row).collect();
            Table { name: info.name.clone(), columns, rows, capacity: table.capacity() }
        };
        self.0.tables.iter().zip(&self.0.description().tables).map(table).collect()
    }

    fn table_sizes(&self) -> Vec<TableSize> {
        let size = |(table, info): (&SharedTable, &TableInfo)| TableSize {
            name: info.name.clone(),
            entries: table.len(),
            capacity: table.capacity(),
        };
        self.0.tables.iter().zip(&self.0.description().tables).map(size).collect()
    }

    fn commands(&self) -> Vec<CommandInfo> {
        self.0.description().logic.commands.clone()
    }

    fn call(&self, command: &[String]) -> Result<String, LogicError> {
        let commands = self.commands();
        let number = command.first().and_then(|name| commands.iter().position(|info| info.name == *name));
        let (Some(number), Some((name, arguments))) = (number, command.split_first()) else {
            return Err(LogicError::unknown_command(self.name(), command, &commands));
        };
        let refused = |message: String| LogicError::Command { command: name.clone(), message };
        let text = arguments.join("\n");
        if text.len() > abi::TEXT_LEN {
            return Err(refused(format!("its arguments have more than {} bytes", abi::TEXT_LEN)));
        }
        let (inner, called) = (self.0.clone(), name.clone());
        let source = inner.log(COMMANDS);
        let answered =
            bounded::within(&source, abi::export::COMMAND, move || inner.command(number, &called, &text));
        if let Err(message) = &answered {
            self.0.note_late(&format!("command `{name}`"), message);
        }
        match answered.flatten() {
            Ok((true, text)) => Ok(text),
            Ok((false, message)) | Err(message) => Err(refused(message)),
        }
    }

    fn hand_over(&self) -> Vec<State> {
        let state = |(table, info): (&SharedTable, &TableInfo)| State {
            name: info.name.clone(),
            key_len: info.key_len as u32,
            value_len: info.value_len as u32,
            entries: table.entries().flat_map(|(_, entry)| entry).collect(),
        };
        let handed = |(_, info): &(&SharedTable, &TableInfo)| info.hand_over;
        self.0.tables.iter().zip(&self.0.description().tables).filter(handed).map(state).collect()
    }

    fn take_over(&self, states: &[State]) {
        for (table, info) in self.0.tables.iter().zip(&self.0.description().tables) {
            let fits = |state: &&State| {
                info.hand_over
                    && state.name == info.name
                    && state.key_len as usize == table.key_len()
                    && state.value_len as usize == table.value_len()
            };
            let Some(state) = states.iter().find(fits) else { continue };
            for entry in state.entries.chunks_exact(info.key_len + info.value_len) {
                let (key, value) = entry.split_at(info.key_len);
                table.insert(key, value);
            }
        }
    }

    fn not_taken_over(&self, states: &[State]) -> Vec<String> {
        let inheriting = self.0.description().tables.iter().filter(|info| info.hand_over);
        let note = |info: &TableInfo| {
            let lengths = (info.key_len as u32, info.value_len as u32);
            let mut named = states.iter().filter(|state| state.name == info.name);
            let old = named.clone().next().filter(|state| !state.entries.is_empty())?;
            if named.any(|state| (state.key_len, state.value_len) == lengths) {
                return None;
            }
            let difference = logic::layout_difference(lengths, (old.key_len, old.value_len));
            Some(format!("table `{}` starts empty: {difference}", info.name))
        };
        inheriting.filter_map(note).collect()
    }

    fn has_table(&self, name: &str) -> bool {
        self.0.description().tables.iter().any(|info| info.hand_over && info.name == name)
    }

    fn set_bridge(&self, bridge: &str) {
        let _ = self.0.bridge.set(bridge.into());
    }

    fn tick(&self, now_seconds: u32) {
        for (table, info) in self.0.tables.iter().zip(&self.0.description().tables) {
            let after = info.expires.as_ref().and_then(|param| match self.0.values.get(param)? {
                ParamValue::Number(seconds) => Some(*seconds),
                ParamValue::Duration(time) => Some(time.as_secs()),
                _ => None,
            });
            let (Some(after), Some(column)) = (after.filter(|after| *after > 0), info.column(Type::Seconds))
            else {
                continue;
            };
            let flags = info.value.iter().find(|column| column.name == "flags");
            table.remove_where(|entry| {
                if flags.is_some_and(|flags| value_of(info, entry, flags) != 0) {
                    return false;
                }
                let heard = value_of(info, entry, column) as u32;
                // An entry heard meanwhile has a time in the future; one just added may not have a time yet.
                let age = now_seconds.wrapping_sub(heard);
                heard != 0 && age < 1 << 31 && u64::from(age) >= after
            });
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Instances go before the tables that they see.
        drop((std::mem::take(&mut self.slots), self.for_commands.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use crate::window::Layout;

    /// Makes instances that do nothing.
    #[derive(Default)]
    struct Made {
        /// Workers of the instances so far.
        workers: Mutex<Vec<usize>>,
        alive: AtomicUsize,
        refuses: AtomicBool,
        /// Called when an instance is made.
        meanwhile: OnceLock<Box<dyn Fn() + Send + Sync>>,
    }

    struct Maker(Arc<Made>, Description);

    struct Idle {
        made: Arc<Made>,
        window: Window,
        head: BatchHead,
        // The window's memory.
        _memory: Vec<u8>,
    }

    // SAFETY: the window is the instance's own.
    unsafe impl Send for Idle {}

    impl Source for Maker {
        fn description(&self) -> &Description {
            &self.1
        }

        fn instance(&self, setup: &Setup) -> Result<Box<dyn Runner>, String> {
            let layout = Layout::new(self.1.state);
            let mut memory = vec![0u8; layout.len + 64];
            let skip = memory.as_ptr().align_offset(64);
            let at = NonNull::new(memory.as_mut_ptr().wrapping_add(skip)).ok_or("no memory")?;
            // SAFETY: so many bytes, aligned, which stay as long as the instance.
            let window = unsafe { Window::new(at, layout) };
            if self.0.refuses.load(Ordering::Relaxed) {
                return Err("it refuses".into());
            }
            self.0.workers.lock().unwrap().push(setup.worker);
            self.0.alive.fetch_add(1, Ordering::Relaxed);
            self.0.meanwhile.get().into_iter().for_each(|call| call());
            let head = head_of(&window, &self.1, setup.worker, [0; MAX_TABLES], 0);
            Ok(Box::new(Idle { made: self.0.clone(), window, head, _memory: memory }))
        }
    }

    impl Runner for Idle {
        fn window(&self) -> Window {
            self.window
        }

        fn head(&self) -> &BatchHead {
            &self.head
        }

        fn decide(&mut self, _: Because, _: &mut dyn Host) -> Result<u32, String> {
            Ok(0)
        }

        fn command(&mut self, _: u32, _: &mut dyn Host) -> Result<i32, String> {
            Ok(0)
        }
    }

    impl Drop for Idle {
        fn drop(&mut self) {
            self.made.alive.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A module that counts a thing, prepared for three workers.
    fn module() -> (Module, Arc<Made>) {
        let text = br#"{"name": "m", "summary": "", "counters": [{"name": "c", "help": ""}]}"#;
        let (made, description) = (Arc::new(Made::default()), crate::description::parse(text).unwrap());
        let maker = Box::new(Maker(made.clone(), description));
        let module = Module::new("m".into(), None, maker, Values::default()).unwrap();
        module.prepare(Threads::of(3)).unwrap();
        made.workers.lock().unwrap().clear();
        (module, made)
    }

    fn slot(module: &Module, worker: usize) -> &InstanceSlot {
        module.0.slots.get(worker).unwrap()
    }

    #[test]
    fn another_worker_with_the_number_of_one_that_was_removed_has_a_new_instance() {
        let (module, made) = module();
        let instances = made.alive.load(Ordering::Relaxed);
        let arenas = [0, 1, 2].map(|worker| module.arena(worker));
        let count = |instance: &mut Instance| {
            instance.runner.window().write(instance.runner.window().layout().counters, &7u64.to_le_bytes());
            Ok(())
        };
        slot(&module, 2).with(count).unwrap().unwrap();
        module.worker_removed(2);
        module.prepare(Threads::of(2)).unwrap();
        assert!(made.workers.lock().unwrap().is_empty(), "there is no such worker yet");
        made.refuses.store(true, Ordering::Relaxed);
        assert_eq!(module.prepare(Threads::of(3)), Err("m: it refuses".into()));
        assert_eq!([0, 1, 2].map(|worker| module.arena(worker)), arenas);
        made.refuses.store(false, Ordering::Relaxed);
        module.prepare(Threads::of(3)).unwrap();
        assert_eq!(*made.workers.lock().unwrap(), [2]);
        assert_eq!([0, 1].map(|worker| module.arena(worker)), arenas[..2]);
        // Headers are read in place, as with the first worker.
        let slots = slot(&module, 2).with(|instance| Ok(instance.runner.window().slots())).unwrap().unwrap();
        assert_eq!(module.arena(2).map(Arena::at), Some(slots));
        assert_ne!(module.arena(2), arenas[2]);
        assert_eq!(slot(&module, 2).counter(0), 7, "counters go on");
        module.prepare(Threads::of(3)).unwrap();
        assert_eq!(*made.workers.lock().unwrap(), [2], "once");
        assert_eq!(made.alive.load(Ordering::Relaxed), instances, "the old one is gone");
        // Also one that has failed, and then the first instance, which was kept.
        slot(&module, 2).with(|_| Err::<(), _>("it fails".to_owned())).unwrap().unwrap_err();
        module.worker_removed(2);
        module.prepare(Threads::of(3)).unwrap();
        assert!(!slot(&module, 2).is_failed());
        assert_eq!(made.alive.load(Ordering::Relaxed), instances);
    }

    #[test]
    fn an_instance_that_is_in_use_is_not_replaced() {
        let (module, made) = module();
        module.worker_removed(1);
        let refused = slot(&module, 1).with(|_| Ok(module.prepare(Threads::of(3)))).unwrap().unwrap();
        assert!(refused.unwrap_err().contains("in use"));
        assert!(made.workers.lock().unwrap().is_empty());
        module.prepare(Threads::of(3)).unwrap();
        assert_eq!(*made.workers.lock().unwrap(), [1]);
    }

    #[test]
    fn a_new_instance_is_withdrawn_while_another_one_is_stuck() {
        let (module, made) = module();
        let inner = module.0.clone();
        slot(&module, 0)
            .with(|_| {
                inner.overran(&[0]);
                module.prepare(Threads::of(4))
            })
            .unwrap()
            .unwrap();
        assert!(slot(&module, 3).with(|_| Ok(())).is_none());
        // The batch returns while an instance is made.
        let back = Arc::downgrade(&module.0);
        let returns = Box::new(move || back.upgrade().unwrap().overran(&[]));
        assert!(made.meanwhile.set(returns).is_ok());
        module.prepare(Threads::of(5)).unwrap();
        for worker in 0..5 {
            assert!(slot(&module, worker).with(|_| Ok(())).is_some(), "{worker}");
        }
    }

    #[test]
    fn bytes_are_shown_in_mib() {
        for (bytes, text) in
            [(16 << 20, "16 MiB"), (514 << 16, "32.2 MiB"), ((16 << 20) + 1, "16.1 MiB"), (0, "0 MiB")]
        {
            assert_eq!(mib(bytes), text);
        }
    }
}
