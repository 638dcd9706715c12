//! Delays, in slots.

/// Number of delays that are counted one by one; longer ones are in classes of 1/64 of their value.
const EXACT: u32 = 128;

/// A histogram of delays, with a relative error of at most 1/64.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delays {
    counts: Vec<u64>,
    number: u64,
    sum: u64,
}

/// Returns the class of a delay.
fn class(delay: u32) -> usize {
    if delay < EXACT {
        return delay as usize;
    }
    // The seven leading bits, and how many follow.
    let shift = 25 - delay.leading_zeros();
    (64 * shift + (delay >> shift)) as usize
}

/// Returns the longest delay of a class.
fn longest(class: usize) -> u32 {
    if class < EXACT as usize {
        return class as u32;
    }
    let (shift, leading) = (class as u32 / 64 - 1, class as u32 % 64 + 64);
    ((u64::from(leading) + 1) << shift).saturating_sub(1).try_into().unwrap_or(u32::MAX)
}

impl Delays {
    pub(super) fn add(&mut self, delay: u32) {
        let class = class(delay);
        if class >= self.counts.len() {
            self.counts.resize(class + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(class) {
            *count += 1;
        }
        self.number += 1;
        self.sum += u64::from(delay);
    }

    /// Returns the mean; 0 if there are no delays.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.number.max(1) as f64
    }

    /// Returns the delay that a share of all do not exceed: 0.99 is the 99th percentile.
    pub fn quantile(&self, share: f64) -> u32 {
        let wanted = (self.number as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return longest(class);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_as_wide_as_they_say() {
        for delay in (0..5_000).chain([1 << 20, u32::MAX - 1, u32::MAX]) {
            let end = longest(class(delay));
            assert!(end >= delay && end - delay <= delay / 64, "{delay}: {end}");
            assert!(class(delay) <= class(delay.saturating_add(1)));
        }
    }

    #[test]
    fn mean_and_quantiles_are_those_of_the_delays() {
        let mut delays = Delays::default();
        assert_eq!((delays.mean(), delays.quantile(0.5)), (0.0, 0));
        (0..100).for_each(|delay| delays.add(delay));
        assert_eq!((delays.mean(), delays.quantile(0.5), delays.quantile(0.99)), (49.5, 49, 98));
        assert_eq!((delays.quantile(0.0), delays.quantile(1.0)), (0, 99));
    }
}
