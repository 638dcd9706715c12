//! WebAssembly modules: compiled once for each file, one instance for each worker, with the window and the tables in
//! its memory.
//!
//! The window lies in pages that the switch adds to an instance's memory, so that a module sees it by ordinary loads
//! and stores. Of the pages of a table each instance has the same, those of the table's memory file.
//!
//! Invariants: a module imports the functions of [`IMPORTS`] and nothing else; an instance has [`OWN_MEMORY`] bytes
//! beside window and tables; memory never moves, so addresses into it hold for as long as the instance.

use std::fmt::{self, Write};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fabric::rx::MAX_PACKET;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::time::{ClockId, clock_gettime};
use wasmtime::{
    Caller, Config, Engine, Instance, Linker, Memory, MemoryType, Module, Store, StoreLimits,
    StoreLimitsBuilder, Trap, TypedFunc, UpdateDeadline, WasmBacktrace,
};

use crate::abi::{BatchHead, MAX_TABLES, NO_PORT, export};
use crate::call::Host;
use crate::compiled;
use crate::description::{self, Description};
use crate::log::{self, LogSource};
use crate::module::{
    Because, Loader, Runner, Setup, Source, check_version, head_of, lasting, mib, not_exported, read,
    refusal, write_values,
};
use crate::table::PAGE;
use crate::watchdog;
use crate::window::{Layout, Window};

pub(crate) const WASM: Loader = Loader { prefix: "wasm", load };

/// The module that WebAssembly modules import from.
const IMPORTS: &str = "mswitch";
/// Ticks after which a batch is looked at more closely.
const TICKS: u64 = 2;
/// Ticks for everything else: a module's start, its description, a command.
const PATIENT_TICKS: u64 = 400;
/// An instance's own memory, beside window and tables, bytes.
const OWN_MEMORY: usize = 16 << 20;
/// CPU time that a module has after its ticks.
const PATIENCE: Duration = Duration::from_micros(400);

/// State for functions that a module calls.
struct Reach {
    limits: StoreLimits,
    host: Option<NonNull<dyn Host>>,
    /// The source of its lines in the log.
    log: Arc<LogSource>,
    memory: Option<Memory>,
    /// For bytes on their way from or to the module's memory, which the fabric uses too.
    passing: Box<[u8]>,
    /// The CPU time that the thread had when the module was found to run for long.
    suspected: Option<Duration>,
    /// The message of a panic, which the SDK's panic handler logs without a batch before it traps.
    panic: Vec<u8>,
}

// SAFETY: `host` is set only while the thread that set it is in `forward`.
unsafe impl Send for Reach {}

impl Reach {
    /// Forgets the previous call.
    #[inline]
    fn begin(&mut self) {
        self.suspected = None;
        self.panic.clear();
    }
}

struct Code {
    module: Module,
    description: Description,
}

fn engine() -> Result<&'static Engine, String> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    let made = ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config.epoch_interruption(true).wasm_threads(true).memory_may_move(false).memory_reservation(1 << 32);
        config.max_wasm_stack(256 << 10);
        let engine = Engine::new(&config).map_err(text)?;
        watchdog::on_tick(tick);
        Ok(engine)
    });
    made.as_ref().map_err(Clone::clone)
}

/// Advances the instances' epoch.
fn tick() {
    if let Ok(engine) = engine() {
        engine.increment_epoch();
    }
}

/// Functions that a trap names.
const NAMED: usize = 4;
/// Longest name of a function in a message, bytes: a module's symbols may stand for names of a megabyte.
const LONGEST_NAME: usize = 100;
/// Beginning of the text that Rust's panics log.
const PANICKED: &str = "panicked at ";

/// An error with its causes, in a line; a trap with the functions that it happened in, the innermost first.
fn text(error: wasmtime::Error) -> String {
    fault(error, b"")
}

