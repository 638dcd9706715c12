//! NUMA nodes of network cards and of clients' memory: hints for choosing the workers of a port's queues.
//!
//! With one node, nothing is looked up. Pages of a client are looked up without touching them: move_pages(2) without
//! target nodes says where pages are and brings none in. So a client cannot hold the lookup up, and no memory is
//! allocated for it.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null};
use std::sync::OnceLock;

use fabric::Placement;

/// Name of a port's detail that shows its node.
pub(crate) const DETAIL: &str = "numa-node";

/// Most pages to look up.
const MOST_PAGES: usize = 64;

/// The machine's NUMA nodes, as sysfs shows them.
#[derive(Debug)]
pub(crate) struct Topology {
    sysfs: PathBuf,
    has_several: bool,
}

impl Topology {
    /// Returns the topology of this machine.
    pub(crate) fn host() -> &'static Self {
        static HOST: OnceLock<Topology> = OnceLock::new();
        HOST.get_or_init(|| Self::at(Path::new("/sys")))
    }

    fn at(sysfs: &Path) -> Self {
        let online = std::fs::read_to_string(sysfs.join("devices/system/node/online")).unwrap_or_default();
        // A list such as `0-1` or `0,2`.
        Self { sysfs: sysfs.into(), has_several: online.contains(['-', ',']) }
    }

    /// Returns the node of a PCI device by its address, such as `0000:3b:00.0`. `None` for other addresses, devices
    /// without a node, and machines with one node.
    pub(crate) fn of_device(&self, address: &str) -> Option<usize> {
        if !self.has_several || address.is_empty() || address.contains('/') {
            return None;
        }
        let file = self.sysfs.join("bus/pci/devices").join(address).join("numa_node");
        // -1: none.
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// Returns the node where most of these pages are, of those that this process has used.
    pub(crate) fn of_memory(&self, pages: impl Iterator<Item = NonNull<u8>>) -> Option<usize> {
        self.of_pages(pages, locate)
    }

    /// The same with `locate`, which returns the nodes of pages.
    fn of_pages(
        &self,
        pages: impl Iterator<Item = NonNull<u8>>,
        locate: impl Fn(&[NonNull<u8>]) -> Vec<usize>,
    ) -> Option<usize> {
        if !self.has_several {
            return None;
        }
        let nodes = locate(&pages.take(MOST_PAGES).collect::<Vec<_>>());
        let count = |node: usize| nodes.iter().filter(|other| **other == node).count();
        nodes.iter().copied().max_by_key(|node| (count(*node), std::cmp::Reverse(*node)))
    }
}

/// Returns the hint for a node.
pub(crate) fn near(node: Option<usize>) -> Placement {
    Placement { cpu: None, node }
}

/// Returns the detail of a port that shows its node.
pub(crate) fn detail(node: Option<usize>) -> Option<(String, String)> {
    Some((DETAIL.into(), node?.to_string()))
}

/// Returns the nodes of those pages that this process has used.
fn locate(pages: &[NonNull<u8>]) -> Vec<usize> {
    let mut found = vec![-1; pages.len()];
    let (this_process, no_targets) = (0, null::<libc::c_int>());
    // SAFETY: the kernel reads `pages.len()` addresses, which it does not access, and writes as many integers to
    // `found`; without targets it moves nothing.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            this_process,
            pages.len(),
            pages.as_ptr().cast::<*mut c_void>(),
            no_targets,
            found.as_mut_ptr(),
            0,
        )
    };
    // A sandbox may forbid the call. A negative value is the error for a page, such as one that was not used.
    if done == 0 { found.iter().filter_map(|node| usize::try_from(*node).ok()).collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these nodes online and a network card on each of some nodes.
    fn machine(online: &str, cards: &[(&str, &str)]) -> (tempfile::TempDir, Topology) {
        let sysfs = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = sysfs.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, format!("{text}\n")).unwrap();
        };
        write("devices/system/node/online", online);
        cards.iter().for_each(|(at, node)| write(&format!("bus/pci/devices/{at}/numa_node"), node));
        let topology = Topology::at(sysfs.path());
        (sysfs, topology)
    }

    const CARDS: [(&str, &str); 3] = [("0000:3b:00.0", "1"), ("0000:af:00.1", "0"), ("0000:01:00.0", "-1")];

    #[test]
    fn cards_have_the_node_of_their_slot() {
        let (_sysfs, machine) = machine("0-1", &CARDS);
        for (address, node) in [
            ("0000:3b:00.0", Some(1)),
            ("0000:af:00.1", Some(0)),
            ("0000:01:00.0", None),
            ("0000:ff:00.0", None),
            ("", None),
            ("../devices/0000:3b:00.0", None),
        ] {
            assert_eq!(machine.of_device(address), node, "{address}");
        }
    }

    #[test]
    fn one_node_needs_no_hint() {
        for online in ["0", ""] {
            let (_sysfs, machine) = machine(online, &CARDS);
            assert_eq!(machine.of_device("0000:3b:00.0"), None);
            let locate = |_: &[NonNull<u8>]| panic!("looked up");
            assert_eq!(machine.of_pages([NonNull::dangling()].into_iter(), locate), None);
        }
    }

    #[test]
    fn memory_has_the_node_of_most_pages() {
        let (_sysfs, machine) = machine("0,2", &[]);
        let pages = || std::iter::repeat_n(NonNull::dangling(), 1000);
        for (nodes, expected) in [
            (vec![2, 0, 2], Some(2)),
            (vec![0, 0, 2], Some(0)),
            (vec![2, 0], Some(0)),
            // No page was used.
            (vec![], None),
        ] {
            let locate = |asked: &[NonNull<u8>]| {
                assert_eq!(asked.len(), MOST_PAGES);
                nodes.clone()
            };
            assert_eq!(machine.of_pages(pages(), locate), expected);
        }
    }

    /// Whether this process may ask for nodes: a sandbox can forbid it, and a kernel can lack it.
    fn is_allowed() -> bool {
        // SAFETY: without pages, the kernel accesses no memory.
        let done = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                0usize,
                null::<*mut c_void>(),
                null::<libc::c_int>(),
                null::<libc::c_int>(),
                0,
            )
        };
        let error = std::io::Error::last_os_error().raw_os_error();
        done == 0 || !matches!(error, Some(libc::EPERM | libc::ENOSYS))
    }

    #[test]
    fn the_kernel_knows_pages_that_were_used() {
        let used = vec![1u8; 1 << 16];
        let at = NonNull::from(&used[1 << 15]).cast();
        let nodes = locate(&[at]);
        if is_allowed() {
            assert!(nodes.len() == 1 && nodes[0] < 1024, "{nodes:?}");
        } else {
            assert!(nodes.is_empty(), "{nodes:?}");
        }
        // Address 0 is never mapped.
        let unmapped = NonNull::new(std::ptr::without_provenance_mut::<u8>(4096)).unwrap();
        assert!(locate(&[unmapped]).is_empty());
    }
}
