//! What a module and the switch agree on, version 1: the layout of what they share (`sdk/c/mswitch.h` has the same).
//!
//! Everything is little-endian, and offsets count from the start of the batch, so that layouts are the same for 32-bit
//! WebAssembly and for native code.

use fabric::arena::SLOTS;
use fabric::port::MAX_PORTS;

/// The version of this interface.
pub(crate) const VERSION: u32 = 1;

/// Names of what a module exports.
pub(crate) mod export {
    /// `uint32_t msw_abi(void)`: the version of the interface that it speaks.
    pub(crate) const ABI: &str = "msw_abi";
    /// `const char *msw_describe(void)`: its description, JSON that ends with a zero byte.
    pub(crate) const DESCRIBE: &str = "msw_describe";
    /// `int32_t msw_start(struct msw_batch *)`: called once for each worker before its first batch; other than 0: refused; less than
    /// 0: for a reason of so many bytes that lies where texts do. Optional.
    pub(crate) const START: &str = "msw_start";
    /// `uint32_t msw_forward(struct msw_batch *)`: decides; returns the number of outputs.
    pub(crate) const FORWARD: &str = "msw_forward";
    /// `uint32_t msw_timer(struct msw_batch *)`: its time has come; returns the number of outputs. Where the description has a timer.
    pub(crate) const TIMER: &str = "msw_timer";
    /// `int32_t msw_command(struct msw_batch *, uint32_t)`: carries out command number so and so. Optional.
    pub(crate) const COMMAND: &str = "msw_command";
}

/// Tables that a module can have.
pub(crate) const MAX_TABLES: usize = 8;
/// Counters that it can have.
pub(crate) const MAX_COUNTERS: usize = 64;
/// Parameters that it can have.
pub(crate) const MAX_PARAMS: usize = 32;
/// Outputs of a batch.
pub(crate) const MAX_OUTPUTS: usize = 4096;
/// Bytes of text: of parameters' values, of a command's arguments, of its answer.
pub(crate) const TEXT_LEN: usize = 4096;
/// Bytes that a worker can remember for itself.
pub(crate) const MAX_STATE: usize = 1 << 20;
/// Sets of ports in a batch.
pub(crate) const MAX_SETS: usize = 64;
/// Bytes of a set: a bit for each port, from the lowest of the first byte on.
pub(crate) const SET_LEN: usize = MAX_PORTS / 8;
/// Packets that a worker can keep.
pub(crate) const MAX_KEPT: u64 = 256;
/// Time between two calls because of time, milliseconds.
pub(crate) const PERIODS: std::ops::RangeInclusive<u64> = 1..=3_600_000;
/// Header versions of a batch.
pub(crate) const MAX_VERSIONS: usize = SLOTS;

/// `struct msw_batch`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BatchHead {
    /// How many packets were received: the first so many of the list.
    pub(crate) packets: u32,
    /// Those and the copies of them.
    pub(crate) versions: u32,
    /// Offset of the list of packets.
    pub(crate) packet_at: u32,
    /// Offset of the list of outputs.
    pub(crate) output_at: u32,
    /// How many outputs fit there.
    pub(crate) output_room: u32,
    /// The port that the packets came from; the highest number: none, its time has come.
    pub(crate) ingress: u16,
    /// Which of its queues.
    pub(crate) queue: u16,
    /// Monotonic time, nanoseconds.
    pub(crate) now: u64,
    /// Offset of the counters.
    pub(crate) counter_at: u32,
    /// Offset of the parameters' values.
    pub(crate) value_at: u32,
    /// Offset of what the worker remembers for itself.
    pub(crate) state_at: u32,
    /// How long that is.
    pub(crate) state_len: u32,
    /// Offset and length of a command's arguments; its answer goes where they are.
    pub(crate) text_at: u32,
    pub(crate) text_len: u32,
    /// Room there.
    pub(crate) text_room: u32,
    /// Which worker this is.
    pub(crate) worker: u32,
    /// Where the tables are, addresses.
    pub(crate) tables: [u64; MAX_TABLES],
    /// For native modules: the functions that they can call, an address.
    pub(crate) host: u64,
    /// Offset of the sets of ports.
    pub(crate) set_at: u32,
    /// Other than 0: somebody wants to know why packets go where they go.
    pub(crate) explain: u32,
    /// Changes whenever ports come and go.
    pub(crate) ports: u64,
}

