//! Native modules: shared objects with the functions that WebAssembly modules export, called directly.
//!
//! Each logic loads a copy of the file of its own, so that two bridges with the same module share no variables, and a
//! file that is replaced changes nothing under a bridge's feet. Workers share a module's variables; state of one
//! worker is in its window.

use std::alloc::{Layout as Memory, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_char};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use libloading::os::unix::Library;

use crate::abi::{BatchHead, HostFunctions, MAX_TABLES, export};
use crate::bounded;
use crate::call::Host;
use crate::crash::{calling, paused};
use crate::description::{self, Description};
use crate::log::{self, LogSource};
use crate::module::{
    Because, Loader, Runner, Setup, Source, check_version, head_of, lasting, not_exported, read, refusal,
    write_values,
};
use crate::shared_object::{self, function};
use crate::window::{Layout, Window};

pub(crate) const NATIVE: Loader = Loader { prefix: "native", load };

type Abi = unsafe extern "C" fn() -> u32;
type Describe = unsafe extern "C" fn() -> *const c_char;
type Start = unsafe extern "C" fn(*mut BatchHead) -> i32;
type Forward = unsafe extern "C" fn(*mut BatchHead) -> u32;
type Command = unsafe extern "C" fn(*mut BatchHead, u32) -> i32;

/// Functions of a shared object.
struct Object {
    start: Option<Start>,
    forward: Forward,
    timer: Option<Forward>,
    command: Option<Command>,
    // Its code stays for as long as the pointers to it.
    _library: Library,
}

struct Code {
    object: Arc<Object>,
    description: Arc<Description>,
    path: Arc<Path>,
    file: Arc<[u8]>,
}

fn load(path: &Path) -> Result<Box<dyn Source>, String> {
    Ok(Box::new(open(path.into(), read(path)?.into())?))
}

/// Loads a shared object with variables of its own, however often it is loaded already.
fn open(path: Arc<Path>, file: Arc<[u8]>) -> Result<Code, String> {
    shared_object::check(&file)?;
    let name: Arc<str> = format!("native:{}", path.display()).into();
    let source = LogSource { module: name.clone(), bridge: None, worker: None };
    bounded::within(&source, export::DESCRIBE, move || {
        calling(&name, export::DESCRIBE, || load_object(path, file))
    })?
}

/// Runs the module's code: its initializers and its description.
fn load_object(path: Arc<Path>, file: Arc<[u8]>) -> Result<Code, String> {
    let library = shared_object::open(&file)?;
    // SAFETY: native modules are trusted: whoever configures one has their code run here. The names say what the types
    // are.
    let (version, describe) = unsafe {
        (function::<Abi>(&library, export::ABI)?, function::<Describe>(&library, export::DESCRIBE)?)
    };
    // SAFETY: as above.
    check_version(unsafe { version() })?;
    // SAFETY: as above.
    let (forward, timer, start, command) = unsafe {
        (
            function(&library, export::FORWARD)?,
            function(&library, export::TIMER).ok(),
            function(&library, export::START).ok(),
            function(&library, export::COMMAND).ok(),
        )
    };
    // SAFETY: as above; it returns a text that ends with a zero byte and stays.
    let text = unsafe {
        let text = describe();
        if text.is_null() {
            return Err("`msw_describe` returned no text".into());
        }
        CStr::from_ptr(text).to_bytes().to_vec()
    };
    if text.len() > description::MAX_LEN {
        return Err(format!("its description has more than {} bytes", description::MAX_LEN));
    }
    let description = Arc::new(description::parse(&text)?);
    if description.timer.is_some() && timer.is_none() {
        return Err(format!("{}, which its timer needs", not_exported(export::TIMER)));
    }
    if !description.logic.commands.is_empty() && command.is_none() {
        return Err(format!("{}, which its commands need", not_exported(export::COMMAND)));
    }
    let object = Arc::new(Object { start, forward, timer, command, _library: library });
    Ok(Code { object, description, path, file })
}

/// Front of a native module's window, through which host functions find the batch.
#[repr(C, align(64))]
struct Front {
    host: Option<NonNull<dyn Host>>,
    /// The source of its lines in the log, which outlives the front.
    log: *const LogSource,
}

