//! OpenFlow port numbers of a bridge's interfaces (`ofport`).
//!
//! Invariants: numbers are unique; an interface keeps its number unless another one is requested for it; numbers that
//! nobody requested are below 32768. A number is given again as late as possible: flows may still name it.

use std::collections::{BTreeMap, BTreeSet};

/// Number of the port with the bridge's name (OFPP_LOCAL).
pub(crate) const LOCAL: i64 = 65534;

/// Number of an interface that does not work.
pub(crate) const NONE: i64 = -1;

const MAX_CHOSEN: i64 = 32767;
const MAX_REQUESTED: i64 = 65279;

/// What is known of an interface.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wish<'a> {
    pub(crate) name: &'a str,
    pub(crate) is_local: bool,
    pub(crate) requested: Option<i64>,
    pub(crate) present: Option<i64>,
}

/// Numbers of a bridge that have been given. The database may not have them yet.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// The one that was chosen last.
    last: i64,
    by_name: BTreeMap<String, i64>,
}

/// Gives each interface a number. Numbers that nobody asks for follow the one that was chosen last.
pub(crate) fn assign(wishes: &[Wish<'_>], given: &mut Given) -> Vec<i64> {
    let earlier: Vec<Option<i64>> = wishes
        .iter()
        .map(|wish| wish.present.filter(|it| *it > 0).or(given.by_name.get(wish.name).copied()))
        .collect();
    let numbers = choose(wishes, &earlier, &mut given.last);
    given.by_name =
        wishes.iter().zip(&numbers).map(|(wish, number)| (wish.name.to_owned(), *number)).collect();
    numbers
}

/// `earlier`: numbers that the interfaces had before, if any.
fn choose(wishes: &[Wish<'_>], earlier: &[Option<i64>], last: &mut i64) -> Vec<i64> {
    let mut numbers: Vec<Option<i64>> = vec![None; wishes.len()];
    let mut taken = BTreeSet::new();
    let allowed = |number: &i64| (1..=MAX_REQUESTED).contains(number);
    let local = wishes.iter().map(|wish| wish.is_local.then_some(LOCAL));
    let requested = wishes.iter().map(|wish| wish.requested.filter(allowed));
    let earlier = earlier.iter().map(|number| number.filter(allowed));
    for wanted in [local.collect::<Vec<_>>(), requested.collect(), earlier.collect()] {
        for (number, wanted) in numbers.iter_mut().zip(wanted) {
            if number.is_none() {
                *number = wanted.filter(|wanted| taken.insert(*wanted));
            }
        }
    }
    let start = *last;
    let mut free = (start + 1..=MAX_CHOSEN).chain(1..=start).filter(|number| !taken.contains(number));
    let mut next = || {
        let number = free.next()?;
        *last = number;
        Some(number)
    };
    numbers.into_iter().map(|number| number.or_else(&mut next).unwrap_or(NONE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(name: &str, requested: Option<i64>, present: Option<i64>) -> Wish<'_> {
        Wish { name, is_local: false, requested, present }
    }

    #[test]
    fn numbers_stay_and_requests_go_first() {
        let local = Wish { name: "br", is_local: true, present: Some(3), ..Wish::default() };
        let wishes = [
            local,
            wish("a", None, Some(5)),
            wish("b", None, None),
            wish("c", Some(5), Some(1)),
            wish("d", Some(5), None),
            wish("e", None, Some(NONE)),
        ];
        let mut given = Given::default();
        let numbers = assign(&wishes, &mut given);
        assert_eq!(numbers, [LOCAL, 1, 2, 5, 3, 4], "a requested number displaces a present one");
        assert_eq!(assign(&[wish("f", Some(70000), Some(7))], &mut given), [7]);
        assert_eq!(assign(&[wish("g", None, None)], &mut given), [5], "4 was given last");
        given.last = MAX_CHOSEN;
        assert_eq!(assign(&[wish("h", None, None), wish("i", None, Some(1))], &mut given), [2, 1]);
        assert_eq!(given.last, 2);
    }

    #[test]
    fn a_number_stays_if_the_database_does_not_have_it_yet() {
        let mut given = Given::default();
        let [a, b] = ["a", "b"].map(|name| wish(name, None, None));
        assert_eq!(assign(&[a, b], &mut given), [1, 2]);
        assert_eq!(assign(&[b, wish("c", None, Some(NONE)), a], &mut given), [2, 3, 1]);
        assert_eq!(assign(&[wish("a", None, Some(9)), b], &mut given), [9, 2], "the database goes first");
        assert_eq!(assign(&[b], &mut given), [2]);
        assert_eq!(assign(&[a, b], &mut given), [4, 2], "a new one, as it was gone");
    }
}
