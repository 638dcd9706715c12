//! Facts about the machine, for the report and for comparisons.

use serde::{Deserialize, Serialize};

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Size of CPU 0's second-level cache in KiB, if the kernel tells.
    pub l2_kib: Option<u64>,
    /// Size of its last-level cache in KiB.
    pub last_level_kib: Option<u64>,
    /// Whether it is a virtual machine.
    pub virtual_machine: bool,
    /// Frequency governor of CPU 0; `None` where the host decides.
    pub governor: Option<String>,
}

impl Machine {
    /// Looks at this machine.
    pub fn look() -> Machine {
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory =
            read("/proc/meminfo").and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
        Machine {
            processor: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            memory_mib: memory.unwrap_or(0) / 1024,
            l2_kib: cache(2),
            last_level_kib: cache(4).or_else(|| cache(3)),
            virtual_machine: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    }
}

/// Size in KiB of CPU 0's cache of this level.
fn cache(level: u32) -> Option<u64> {
    let caches = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    caches.flatten().find_map(|cache| {
        let of = |name: &str| read(&cache.path().join(name).to_string_lossy());
        if of("level")?.parse::<u32>().ok()? != level {
            return None;
        }
        of("size")?.strip_suffix('K')?.parse().ok()
    })
}

/// Mean frequency of the CPUs in MHz, as the kernel tells it now.
pub fn frequency_mhz() -> Option<f64> {
    let cpuinfo = read("/proc/cpuinfo")?;
    let lines = cpuinfo.lines().filter(|line| line.starts_with("cpu MHz"));
    let values: Vec<f64> = lines.filter_map(|line| line.split_once(':')?.1.trim().parse().ok()).collect();
    if values.is_empty() { None } else { Some(values.iter().sum::<f64>() / values.len() as f64) }
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}