const FRONT: usize = 64;
const _: () = assert!(size_of::<Front>() == FRONT);

static FUNCTIONS: HostFunctions = HostFunctions {
    pull: msw_pull,
    copy: msw_copy,
    is_up: msw_is_up,
    originate: msw_new,
    read: msw_read,
    retain: msw_retain,
    release: msw_release,
    remark: msw_remark,
    log: msw_log,
    port: msw_port,
};

/// Calls the batch that a module has; nothing where it has none.
///
/// # Safety
/// `batch` is the module's argument.
unsafe fn ask<T: Default>(batch: *mut BatchHead, ask: impl FnOnce(&mut dyn Host) -> T) -> T {
    // SAFETY: the caller's promise.
    match unsafe { front_of(batch) }.host {
        // SAFETY: it was set by `decide`, which waits for the module and uses it not meanwhile.
        Some(mut host) => paused(|| ask(unsafe { host.as_mut() })),
        None => T::default(),
    }
}

/// Returns the front of a window.
///
/// # Safety
/// As for [`ask`].
unsafe fn front_of<'a>(batch: *mut BatchHead) -> &'a Front {
    // SAFETY: a window that modules are called with has this in front.
    unsafe { &*batch.cast::<u8>().sub(FRONT).cast::<Front>() }
}

