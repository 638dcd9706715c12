//! OpenFlow port numbers of a bridge's interfaces (`ofport`).
//!
//! Invariants: numbers are unique; an interface keeps its number unless another one is requested for it; numbers that
//! nobody requested are below 32768. A number is given again as late as possible: flows may still name it.

use std::collections::BTreeSet;

/// Number of the port with the bridge's name (OFPP_LOCAL).
pub(crate) const LOCAL: i64 = 65534;

/// Number of an interface that does not work.
pub(crate) const NONE: i64 = -1;

const MAX_CHOSEN: i64 = 32767;
const MAX_REQUESTED: i64 = 65279;

/// What is known of an interface.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wish {
    pub(crate) is_local: bool,
    pub(crate) requested: Option<i64>,
    pub(crate) present: Option<i64>,
}

/// Gives each interface a number. Numbers that nobody asks for follow `last`, the one given last in the bridge, which is
/// kept up to date.
pub(crate) fn assign(wishes: &[Wish], last: &mut i64) -> Vec<i64> {
    let mut numbers: Vec<Option<i64>> = vec![None; wishes.len()];
    let mut taken = BTreeSet::new();
    let wanted: [fn(&Wish) -> Option<i64>; 3] = [
        |wish| wish.is_local.then_some(LOCAL),
        |wish| wish.requested.filter(|number| (1..=MAX_REQUESTED).contains(number)),
        |wish| wish.present.filter(|number| (1..=MAX_REQUESTED).contains(number)),
    ];
    for wanted in wanted {
        for (number, wish) in numbers.iter_mut().zip(wishes) {
            if number.is_none() {
                *number = wanted(wish).filter(|wanted| taken.insert(*wanted));
            }
        }
    }
    let start = *last;
    let mut free = (start + 1..=MAX_CHOSEN).chain(1..=start).filter(|number| !taken.contains(number));
    let mut choose = || {
        let number = free.next()?;
        *last = number;
        Some(number)
    };
    numbers.into_iter().map(|number| number.or_else(&mut choose).unwrap_or(NONE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_and_requests_go_first() {
        let wish = |requested, present| Wish { is_local: false, requested, present };
        let local = Wish { is_local: true, present: Some(3), ..Wish::default() };
        let wishes = [
            local,
            wish(None, Some(5)),
            wish(None, None),
            wish(Some(5), Some(1)),
            wish(Some(5), None),
            wish(None, Some(NONE)),
        ];
        let mut last = 0;
        let numbers = assign(&wishes, &mut last);
        assert_eq!(numbers, [LOCAL, 1, 2, 5, 3, 4], "a requested number displaces a present one");
        assert_eq!(assign(&[wish(Some(70000), Some(7))], &mut last), [7]);
        assert_eq!(assign(&[wish(None, None)], &mut last), [5], "4 was given last");
        last = MAX_CHOSEN;
        assert_eq!(assign(&[wish(None, None), wish(None, Some(1))], &mut last), [2, 1]);
        assert_eq!(last, 2);
    }
}
