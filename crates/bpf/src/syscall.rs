//! The bpf(2) system call, as far as XDP programs need it.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use crate::Instruction;
use crate::map::{Kind, Shape};

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP_ELEM: u32 = 1;
const MAP_UPDATE_ELEM: u32 = 2;
const MAP_DELETE_ELEM: u32 = 3;
const PROG_LOAD: u32 = 5;
const PROG_TEST_RUN: u32 = 10;
const PROG_GET_FD_BY_ID: u32 = 13;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const MAP_LOOKUP_BATCH: u32 = 24;
const LINK_CREATE: u32 = 28;
const LINK_UPDATE: u32 = 29;
const LINK_GET_FD_BY_ID: u32 = 30;
const LINK_GET_NEXT_ID: u32 = 31;
const LINK_DETACH: u32 = 34;
const LINK_TYPE_XDP: u32 = 6;

const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// Memory for entries is allocated when they come.
const NO_PREALLOC: u32 = 1;
/// Processes can map the entries' memory.
const MMAPABLE: u32 = 1 << 10;
/// The program accepts packets in several frames.
const XDP_HAS_FRAGS: u32 = 1 << 5;

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
struct MapBatch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
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
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    /// The kernel refuses what is not 0 behind the fields that it knows.
    pad: u32,
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
struct LinkUpdate {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkDetach {
    link_fd: u32,
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
    map_create(&Shape::new(Kind::XskMap, "mswitch_sockets", 4, 4, entries))
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

/// Enters an interface of this thread's network namespace in a map of interfaces by numbers.
pub fn enter_interface(map: BorrowedFd<'_>, number: u32, interface: u32) -> Result<(), Errno> {
    map_update(map, &number.to_ne_bytes(), &interface.to_ne_bytes())
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

/// Makes a map.
pub(crate) fn map_create(shape: &Shape) -> Result<OwnedFd, Errno> {
    let mut name = [0; 16];
    for (to, from) in name.iter_mut().take(15).zip(shape.name.bytes()) {
        *to = if from.is_ascii_alphanumeric() { from } else { b'_' };
    }
    let mut attributes = MapCreate {
        map_type: shape.kind as u32,
        key_size: shape.key,
        value_size: shape.value,
        max_entries: shape.entries,
        map_flags: match shape.kind {
            Kind::Hash | Kind::LpmTrie => NO_PREALLOC,
            Kind::Array if shape.is_shared => MMAPABLE,
            _ => 0,
        },
        name,
        ..MapCreate::default()
    };
    // SAFETY: the structure holds no addresses.
    unsafe { bpf(MAP_CREATE, &mut attributes) }.map(owned)
}

/// Enters a value in a map. Key and value have the sizes that the map was made for; [`crate::map::Map`] sees to it.
pub(crate) fn map_update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> Result<(), Errno> {
    let mut attributes = MapElement {
        map_fd: number(map),
        key: key.as_ptr().expose_provenance() as u64,
        value: value.as_ptr().expose_provenance() as u64,
        ..MapElement::default()
    };
    // SAFETY: key and value are as long as the kernel reads, by the caller's promise, and live during the call.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
}

/// Removes a value from a map; the key has the size that the map was made for.
pub(crate) fn map_remove(map: BorrowedFd<'_>, key: &[u8]) -> Result<(), Errno> {
    let mut attributes = MapElement {
        map_fd: number(map),
        key: key.as_ptr().expose_provenance() as u64,
        ..MapElement::default()
    };
    // SAFETY: the key is as long as the kernel reads, by the caller's promise, and lives during the call.
    unsafe { bpf(MAP_DELETE_ELEM, &mut attributes) }.map(drop)
}

/// Reads a value from a map; key and value have the sizes that the map was made for.
pub(crate) fn map_lookup(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> Result<(), Errno> {
    let mut attributes = MapElement {
        map_fd: number(map),
        key: key.as_ptr().expose_provenance() as u64,
        value: value.as_mut_ptr().expose_provenance() as u64,
        ..MapElement::default()
    };
    // SAFETY: the kernel reads the key and writes the value, both as long as it assumes by the caller's promise, during
    // the call.
    unsafe { bpf(MAP_LOOKUP_ELEM, &mut attributes) }.map(drop)
}

/// Reads values of an array from index `from`, as many as have room in `values`, of `size` bytes each, and returns how many
/// these are; fewer at the array's end.
pub(crate) fn map_lookup_batch(
    map: BorrowedFd<'_>,
    from: u32,
    size: usize,
    values: &mut [u8],
) -> Result<usize, Errno> {
    let count = u32::try_from(values.len() / size.max(1)).unwrap_or(u32::MAX);
    let mut keys = vec![0_u32; count as usize];
    // A batch goes on behind the key that the one before has left; there is none at the beginning.
    let (before, mut last) = (from.wrapping_sub(1), 0_u32);
    let mut attributes = MapBatch {
        in_batch: if from > 0 { (&raw const before).expose_provenance() as u64 } else { 0 },
        out_batch: (&raw mut last).expose_provenance() as u64,
        keys: keys.as_mut_ptr().expose_provenance() as u64,
        values: values.as_mut_ptr().expose_provenance() as u64,
        count,
        map_fd: number(map),
        ..MapBatch::default()
    };
    // SAFETY: the kernel reads four bytes of `before`, writes four of `last`, and at most `count` keys and values, for which
    // there is room by the caller's promise that values have `size` bytes, during the call.
    match unsafe { bpf(MAP_LOOKUP_BATCH, &mut attributes) } {
        Ok(_) | Err(Errno::NOENT) => Ok(attributes.count as usize),
        Err(errno) => Err(errno),
    }
}

/// An XDP program that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Error.
    pub errno: Errno,
    /// Words of the kernel's verifier.
    pub log: String,
}

/// Loads an XDP program; if the kernel refuses it, it is asked why.
///
/// # Errors
/// The kernel's, with its verifier's log.
pub fn load_verified(instructions: &[Instruction], name: &str, frags: bool) -> Result<OwnedFd, Refused> {
    let plain = |errno| Refused { errno, log: String::new() };
    let mut log = Vec::new();
    match load(instructions, name, frags, &mut log) {
        // The verifier writes only if asked, since it writes much.
        Err(Errno::INVAL | Errno::ACCESS | Errno::TOOBIG | Errno::PERM | Errno::FAULT | Errno::NOMEM) => {
            log.resize(16 << 20, 0);
        }
        loaded => return loaded.map_err(plain),
    }
    load(instructions, name, frags, &mut log).map_err(|errno| {
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        Refused { errno, log: String::from_utf8_lossy(log.get(..end).unwrap_or_default()).into_owned() }
    })
}

/// Loads an XDP program, and has the verifier write to a log that is not empty.
fn load(instructions: &[Instruction], name: &str, frags: bool, log: &mut [u8]) -> Result<OwnedFd, Errno> {
    const LICENSE: &CStr = c"Apache-2.0";
    let mut text = [0; 16];
    for (to, from) in text.iter_mut().take(15).zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() { from } else { b'_' };
    }
    let mut attributes = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        insn_count: u32::try_from(instructions.len()).map_err(|_| Errno::TOOBIG)?,
        insns: instructions.as_ptr().expose_provenance() as u64,
        license: LICENSE.as_ptr().expose_provenance() as u64,
        prog_flags: if frags { XDP_HAS_FRAGS } else { 0 },
        name: text,
        expected_attach_type: ATTACH_XDP,
        ..ProgLoad::default()
    };
    if !log.is_empty() {
        attributes.log_level = 1;
        attributes.log_size = u32::try_from(log.len()).unwrap_or(u32::MAX);
        attributes.log_buf = log.as_mut_ptr().expose_provenance() as u64;
    }
    // SAFETY: instructions and license are valid for reads of their lengths, and the log for writes of its, during the
    // call.
    unsafe { bpf(PROG_LOAD, &mut attributes) }.map(owned)
}

/// What a program did with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its result, an `XDP_*` action.
    pub result: u32,
    /// The packet behind it.
    pub packet: Vec<u8>,
    /// Time of a run, nanoseconds.
    pub duration: u32,
}

