//! The CPUs of the workers: `other_config:pmd-cpu-mask`.

use std::collections::BTreeMap;

use control::cpulist;
use fabric::worker::MAX_WORKERS;

/// Returns the CPUs in the mask, a hexadecimal number whose bit N stands for CPU N, and warnings about those that cannot
/// have a worker. No CPU: one worker runs that is not pinned.
pub(super) fn of(other_config: &BTreeMap<String, String>) -> (Vec<usize>, Vec<String>) {
    chosen(other_config.get("pmd-cpu-mask").map_or("", String::as_str), |cpu| cpulist::check_online(&[cpu]))
}

fn chosen(
    mask: &str,
    check: impl Fn(usize) -> Result<(), cpulist::CpuListError>,
) -> (Vec<usize>, Vec<String>) {
    let digits = mask.strip_prefix("0x").or_else(|| mask.strip_prefix("0X")).unwrap_or(mask);
    let Some(digits) = digits.chars().rev().map(|digit| digit.to_digit(16)).collect::<Option<Vec<_>>>()
    else {
        let text = format!("pmd-cpu-mask: `{mask}` is not a hexadecimal number");
        return (Vec::new(), vec![text]);
    };
    let bits = |(at, digit): (usize, u32)| {
        (0..4).filter(move |bit| digit >> bit & 1 == 1).map(move |bit| at * 4 + bit)
    };
    let mut warnings = Vec::new();
    let mut cpus: Vec<_> = digits.into_iter().enumerate().flat_map(bits).collect();
    cpus.retain(|cpu| check(*cpu).map_err(|error| warnings.push(format!("pmd-cpu-mask: {error}"))).is_ok());
    if cpus.len() > MAX_WORKERS {
        warnings.push(format!("pmd-cpu-mask: only {MAX_WORKERS} of {} CPUs have a worker", cpus.len()));
        cpus.truncate(MAX_WORKERS);
    }
    (cpus, warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_name_cpus() {
        let cpus = |mask| chosen(mask, |_| Ok(())).0;
        assert_eq!(cpus("0x1"), [0]);
        assert_eq!(cpus("6"), [1, 2]);
        assert_eq!(cpus("0X800000000000000000f"), [0, 1, 2, 3, 75]);
        assert_eq!(cpus(""), [0; 0]);
        assert_eq!(cpus("0x0"), [0; 0]);
    }

    #[test]
    fn mistakes_are_named_and_leave_the_other_cpus() {
        let (cpus, warnings) = chosen("0x1g", |_| Ok(()));
        assert_eq!(
            (cpus.len(), warnings.as_slice()),
            (0, &["pmd-cpu-mask: `0x1g` is not a hexadecimal number".into()][..])
        );
        let offline = |cpu| match cpu {
            1 => Err(cpulist::CpuListError::Offline { cpu, online: "0,2".into() }),
            _ => Ok(()),
        };
        let (cpus, warnings) = chosen("7", offline);
        assert_eq!(cpus, [0, 2]);
        assert_eq!(warnings, ["pmd-cpu-mask: CPU 1 is not online; online CPUs: 0,2"]);
        let many = "f".repeat(MAX_WORKERS);
        let (cpus, warnings) = chosen(&many, |_| Ok(()));
        assert_eq!((cpus.len(), warnings.len()), (MAX_WORKERS, 1));
    }
}
