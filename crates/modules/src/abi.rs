//! The interface between modules and the switch, version 1: the layout of their shared memory, as in
//! `sdk/c/mswitch.h`.
//!
//! Everything is little-endian, and offsets count from the start of the batch, so that layouts are the same for
//! 32-bit WebAssembly and for native code.

use fabric::arena::SLOTS;
use fabric::port::MAX_PORTS;

/// The version of this interface.
pub(crate) const VERSION: u32 = 1;

/// Names of a module's exports.
pub(crate) mod export {
    /// `uint32_t msw_abi(void)`: the version of the interface.
    pub(crate) const ABI: &str = "msw_abi";
    /// `const char *msw_describe(void)`: its description, JSON that ends with a zero byte.
    pub(crate) const DESCRIBE: &str = "msw_describe";
    /// `int32_t msw_start(struct msw_batch *)`: called once for each worker before its first batch; any value but 0
    /// refuses, a negative one is the length of the reason in the room for answers. Optional.
    pub(crate) const START: &str = "msw_start";
    /// `uint32_t msw_forward(struct msw_batch *)`: decides; returns the number of outputs.
    pub(crate) const FORWARD: &str = "msw_forward";
    /// `uint32_t msw_timer(struct msw_batch *)`: called at the timer's interval; returns the number of outputs.
    /// Required by a description with a timer.
    pub(crate) const TIMER: &str = "msw_timer";
    /// `int32_t msw_command(struct msw_batch *, uint32_t)`: carries out a command, by its number. Optional.
    pub(crate) const COMMAND: &str = "msw_command";
}

/// Most tables of a module.
pub(crate) const MAX_TABLES: usize = 8;
/// Most counters.
pub(crate) const MAX_COUNTERS: usize = 64;
/// Most parameters.
pub(crate) const MAX_PARAMS: usize = 32;
/// Most outputs of a batch.
pub(crate) const MAX_OUTPUTS: usize = 4096;
/// Room for the parameters' values as text, bytes.
pub(crate) const VALUE_TEXT_LEN: usize = 4096;
/// Room for a command's arguments, and for its answer, bytes.
pub(crate) const TEXT_LEN: usize = 64 << 10;
/// Most bytes of a worker's state.
pub(crate) const MAX_STATE: usize = 1 << 20;
/// Sets of ports in a batch.
pub(crate) const MAX_SETS: usize = 64;
/// Bytes of a set: a bit for each port, from the lowest of the first byte on.
pub(crate) const SET_LEN: usize = MAX_PORTS / 8;
/// Most packets that a worker keeps.
pub(crate) const MAX_KEPT: u64 = 256;
/// Interval of the timer, milliseconds.
pub(crate) const PERIODS: std::ops::RangeInclusive<u64> = 1..=3_600_000;
/// Header versions of a batch.
pub(crate) const MAX_VERSIONS: usize = SLOTS;

/// `struct msw_batch`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BatchHead {
    /// Packets received, which are the first of the list.
    pub(crate) packets: u32,
    /// Packets in the list, those that the module added included.
    pub(crate) versions: u32,
    /// Offset of the list of packets.
    pub(crate) packet_at: u32,
    /// Offset of the list of outputs.
    pub(crate) output_at: u32,
    /// Outputs that fit there.
    pub(crate) output_room: u32,
    /// The ingress port; the highest number for a call of the timer.
    pub(crate) ingress: u16,
    /// The number of its queue.
    pub(crate) queue: u16,
    /// Monotonic time, nanoseconds.
    pub(crate) now: u64,
    /// Offset of the counters.
    pub(crate) counter_at: u32,
    /// Offset of the parameters' values.
    pub(crate) value_at: u32,
    /// Offset of the worker's state.
    pub(crate) state_at: u32,
    /// Its length.
    pub(crate) state_len: u32,
    /// Offset and length of a command's arguments.
    pub(crate) text_at: u32,
    pub(crate) text_len: u32,
    /// Room there, bytes.
    pub(crate) text_room: u32,
    /// The worker's number.
    pub(crate) worker: u32,
    /// Addresses of the tables.
    pub(crate) tables: [u64; MAX_TABLES],
    /// Address of the functions that native modules call.
    pub(crate) host: u64,
    /// Offset of the sets of ports.
    pub(crate) set_at: u32,
    /// Not 0 if a trace asks for reasons.
    pub(crate) explain: u32,
    /// Changes whenever ports come and go.
    pub(crate) ports: u64,
    /// Offset of the answer: at first that of the arguments, where modules of older SDKs write it;
    pub(crate) answer_at: u32,
    /// newer ones move it to this room of its own, which is as long.
    pub(crate) answer_room_at: u32,
    /// Counters of the description.
    pub(crate) counter_count: u32,
    /// Its parameters.
    pub(crate) value_count: u32,
}

