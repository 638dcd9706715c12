//! `mswitch p4 test --xdp`: a program in the kernel beside the interpreter.

use p4::place::Places;
use p4::stf::Case;
use p4::stf::kernel::{Comparison, Unfit, compare};
use pipeline::Checked;

use crate::commands::print;
use crate::failure::Failure;

/// Random packets after each case.
const RANDOM: usize = 1000;

/// Runs a case, and random packets behind it; whether the kernel does what the program means. A program that stays on
/// the CPU does.
pub(super) fn test(program: &Checked, places: &Places, name: &str, case: &Case) -> Result<bool, Failure> {
    let comparison = match compare(program, case, 1, RANDOM) {
        Ok(comparison) => comparison,
        Err(Unfit::Refused(refusals)) => {
            print(&format!("{name}: XDP: all packets go to the CPU\n"))?;
            for refusal in refusals {
                print(&format!("  {}\n", places.before(&refusal.to_string())))?;
            }
            return Ok(true);
        }
        Err(Unfit::Kernel(reason)) => return Err(Failure::new(places.before(&reason)).about(name)),
    };
    let Comparison { packets, handed_over, to_cpu, difference, .. } = comparison;
    match &difference {
        None => {
            print(&format!("{name}: XDP: passed, {packets} packets, {handed_over} of them to the CPU\n"))?
        }
        Some(difference) => print(&format!("{name}: {difference}\n{name}: XDP: failed\n"))?,
    }
    for refusal in to_cpu {
        print(&format!("  to the CPU: {}\n", places.before(&refusal.to_string())))?;
    }
    Ok(difference.is_none())
}
