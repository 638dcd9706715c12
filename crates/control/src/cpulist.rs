//! Lists of CPUs as the kernel writes them: `0,2-3`.

use std::collections::BTreeSet;

/// A list that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// Not the grammar.
    #[error("`{0}` is not a CPU list; expected numbers and ranges with commas, such as `0,2-3`")]
    Grammar(String),
    /// A CPU twice.
    #[error("CPU {0} is listed twice; a worker needs a CPU of its own")]
    Twice(usize),
    /// No such CPU, or it is switched off.
    #[error("CPU {cpu} is not online; online are {online}")]
    Offline {
        /// The CPU.
        cpu: usize,
        /// What there is, as a list.
        online: String,
    },
}

/// Reads a list, in the order in which it is written.
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

/// Reads a list of CPUs that are online.
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

/// The CPUs that are online; empty where the kernel does not say.
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
    fn a_long_range_takes_no_longer_than_its_length() {
        // Found by fuzzing: comparing each CPU with all before it took half a minute for this one.
        assert_eq!(parse("0-65535").map(|cpus| cpus.len()), Ok(65_536));
        assert_eq!(parse("0-65535,7"), Err(CpuListError::Twice(7)));
    }

    #[test]
    fn mistakes() {
        for text in ["", "a", "1-", "3-1", "1,,2", "-1"] {
            assert_eq!(parse(text), Err(CpuListError::Grammar(text.into())));
        }
        assert_eq!(parse("1,0-2"), Err(CpuListError::Twice(1)));
    }

    #[test]
    fn offline_cpus_are_refused_with_what_is_online() {
        let error = check(&[0, 9], "0-3").unwrap_err();
        assert_eq!(error.to_string(), "CPU 9 is not online; online are 0-3");
        assert_eq!(check(&[0, 3], "0-3"), Ok(()));
        assert_eq!(check(&[7], ""), Ok(()), "a machine that does not say decides when the worker starts");
    }
}
