//! Modules for mswitch: forwarding logic in Rust, as WebAssembly or as a shared object, from the same source.
//!
//! ```ignore
//! #![cfg_attr(target_arch = "wasm32", no_std)]
//! use mswitch_module::{module, Batch};
//!
//! fn forward(batch: &mut Batch) {
//!     for i in 0..batch.len() {
//!         batch.flood(i);
//!     }
//! }
//!
//! module! {
//!     describe: r#"{"name": "hub", "summary": "repeats every packet"}"#,
//!     forward: forward,
//! }
//! ```
//!
//! Compile it as a `cdylib`, for `wasm32-unknown-unknown` with `-C target-feature=+atomics,+bulk-memory` or natively.
//! docs/modules.md is the guide; `sdk/c/mswitch.h` is the interface behind this crate.
#![no_std]
#![warn(missing_docs)]

pub mod address;
pub mod checksum;
pub mod headers;
mod ports;
mod table;

pub use address::{Mac, Prefix};
pub use headers::Headers;
pub use ports::PortName;
pub use table::Table;

use core::slice;

/// The version of the interface.
pub const ABI: u32 = 1;

/// Head of a batch: `struct msw_batch`.
#[doc(hidden)]
#[repr(C)]
pub struct Head {
    packets: u32,
    versions: u32,
    packet_at: u32,
    output_at: u32,
    output_room: u32,
    ingress: u16,
    queue: u16,
    now: u64,
    counter_at: u32,
    value_at: u32,
    state_at: u32,
    state_len: u32,
    text_at: u32,
    text_len: u32,
    text_room: u32,
    worker: u32,
    tables: [u64; 8],
    host: u64,
    set_at: u32,
    explain: u32,
    ports_version: u64,
    answer_at: u32,
    answer_room_at: u32,
}

/// Entry of the list of packets: `struct msw_packet`.
#[repr(C)]
struct Listed {
    header: u32,
    len: u32,
    header_len: u16,
    vlan: u16,
    flags: u16,
    reserved: u16,
}

#[repr(C)]
struct Output {
    packet: u16,
    port: u16,
    verb: u16,
    reserved: u16,
}

#[repr(C)]
struct Value {
    number: u64,
    text: u32,
    text_len: u32,
}

const SEND: u16 = 0;
const FLOOD: u16 = 1;
const REFLECT: u16 = 2;
const DROP: u16 = 3;
const FLOOD_UNKNOWN: u16 = 4;
const SEND_SET: u16 = 5;
const CONSUME: u16 = 6;

/// Ingress port of batches in `timer`.
pub const NO_PORT: u16 = u16::MAX;

/// Maximum number of ports of a bridge.
const PORTS: u16 = 4096;
/// Number of port sets.
const SETS: usize = 64;

#[cfg(target_arch = "wasm32")]
mod host {
    use super::Head;

