//! Lists of CPUs in the kernel's notation: `0,2-3`.

use std::collections::BTreeSet;

/// Reasons for refusing a CPU list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// A text that is not a CPU list.
    #[error("`{0}` is not a CPU list; expected numbers and ranges with commas, such as `0,2-3`")]
    Grammar(String),
    /// A duplicate CPU.
    #[error("CPU {0} is listed twice; each worker needs its own CPU")]
    Twice(usize),
    /// A CPU that does not exist or is offline.
    #[error("CPU {cpu} is not online; online CPUs: {online}")]
    Offline {
        /// The CPU.
        cpu: usize,
        /// The CPUs that are online, as a list.
        online: String,
    },
}

/// Parses a list and keeps its order.
pub fn parse(text: &str) -> Result<Vec<usize>, CpuListError> {
    let grammar = || CpuListError::Grammar(text.trim().into());
    let number = |text: &str| text.parse::<u16>().map(usize::from).map_err(|_| grammar());
    let (mut cpus, mut seen) = (Vec::new(), BTreeSet::new());
    for item in text.trim().split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(grammar());
        }
        for cpu in first..=last {
            if !seen.insert(cpu) {
                return Err(CpuListError::Twice(cpu));
            }
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// Parses a list of CPUs, all of which must be online.
pub fn parse_online(text: &str) -> Result<Vec<usize>, CpuListError> {
    let list = parse(text)?;
    check(&list, &online())?;
    Ok(list)
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