/// `struct msw_packet`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Packet {
    /// Offset of the first byte, which the module may move.
    pub(crate) header: u32,
    /// Bytes of the whole packet.
    pub(crate) len: u32,
    /// Visible bytes.
    pub(crate) header_len: u16,
    /// The packet's VLAN, 0 for none, which the module may change.
    pub(crate) vlan: u16,
    /// See [`flag`].
    pub(crate) flags: u16,
    /// Not used.
    pub(crate) reserved: u16,
}

/// Pending offloads of a packet.
pub(crate) mod flag {
    /// The checksum is to be completed.
    pub(crate) const CHECKSUM: u16 = 1;
    /// The packet is to be segmented.
    pub(crate) const SEGMENTS: u16 = 2;
}

/// `struct msw_output`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Output {
    /// The packet's number in the list.
    pub(crate) packet: u16,
    /// The destination: for [`verb::SEND`] a port, for [`verb::SEND_SET`] the number of a set.
    pub(crate) port: u16,
    /// See [`verb`].
    pub(crate) verb: u16,
    /// Not used.
    pub(crate) reserved: u16,
}

/// Decisions about a packet.
pub(crate) mod verb {
    /// Send to a port.
    pub(crate) const SEND: u16 = 0;
    /// Send to all ports of its VLAN except the ingress port.
    pub(crate) const FLOOD: u16 = 1;
    /// Send back to the ingress port.
    pub(crate) const REFLECT: u16 = 2;
    /// Drop.
    pub(crate) const DROP: u16 = 3;
    /// As [`FLOOD`], within the ingress port's storm control.
    pub(crate) const FLOOD_UNKNOWN: u16 = 4;
    /// Send to the ports of a set that are members of its VLAN, except the ingress port.
    pub(crate) const SEND_SET: u16 = 5;
    /// End without loss: the content continues in other packets.
    pub(crate) const CONSUME: u16 = 6;
}

/// Kinds of a remark's value.
pub(crate) mod kind {
    /// The index of a port.
    pub(crate) const PORT: u32 = 1;
    /// A MAC address, its bytes as in packets.
    pub(crate) const MAC: u32 = 2;
    /// An IPv4 address, its bytes as in packets.
    pub(crate) const IPV4: u32 = 3;
}

/// `struct msw_value`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Value {
    /// The number, by the parameter's type.
    pub(crate) number: u64,
    /// Offset of the text.
    pub(crate) text: u32,
    /// Its length.
    pub(crate) text_len: u32,
}

/// The number of a parameter without a value, or of a port that the bridge does not have.
pub(crate) const NOTHING: u64 = u64::MAX;

/// `struct msw_host`: functions that native modules call; WebAssembly modules import them from `mswitch`.
#[repr(C)]
pub(crate) struct HostFunctions {
    /// Makes the first bytes of a packet visible; returns their number.
    pub(crate) pull: unsafe extern "C" fn(*mut BatchHead, u32, u32) -> u32,
    /// Copies a packet; returns the copy's number, or -1 if there is no room.
    pub(crate) copy: unsafe extern "C" fn(*mut BatchHead, u32) -> i32,
    /// Whether the bridge has a port and it is up.
    pub(crate) is_up: unsafe extern "C" fn(*mut BatchHead, u32) -> u32,
    /// Makes a packet; returns its number, or -1.
    pub(crate) originate: unsafe extern "C" fn(*mut BatchHead, *const u8, u32) -> i32,
    /// Copies bytes of a packet from an offset on; returns their number.
    pub(crate) read: unsafe extern "C" fn(*mut BatchHead, u32, u32, *mut u8, u32) -> u32,
    /// Keeps a packet beyond this batch; returns its number there, or -1.
    pub(crate) retain: unsafe extern "C" fn(*mut BatchHead, u32) -> i32,
    /// Returns a held packet to the batch; returns its number there, or -1.
    pub(crate) release: unsafe extern "C" fn(*mut BatchHead, u32) -> i32,
    /// Adds a remark to a packet: a text with `{}` in the place of a value of a [`kind`].
    pub(crate) remark: unsafe extern "C" fn(*mut BatchHead, u32, *const u8, u32, u32, u64),
    /// Writes a line to the log.
    pub(crate) log: unsafe extern "C" fn(*mut BatchHead, *const u8, u32),
    /// The index of the port of this name, [`NO_PORT`], or [`ASK_AGAIN`].
    pub(crate) port: unsafe extern "C" fn(*mut BatchHead, *const u8, u32) -> i32,
}

/// The bridge has no port of this name.
pub(crate) const NO_PORT: i32 = -1;
/// The ports are changing at the moment.
pub(crate) const ASK_AGAIN: i32 = -2;