    #[link(wasm_import_module = "mswitch")]
    extern "C" {
        pub(crate) fn msw_pull(batch: *mut Head, packet: u32, bytes: u32) -> u32;
        pub(crate) fn msw_copy(batch: *mut Head, packet: u32) -> i32;
        pub(crate) fn msw_is_up(batch: *mut Head, port: u32) -> u32;
        pub(crate) fn msw_new(batch: *mut Head, bytes: *const u8, len: u32) -> i32;
        pub(crate) fn msw_read(batch: *mut Head, packet: u32, from: u32, to: *mut u8, len: u32) -> u32;
        pub(crate) fn msw_retain(batch: *mut Head, packet: u32) -> i32;
        pub(crate) fn msw_release(batch: *mut Head, kept: u32) -> i32;
        pub(crate) fn msw_remark(
            batch: *mut Head,
            packet: u32,
            text: *const u8,
            len: u32,
            kind: u32,
            value: u64,
        );
        pub(crate) fn msw_log(batch: *mut Head, text: *const u8, len: u32);
        pub(crate) fn msw_port_index(batch: *mut Head, name: *const u8, len: u32) -> i32;
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod host {
    use super::Head;

    #[repr(C)]
    struct Functions {
        pull: unsafe extern "C" fn(*mut Head, u32, u32) -> u32,
        copy: unsafe extern "C" fn(*mut Head, u32) -> i32,
        is_up: unsafe extern "C" fn(*mut Head, u32) -> u32,
        make: unsafe extern "C" fn(*mut Head, *const u8, u32) -> i32,
        read: unsafe extern "C" fn(*mut Head, u32, u32, *mut u8, u32) -> u32,
        retain: unsafe extern "C" fn(*mut Head, u32) -> i32,
        release: unsafe extern "C" fn(*mut Head, u32) -> i32,
        remark: unsafe extern "C" fn(*mut Head, u32, *const u8, u32, u32, u64),
        log: unsafe extern "C" fn(*mut Head, *const u8, u32),
        port_index: unsafe extern "C" fn(*mut Head, *const u8, u32) -> i32,
    }

    unsafe fn functions<'a>(batch: *mut Head) -> &'a Functions {
        &*((*batch).host as *const Functions)
    }

    pub(crate) unsafe fn msw_pull(batch: *mut Head, packet: u32, bytes: u32) -> u32 {
        (functions(batch).pull)(batch, packet, bytes)
    }

    pub(crate) unsafe fn msw_copy(batch: *mut Head, packet: u32) -> i32 {
        (functions(batch).copy)(batch, packet)
    }

    pub(crate) unsafe fn msw_is_up(batch: *mut Head, port: u32) -> u32 {
        (functions(batch).is_up)(batch, port)
    }

    pub(crate) unsafe fn msw_new(batch: *mut Head, bytes: *const u8, len: u32) -> i32 {
        (functions(batch).make)(batch, bytes, len)
    }

    pub(crate) unsafe fn msw_read(batch: *mut Head, packet: u32, from: u32, to: *mut u8, len: u32) -> u32 {
        (functions(batch).read)(batch, packet, from, to, len)
    }

    pub(crate) unsafe fn msw_retain(batch: *mut Head, packet: u32) -> i32 {
        (functions(batch).retain)(batch, packet)
    }

    pub(crate) unsafe fn msw_release(batch: *mut Head, kept: u32) -> i32 {
        (functions(batch).release)(batch, kept)
    }

    pub(crate) unsafe fn msw_remark(
        batch: *mut Head,
        packet: u32,
        text: *const u8,
        len: u32,
        kind: u32,
        value: u64,
    ) {
        (functions(batch).remark)(batch, packet, text, len, kind, value)
    }

    pub(crate) unsafe fn msw_log(batch: *mut Head, text: *const u8, len: u32) {
        (functions(batch).log)(batch, text, len)
    }

    pub(crate) unsafe fn msw_port_index(batch: *mut Head, name: *const u8, len: u32) -> i32 {
        (functions(batch).port_index)(batch, name, len)
    }
}

/// Packets received together from one queue of one port. They are numbered from 0 to [`Batch::len`]; packets that the
/// module adds follow.
pub struct Batch {
    head: *mut Head,
    outputs: u32,
}

impl Batch {
    /// Wraps the argument of a module's function.
    ///
    /// # Safety
    /// `head` is the argument of a function that the switch called, and no other `Batch` of it exists.
    #[doc(hidden)]
    pub unsafe fn new(head: *mut Head) -> Batch {
        Batch { head, outputs: 0 }
    }

    #[doc(hidden)]
    pub fn outputs(&self) -> u32 {
        self.outputs
    }

    fn head(&self) -> &Head {
        // SAFETY: by the contract of `new`, the pointer is a batch from the switch.
        unsafe { &*self.head }
    }

    fn at<T>(&self, offset: u32) -> *mut T {
        self.head.cast::<u8>().wrapping_add(offset as usize).cast()
    }

    /// Number of packets received.
    pub fn len(&self) -> usize {
        self.head().packets as usize
    }

    /// Whether the batch has no packets, as in `timer`.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Index of the ingress port; [`NO_PORT`] in `timer`.
    pub fn ingress(&self) -> u16 {
        self.head().ingress
    }

    /// Number of the ingress port's queue.
    pub fn queue(&self) -> u16 {
        self.head().queue
    }

    /// Monotonic time, nanoseconds.
    pub fn now(&self) -> u64 {
        self.head().now
    }

    /// Number of the worker.
    pub fn worker(&self) -> u32 {
        self.head().worker
    }

    fn listed(&self, packet: usize) -> &Listed {
        assert!(packet < self.head().versions as usize, "no such packet");
        // SAFETY: the list has `versions` entries, and none changes while `self` is borrowed.
        unsafe { &*self.at::<Listed>(self.head().packet_at).wrapping_add(packet) }
    }

    fn listed_mut(&mut self, packet: usize) -> &mut Listed {
        assert!(packet < self.head().versions as usize, "no such packet");
        // SAFETY: the list has `versions` entries, and `self` is borrowed exclusively.
        unsafe { &mut *self.at::<Listed>(self.head().packet_at).wrapping_add(packet) }
    }

    /// The first bytes of a packet: up to 128 at first, more after [`Batch::pull`].
    pub fn header(&self, packet: usize) -> &[u8] {
        let listed = self.listed(packet);
        // SAFETY: the switch provides `header_len` bytes, which do not change while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.at(listed.header), listed.header_len.into()) }
    }

    /// As [`Batch::header`], mutable.
    pub fn header_mut(&mut self, packet: usize) -> &mut [u8] {
        let listed = self.listed(packet);
        // SAFETY: as in `header`; `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.at(listed.header), listed.header_len.into()) }
    }

    /// Length of the whole packet, bytes.
    pub fn packet_len(&self, packet: usize) -> usize {
        self.listed(packet).len as usize
    }

    /// The VLAN that a packet belongs to, 0 for none.
    pub fn vlan(&self, packet: usize) -> u16 {
        self.listed(packet).vlan
    }

    /// Moves a packet to another VLAN.
    pub fn set_vlan(&mut self, packet: usize, vlan: u16) {
        self.listed_mut(packet).vlan = vlan;
    }

    /// Whether a packet is large and segmented only where it leaves.
    pub fn has_segments(&self, packet: usize) -> bool {
        self.listed(packet).flags & 2 != 0
    }

    /// Whether a packet's TCP or UDP checksum is completed where it leaves.
    pub fn has_open_checksum(&self, packet: usize) -> bool {
        self.listed(packet).flags & 1 != 0
    }

    /// Prepends zero bytes to a packet, up to 64.
    pub fn grow(&mut self, packet: usize, bytes: usize) {
        assert!(bytes <= 64, "no room");
        let listed = self.listed_mut(packet);
        listed.header -= bytes as u32;
        listed.header_len += bytes as u16;
        listed.len += bytes as u32;
        if let Some(fresh) = self.header_mut(packet).get_mut(..bytes) {
            fresh.fill(0);
        }
    }

    /// Removes bytes from a packet's front.
    pub fn shrink(&mut self, packet: usize, bytes: usize) {
        let listed = self.listed_mut(packet);
        assert!(bytes <= listed.header_len.into(), "beyond the header");
        listed.header += bytes as u32;
        listed.header_len -= bytes as u16;
        listed.len -= bytes as u32;
    }

    /// Makes the first bytes of a packet visible in its header, 512 at most; returns their number.
    pub fn pull(&mut self, packet: usize, bytes: usize) -> usize {
        // SAFETY: `head` is the batch of the current call.
        unsafe { host::msw_pull(self.head, packet as u32, bytes as u32) as usize }
    }

    /// Copies a packet, with a header of its own; `None` if the batch has too many packets.
    pub fn copy(&mut self, packet: usize) -> Option<usize> {
        // SAFETY: as in `pull`.
        let copy = unsafe { host::msw_copy(self.head, packet as u32) };
        if copy < 0 {
            None
        } else {
            Some(copy as usize)
        }
    }

    /// Whether the bridge has a port and a client is connected to it.
    pub fn is_up(&self, port: u16) -> bool {
        // SAFETY: as in `pull`.
        unsafe { host::msw_is_up(self.head, port.into()) != 0 }
    }

    /// Makes a new packet of 14 to 65535 bytes; `None` if there is no room (256 in a batch). Without a tag it has no
    /// VLAN: [`Batch::set_vlan`] gives it one. It may also go to the ingress port.
    pub fn make(&mut self, bytes: &[u8]) -> Option<usize> {
        // SAFETY: as in `pull`.
        number(unsafe { host::msw_new(self.head, bytes.as_ptr(), bytes.len() as u32) })
    }

    /// Copies bytes of a packet, payload included, from offset `from` on; returns their number.
    pub fn read(&self, packet: usize, from: usize, to: &mut [u8]) -> usize {
        // SAFETY: as in `pull`.
        unsafe {
            host::msw_read(self.head, packet as u32, from as u32, to.as_mut_ptr(), to.len() as u32) as usize
        }
    }

    /// Keeps a packet in its current state beyond this batch. Returns a number below the description's `retain`, or
    /// `None` if this worker keeps that many already. A kept packet needs no output.
    pub fn retain(&mut self, packet: usize) -> Option<usize> {
        // SAFETY: as in `pull`.
        number(unsafe { host::msw_retain(self.head, packet as u32) })
    }

    /// Adds a kept packet to the batch, as [`Batch::make`] does, and no longer keeps it.
    pub fn release(&mut self, kept: usize) -> Option<usize> {
        // SAFETY: as in `pull`.
        number(unsafe { host::msw_release(self.head, kept as u32) })
    }

    /// Writes a line to the daemon's log. All modules together may write twenty lines a second.
    pub fn log(&self, text: &str) {
        // SAFETY: as in `pull`.
        unsafe { host::msw_log(self.head, text.as_ptr(), text.len() as u32) }
    }

    /// Writes formatted text to the log: `batch.log_fmt(format_args!("{} sources", count))`.
    pub fn log_fmt(&self, text: core::fmt::Arguments<'_>) {
        let mut line = [0; 512];
        let len = write(&mut line, text);
        // SAFETY: as in `pull`.
        unsafe { host::msw_log(self.head, line.as_ptr(), len as u32) }
    }

    /// Adds a reason to `mswitch trace`; the value replaces `{}`. Without a trace it costs a comparison.
    pub fn explain(&self, packet: usize, text: &str, value: Shown) {
        if self.head().explain != 0 {
            let (kind, value) = match value {
                Shown::Nothing => (0, 0),
                Shown::Number(number) => (0, number),
                Shown::Port(port) => (1, port.into()),
                Shown::Ipv4(address) => (3, u32::from_le_bytes(address).into()),
                Shown::Mac([a, b, c, d, e, f]) => (2, u64::from_le_bytes([a, b, c, d, e, f, 0, 0])),
            };
            let len = text.len() as u32;
            // SAFETY: as in `pull`.
            unsafe { host::msw_remark(self.head, packet as u32, text.as_ptr(), len, kind, value) }
        }
    }

    /// One of 64 sets of ports, which keep their ports from batch to batch: a bit for each port.
    fn set(&mut self, set: usize) -> &mut [u64; PORTS as usize / 64] {
        assert!(set < SETS, "no such set");
        // SAFETY: the worker has 64 sets of its own, and `self` is borrowed exclusively.
        unsafe { &mut *self.at::<[u64; PORTS as usize / 64]>(self.head().set_at).wrapping_add(set) }
    }

    /// Removes all ports from a set.
    pub fn clear_set(&mut self, set: usize) {
        self.set(set).fill(0);
    }

    /// Adds a port to a set.
    pub fn add_to_set(&mut self, set: usize, port: u16) {
        assert!(port < PORTS, "no such port");
        self.set(set)[usize::from(port / 64)] |= 1 << (port % 64);
    }

    /// Sends a packet to the ports of a set that are members of its VLAN, except the ingress port.
    pub fn send_to_set(&mut self, packet: usize, set: usize) {
        self.put(packet, set as u16, SEND_SET);
    }

    /// Ends a packet without loss: its content continues in other packets.
    pub fn consume(&mut self, packet: usize) {
        self.put(packet, 0, CONSUME);
    }

    fn put(&mut self, packet: usize, port: u16, verb: u16) {
        if self.outputs < self.head().output_room {
            let output = Output { packet: packet as u16, port, verb, reserved: 0 };
            let at = self.at::<Output>(self.head().output_at).wrapping_add(self.outputs as usize);
            // SAFETY: the list has room for `output_room` outputs.
            unsafe { at.write(output) };
            self.outputs += 1;
        }
    }

    /// Sends a packet to a port.
    pub fn send(&mut self, packet: usize, port: u16) {
        self.put(packet, port, SEND);
    }

    /// Sends a packet to every port of its VLAN except the ingress port.
    pub fn flood(&mut self, packet: usize) {
        self.put(packet, 0, FLOOD);
    }

    /// Floods a packet to an unknown station, within the ingress port's storm control.
    pub fn flood_unknown(&mut self, packet: usize) {
        self.put(packet, 0, FLOOD_UNKNOWN);
    }

    /// Sends a packet back to the ingress port.
    pub fn reflect(&mut self, packet: usize) {
        self.put(packet, 0, REFLECT);
    }

    /// Drops a packet; counted as `logic`.
    pub fn drop(&mut self, packet: usize) {
        self.put(packet, 0, DROP);
    }

    /// Adds to a counter, by its position in the description.
    pub fn count(&mut self, counter: usize, more: u64) {
        assert!(counter < 64, "no such counter");
        let at = self.at::<u64>(self.head().counter_at).wrapping_add(counter);
        // SAFETY: the worker has 64 counters of its own; the switch only reads them.
        unsafe { at.write_volatile(at.read_volatile().wrapping_add(more)) };
    }

    fn value(&self, param: usize) -> &Value {
        assert!(param < 32, "no such parameter");
        // SAFETY: the batch has 32 values.
        unsafe { &*self.at::<Value>(self.head().value_at).wrapping_add(param) }
    }

    /// A parameter as a number, by its position in the description: a number; 0 or 1 for a switch, a choice's position,
    /// milliseconds, the index of a port, a MAC or IPv4 address. `None`: it has no value, or the bridge has no such
    /// port.
    pub fn number(&self, param: usize) -> Option<u64> {
        Some(self.value(param).number).filter(|number| *number != u64::MAX)
    }

    /// A parameter as it was written.
    pub fn text(&self, param: usize) -> &str {
        let value = self.value(param);
        // SAFETY: the switch provides `text_len` bytes.
        let bytes = unsafe { slice::from_raw_parts(self.at::<u8>(value.text), value.text_len as usize) };
        core::str::from_utf8(bytes).unwrap_or("")
    }

    /// This worker's state: as many bytes as the description says, initially zero.
    pub fn state(&mut self) -> &mut [u8] {
        // SAFETY: the worker has `state_len` bytes of its own, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.at(self.head().state_at), self.head().state_len as usize) }
    }

    /// This worker's state as a value, initially of zero bytes. The description's `state` has at least
    /// `size_of::<T>()` bytes.
    pub fn state_of<T: Plain>(&mut self) -> &mut T {
        let (at, len) = (self.head().state_at, self.head().state_len as usize);
        assert!(core::mem::size_of::<T>() <= len, "the description's `state` is too small");
        assert!(core::mem::align_of::<T>() <= 64, "the state is aligned to 64 bytes");
        // SAFETY: the worker has `len` bytes of its own, aligned to 64; any bytes are a valid `T`.
        unsafe { &mut *self.at(at) }
    }

    /// A table, by its position in the description. It lives as long as the module.
    pub fn table(&self, table: usize) -> Table<'static> {
        let at = self.head().tables.get(table).copied().unwrap_or(0);
        assert!(at != 0, "no such table");
        // SAFETY: the address is that of a table from the switch.
        unsafe { Table::new(at as usize as *const u64) }
    }

    /// The arguments of a command, separated by newlines.
    pub fn arguments(&self) -> &str {
        // SAFETY: the switch provides `text_len` bytes.
        let bytes = unsafe {
            slice::from_raw_parts(self.at::<u8>(self.head().text_at), self.head().text_len as usize)
        };
        core::str::from_utf8(bytes).unwrap_or("")
    }

    /// Writes a command's answer and returns its length, which the command returns. The text may contain the arguments
    /// and parameters: `batch.reply(format_args!("{}!", batch.arguments()))`.
    pub fn reply(&self, text: core::fmt::Arguments<'_>) -> i32 {
        let (at, room) = self.answer_place();
        // Written by address, because `text` may itself read the batch.
        let mut answer = Room { at, room, len: 0 };
        let _ = core::fmt::Write::write_fmt(&mut answer, text);
        answer.len as i32
    }

    /// Writes the reason for which a command fails, a standard text if it is empty, and returns its negative length,
    /// which the command returns. The text may contain the arguments and parameters.
    pub fn fail(&self, reason: core::fmt::Arguments<'_>) -> i32 {
        match self.reply(reason) {
            0 => -self.reply(format_args!("failed without a reason")),
            len => -len,
        }
    }

    /// Buffer for a command's answer.
    pub fn answer(&mut self) -> &mut [u8] {
        let (at, len) = self.answer_place();
        // SAFETY: the switch provides so many bytes, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(at, len) }
    }

    /// Directs the answer to its own room, which no other data overlaps, and returns that room.
    fn answer_place(&self) -> (*mut u8, usize) {
        let (at, len) = (self.head().answer_room_at, self.head().text_room);
        // SAFETY: by the contract of `new`, the pointer is a batch from the switch; no reference to its head exists
        // here.
        unsafe { core::ptr::addr_of_mut!((*self.head).answer_at).write(at) };
        (self.at(at), len as usize)
    }
}

/// Writer into the room for an answer; text beyond its end is omitted.
struct Room {
    at: *mut u8,
    room: usize,
    len: usize,
}

impl core::fmt::Write for Room {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes().take(self.room - self.len) {
            // SAFETY: the room has `room` bytes, and `len` is below it.
            unsafe { self.at.wrapping_add(self.len).write(byte) };
            self.len += 1;
        }
        Ok(())
    }
}

