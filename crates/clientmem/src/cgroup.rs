//! Memory limits and remaining memory, of this process's memory cgroups and of the machine.
//!
//! Invariant: after [`open`], [`shortage`] and [`shared_memory`] are async-signal-safe, except for `errno`: `open`
//! opens the files, and they are read into preallocated memory.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Exhausted;

/// Share of a cgroup's limit that stays free.
const CGROUP_RESERVE: u64 = 8;
/// Share of the machine's memory that stays free: small, as most may be reserved for huge pages.
const MACHINE_RESERVE: u64 = 64;

/// File names and statistics keys of cgroup versions 1 and 2.
struct FileNames {
    limit: &'static str,
    usage: &'static str,
    swap: &'static str,
    file_cache: [&'static str; 2],
    shared: &'static str,
    swapped: &'static str,
}

static V1: FileNames = FileNames {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    swap: "memory.stat",
    file_cache: ["total_inactive_file", "total_active_file"],
    shared: "total_shmem",
    swapped: "total_swap",
};

static V2: FileNames = FileNames {
    limit: "memory.max",
    usage: "memory.current",
    swap: "memory.swap.current",
    file_cache: ["inactive_file", "active_file"],
    shared: "shmem",
    swapped: "",
};

/// A cgroup with its files open.
struct Cgroup {
    names: &'static FileNames,
    limit: File,
    usage: File,
    stat: File,
    swap: Option<File>,
}

/// Memory that this process may have: the machine's, or the smallest limit of a cgroup.
pub(crate) fn allowed() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = (system.totalram as u64).saturating_mul(system.mem_unit.into());
    cgroups().iter().filter_map(Cgroup::limit).fold(machine, u64::min)
}

/// Opens all files, for callers that may not open any later.
pub(crate) fn open() {
    cgroups();
    machine();
}

/// Returns which of cgroups and machine is short of memory. Droppable file caches count as free.
pub(crate) fn shortage() -> Option<Exhausted> {
    if !cgroups().iter().all(|cgroup| cgroup.has_room().unwrap_or(true)) {
        return Some(Exhausted::Cgroup);
    }
    let left = machine().and_then(|file| read(file, machine_has_room));
    (left == Some(false)).then_some(Exhausted::Machine)
}

/// The machine's memory statistics.
fn machine() -> Option<&'static File> {
    static MACHINE: OnceLock<Option<File>> = OnceLock::new();
    MACHINE.get_or_init(|| File::open("/proc/meminfo").ok()).as_ref()
}

/// Evaluates `/proc/meminfo`.
fn machine_has_room(text: &[u8]) -> Option<bool> {
    Some(line(text, "MemAvailable:")? >= line(text, "MemTotal:")? / MACHINE_RESERVE)
}

/// Shared memory charged to this process's cgroup, in bytes, swapped out or not. `None` if unknown.
pub(crate) fn shared_memory() -> Option<u64> {
    let cgroup = cgroups().first()?;
    let FileNames { shared, swapped, .. } = *cgroup.names;
    let swap = match &cgroup.swap {
        Some(file) if swapped.is_empty() => read(file, number)?,
        Some(_) => read(&cgroup.stat, |text| line(text, swapped))?,
        // Without swap, the files do not exist.
        None => 0,
    };
    read(&cgroup.stat, |text| line(text, shared))?.checked_add(swap)
}

impl Cgroup {
    fn open(directory: &Path, names: &'static FileNames) -> Option<Cgroup> {
        let open = |name: &str| File::open(directory.join(name));
        let (limit, usage, stat) =
            (open(names.limit).ok()?, open(names.usage).ok()?, open("memory.stat").ok()?);
        Some(Cgroup { names, limit, usage, stat, swap: open(names.swap).ok() })
    }

    /// `None` without a limit.
    fn limit(&self) -> Option<u64> {
        read(&self.limit, number)
    }

    fn has_room(&self) -> Option<bool> {
        let limit = self.limit()?;
        let most = limit - limit / CGROUP_RESERVE;
        let used = read(&self.usage, number)?;
        if used <= most {
            return Some(true);
        }
        let [inactive, active] = self.names.file_cache;
        let cache = |text: &[u8]| Some(line(text, inactive)?.saturating_add(line(text, active)?));
        Some(used.saturating_sub(read(&self.stat, cache)?) <= most)
    }
}

/// The cgroups whose limits apply: first the process's own, then its ancestors that had a limit at the first call.
fn cgroups() -> &'static [Cgroup] {
    static CGROUPS: OnceLock<Vec<Cgroup>> = OnceLock::new();
    CGROUPS.get_or_init(|| {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (names, directories) = directories(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
        let cgroups = directories.iter().filter_map(|directory| Cgroup::open(directory, names));
        cgroups
            .enumerate()
            .filter(|(i, cgroup)| *i == 0 || cgroup.limit().is_some())
            .map(|(_, l)| l)
            .collect()
    })
}