/// `struct msw_packet`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Packet {
    /// Offset of its first byte. It may be moved: to an earlier one, for a longer header, or a later one.
    pub(crate) header: u32,
    /// Bytes of the whole packet.
    pub(crate) len: u32,
    /// Bytes that can be seen.
    pub(crate) header_len: u16,
    /// The VLAN that it belongs to, 0 for none. It may be changed.
    pub(crate) vlan: u16,
    /// See [`flag`].
    pub(crate) flags: u16,
    /// Not used.
    pub(crate) reserved: u16,
}

/// What remains to be done on a packet.
pub(crate) mod flag {
    /// Its checksum is to be completed.
    pub(crate) const CHECKSUM: u16 = 1;
    /// It is to be cut into segments.
    pub(crate) const SEGMENTS: u16 = 2;
}

/// `struct msw_output`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Output {
    /// Which of the list of packets.
    pub(crate) packet: u16,
    /// Where to: for [`verb::SEND`] a port, for [`verb::SEND_SET`] the number of a set.
    pub(crate) port: u16,
    /// See [`verb`].
    pub(crate) verb: u16,
    /// Not used.
    pub(crate) reserved: u16,
}

/// What becomes of a packet.
pub(crate) mod verb {
    /// It goes to a port.
    pub(crate) const SEND: u16 = 0;
    /// It goes to all ports of its VLAN but the one it came from.
    pub(crate) const FLOOD: u16 = 1;
    /// It goes back where it came from.
    pub(crate) const REFLECT: u16 = 2;
    /// It is dropped.
    pub(crate) const DROP: u16 = 3;
    /// The same as [`FLOOD`], unless the port has flooded more than storm control grants it.
    pub(crate) const FLOOD_UNKNOWN: u16 = 4;
    /// It goes to the ports of a set, those that are members of its VLAN, but not to the one that it came from.
    pub(crate) const SEND_SET: u16 = 5;
    /// It goes nowhere from here, and that is no loss: what was in it went on in others.
    pub(crate) const CONSUME: u16 = 6;
}

/// What the value of a remark is.
pub(crate) mod kind {
    /// The index of a port.
    pub(crate) const PORT: u32 = 1;
    /// A MAC address, its bytes as they are in packets.
    pub(crate) const MAC: u32 = 2;
    /// An IPv4 address, its bytes as they are in packets.
    pub(crate) const IPV4: u32 = 3;
}

/// `struct msw_value`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Value {
    /// A number, as the type has it.
    pub(crate) number: u64,
    /// Offset of the text.
    pub(crate) text: u32,
    /// Its length.
    pub(crate) text_len: u32,
}

/// The number of a parameter that names a port which is not there, or has no value.
pub(crate) const NOTHING: u64 = u64::MAX;

/// `struct msw_host`: what native modules can call; for WebAssembly they are imports from `mswitch`.
#[repr(C)]
pub(crate) struct HostFunctions {
    /// Brings so many bytes of a packet into its header; returns how many are there.
    pub(crate) pull: unsafe extern "C" fn(*mut BatchHead, u32, u32) -> u32,
    /// Makes a copy of a packet; returns its number, or -1 where there is no room.
    pub(crate) copy: unsafe extern "C" fn(*mut BatchHead, u32) -> i32,
    /// Whether a port is there and up.
    pub(crate) is_up: unsafe extern "C" fn(*mut BatchHead, u32) -> u32,
    /// Makes a packet of so many bytes; returns its number, or -1.
    pub(crate) originate: unsafe extern "C" fn(*mut BatchHead, *const u8, u32) -> i32,
    /// Copies bytes of a packet, from one of them on; returns how many.
    pub(crate) read: unsafe extern "C" fn(*mut BatchHead, u32, u32, *mut u8, u32) -> u32,
    /// Keeps a packet beyond this batch; returns a number for it, or -1.
    pub(crate) retain: unsafe extern "C" fn(*mut BatchHead, u32) -> i32,
    /// Returns a held packet to the batch; returns its number there, or -1.
    pub(crate) release: unsafe extern "C" fn(*mut BatchHead, u32) -> i32,
    /// Says something about a packet: a text with `{}` where a value of a [`kind`] is to be.
    pub(crate) remark: unsafe extern "C" fn(*mut BatchHead, u32, *const u8, u32, u32, u64),
    /// Has a line written to the log.
    pub(crate) log: unsafe extern "C" fn(*mut BatchHead, *const u8, u32),
    /// The index of the port of this name, [`NO_PORT`], or [`ASK_AGAIN`].
    pub(crate) port: unsafe extern "C" fn(*mut BatchHead, *const u8, u32) -> i32,
}

/// The bridge has no port of this name.
pub(crate) const NO_PORT: i32 = -1;
/// The ports are changing at the moment.
pub(crate) const ASK_AGAIN: i32 = -2;