/// Runs an XDP program on a packet, `repeat` times, on a CPU that runs this thread.
///
/// # Errors
/// The kernel's: it takes packets from 14 bytes to about 3,500.
pub fn test_run(program: BorrowedFd<'_>, packet: &[u8], repeat: u32) -> Result<Ran, Errno> {
    // Programs put no more in front of a packet than its headroom.
    let mut out = vec![0; packet.len() + 512];
    let mut attributes = TestRun {
        prog_fd: number(program),
        data_size_in: u32::try_from(packet.len()).map_err(|_| Errno::TOOBIG)?,
        data_size_out: u32::try_from(out.len()).map_err(|_| Errno::TOOBIG)?,
        data_in: packet.as_ptr().expose_provenance() as u64,
        data_out: out.as_mut_ptr().expose_provenance() as u64,
        repeat,
        ..TestRun::default()
    };
    // SAFETY: the kernel reads the packet and writes to `out`, both within the lengths given, during the call.
    unsafe { bpf(PROG_TEST_RUN, &mut attributes) }?;
    out.truncate(attributes.data_size_out as usize);
    Ok(Ran { result: attributes.retval, packet: out, duration: attributes.duration })
}

/// Loads an XDP program. With `frags`, it accepts packets in several frames (Linux 5.18).
pub fn load_xdp(instructions: &[Instruction], frags: bool) -> Result<OwnedFd, Errno> {
    load(instructions, "mswitch_xsk", frags, &mut [])
}