/// The same of a module that logged `panic` before.
fn fault(error: wasmtime::Error, panic: &[u8]) -> String {
    let trap = match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => "it ran for too long and was stopped".to_owned(),
        Some(Trap::UnreachableCodeReached) if !panic.is_empty() => {
            format!("panic: {}", panic_message(&String::from_utf8_lossy(panic)))
        }
        Some(trap) => trap.to_string(),
        None => return format!("{error:#}").replace('\n', " "),
    };
    let frames = error.downcast_ref::<WasmBacktrace>().map(WasmBacktrace::frames).unwrap_or_default();
    let name = |frame: &wasmtime::FrameInfo| match frame.func_name() {
        Some(symbol) => demangled(symbol),
        None => format!("function {}", frame.func_index()),
    };
    match callers(frames.iter().map(name)) {
        names if names.is_empty() => trap,
        names => format!("{trap}, in {}", names.join(", called by ")),
    }
}

/// Name of a function, cut after [`LONGEST_NAME`] bytes.
#[derive(Default)]
struct Name(String);

impl fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let part = log::cut(text, LONGEST_NAME.saturating_sub(self.0.len()));
        self.0.push_str(part);
        if part.len() < text.len() {
            self.0.push('…');
            // Ends the demangling.
            return Err(fmt::Error);
        }
        Ok(())
    }
}

/// Returns the name that a symbol stands for.
fn demangled(symbol: &str) -> String {
    let mut name = Name::default();
    // An error means that the name is cut.
    let _ = write!(name, "{:#}", rustc_demangle::demangle(symbol));
    name.0
}

/// Returns the names of the innermost functions, without those of Rust's libraries and the SDK, if there are others.
fn callers(names: impl Iterator<Item = String>) -> Vec<String> {
    let names: Vec<_> = names.collect();
    let is_library = |name: &&String| {
        let name = name.trim_start_matches('<');
        ["core::", "alloc::", "std::", "__rust", "rust_", "mswitch_module::"]
            .iter()
            .any(|of| name.starts_with(of))
    };
    let author: Vec<_> = names.iter().filter(|name| !is_library(name)).collect();
    // Of a module without names of its own, the libraries' are better than none.
    let shown = if author.is_empty() { names.iter().collect() } else { author };
    let quoted = |name: &String| match name.starts_with("function ") {
        true => name.clone(),
        false => format!("`{}`", name.escape_debug()),
    };
    shown.into_iter().take(NAMED).map(quoted).collect()
}

/// Rewrites the text of a panic (`panicked at PLACE:` and the message in the next line; until Rust 1.72 `panicked at
/// 'MESSAGE', PLACE`) as the message, then its place.
fn panic_message(text: &str) -> String {
    let text = text.strip_prefix(PANICKED).unwrap_or(text);
    let quoted = || text.strip_prefix('\'')?.rsplit_once("', ");
    let below = || text.split_once(":\n").map(|(place, message)| (message, place));
    match quoted().or_else(below) {
        Some((message, place)) => log::one_line(&format!("{}, at {place}", message.trim())),
        None => log::one_line(text),
    }
}

fn load(path: &Path) -> Result<Box<dyn Source>, String> {
    let engine = engine()?;
    let bytes = read(path)?;
    if !bytes.starts_with(b"\0asm") {
        return Err("not a WebAssembly module; compile it for wasm32".into());
    }
    let module = compiled::module(engine, path, &bytes)
        .map_err(|error| format!("not a valid WebAssembly module: {}", text(error)))?;
    let memories = module.exports().filter_map(|export| export.ty().memory().map(MemoryType::minimum));
    let needed = memories.max().unwrap_or(0).saturating_mul(PAGE as u64);
    if needed > OWN_MEMORY as u64 {
        return Err(format!(
            "needs {} of memory; a module has at most {}",
            mib(needed),
            mib(OWN_MEMORY as u64)
        ));
    }
    let description = describe(engine, &module)?;
    Ok(Box::new(Code { module, description }))
}

/// An instance that is not started yet.
struct Raw {
    store: Store<Reach>,
    instance: Instance,
    memory: Memory,
}

