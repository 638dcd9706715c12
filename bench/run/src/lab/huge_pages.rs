//! The kernel's pool of huge pages of 2 MiB.
//!
//! Invariant: the pool gets its earlier size only from the size that a benchmark gave it; another size is that of an
//! administrator.

use std::path::Path;
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
    let wanted = before + count.saturating_sub(free());
    records.add(Record::HugePages { before, set: wanted })?;
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
    // The kernel may have provided fewer.
    let provided = read(POOL)?;
    if provided != wanted && provided != before {
        records.add(Record::HugePages { before, set: provided })?;
    }
    match enough {
        Err(Error::Failed(_)) => Err(Error::new(format!(
            "DPDK's switches need {count} free huge pages of 2 MiB, and the kernel provides {}; free memory, or reserve \
             them at the machine's start with hugepages={count}",
            free()
        ))),
        other => other,
    }
}

/// Gives the pool its earlier size if it still has the one that it was given.
pub(super) fn restore(before: u64, set: u64) {
    restore_at(Path::new(POOL), before, set);
}

fn restore_at(pool: &Path, before: u64, set: u64) {
    if read(&pool.to_string_lossy()) == Ok(set) {
        // If this fails, the pages stay in the pool, where `free` shows them.
        let _ = std::fs::write(pool, before.to_string());
    }
}

fn read(path: &str) -> Result<u64> {
    let text = std::fs::read_to_string(path).map_err(Error::while_doing(path))?;
    text.trim().parse().map_err(Error::while_doing(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_an_administrator_changed_is_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (size, after) in [("300\n", "16"), ("1024\n", "1024\n"), ("16\n", "16\n")] {
            std::fs::write(file.path(), size).unwrap();
            restore_at(file.path(), 16, 300);
            assert_eq!(std::fs::read_to_string(file.path()).unwrap(), after);
        }
    }
}
