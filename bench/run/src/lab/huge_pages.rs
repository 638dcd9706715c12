//! The kernel's pool of huge pages of 2 MiB.

use std::time::Duration;

use super::records::{Record, Records};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// Time allowed for the kernel to provide the pages.
const LIMIT: Duration = Duration::from_secs(10);

/// Number of free, unreserved pages; 0 where the kernel has none of this size.
pub fn free() -> u64 {
    let of = |name| read(&format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}")).unwrap_or(0);
    of("free_hugepages").saturating_sub(of("resv_hugepages"))
}

/// Makes sure that this many pages are free, and records the pool's size if it is changed.
pub(super) fn reserve(records: &Records, interrupt: &Interrupt, count: u64) -> Result<()> {
    if free() >= count {
        return Ok(());
    }
    let before = read(POOL)?;
    records.add(Record::HugePages { before })?;
    let wanted = before + count.saturating_sub(free());
    let enough = interrupt.until("huge pages", LIMIT, || {
        std::fs::write(POOL, wanted.to_string()).map_err(Error::while_doing(POOL))?;
        if free() >= count {
            return Ok(Some(()));
        }
        // Cached files fragment memory; the kernel compacts it on request. Both are a help where they are allowed.
        let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
        let _ = std::fs::write("/proc/sys/vm/compact_memory", "1");
        Ok(None)
    });
    match enough {
        Err(Error::Failed(_)) => Err(Error::new(format!(
            "DPDK's switches need {count} free huge pages of 2 MiB, and the kernel provides {}; free memory, or reserve \
             them at the machine's start with hugepages={count}",
            free()
        ))),
        other => other,
    }
}

/// Gives the pool its earlier size.
pub(super) fn restore(before: u64) {
    // If this fails, the pages stay in the pool, where `free` shows them.
    let _ = std::fs::write(POOL, before.to_string());
}

fn read(path: &str) -> Result<u64> {
    let text = std::fs::read_to_string(path).map_err(Error::while_doing(path))?;
    text.trim().parse().map_err(Error::while_doing(path))
}