fn instantiate(engine: &Engine, module: &Module, log: Arc<LogSource>, room: usize) -> Result<Raw, String> {
    let limits = StoreLimitsBuilder::new()
        .memory_size(room + OWN_MEMORY)
        .table_elements(10_000)
        .instances(1)
        .memories(1)
        .tables(4);
    let reach = Reach {
        limits: limits.build(),
        host: None,
        log,
        memory: None,
        passing: vec![0; MAX_PACKET as usize].into(),
        suspected: None,
        panic: Vec::with_capacity(log::LONGEST),
    };
    let mut store = Store::new(engine, reach);
    store.limiter(|reach| &mut reach.limits);
    store.epoch_deadline_callback(|mut store| judge(store.data_mut()));
    store.set_epoch_deadline(PATIENT_TICKS);
    let mut linker = Linker::new(engine);
    imports(&mut linker).map_err(text)?;
    let instance = watchdog::during(|| linker.instantiate(&mut store, module)).map_err(text)?;
    let memory = instance.get_memory(&mut store, "memory").ok_or("it exports no memory")?;
    store.data_mut().memory = Some(memory);
    if let Ok(initialize) = instance.get_typed_func::<(), ()>(&mut store, "_initialize") {
        watchdog::during(|| initialize.call(&mut store, ()))
            .map_err(|error| fault(error, &store.data().panic))?;
    }
    Ok(Raw { store, instance, memory })
}

/// Called on the module's thread when its ticks are over. Those may have passed while the thread had to wait for a
/// CPU, which is not the module's fault: it is stopped when the thread itself has run for [`PATIENCE`] since the
/// first call.
fn judge(reach: &mut Reach) -> wasmtime::Result<UpdateDeadline> {
    // However long the thread had to wait, there will be a next tick.
    watchdog::runs();
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let now = Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0));
    match reach.suspected {
        Some(since) if now.saturating_sub(since) >= PATIENCE => Err(Trap::Interrupt.into()),
        Some(_) => Ok(UpdateDeadline::Continue(1)),
        None => {
            reach.suspected = Some(now);
            Ok(UpdateDeadline::Continue(1))
        }
    }
}

fn imports(linker: &mut Linker<Reach>) -> wasmtime::Result<()> {
    linker.func_wrap(
        IMPORTS,
        "msw_pull",
        |mut caller: Caller<'_, Reach>, _batch: u32, packet: u32, bytes: u32| {
            known(&mut caller, |host| host.pull(packet, bytes)).unwrap_or(0)
        },
    )?;
    linker.func_wrap(IMPORTS, "msw_copy", |mut caller: Caller<'_, Reach>, _batch: u32, packet: u32| {
        known(&mut caller, |host| host.copy(packet)).unwrap_or(-1)
    })?;
    linker.func_wrap(IMPORTS, "msw_is_up", |mut caller: Caller<'_, Reach>, _batch: u32, port: u32| {
        known(&mut caller, |host| u32::from(host.is_up(port))).unwrap_or(0)
    })?;
    linker.func_wrap(
        IMPORTS,
        "msw_new",
        |mut caller: Caller<'_, Reach>, _batch: u32, at: u32, len: u32| {
            taken(&mut caller, at, len, |host, bytes| host.originate(bytes)).unwrap_or(-1)
        },
    )?;
    linker.func_wrap(
        IMPORTS,
        "msw_read",
        |mut caller: Caller<'_, Reach>, _batch: u32, packet: u32, from: u32, to: u32, len: u32| {
            given(&mut caller, to, len, |host, bytes| host.read(packet, from, bytes))
        },
    )?;
    linker.func_wrap(IMPORTS, "msw_retain", |mut caller: Caller<'_, Reach>, _batch: u32, packet: u32| {
        known(&mut caller, |host| host.retain(packet)).unwrap_or(-1)
    })?;
    linker.func_wrap(IMPORTS, "msw_release", |mut caller: Caller<'_, Reach>, _batch: u32, held: u32| {
        known(&mut caller, |host| host.release(held)).unwrap_or(-1)
    })?;
    linker.func_wrap(
        IMPORTS,
        "msw_remark",
        |mut caller: Caller<'_, Reach>,
         _batch: u32,
         packet: u32,
         text: u32,
         len: u32,
         kind: u32,
         value: u64| {
            taken(&mut caller, text, len, |host, text| host.remark(packet, text, kind, value));
        },
    )?;
    linker.func_wrap(
        IMPORTS,
        "msw_port_index",
        |mut caller: Caller<'_, Reach>, _batch: u32, name: u32, len: u32| {
            taken(&mut caller, name, len, |host, name| host.port(name)).unwrap_or(NO_PORT)
        },
    )?;
    linker.func_wrap(
        IMPORTS,
        "msw_log",
        |mut caller: Caller<'_, Reach>, batch: u32, text: u32, len: u32| {
            let source = caller.data().log.clone();
            let len = len.min(log::LONGEST as u32);
            if let Some(text) = pass(&mut caller, text, len) {
                log::post(&source, text, false);
                // Only a panic has no batch and this text.
                if batch == 0 && text.starts_with(PANICKED.as_bytes()) {
                    let reach = caller.data_mut();
                    reach.panic.clear();
                    reach.panic.extend(reach.passing.iter().take(len as usize));
                }
            }
        },
    )?;
    Ok(())
}