/// Copies bytes that a module names: the fabric may write there meanwhile, so no reference to them may exist. No call
/// that needs this is made for every packet.
///
/// # Safety
/// `len` bytes at `at` are readable.
unsafe fn copied(at: *const u8, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    // SAFETY: the caller's promise; the vector is new, so the two do not overlap. For no bytes any address will do.
    unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

unsafe extern "C" fn msw_pull(batch: *mut BatchHead, packet: u32, bytes: u32) -> u32 {
    // SAFETY: modules are trusted to pass on their argument.
    unsafe { ask(batch, |host| host.pull(packet, bytes)) }
}

unsafe extern "C" fn msw_copy(batch: *mut BatchHead, packet: u32) -> i32 {
    // SAFETY: as above.
    unsafe { ask(batch, |host| host.copy(packet)) }
}

unsafe extern "C" fn msw_is_up(batch: *mut BatchHead, port: u32) -> u32 {
    // SAFETY: as above.
    unsafe { ask(batch, |host| u32::from(host.is_up(port))) }
}

unsafe extern "C" fn msw_new(batch: *mut BatchHead, at: *const u8, len: u32) -> i32 {
    // SAFETY: modules are trusted to name memory of their own.
    let bytes = unsafe { copied(at, len) };
    // SAFETY: as above.
    unsafe { ask(batch, |host| Number(host.originate(&bytes))) }.0
}

/// Bytes that [`msw_read`] moves at once: more than a private header has, so a header that the module overwrites is
/// read before.
const READ: usize = 1024;

/// The module's room may be the header of the very packet that is read, or not be initialized: no reference to it is
/// made. So bytes go through a buffer that is ours, and are written when the batch is not borrowed any more.
unsafe extern "C" fn msw_read(batch: *mut BatchHead, packet: u32, from: u32, to: *mut u8, len: u32) -> u32 {
    let (mut part, mut done) = ([0; READ], 0u32);
    while done < len {
        let Some(from) = from.checked_add(done) else { break };
        let want = part.len().min((len - done) as usize);
        // SAFETY: modules are trusted to pass on their argument.
        let got = unsafe { ask(batch, |host| host.read(packet, from, &mut part[..want])) };
        let got = part.get(..got as usize).unwrap_or_default();
        // SAFETY: modules are trusted to name `len` bytes of their own; `part` is on this function's stack.
        unsafe { std::ptr::copy_nonoverlapping(got.as_ptr(), to.add(done as usize), got.len()) };
        done += got.len() as u32;
        if got.len() < want {
            break;
        }
    }
    done
}

unsafe extern "C" fn msw_retain(batch: *mut BatchHead, packet: u32) -> i32 {
    // SAFETY: as above.
    unsafe { ask(batch, |host| Number(host.retain(packet))) }.0
}

unsafe extern "C" fn msw_release(batch: *mut BatchHead, held: u32) -> i32 {
    // SAFETY: as above.
    unsafe { ask(batch, |host| Number(host.release(held))) }.0
}

unsafe extern "C" fn msw_remark(
    batch: *mut BatchHead,
    packet: u32,
    text: *const u8,
    len: u32,
    kind: u32,
    value: u64,
) {
    // SAFETY: as above.
    let text = unsafe { copied(text, len) };
    // SAFETY: as above.
    unsafe { ask(batch, |host| host.remark(packet, &text, kind, value)) }
}

unsafe extern "C" fn msw_log(batch: *mut BatchHead, text: *const u8, len: u32) {
    // SAFETY: as above.
    let text = unsafe { copied(text, len.min(log::LONGEST as u32)) };
    // SAFETY: as above; the source outlives the front.
    let source = unsafe { &*front_of(batch).log };
    log::post(source, &text, false);
}

unsafe extern "C" fn msw_port(batch: *mut BatchHead, name: *const u8, len: u32) -> i32 {
    // SAFETY: as above.
    let name = unsafe { copied(name, len) };
    // SAFETY: as above.
    unsafe { ask(batch, |host| Number(host.port(&name))) }.0
}

/// A packet's number; -1 by default.
struct Number(i32);

impl Default for Number {
    fn default() -> Self {
        Self(-1)
    }
}

impl Source for Code {
    fn description(&self) -> &Description {
        &self.description
    }

    /// Makes an instance with variables of its own.
    fn instance_apart(&self, setup: &Setup) -> Result<Box<dyn Runner>, String> {
        open(self.path.clone(), self.file.clone())?.instance(setup)
    }

    fn instance(&self, setup: &Setup) -> Result<Box<dyn Runner>, String> {
        let (object, description, log) = (self.object.clone(), self.description.clone(), setup.log.clone());
        let setup = setup.clone();
        let made = move || NativeRunner::start(object, &description, &setup);
        Ok(Box::new(bounded::within(&log, export::START, made)??))
    }
}

impl NativeRunner {
    /// Makes an instance and starts it.
    fn start(object: Arc<Object>, description: &Description, setup: &Setup) -> Result<Self, String> {
        let Setup { tables, values, worker, .. } = setup;
        let layout = Layout::new(description.state);
        let log = setup.log.clone();
        let memory = Memory::from_size_align(FRONT + layout.len, 64).map_err(|error| error.to_string())?;
        // SAFETY: the size is not zero.
        let front = NonNull::new(unsafe { alloc_zeroed(memory) })
            .ok_or("no memory for the window that it shares with the switch")?;
        // SAFETY: the bytes behind the front are there, zeroes, aligned, and the runner's own until it is dropped.
        let window = unsafe { Window::new(front.add(FRONT), layout) };
        // SAFETY: the front is allocated, aligned, and the runner's own.
        unsafe { front.cast::<Front>().write(Front { host: None, log: Arc::as_ptr(&log) }) };
        let mut addresses = [0; MAX_TABLES];
        for (address, table) in addresses.iter_mut().zip(tables.iter()) {
            *address = table.at().as_ptr().expose_provenance() as u64;
        }
        let host = (&raw const FUNCTIONS).expose_provenance() as u64;
        let head = head_of(&window, description, *worker, addresses, host);
        let mut runner = NativeRunner { object, front, memory, window, head, log };
        write_values(&window, description, values)?;
        let (now, ports) = (fabric::clock::nanoseconds(), setup.ports.version());
        window.set_head(&BatchHead { now, ports, ..head });
        if let Some(start) = runner.object.start {
            // SAFETY: native modules are trusted; the window is as the interface says.
            let call = |batch| unsafe { start(batch) };
            let refused = runner.call(export::START, &mut &*setup.ports, call);
            if refused != 0 {
                return Err(refusal(&window, refused));
            }
        }
        Ok(runner)
    }

    /// Calls a function of the module, which may call `host` meanwhile.
    #[inline]
    fn call<T>(
        &mut self,
        function: &'static str,
        host: &mut dyn Host,
        call: impl FnOnce(*mut BatchHead) -> T,
    ) -> T {
        // SAFETY: it is taken away again below.
        let host = unsafe { lasting(host) };
        let front = self.front.cast::<Front>();
        // SAFETY: the front is the runner's own.
        unsafe { (*front.as_ptr()).host = Some(host) };
        let batch = self.window.base().as_ptr().cast();
        let returned = calling(&self.log.module, function, || call(batch));
        // SAFETY: as above.
        unsafe { (*front.as_ptr()).host = None };
        returned
    }
}

struct NativeRunner {
    object: Arc<Object>,
    front: NonNull<u8>,
    memory: Memory,
    window: Window,
    head: BatchHead,
    /// The front refers to it.
    log: Arc<LogSource>,
}

// SAFETY: the memory is the runner's own.
unsafe impl Send for NativeRunner {}

impl Drop for NativeRunner {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody uses it any more.
        unsafe { dealloc(self.front.as_ptr(), self.memory) };
    }
}

