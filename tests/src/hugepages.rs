//! Huge pages for clients that need them.

use std::time::Duration;

use crate::{Error, Result, until};

const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// Time allowed for the kernel to provide the pages.
const LIMIT: Duration = Duration::from_secs(30);

/// Free huge pages of 2 MiB. Drop removes from the pool the pages that it added.
#[derive(Debug)]
pub struct HugePages {
    /// Previous size of the pool, if it was enlarged.
    before: Option<u64>,
}

impl HugePages {
    /// Makes sure that this many pages are free.
    pub fn reserve(count: u64) -> Result<HugePages> {
        let free = free()?;
        if free >= count {
            return Ok(HugePages { before: None });
        }
        let before = read(POOL)?;
        let pages = HugePages { before: Some(before) };
        until(&format!("{count} huge pages"), LIMIT, || {
            std::fs::write(POOL, (before + count - free).to_string())?;
            if self::free()? >= count {
                return Ok(Some(()));
            }
            // Cached files fragment memory; the kernel compacts it on request.
            std::fs::write("/proc/sys/vm/drop_caches", "1")?;
            std::fs::write("/proc/sys/vm/compact_memory", "1")?;
            Ok(None)
        })?;
        Ok(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // If this fails, the pages stay in the pool for later tests.
            let _ = std::fs::write(POOL, before.to_string());
        }
    }
}

/// Number of free, unreserved pages.
fn free() -> Result<u64> {
    let of = |name| read(&format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"));
    Ok(of("free_hugepages")?.saturating_sub(of("resv_hugepages")?))
}

fn read(path: &str) -> Result<u64> {
    std::fs::read_to_string(path)?.trim().parse().map_err(Error::while_doing(path))
}
