//! The bpf(2) system call, as far as loading and attaching an XDP program needs it.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

const MAP_CREATE: u32 = 0;
const MAP_UPDATE_ELEM: u32 = 2;
const MAP_DELETE_ELEM: u32 = 3;
const PROG_LOAD: u32 = 5;
const PROG_GET_FD_BY_ID: u32 = 13;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const LINK_CREATE: u32 = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program accepts packets in several frames.
const XDP_HAS_FRAGS: u32 = 1 << 5;

/// An instruction (`struct bpf_insn`).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u8,
    /// Destination register in the low four bits, source register in the high ones.
    pub registers: u8,
    /// Offset of a load, a store or a jump.
    pub offset: i16,
    /// Immediate operand.
    pub immediate: i32,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    name: [u8; 16],
    ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct GetById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct GetInfo {
    fd: u32,
    length: u32,
    info: u64,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_len: u32,
    xlated_len: u32,
    jited: u64,
    xlated: u64,
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
}

/// The beginning of `struct bpf_link_info`, of an XDP link.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    prog_id: u32,
    pad: u32,
    ifindex: u32,
    rest: u32,
}

/// Calls bpf(2).
///
/// # Safety
/// Addresses in `attributes` are valid for the kernel's reads and writes, which the command determines.
unsafe fn bpf<T>(command: u32, attributes: &mut T) -> Result<i32, Errno> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of the structure; addresses in it are valid by the caller's
    // promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    Ok(result as i32)
}

/// Wraps a descriptor that a command returned.
fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just made the descriptor for the caller, who gives it to nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Makes a map from queue numbers below `entries` to AF_XDP sockets.
pub fn socket_map(entries: u32) -> Result<OwnedFd, Errno> {
    let mut attributes = MapCreate {
        map_type: MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        max_entries: entries,
        name: *b"mswitch_sockets\0",
        ..MapCreate::default()
    };
    // SAFETY: the structure holds no addresses.
    unsafe { bpf(MAP_CREATE, &mut attributes) }.map(owned)
}

/// Enters a socket in a map.
pub fn enter(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let value = number(socket);
    let mut attributes = MapElement {
        map_fd: number(map),
        key: (&raw const queue).expose_provenance() as u64,
        value: (&raw const value).expose_provenance() as u64,
        ..MapElement::default()
    };
    // SAFETY: key and value are four bytes each, which the kernel reads during the call.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
}

/// Removes a socket from a map.
pub fn remove(map: BorrowedFd<'_>, queue: u32) -> Result<(), Errno> {
    let mut attributes = MapElement {
        map_fd: number(map),
        key: (&raw const queue).expose_provenance() as u64,
        ..MapElement::default()
    };
    // SAFETY: the key is four bytes, which the kernel reads during the call.
    unsafe { bpf(MAP_DELETE_ELEM, &mut attributes) }.map(drop)
}

/// Loads an XDP program. With `frags`, it accepts packets in several frames (Linux 5.18).
pub fn load_xdp(instructions: &[Instruction], frags: bool) -> Result<OwnedFd, Errno> {
    const LICENSE: &CStr = c"Apache-2.0";
    let mut attributes = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        insn_count: u32::try_from(instructions.len()).map_err(|_| Errno::TOOBIG)?,
        insns: instructions.as_ptr().expose_provenance() as u64,
        license: LICENSE.as_ptr().expose_provenance() as u64,
        prog_flags: if frags { XDP_HAS_FRAGS } else { 0 },
        name: *b"mswitch_xsk\0\0\0\0\0",
        expected_attach_type: ATTACH_XDP,
        ..ProgLoad::default()
    };
    // SAFETY: instructions and license are valid for reads of their lengths during the call.
    unsafe { bpf(PROG_LOAD, &mut attributes) }.map(owned)
}

/// Attaches an XDP program to an interface until the returned link is closed; `flags` is `XDP_FLAGS_*`.
pub fn link_xdp(program: BorrowedFd<'_>, interface: u32, flags: u32) -> Result<OwnedFd, Errno> {
    let mut attributes =
        LinkCreate { prog_fd: number(program), target_ifindex: interface, attach_type: ATTACH_XDP, flags };
    // SAFETY: the structure holds no addresses.
    unsafe { bpf(LINK_CREATE, &mut attributes) }.map(owned)
}

fn info<T: Default>(fd: BorrowedFd<'_>) -> Result<T, Errno> {
    let mut found = T::default();
    let mut attributes = GetInfo {
        fd: number(fd),
        length: size_of::<T>() as u32,
        info: (&raw mut found).expose_provenance() as u64,
    };
    // SAFETY: the kernel writes at most `length` bytes to `found`, a structure of integers.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attributes) }?;
    Ok(found)
}

/// Returns the index of the interface that a link attaches to; 0 once it is detached.
pub fn linked_interface(link: BorrowedFd<'_>) -> Result<u32, Errno> {
    Ok(info::<LinkInfo>(link)?.ifindex)
}

/// Returns the name of the loaded program with this id, as its loader gave it.
pub fn program_name(id: u32) -> Result<String, Errno> {
    let mut attributes = GetById { id, ..GetById::default() };
    // SAFETY: the structure holds no addresses.
    let program = unsafe { bpf(PROG_GET_FD_BY_ID, &mut attributes) }.map(owned)?;
    let name = info::<ProgInfo>(std::os::fd::AsFd::as_fd(&program))?.name;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned())
}
