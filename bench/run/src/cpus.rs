//! CPUs of a benchmark: one for the switch, one for the generator, one for functions in chains where there is a third.

use std::fmt;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Which CPU does what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// The switch's thread.
    pub switch: usize,
    /// The generator; and the main threads of DPDK's switches, which are idle.
    pub generator: usize,
    /// Functions in chains; the generator's CPU if there are only two.
    pub functions: usize,
}

impl fmt::Display for Cpus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cpus { switch, generator, functions } = self;
        write!(out, "switch on CPU {switch}, generator on CPU {generator}, functions on CPU {functions}")
    }
}

impl Cpus {
    /// Chooses among the CPUs that this process may use.
    pub fn choose() -> Result<Cpus> {
        let allowed = sched_getaffinity(None).map_err(Error::while_doing("CPUs"))?;
        Cpus::of(&(0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect::<Vec<_>>())
    }

    fn of(allowed: &[usize]) -> Result<Cpus> {
        match *allowed {
            [switch, generator] => Ok(Cpus { switch, generator, functions: generator }),
            [switch, generator, functions, ..] => Ok(Cpus { switch, generator, functions }),
            _ => Err(Error::new(format!(
                "this process may use {} CPU; a benchmark needs two, one for the switch and one for the generator",
                allowed.len()
            ))),
        }
    }

    /// Whether functions in chains share a CPU with the generator, so that rates of chains are too low.
    pub fn shared(&self) -> bool {
        self.functions == self.generator
    }
}

/// Pins this thread to a CPU.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(Error::while_doing(format!("CPU {cpu}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_is_too_few() {
        assert_eq!(
            Cpus::of(&[3]).unwrap_err().to_string(),
            "this process may use 1 CPU; a benchmark needs two, one for the switch and one for the generator"
        );
        assert!(Cpus::of(&[1, 2]).unwrap().shared());
        assert_eq!(Cpus::of(&[1, 2, 4, 5]).unwrap(), Cpus { switch: 1, generator: 2, functions: 4 });
    }
}
