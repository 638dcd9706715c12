//! Huge pages for clients that need them.

use std::time::Duration;

use crate::{Error, Result, until};

const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// How long the kernel is asked for them.
const LIMIT: Duration = Duration::from_secs(30);

/// Huge pages of 2 MiB that nobody uses yet. Dropping it gives back what it added to the pool.
#[derive(Debug)]
pub struct HugePages {
    /// What the pool had before, if it was made larger.
    before: Option<u64>,
}

impl HugePages {
    /// Makes sure that so many are free.
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
            // Memory that is full of cached files is in small pieces: the kernel makes whole ones of it if told to.
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
            // They stay in the pool if this fails, and serve the next who asks.
            let _ = std::fs::write(POOL, before.to_string());
        }
    }
}

/// How many are free and promised to nobody.
fn free() -> Result<u64> {
    let of = |name| read(&format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"));
    Ok(of("free_hugepages")?.saturating_sub(of("resv_hugepages")?))
}

fn read(path: &str) -> Result<u64> {
    std::fs::read_to_string(path)?.trim().parse().map_err(Error::while_doing(path))
}