/// Directories of the process's memory cgroup and its ancestors, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn directories(own: &str, mounts: &str) -> (&'static FileNames, Vec<PathBuf>) {
    let entry = |wanted: fn(&str, &str) -> bool| {
        own.lines().find_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            wanted(number, controllers).then_some(path)
        })
    };
    // If both versions are mounted, version 1 has the memory controller, if present.
    let v1 = entry(|_, controllers| controllers.split(',').any(|c| c == "memory"));
    let (names, path) = match v1 {
        Some(path) => (&V1, Some(path)),
        None => (&V2, entry(|number, controllers| number == "0" && controllers.is_empty())),
    };
    let mount = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (system, options) = (kind.next()?, kind.nth(1)?);
        let found = match v1 {
            Some(_) => system == "cgroup" && options.split(',').any(|option| option == "memory"),
            None => system == "cgroup2",
        };
        let mut mount = mount.split(' ').skip(3);
        found.then_some((mount.next()?, mount.next()?))
    });
    let (Some(path), Some((root, point))) = (path, mount) else { return (names, Vec::new()) };
    // In a container the mount may begin at its own cgroup, or further up than is visible.
    let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
    let directory: PathBuf = Path::new(point).join(below).components().collect();
    let up = directory.ancestors().take_while(|ancestor| ancestor.starts_with(point));
    (names, up.map(Path::to_path_buf).collect())
}

/// Longer than any of these files.
const BUFFER_LEN: usize = 8192;

/// Buffer for a file: the stack of a signal handler has no room for it.
struct Buffer {
    taken: AtomicBool,
    bytes: std::cell::UnsafeCell<[u8; BUFFER_LEN]>,
}

// SAFETY: the bytes are accessed only by the thread that has set `taken`.
unsafe impl Sync for Buffer {}

static BUFFERS: [Buffer; 8] =
    [const { Buffer { taken: AtomicBool::new(false), bytes: std::cell::UnsafeCell::new([0; BUFFER_LEN]) } };
        8];

/// Result of `parse` on a file. `None` also if too many threads are reading.
fn read<T>(file: &File, parse: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let buffer = BUFFERS.iter().find(|buffer| !buffer.taken.swap(true, Ordering::Acquire))?;
    let to = buffer.bytes.get().cast::<u8>();
    // SAFETY: the buffer is ours while `taken` is set by us, and has this length.
    let len = unsafe { libc::pread(file.as_raw_fd(), to.cast(), BUFFER_LEN, 0) };
    let found = usize::try_from(len).ok().and_then(|len| {
        // SAFETY: as above, and bytes are always initialized; they do not change before `taken` is cleared.
        parse(unsafe { std::slice::from_raw_parts(to, len) })
    });
    buffer.taken.store(false, Ordering::Release);
    found
}

/// Parses the number at the start of a file.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (first, rest) = text.get(..digits)?.split_first()?;
    let digit = |byte: &u8| u64::from(byte - b'0');
    rest.iter().try_fold(digit(first), |sum, byte| sum.checked_mul(10)?.checked_add(digit(byte)))
}

/// Parses the number in the line that starts with `name` and spaces.
fn line(text: &[u8], name: &str) -> Option<u64> {
    let value =
        |line: &[u8]| number(line.strip_prefix(name.as_bytes())?.strip_prefix(b" ")?.trim_ascii_start());
    text.split(|byte| *byte == b'\n').find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(own: &str, mounts: &str) -> (&'static str, Vec<String>) {
        let (names, directories) = directories(own, mounts);
        (names.limit, directories.iter().map(|directory| directory.display().to_string()).collect())
    }

    #[test]
    fn finds_the_cgroup_of_either_version() {
        let v2 = "24 1 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let own = "0::/system.slice/mswitch.service\n";
        let expected =
            ["/sys/fs/cgroup/system.slice/mswitch.service", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"];
        assert_eq!(found(own, v2), ("memory.max", expected.map(String::from).into()));
        let hybrid = "30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      31 24 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
                      32 24 0:28 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";
        let expected = ["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"];
        assert_eq!(
            found("5:cpu:/b\n4:memory:/a\n0::/c\n", hybrid),
            ("memory.limit_in_bytes", expected.map(String::from).into())
        );
        // In a container, without a namespace for cgroups and with one.
        let bound = "32 24 0:28 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(found("4:memory:/docker/1\n", bound).1, ["/sys/fs/cgroup/memory"]);
        assert_eq!(found("0::/\n", v2).1, ["/sys/fs/cgroup"]);
        assert_eq!(found("0::/\n", "").1, [""; 0]);
        assert_eq!(found("", v2).1, [""; 0]);
    }

    #[test]
    fn reads_numbers_and_lines() {
        assert_eq!(
            [number(b"12\n"), number(b"0"), number(b"max\n"), number(b"")],
            [Some(12), Some(0), None, None]
        );
        assert_eq!(number(b"99999999999999999999"), None);
        let stat = b"file 1\nshmem 20\ninactive_file 300\n";
        assert_eq!(
            (line(stat, "shmem"), line(stat, "file"), line(stat, "active_file")),
            (Some(20), Some(1), None)
        );
    }

    #[test]
    fn a_machine_short_of_memory_is_noticed() {
        let text = |left| format!("MemTotal:       24684092 kB\nMemFree: 7 kB\nMemAvailable:   {left} kB\n");
        assert_eq!(machine_has_room(text(385_688).as_bytes()), Some(true));
        assert_eq!(machine_has_room(text(385_687).as_bytes()), Some(false));
        assert_eq!(machine_has_room(b"MemTotal: 5 kB\n"), None);
        assert_eq!(read(machine().unwrap(), |text| line(text, "MemTotal:")), Some(machine_total()));
    }

    fn machine_total() -> u64 {
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        total.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn the_allowed_memory_is_at_most_the_machines() {
        let total = machine_total();
        assert!((1..=total << 10).contains(&allowed()), "{} of {total} KiB", allowed());
    }
}