/// Calls the batch that the module has; `None` where it has none.
fn known<T>(caller: &mut Caller<'_, Reach>, ask: impl FnOnce(&mut dyn Host) -> T) -> Option<T> {
    // SAFETY: it was set by `decide`, which waits for the module and uses it not meanwhile.
    caller.data().host.map(|mut host| ask(unsafe { host.as_mut() }))
}

/// Copies bytes out of the module's memory.
fn pass<'a>(caller: &'a mut Caller<'_, Reach>, at: u32, len: u32) -> Option<&'a [u8]> {
    let memory = caller.data().memory?;
    let (from, size) = (memory.data_ptr(&*caller).wrapping_add(at as usize), memory.data_size(&*caller));
    let to = caller.data_mut().passing.get_mut(..len as usize)?;
    if at as usize + to.len() > size {
        return None;
    }
    // SAFETY: so many bytes lie inside the module's memory, which does not move. No reference is made to them: other
    // workers may be writing there, where it is a table's.
    unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    Some(to)
}

/// Lets the batch that the module has take bytes of its memory. `None` where it has none, or these are not there or
/// too many.
fn taken<T>(
    caller: &mut Caller<'_, Reach>,
    at: u32,
    len: u32,
    take: impl FnOnce(&mut dyn Host, &[u8]) -> T,
) -> Option<T> {
    let mut host = caller.data().host?;
    let bytes = pass(caller, at, len)?;
    // SAFETY: as in `known`.
    Some(take(unsafe { host.as_mut() }, bytes))
}

/// Lets the batch that the module has put bytes into its memory, as far as there is room; returns how many.
fn given(
    caller: &mut Caller<'_, Reach>,
    to: u32,
    len: u32,
    give: impl FnOnce(&mut dyn Host, &mut [u8]) -> u32,
) -> u32 {
    let (Some(mut host), Some(memory)) = (caller.data().host, caller.data().memory) else { return 0 };
    let room = memory.data_size(&mut *caller).saturating_sub(to as usize).min(len as usize);
    let passing = &mut caller.data_mut().passing;
    let room = room.min(passing.len());
    // SAFETY: as in `known`.
    let len = give(unsafe { host.as_mut() }, &mut passing[..room]) as usize;
    let to = memory.data_ptr(&*caller).wrapping_add(to as usize);
    let from = caller.data().passing.get(..len.min(room)).unwrap_or_default();
    // SAFETY: `room` was what there is in the module's memory from there on. As in `pass`, no reference is made to
    // it.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    from.len() as u32
}

