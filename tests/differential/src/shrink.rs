//! The smallest case that still differs.

use crate::case::Case;

/// Leaves out what is not needed for `differs` to hold.
pub fn shrink(case: &Case, mut differs: impl FnMut(&Case) -> bool) -> Case {
    let mut best = case.clone();
    loop {
        let before = best.clone();
        each(&mut best, |case| case.bursts.len(), |case, n| drop(case.bursts.remove(n)), &mut differs);
        for burst in 0..best.bursts.len() {
            let remove = |case: &mut Case, n| drop(case.bursts[burst].packets.remove(n));
            each(&mut best, |case| case.bursts[burst].packets.len(), remove, &mut differs);
        }
        each(&mut best, |case| case.rules.len(), |case, n| drop(case.rules.remove(n)), &mut differs);
        each(&mut best, |case| case.groups.len(), |case, n| drop(case.groups.remove(n)), &mut differs);
        for rule in 0..best.rules.len() {
            let remove = |case: &mut Case, n| drop(case.rules[rule].matches.remove(n));
            each(&mut best, |case| case.rules[rule].matches.len(), remove, &mut differs);
            let remove = |case: &mut Case, n| drop(case.rules[rule].actions.remove(n));
            each(&mut best, |case| case.rules[rule].actions.len(), remove, &mut differs);
        }
        if best == before {
            return best;
        }
    }
}

/// Tries to remove each of `count` parts, the last one first.
fn each(
    best: &mut Case,
    count: impl Fn(&Case) -> usize,
    remove: impl Fn(&mut Case, usize),
    differs: &mut impl FnMut(&Case) -> bool,
) {
    for n in (0..count(best)).rev() {
        let mut smaller = best.clone();
        remove(&mut smaller, n);
        // Without prerequisites a flow is no flow.
        if smaller.is_valid() && differs(&smaller) {
            *best = smaller;
        }
    }
}