/// Attaches an XDP program to an interface until the returned link is closed; `flags` is `XDP_FLAGS_*`.
pub fn link_xdp(program: BorrowedFd<'_>, interface: u32, flags: u32) -> Result<OwnedFd, Errno> {
    let mut attributes =
        LinkCreate { prog_fd: number(program), target_ifindex: interface, attach_type: ATTACH_XDP, flags };
    // SAFETY: the structure holds no addresses.
    unsafe { bpf(LINK_CREATE, &mut attributes) }.map(owned)
}

/// Puts another program in the place of a link's: each packet meets one of both.
pub fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut attributes =
        LinkUpdate { link_fd: number(link), new_prog_fd: number(program), ..LinkUpdate::default() };
    // SAFETY: the structure holds no addresses.
    unsafe { bpf(LINK_UPDATE, &mut attributes) }.map(drop)
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

/// Returns the id of a link's program.
pub fn linked_program(link: BorrowedFd<'_>) -> Result<u32, Errno> {
    Ok(info::<LinkInfo>(link)?.prog_id)
}

/// Returns the index of the interface that a link attaches to; 0 once it is detached.
pub fn linked_interface(link: BorrowedFd<'_>) -> Result<u32, Errno> {
    Ok(info::<LinkInfo>(link)?.ifindex)
}

/// Detaches the XDP link of the loaded program with this id, whoever attached it, as `bpftool link detach` does. Returns
/// whether there was one. Programs are told apart by id: indices of interfaces repeat among network namespaces.
pub fn detach_xdp(program: u32) -> Result<bool, Errno> {
    let mut last = 0;
    loop {
        let mut next = GetById { id: last, ..GetById::default() };
        // SAFETY: the structure holds no addresses.
        match unsafe { bpf(LINK_GET_NEXT_ID, &mut next) } {
            Err(Errno::NOENT) => return Ok(false),
            found => found?,
        };
        last = next.next_id;
        let mut wanted = GetById { id: last, ..GetById::default() };
        // SAFETY: as above.
        let Ok(link) = unsafe { bpf(LINK_GET_FD_BY_ID, &mut wanted) }.map(owned) else { continue };
        let found = info::<LinkInfo>(link.as_fd())?;
        if found.kind != LINK_TYPE_XDP || found.prog_id != program {
            continue;
        }
        let mut attributes = LinkDetach { link_fd: number(link.as_fd()) };
        // SAFETY: as above.
        unsafe { bpf(LINK_DETACH, &mut attributes) }?;
        return Ok(true);
    }
}

/// Returns the name of the loaded program with this id, as its loader gave it.
pub fn program_name(id: u32) -> Result<String, Errno> {
    let mut attributes = GetById { id, ..GetById::default() };
    // SAFETY: the structure holds no addresses.
    let program = unsafe { bpf(PROG_GET_FD_BY_ID, &mut attributes) }.map(owned)?;
    let name = info::<ProgInfo>(program.as_fd())?.name;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned())
}