/// A type for [`Batch::state_of`], for which any bytes are a valid value.
///
/// # Safety
/// The type contains no references, no `bool` and no `enum`.
pub unsafe trait Plain {}

// SAFETY: any bytes are a valid number.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: the elements are `Plain`.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Writer into a byte slice; text beyond its end is omitted.
struct Line<'a>(&'a mut [u8], usize);

impl core::fmt::Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for (to, from) in self.0.iter_mut().skip(self.1).zip(text.bytes()) {
            *to = from;
            self.1 += 1;
        }
        Ok(())
    }
}

/// Writes text into bytes; returns their number.
fn write(to: &mut [u8], text: core::fmt::Arguments<'_>) -> usize {
    let mut line = Line(to, 0);
    let _ = core::fmt::Write::write_fmt(&mut line, text);
    line.1
}

/// Converts a returned packet number; negative numbers are `None`.
fn number(returned: i32) -> Option<usize> {
    if returned < 0 {
        None
    } else {
        Some(returned as usize)
    }
}

/// A value in an explanation.
#[derive(Clone, Copy)]
pub enum Shown {
    /// No value.
    Nothing,
    /// A number.
    Number(u64),
    /// A port; the trace shows its name.
    Port(u16),
    /// A MAC address, as in packets.
    Mac([u8; 6]),
    /// An IPv4 address, as in packets.
    Ipv4([u8; 4]),
}