impl Raw {
    fn function<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
        &mut self,
        name: &str,
    ) -> Result<TypedFunc<P, R>, String> {
        if self.instance.get_func(&mut self.store, name).is_none() {
            return Err(not_exported(name));
        }
        self.instance
            .get_typed_func(&mut self.store, name)
            .map_err(|error| format!("wrong type of its function `{name}`: {}", text(error)))
    }

    fn call<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
        &mut self,
        name: &str,
        params: P,
    ) -> Result<R, String> {
        let function = self.function::<P, R>(name)?;
        self.store.set_epoch_deadline(PATIENT_TICKS);
        self.store.data_mut().begin();
        watchdog::during(|| function.call(&mut self.store, params))
            .map_err(|error| format!("`{name}`: {}", fault(error, &self.store.data().panic)))
    }

    /// The same of a function that may call `host`.
    fn call_with<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
        &mut self,
        name: &str,
        params: P,
        host: &mut dyn Host,
    ) -> Result<R, String> {
        // SAFETY: it is taken away again below.
        self.store.data_mut().host = Some(unsafe { lasting(host) });
        let returned = self.call(name, params);
        self.store.data_mut().host = None;
        returned
    }
}

/// Returns the description, for which the module has the functions.
fn describe(engine: &Engine, module: &Module) -> Result<Description, String> {
    let log = LogSource { module: "".into(), bridge: None, worker: Some(0) };
    let mut raw = instantiate(engine, module, log.into(), 0)?;
    check_version(raw.call(export::ABI, ())?)?;
    raw.function::<u32, u32>(export::FORWARD)?;
    let at: u32 = raw.call(export::DESCRIBE, ())?;
    let memory = raw.memory.data(&raw.store);
    let rest = memory.get(at as usize..).unwrap_or_default();
    let end = rest.iter().take(description::MAX_LEN).position(|byte| *byte == 0);
    let end =
        end.ok_or_else(|| format!("its description does not end within {} bytes", description::MAX_LEN))?;
    let description = description::parse(rest.get(..end).unwrap_or_default())?;
    if description.timer.is_some() {
        let timer = raw.function::<u32, u32>(export::TIMER);
        timer.map_err(|error| format!("{error}, which its timer needs"))?;
    }
    if !description.logic.commands.is_empty() {
        let command = raw.function::<(u32, u32), i32>(export::COMMAND);
        command.map_err(|error| format!("{error}, which its commands need"))?;
    }
    Ok(description)
}

impl Source for Code {
    fn description(&self) -> &Description {
        &self.description
    }

    fn instance(&self, setup: &Setup) -> Result<Box<dyn Runner>, String> {
        let Setup { log, tables, values, ports, worker } = setup;
        let worker = *worker;
        let layout = Layout::new(self.description.state);
        let room =
            layout.len.next_multiple_of(PAGE) + tables.iter().map(|table| table.memory().1).sum::<usize>();
        let mut raw = instantiate(engine()?, &self.module, log.clone(), room)?;
        let base = append(&mut raw, layout.len)?;
        let mut addresses = [0; MAX_TABLES];
        for (address, table) in addresses.iter_mut().zip(tables.iter()) {
            let (file, len) = table.memory();
            let at = append(&mut raw, len)?;
            let to = raw.memory.data_ptr(&raw.store).wrapping_add(at);
            // SAFETY: `append` just added these whole pages to the instance's memory, which nobody uses but us, and
            // which never moves; they are replaced with others that can be read and written alike, and unmapped with
            // the rest of it.
            unsafe {
                mmap(
                    to.cast(),
                    len,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED | MapFlags::FIXED,
                    file,
                    0,
                )
            }
            .map_err(|error| format!("its tables cannot be mapped: {error}"))?;
            *address = at as u64;
        }
        let at =
            NonNull::new(raw.memory.data_ptr(&raw.store).wrapping_add(base)).ok_or("it has no memory")?;
        // SAFETY: `append` added these bytes, initialised with zeroes, on a page of their own; they stay where they
        // are for as long as the store, which the runner keeps, and the module runs only when the runner is called.
        let window = unsafe { Window::new(at, layout) };
        write_values(&window, &self.description, values)?;
        let head = head_of(&window, &self.description, worker, addresses, 0);
        let now = fabric::clock::nanoseconds();
        window.set_head(&BatchHead { now, ports: ports.version(), ..head });
        if raw.instance.get_func(&mut raw.store, export::START).is_some() {
            let refused: i32 = raw.call_with(export::START, base as u32, &mut &**ports)?;
            if refused != 0 {
                return Err(refusal(&window, refused));
            }
        }
        let forward = raw.function(export::FORWARD)?;
        let timer = self.description.timer.as_ref().map(|_| raw.function(export::TIMER)).transpose()?;
        Ok(Box::new(WasmRunner { raw, window, base: base as u32, head, forward, timer }))
    }
}

