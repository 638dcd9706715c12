//! Lists of CPUs in the kernel's notation, `0,2-3`, and with several workers on a CPU: `0-1x4`.

use std::collections::BTreeSet;

use fabric::worker::MAX_WORKERS;

/// Reasons for refusing a CPU list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// A text that is not a CPU list.
    #[error("`{0}` is not a CPU list; expected numbers and ranges with commas, such as `0,2-3`")]
    Grammar(String),
    /// A duplicate CPU.
    #[error(
        "CPU {0} is listed twice; each worker needs its own CPU (for tests, `{0}x2` runs two workers there)"
    )]
    Twice(usize),
    /// More workers than a switch can have.
    #[error("{0} workers; at most {MAX_WORKERS} are possible")]
    TooMany(usize),
    /// A CPU that does not exist or is offline.
    #[error("CPU {cpu} is not online; online CPUs: {online}")]
    Offline {
        /// The CPU.
        cpu: usize,
        /// The CPUs that are online, as a list.
        online: String,
    },
}

/// One or more workers on a CPU of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// The CPU.
    pub cpu: usize,
    /// Number of workers.
    pub workers: usize,
    /// Whether the list says that number: then the CPU may have others.
    pub explicit: bool,
}

/// Parses a list and keeps its order. A CPU with several workers is there as often.
pub fn parse(text: &str) -> Result<Vec<usize>, CpuListError> {
    let listed = parse_listed(text)?;
    Ok(listed.iter().flat_map(|listed| std::iter::repeat_n(listed.cpu, listed.workers)).collect())
}

/// Parses a list and keeps its order.
pub fn parse_listed(text: &str) -> Result<Vec<Listed>, CpuListError> {
    let grammar = || CpuListError::Grammar(text.trim().into());
    let number = |text: &str| text.parse::<u16>().map(usize::from).map_err(|_| grammar());
    let (mut list, mut seen) = (Vec::new(), BTreeSet::new());
    for item in text.trim().split(',') {
        let (cpus, times) = item.split_once('x').map_or((item, None), |(cpus, times)| (cpus, Some(times)));
        let (first, last) = cpus.split_once('-').unwrap_or((cpus, cpus));
        let (first, last) = (number(first)?, number(last)?);
        let workers = times.map_or(Ok(1), number)?;
        if first > last || workers == 0 {
            return Err(grammar());
        }
        if workers > MAX_WORKERS {
            return Err(CpuListError::TooMany(workers));
        }
        for cpu in first..=last {
            if !seen.insert(cpu) {
                return Err(CpuListError::Twice(cpu));
            }
            list.push(Listed { cpu, workers, explicit: times.is_some() });
        }
    }
    Ok(list)
}

/// Formats a list, such as `0,2x3`. Equal CPUs are next to each other in `cpus`.
pub fn format(cpus: &[usize]) -> String {
    let item = |cpus: &[usize]| match cpus {
        [cpu] => cpu.to_string(),
        [cpu, ..] => format!("{cpu}x{}", cpus.len()),
        [] => String::new(),
    };
    cpus.chunk_by(|a, b| a == b).map(item).collect::<Vec<_>>().join(",")
}

/// Parses the CPUs of workers.
pub fn parse_workers(text: &str) -> Result<Vec<usize>, CpuListError> {
    let list = parse(text)?;
    if list.len() > MAX_WORKERS { Err(CpuListError::TooMany(list.len())) } else { Ok(list) }
}

/// Parses the CPUs of workers, all of which must be online.
pub fn parse_online(text: &str) -> Result<Vec<usize>, CpuListError> {
    let list = parse_workers(text)?;
    check_online(&list)?;
    Ok(list)
}

/// Checks that these CPUs are online.
pub fn check_online(list: &[usize]) -> Result<(), CpuListError> {
    check(list, &online())
}

fn check(list: &[usize], online: &str) -> Result<(), CpuListError> {
    let Ok(known) = parse(online) else { return Ok(()) };
    match list.iter().find(|cpu| !known.contains(cpu)) {
        Some(&cpu) => Err(CpuListError::Offline { cpu, online: online.into() }),
        None => Ok(()),
    }
}

/// Returns the CPUs that are online; empty if the kernel does not report them.
pub fn online() -> String {
    std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default().trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges() {
        assert_eq!(parse("0,2-4"), Ok(vec![0, 2, 3, 4]));
        assert_eq!(parse("3,1\n"), Ok(vec![3, 1]));
    }

    #[test]
    fn several_workers_on_a_cpu() {
        assert_eq!(parse("0-1x2,3"), Ok(vec![0, 0, 1, 1, 3]));
        assert_eq!(parse("0x2,0x1"), Err(CpuListError::Twice(0)));
        for text in ["0x", "0x0", "x2", "0x-1", "0x2x2", "0x1-2"] {
            assert_eq!(parse(text), Err(CpuListError::Grammar(text.into())));
        }
        assert_eq!(parse_workers("0x64,1x64").map(|cpus| cpus.len()), Ok(128));
        assert_eq!(parse_workers("0x64,1x65"), Err(CpuListError::TooMany(129)));
        assert_eq!(parse("0-65535x1000"), Err(CpuListError::TooMany(1000)));
        let listed = |cpu, workers, explicit| Listed { cpu, workers, explicit };
        assert_eq!(parse_listed("0,1x1"), Ok(vec![listed(0, 1, false), listed(1, 1, true)]));
        for text in ["0", "3,1", "0x2,1,2x3"] {
            assert_eq!(format(&parse(text).unwrap()), text);
        }
    }

    #[test]
    fn parsing_time_is_linear_in_the_range() {
        // Found by fuzzing: comparing each CPU with all previous ones took half a minute for this range.
        assert_eq!(parse("0-65535").map(|cpus| cpus.len()), Ok(65_536));
        assert_eq!(parse("0-65535,7"), Err(CpuListError::Twice(7)));
    }

    #[test]
    fn invalid_lists() {
        for text in ["", "a", "1-", "3-1", "1,,2", "-1"] {
            assert_eq!(parse(text), Err(CpuListError::Grammar(text.into())));
        }
        assert_eq!(parse("1,0-2"), Err(CpuListError::Twice(1)));
    }

    #[test]
    fn offline_cpus_are_refused_with_the_online_ones() {
        let error = check(&[0, 9], "0-3").unwrap_err();
        assert_eq!(error.to_string(), "CPU 9 is not online; online CPUs: 0-3");
        assert_eq!(check(&[0, 3], "0-3"), Ok(()));
        assert_eq!(check(&[7], ""), Ok(()), "without a list from the kernel, starting the worker decides");
    }
}