impl Runner for NativeRunner {
    fn window(&self) -> Window {
        self.window
    }

    fn head(&self) -> &BatchHead {
        &self.head
    }

    #[inline]
    fn decide(&mut self, because: Because, host: &mut dyn Host) -> Result<u32, String> {
        let function = match (because, self.object.timer) {
            (Because::OfPackets, _) => self.object.forward,
            (Because::OfTime, Some(timer)) => timer,
            (Because::OfTime, None) => return Ok(0),
        };
        // SAFETY: native modules are trusted; the window is as the interface says.
        Ok(self.call(because.function(), host, |batch| unsafe { function(batch) }))
    }

    fn command(&mut self, number: u32, host: &mut dyn Host) -> Result<i32, String> {
        let Some(command) = self.object.command else {
            return Err(not_exported(export::COMMAND));
        };
        // SAFETY: as in `decide`.
        Ok(self.call(export::COMMAND, host, |batch| unsafe { command(batch, number) }))
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    /// Has one packet, of as many bytes.
    struct OnePacket(Vec<u8>);

    impl Host for OnePacket {
        fn originate(&mut self, bytes: &[u8]) -> i32 {
            bytes.len() as i32
        }
        fn read(&mut self, _: u32, from: u32, out: &mut [u8]) -> u32 {
            let bytes = self.0.get(from as usize..).unwrap_or_default();
            let n = bytes.len().min(out.len());
            out[..n].copy_from_slice(&bytes[..n]);
            n as u32
        }
        fn port(&mut self, _: &[u8]) -> i32 {
            -1
        }
    }

    /// A front, and room for the head of a window.
    #[repr(C)]
    struct Fronted(Front, [u64; 32]);

    #[test]
    fn a_packet_is_read_into_room_that_nobody_has_written_to() {
        let bytes: Vec<u8> = (0..3000u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut host = OnePacket(bytes.clone());
        let host: NonNull<dyn Host> = NonNull::from(&mut host);
        let mut fronted = Fronted(Front { host: Some(host), log: std::ptr::null() }, [0; 32]);
        let batch = (&raw mut fronted).wrapping_byte_add(FRONT).cast::<BatchHead>();
        for (from, len) in [
            (0, 0),
            (0, 1),
            (0, 1024),
            (5, 1025),
            (0, 2048),
            (700, 2300),
            (700, 9000),
            (3000, 1),
            (u32::MAX, 9),
        ] {
            let mut room = vec![MaybeUninit::<u8>::uninit(); len as usize];
            // SAFETY: the front has a host, and the room is as long as is said.
            let got = unsafe { msw_read(batch, 0, from, room.as_mut_ptr().cast(), len) };
            let wanted = bytes.get(from as usize..).unwrap_or_default();
            let wanted = &wanted[..wanted.len().min(len as usize)];
            assert_eq!(got as usize, wanted.len(), "{len} bytes from {from}");
            // SAFETY: so many were written.
            let read = unsafe { std::slice::from_raw_parts(room.as_ptr().cast::<u8>(), got as usize) };
            assert_eq!(read, wanted);
        }
        // SAFETY: no bytes, at no address.
        let nothing =
            unsafe { (msw_read(batch, 0, 0, std::ptr::null_mut(), 0), msw_new(batch, std::ptr::null(), 0)) };
        assert_eq!(nothing, (0, 0));
    }
}
