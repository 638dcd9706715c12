//! All matchings of few ports that no other one contains.

/// Whether an input may send to the output of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hairpins {
    /// It may: all permutations are patterns.
    Allowed,
    /// It may not, as between line cards, which forward such packets themselves.
    Forbidden,
}

/// Largest number of ports with patterns: 529 of six ports, 4,239 of seven.
pub(crate) const MOST_PORTS: usize = 6;

/// Outputs of the inputs.
pub(crate) type Pattern = [u8; MOST_PORTS];

/// The matchings that no other one contains.
///
/// Without hairpins these are the permutations with at most one fixed point, which stands for an idle card: two cards
/// that are both idle could send to each other. Permutations without a fixed point alone do not suffice: of three
/// cards, none of their patterns lets two exchange packets while the third is idle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patterns {
    ports: usize,
    hairpins: Hairpins,
    list: Vec<Pattern>,
}

impl Patterns {
    /// Lists the patterns of 2 to 6 ports; `None` for another number.
    pub fn new(ports: usize, hairpins: Hairpins) -> Option<Self> {
        if !(2..=MOST_PORTS).contains(&ports) {
            return None;
        }
        let fixed = |pattern: &Pattern| {
            (0u8..).zip(pattern).take(ports).filter(|(input, output)| input == *output).count()
        };
        let list = permutations(ports)
            .into_iter()
            .filter(|pattern| hairpins == Hairpins::Allowed || fixed(pattern) <= 1)
            .collect();
        Some(Self { ports, hairpins, list })
    }

    /// Returns the number of inputs, which is that of outputs.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// Returns the number of patterns.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns false: there is a pattern of any number of ports.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the pairs of a pattern: inputs and their outputs.
    pub fn pairs(&self, pattern: usize) -> impl Iterator<Item = (usize, usize)> {
        let pattern = self.list.get(pattern).into_iter().flatten().take(self.ports);
        let pairs = pattern.enumerate().map(|(input, output)| (input, usize::from(*output)));
        pairs.filter(|(input, output)| self.hairpins == Hairpins::Allowed || input != output)
    }
}

/// Returns the permutations of 0 to `ports` - 1, in lexicographic order.
pub(crate) fn permutations(ports: usize) -> Vec<Pattern> {
    let mut all = vec![(Pattern::default(), 0u8)];
    for position in 0..ports {
        let longer = |(pattern, used): &(Pattern, u8)| {
            let (pattern, used) = (*pattern, *used);
            (0..ports as u8).filter(move |next| used >> next & 1 == 0).map(move |next| {
                let mut pattern = pattern;
                if let Some(slot) = pattern.get_mut(position) {
                    *slot = next;
                }
                (pattern, used | 1 << next)
            })
        };
        all = all.iter().flat_map(longer).collect();
    }
    all.into_iter().map(|(pattern, _)| pattern).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(ports: usize, hairpins: Hairpins) -> usize {
        Patterns::new(ports, hairpins).map_or(0, |patterns| patterns.len())
    }

    #[test]
    fn patterns_are_counted_as_in_combinatorics() {
        // Permutations with no fixed point (1, 2, 9, 44, 265) and with one (0, 3, 8, 45, 264).
        let forbidden = [2, 3, 4, 5, 6].map(|ports| count(ports, Hairpins::Forbidden));
        assert_eq!(forbidden, [1, 2 + 3, 9 + 8, 44 + 45, 265 + 264]);
        let allowed = [2, 3, 4, 5, 6].map(|ports| count(ports, Hairpins::Allowed));
        assert_eq!(allowed, [2, 6, 24, 120, 720]);
        assert_eq!([0, 1, 7, 64].map(|ports| count(ports, Hairpins::Allowed)), [0; 4]);
    }

    #[test]
    fn patterns_are_matchings_and_leave_one_card_idle_at_most() {
        for ports in 2..=MOST_PORTS {
            let patterns = Patterns::new(ports, Hairpins::Forbidden).unwrap();
            for pattern in 0..patterns.len() {
                let pairs: Vec<_> = patterns.pairs(pattern).collect();
                let outputs = pairs.iter().fold(0u64, |outputs, (_, output)| outputs | 1 << output);
                assert!(pairs.iter().all(|(input, output)| input != output && *output < ports));
                assert_eq!(outputs.count_ones() as usize, pairs.len());
                assert!(pairs.len() >= ports - 1);
            }
        }
    }
}