/// Adds pages to an instance's memory; returns where they begin.
fn append(raw: &mut Raw, len: usize) -> Result<usize, String> {
    let pages = len.div_ceil(PAGE) as u64;
    let before = raw.memory.grow(&mut raw.store, pages).map_err(|error| {
        format!("no memory for the window that it shares with the switch: {}", text(error))
    })?;
    Ok(before as usize * PAGE)
}

struct WasmRunner {
    raw: Raw,
    window: Window,
    base: u32,
    head: BatchHead,
    forward: TypedFunc<u32, u32>,
    timer: Option<TypedFunc<u32, u32>>,
}

impl Runner for WasmRunner {
    fn window(&self) -> Window {
        self.window
    }

    fn head(&self) -> &BatchHead {
        &self.head
    }

    #[inline]
    fn decide(&mut self, because: Because, host: &mut dyn Host) -> Result<u32, String> {
        let function = match (because, &self.timer) {
            (Because::OfPackets, _) => &self.forward,
            (Because::OfTime, Some(timer)) => timer,
            (Because::OfTime, None) => return Ok(0),
        };
        // SAFETY: it is taken away again below.
        let host = unsafe { lasting(host) };
        watchdog::runs();
        let reach = self.raw.store.data_mut();
        reach.begin();
        reach.host = Some(host);
        self.raw.store.set_epoch_deadline(TICKS);
        let outputs = function.call(&mut self.raw.store, self.base);
        self.raw.store.data_mut().host = None;
        outputs.map_err(|error| fault(error, &self.raw.store.data().panic))
    }

    fn command(&mut self, number: u32, host: &mut dyn Host) -> Result<i32, String> {
        self.raw.call_with(export::COMMAND, (self.base, number), host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_shown_with_its_place_last() {
        let expected = "index out of bounds: the len is 3 but the index is 10, at evil.rs:7:90";
        for text in [
            "panicked at 'index out of bounds: the len is 3 but the index is 10', evil.rs:7:90",
            "panicked at evil.rs:7:90:\nindex out of bounds: the len is 3 but the index is 10",
        ] {
            assert_eq!(panic_message(text), expected);
        }
        assert_eq!(panic_message("panicked at 'it\'s a long"), "'it's a long");
        assert_eq!(panic_message("panicked at src/lib.rs:1:2"), "src/lib.rs:1:2");
        assert_eq!(panic_message("panicked at 'a\n\x1b[31m b', x.rs:1:2"), "a  [31m b, at x.rs:1:2");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(demangled("_ZN4evil6lookup17h0123456789abcdefE"), "evil::lookup");
        assert_eq!(demangled("msw_forward"), "msw_forward");
        for symbol in ["ü".repeat(1000), format!("_ZN4evil1000{}E", "u".repeat(1000))] {
            let name = demangled(&symbol);
            assert!(name.len() > LONGEST_NAME && name.len() <= LONGEST_NAME + 3, "{name}");
            assert!(name.ends_with('…') && !name.starts_with("_ZN"), "{name}");
        }
    }

    #[test]
    fn frames_of_libraries_are_left_out() {
        let callers = |names: &[&str]| callers(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(
            callers(&[
                "mswitch_module::panicked",
                "rust_begin_unwind",
                "core::panicking::panic_bounds_check",
                "<core::slice::Iter as core::iter::Iterator>::next",
                "evil::lookup",
                "evil::forward",
                "msw_forward",
            ]),
            ["`evil::lookup`", "`evil::forward`", "`msw_forward`"]
        );
        assert_eq!(callers(&["core::panicking::panic", "function 7"]), ["function 7"]);
        assert_eq!(callers(&["core::panicking::panic"]), ["`core::panicking::panic`"]);
    }
}