/// Logs a panic and traps.
#[doc(hidden)]
#[cfg(target_arch = "wasm32")]
pub fn panicked(panic: &core::panic::PanicInfo) -> ! {
    let mut line = [0; 256];
    let len = write(&mut line, format_args!("{}", panic));
    // SAFETY: `line` has at least `len` bytes.
    unsafe { host::msw_log(core::ptr::null_mut(), line.as_ptr(), len as u32) };
    core::arch::wasm32::unreachable()
}

/// Defines a module: `describe`, its description in JSON; `forward: fn(&mut Batch)`; and optionally, in this order,
/// `start: fn(&mut Batch) -> Result<(), &'static str>`, `timer: fn(&mut Batch)` and `command: fn(&mut Batch, u32) ->
/// i32`. A command returns the value of [`Batch::reply`], or of [`Batch::fail`].
#[macro_export]
macro_rules! module {
    (describe: $describe:expr, forward: $forward:expr $(, start: $start:expr)? $(, timer: $timer:expr)? $(, command: $command:expr)? $(,)?) => {
        /// Returns the version of the interface.
        #[no_mangle]
        pub extern "C" fn msw_abi() -> u32 {
            $crate::ABI
        }

        /// Returns the description, which ends with a zero byte.
        #[no_mangle]
        pub extern "C" fn msw_describe() -> *const u8 {
            concat!($describe, "\0").as_ptr()
        }

        /// Forwards a batch.
        ///
        /// # Safety
        /// Only the switch calls it, with a batch.
        #[no_mangle]
        pub unsafe extern "C" fn msw_forward(head: *mut $crate::Head) -> u32 {
            let mut batch = $crate::Batch::new(head);
            let forward: fn(&mut $crate::Batch) = $forward;
            forward(&mut batch);
            batch.outputs()
        }

        $(
            /// Starts the module on a worker.
            ///
            /// # Safety
            /// Only the switch calls it, with a batch without packets.
            #[no_mangle]
            pub unsafe extern "C" fn msw_start(head: *mut $crate::Head) -> i32 {
                let start: fn(&mut $crate::Batch) -> Result<(), &'static str> = $start;
                let mut batch = $crate::Batch::new(head);
                match start(&mut batch) {
                    Ok(()) => 0,
                    Err(reason) => {
                        batch.fail(format_args!("{reason}"))
                    }
                }
            }
        )?

        $(
            /// Runs the timer, at the interval of the description's `timer`.
            ///
            /// # Safety
            /// Only the switch calls it, with a batch without packets.
            #[no_mangle]
            pub unsafe extern "C" fn msw_timer(head: *mut $crate::Head) -> u32 {
                let mut batch = $crate::Batch::new(head);
                let timer: fn(&mut $crate::Batch) = $timer;
                timer(&mut batch);
                batch.outputs()
            }
        )?

        $(
            /// Carries out a command.
            ///
            /// # Safety
            /// Only the switch calls it, with a batch without packets.
            #[no_mangle]
            pub unsafe extern "C" fn msw_command(head: *mut $crate::Head, number: u32) -> i32 {
                let command: fn(&mut $crate::Batch, u32) -> i32 = $command;
                command(&mut $crate::Batch::new(head), number)
            }
        )?

        #[cfg(target_arch = "wasm32")]
        #[panic_handler]
        fn panic(panic: &core::panic::PanicInfo) -> ! {
            $crate::panicked(panic)
        }
    };
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::mem::{size_of, zeroed};
    use std::string::String;
    use std::vec;

    use super::*;

    const ROOM: usize = 32;

    /// Runs a command with these arguments; returns its value and the answer.
    fn run(command: impl Fn(&mut Batch) -> i32, arguments: &str) -> (i32, String) {
        let texts = (size_of::<Head>(), size_of::<Head>() + ROOM);
        let mut memory = vec![0u64; (texts.1 + ROOM) / 8 + 1];
        let head = memory.as_mut_ptr().cast::<Head>();
        // SAFETY: the memory has room for the head, the arguments and the answer, and all of them are plain bytes.
        unsafe {
            head.write(Head {
                text_at: texts.0 as u32,
                text_len: arguments.len() as u32,
                text_room: ROOM as u32,
                answer_at: texts.0 as u32,
                answer_room_at: texts.1 as u32,
                ..zeroed()
            });
            let bytes = head.cast::<u8>();
            bytes.add(texts.0).copy_from_nonoverlapping(arguments.as_ptr(), arguments.len());
            let returned = command(&mut Batch::new(head));
            assert_eq!((*head).answer_at as usize, texts.1, "the answer has its own room");
            let len = returned.unsigned_abs() as usize;
            let answer = slice::from_raw_parts(bytes.add(texts.1), len);
            (returned, String::from_utf8(answer.into()).unwrap())
        }
    }

    #[test]
    fn answers_may_quote_the_arguments() {
        let refuse = |batch: &mut Batch| batch.fail(format_args!("not a port: {}", batch.arguments()));
        assert_eq!(run(refuse, "vm 1"), (-16, "not a port: vm 1".into()));
        let echo = |batch: &mut Batch| batch.reply(format_args!("{0}{0}", batch.arguments()));
        assert_eq!(run(echo, "abc"), (6, "abcabc".into()));
        assert_eq!(run(echo, &"x".repeat(20)), (ROOM as i32, "x".repeat(ROOM)), "the rest is omitted");
        let silent = |batch: &mut Batch| batch.fail(format_args!("{}", batch.arguments()));
        assert_eq!(run(silent, ""), (-23, "failed without a reason".into()));
        let by_hand = |batch: &mut Batch| {
            batch.answer()[..2].copy_from_slice(b"ok");
            2
        };
        assert_eq!(run(by_hand, "x"), (2, "ok".into()));
    }
}
