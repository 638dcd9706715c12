//! Statistics of small samples: medians, spreads, and rank tests.
//!
//! No distribution is assumed. The rank test of two samples counts all ways in which the ranks could have fallen, ties
//! included, so it is right for three values each; where counting takes too long, their sum is close to normal. It takes
//! several pairs of samples (strata) together, each of which is compared only within itself. The signed-rank test is for
//! values in pairs, of which it gets the differences.

use serde::{Deserialize, Serialize};

/// Summary of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Middle value.
    pub median: f64,
    /// Lowest value.
    pub lowest: f64,
    /// Highest value.
    pub highest: f64,
    /// Number of values.
    pub count: usize,
}

impl Summary {
    /// Summarizes; `None` without values. Values that are not finite are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        Some(Summary {
            median: median_of_sorted(&values)?,
            lowest: *values.first()?,
            highest: *values.last()?,
            count: values.len(),
        })
    }
}

/// Median; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    median_of_sorted(&values)
}

fn median_of_sorted(values: &[f64]) -> Option<f64> {
    let upper = *values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((values.get(values.len() / 2 - 1)? + upper) / 2.0)
}

/// Mean range of 3 and of 4 normally distributed values, in standard deviations.
const MEAN_RANGE: [f64; 2] = [1.693, 2.059];
/// Factors by which the median deviation of 5 to 9 values is too small on average (Croux and Rousseeuw, 1992).
const SMALL_SAMPLE: [f64; 5] = [1.206, 1.200, 1.140, 1.129, 1.107];

/// Uncertainty of a median, as a share of it: the standard deviation divided by the square root of the number of values.
/// The deviation is estimated from the median deviation from the median, which ignores outliers; from the range where
/// there are 3 or 4 values, of which the median deviation would only see the nearest ones. One or two values give
/// `None`: they say nothing about themselves.
pub fn uncertainty(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let deviation = match values.len() {
        0..3 => return None,
        count @ 3..5 => {
            let summary = Summary::of(values.iter().copied())?;
            (summary.highest - summary.lowest) / MEAN_RANGE.get(count - 3)?
        }
        count => {
            let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
            let factor = SMALL_SAMPLE.get(count - 5).copied();
            1.4826 * factor.unwrap_or(count as f64 / (count as f64 - 0.8)) * median(&deviations)?
        }
    };
    let share = deviation / middle.abs() / (values.len() as f64).sqrt();
    share.is_finite().then_some(share)
}

/// Ratio of two samples' values: the median of all ratios of a value of `after` to a value of `before`
/// (Hodges and Lehmann's estimator, on logarithms). `None` without positive values on both sides.
pub fn ratio(before: &[f64], after: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = after
        .iter()
        .flat_map(|new| before.iter().map(move |old| (new / old).ln()))
        .filter(|logarithm| logarithm.is_finite())
        .collect();
    median(&ratios).map(f64::exp)
}

/// Most steps of an exact rank test: some tens of milliseconds.
const EXACT_STEPS: f64 = 3e7;

/// Two-sided p-value that samples come from one distribution: in each stratum, the values of `before` and those of
/// `after`. Mann and Whitney's test, summed over strata (van Elteren's design with equal weights); exact, or by the normal
/// approximation where there are so many values that counting takes too long.
/// `None` if nothing can be said: no stratum has values on both sides.
pub fn rank_test(strata: &[(&[f64], &[f64])]) -> Option<f64> {
    rank_test_within(strata, EXACT_STEPS)
}

fn rank_test_within(strata: &[(&[f64], &[f64])], steps: f64) -> Option<f64> {
    let strata: Vec<Ranks> = strata
        .iter()
        .filter(|(before, after)| !before.is_empty() && !after.is_empty())
        .map(|(before, after)| Ranks::of(before, after))
        .collect();
    if strata.is_empty() {
        return None;
    }
    let observed: i64 = strata.iter().map(Ranks::deviation).sum();
    Some(if cost(&strata) <= steps { exact(&strata, observed) } else { normal(&strata, observed) })
}

/// Ranks of a stratum.
struct Ranks {
    /// Doubled, so that those of ties are whole; those of `before` first.
    all: Vec<i64>,
    /// Number of values of `before`.
    first: usize,
}

impl Ranks {
    fn of(before: &[f64], after: &[f64]) -> Ranks {
        Ranks { all: doubled_ranks(before, after), first: before.len() }
    }

    /// Sum of doubled ranks of `before` that chance gives on average: ties do not change it.
    fn expected(&self) -> i64 {
        (self.first * (self.all.len() + 1)) as i64
    }

    fn deviation(&self) -> i64 {
        self.all.iter().take(self.first).sum::<i64>() - self.expected()
    }

    /// Largest deviation without ties.
    fn reach(&self) -> usize {
        self.first * (self.all.len() - self.first)
    }
}

/// Steps of the exact test.
fn cost(strata: &[Ranks]) -> f64 {
    let mut width = 1.0;
    let mut steps = 0.0;
    for ranks in strata {
        let count = ranks.all.len() as f64;
        let own = 2.0 * ranks.reach() as f64 + 1.0;
        steps += count * ranks.first as f64 * count * (count + 1.0) + width * own;
        width += own - 1.0;
    }
    steps
}

/// Two-sided p-value that values lie around 0, as far above it as below: Wilcoxon's signed-rank test; exact, or by the
/// normal approximation where there are so many values that counting takes too long. Values of 0 do not count. `None`
/// without values.
pub fn signed_rank_test(values: &[f64]) -> Option<f64> {
    signed_rank_test_within(values, EXACT_STEPS)
}

fn signed_rank_test_within(values: &[f64], steps: f64) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let values: Vec<f64> = values.iter().copied().filter(|value| *value != 0.0).collect();
    let sizes: Vec<f64> = values.iter().map(|value| value.abs()).collect();
    let ranks = doubled_ranks(&sizes, &[]);
    let signed = ranks.iter().zip(&values).map(|(rank, value)| if *value > 0.0 { *rank } else { -rank });
    let observed = signed.sum::<i64>().abs();
    let total: i64 = ranks.iter().sum();
    if ranks.len() as f64 * total as f64 > steps {
        // Each sign is a coin's. The distance between two values of the statistic is 4.
        let variance: f64 = ranks.iter().map(|rank| (*rank as f64).powi(2)).sum();
        let distance = (observed as f64 - 2.0).max(0.0);
        return Some(complementary_error(distance / (2.0 * variance).sqrt()).min(1.0));
    }
    // Probabilities of the sums of the ranks above 0.
    let mut sums = vec![1.0];
    for rank in ranks.iter().filter_map(|rank| usize::try_from(*rank).ok()) {
        let mut longer = vec![0.0; sums.len() + rank];
        for (index, probability) in sums.iter().enumerate() {
            for place in [index, index + rank] {
                if let Some(sum) = longer.get_mut(place) {
                    *sum += probability / 2.0;
                }
            }
        }
        sums = longer;
    }
    let extreme = (0..).zip(&sums).filter(|(above, _)| (2 * above - total).abs() >= observed);
    Some(extreme.map(|(_, probability)| probability).sum::<f64>().min(1.0))
}

/// Probability of a deviation at least as large, by counting.
fn exact(strata: &[Ranks], observed: i64) -> f64 {
    // Probabilities of deviations, the first that of `lowest`.
    let (mut distribution, mut lowest) = (vec![1.0], 0i64);
    for ranks in strata {
        let sums = sums(&ranks.all, ranks.first);
        // Sums that cannot occur are at both ends.
        let skipped = sums.iter().take_while(|probability| **probability == 0.0).count();
        let used = sums.get(skipped..).unwrap_or_default();
        let end = used.iter().rposition(|probability| *probability > 0.0).map_or(0, |last| last + 1);
        let used = used.get(..end).unwrap_or_default();
        let mut combined = vec![0.0; distribution.len() + used.len()];
        for (index, probability) in distribution.iter().enumerate() {
            let places = combined.iter_mut().skip(index);
            places.zip(used).for_each(|(place, own)| *place += probability * own);
        }
        distribution = combined;
        lowest += skipped as i64 - ranks.expected();
    }
    let extreme = (lowest..).zip(&distribution).filter(|(sum, _)| sum.abs() >= observed.abs());
    extreme.map(|(_, probability)| probability).sum::<f64>().min(1.0)
}

/// The same by the normal approximation, with the variance that the ranks have, ties included.
fn normal(strata: &[Ranks], observed: i64) -> f64 {
    let variance: f64 = strata
        .iter()
        .map(|ranks| {
            let count = ranks.all.len() as f64;
            let squares: f64 = ranks.all.iter().map(|rank| (*rank as f64 - count - 1.0).powi(2)).sum();
            ranks.reach() as f64 / count / (count - 1.0) * squares
        })
        .sum();
    if variance <= 0.0 {
        return 1.0;
    }
    // Half of the distance between two values of the statistic.
    let distance = (observed.abs() as f64 - 1.0).max(0.0);
    complementary_error(distance / (2.0 * variance).sqrt()).min(1.0)
}

/// The complementary error function of a value that is not negative, to 1.5e-7 (Abramowitz and Stegun, 7.1.26).
fn complementary_error(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let factors = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    factors.iter().fold(0.0, |sum, factor| (sum + factor) * t) * (-x * x).exp()
}

/// Twice the rank of each value among all, those of `before` first; equal values share the mean of their ranks.
fn doubled_ranks(before: &[f64], after: &[f64]) -> Vec<i64> {
    let all: Vec<f64> = before.iter().chain(after).copied().collect();
    all.iter()
        .map(|value| {
            let below = all.iter().filter(|other| *other < value).count() as i64;
            let equal = all.iter().filter(|other| *other == value).count() as i64;
            2 * below + equal + 1
        })
        .collect()
}

/// Probabilities of the sums, from 0, of `chosen` ranks drawn without replacement.
fn sums(ranks: &[i64], chosen: usize) -> Vec<f64> {
    let ranks: Vec<usize> = ranks.iter().filter_map(|rank| usize::try_from(*rank).ok()).collect();
    let highest: usize = ranks.iter().sum();
    // By number of ranks drawn so far: ways to reach each sum.
    let mut ways = vec![vec![0.0; highest + 1]; chosen + 1];
    if let Some(none) = ways.first_mut().and_then(|sums| sums.first_mut()) {
        *none = 1.0;
    }
    for rank in ranks {
        for drawn in (1..=chosen).rev() {
            let (shorter, longer) = ways.split_at_mut(drawn);
            if let (Some(shorter), Some(longer)) = (shorter.last(), longer.first_mut()) {
                longer.iter_mut().skip(rank).zip(shorter).for_each(|(ways, more)| *ways += more);
            }
        }
    }
    let last = ways.pop().unwrap_or_default();
    let total: f64 = last.iter().sum();
    last.into_iter().map(|count| count / total).collect()
}

/// Which of these p-values are discoveries, with at most this share of false ones among them
/// (Benjamini and Hochberg's procedure).
pub fn discoveries(values: &[f64], false_share: f64) -> Vec<bool> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let limit = sorted
        .iter()
        .enumerate()
        .filter(|(index, value)| **value <= false_share * (*index as f64 + 1.0) / count)
        .map(|(_, value)| *value)
        .next_back();
    values.iter().map(|value| limit.is_some_and(|limit| *value <= limit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let summary = Summary::of([2.0, f64::NAN, 1.0, 7.0]).unwrap();
        assert_eq!(summary, Summary { median: 2.0, lowest: 1.0, highest: 7.0, count: 3 });
    }

    #[test]
    fn uncertainty_needs_three_values() {
        assert_eq!(uncertainty(&[1.0, 2.0]), None);
        assert_eq!(uncertainty(&[5.0, 5.0, 5.0]), Some(0.0));
        let five = uncertainty(&[98.0, 99.0, 100.0, 101.0, 102.0]).unwrap();
        assert!((five - 0.01 * 1.4826 * 1.206 / 5f64.sqrt()).abs() < 1e-12, "{five}");
        let three = uncertainty(&[100.0, 100.0, 140.0]).unwrap();
        assert!(
            (three - 0.4 / 1.693 / 3f64.sqrt()).abs() < 1e-12,
            "two equal values do not hide a third: {three}"
        );
    }

    /// Values of which a median is known no better than 4 % are rarely taken for known to 2 %.
    #[test]
    fn few_values_rarely_look_certain() {
        let mut random = fastrand::Rng::with_seed(9);
        for count in [3usize, 4, 5, 6, 9, 12] {
            let deviation = 0.04 * (count as f64).sqrt();
            let mut certain = 0;
            for _ in 0..1000 {
                // Sums of twelve uniform values are close to normally distributed.
                let mut value = || 1.0 + deviation * ((0..12).map(|_| random.f64()).sum::<f64>() - 6.0);
                let values: Vec<f64> = (0..count).map(|_| value()).collect();
                certain += u32::from(uncertainty(&values).is_some_and(|share| share <= 0.02));
            }
            assert!(certain < 200, "{count} values: {certain} of 1000");
        }
    }

    #[test]
    fn ratios_ignore_an_outlier() {
        let before = [100.0, 101.0, 99.0, 100.0, 500.0];
        let after: Vec<f64> = before.iter().map(|value| value * 0.9).collect();
        let ratio = ratio(&before, &after).unwrap();
        assert!((ratio - 0.9).abs() < 0.01, "{ratio}");
        assert_eq!(super::ratio(&[], &[1.0]), None);
    }

    #[test]
    fn the_rank_test_has_the_values_of_tables() {
        // All of one sample above all of the other: 2 of (10 choose 5) ways.
        let p = rank_test(&[(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0])]).unwrap();
        assert!((p - 2.0 / 252.0).abs() < 1e-12, "{p}");
        // U = 2 of 3 and 4 values: 8 of 35 ways have U <= 2 or U >= 10.
        let p = rank_test(&[(&[1.0, 2.0, 5.0], &[3.0, 4.0, 6.0, 7.0])]).unwrap();
        assert!((p - 8.0 / 35.0).abs() < 1e-12, "{p}");
        assert_eq!(rank_test(&[(&[1.0, 1.0], &[1.0, 1.0])]), Some(1.0));
        assert_eq!(rank_test(&[(&[], &[1.0])]), None);
    }

    #[test]
    fn strata_add_up() {
        let low: &[f64] = &[1.0, 2.0, 3.0];
        let high: &[f64] = &[4.0, 5.0, 6.0];
        let one = rank_test(&[(low, high)]).unwrap();
        assert!((one - 0.1).abs() < 1e-12, "{one}");
        // Twice the same finding: both extremes of 20 × 20 ways.
        let two = rank_test(&[(low, high), (low, high)]).unwrap();
        assert!((two - 2.0 / 400.0).abs() < 1e-12, "{two}");
        // Findings that contradict each other.
        assert_eq!(rank_test(&[(low, high), (high, low)]), Some(1.0));
    }

    /// Full reports with different numbers of rounds, as an early end leaves them.
    #[test]
    fn many_mixed_strata_take_no_time() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut values = |count: usize| (0..count).map(|_| random.f64()).collect::<Vec<_>>();
        let samples: Vec<_> = (0..200).map(|task| (values(5 + task % 11), values(6 + task % 10))).collect();
        let strata: Vec<_> = samples.iter().map(|(before, after)| (&before[..], &after[..])).collect();
        let begin = std::time::Instant::now();
        let p = rank_test(&strata).unwrap();
        assert!(p > 0.001 && begin.elapsed().as_secs() < 5, "{p} after {:?}", begin.elapsed());
        let many = values(2000);
        let p = rank_test(&[(&many[..1000], &many[1000..])]).unwrap();
        assert!(p > 0.001, "{p}");
    }

    #[test]
    fn the_approximation_agrees_with_counting() {
        let mut random = fastrand::Rng::with_seed(6);
        for shift in [0.0, 0.1, 0.2] {
            // Rounded, so that there are ties.
            let mut values = |count: usize, shift: f64| -> Vec<f64> {
                (0..count).map(|_| (20.0 * (random.f64() + shift)).round()).collect()
            };
            let samples: Vec<_> = (0..8).map(|task| (values(5 + task % 3, 0.0), values(7, shift))).collect();
            let strata: Vec<_> = samples.iter().map(|(before, after)| (&before[..], &after[..])).collect();
            let (exact, near) = (rank_test(&strata).unwrap(), rank_test_within(&strata, 0.0).unwrap());
            assert!((exact - near).abs() < 0.01 + 0.1 * exact, "{shift}: {exact} {near}");
        }
        assert!((complementary_error(1.0) - 0.157_299_207).abs() < 2e-7);
        assert_eq!(rank_test_within(&[(&[1.0], &[1.0])], 0.0), Some(1.0));
    }

    #[test]
    fn the_signed_rank_test_has_the_values_of_tables() {
        // All of eight values on one side: 2 of 2^8 ways.
        let all: Vec<f64> = (1..=8).map(f64::from).collect();
        assert_eq!(signed_rank_test(&all), Some(2.0 / 256.0));
        // The critical value of a two-sided test of ten values at 5 % is 8, at 1 % it is 3.
        let ten = |below: &[usize]| {
            let value = |rank: usize| if below.contains(&rank) { -(rank as f64) } else { rank as f64 };
            signed_rank_test(&(1..=10).map(value).collect::<Vec<_>>()).unwrap()
        };
        assert!(ten(&[8]) <= 0.05 && ten(&[9]) > 0.05, "{} {}", ten(&[8]), ten(&[9]));
        assert!(ten(&[1, 2]) <= 0.01 && ten(&[4]) > 0.01, "{} {}", ten(&[1, 2]), ten(&[4]));
        assert_eq!(signed_rank_test(&[1.0, -1.0]), Some(1.0));
        assert_eq!(signed_rank_test(&[0.0, 0.0]), Some(1.0));
        assert_eq!(signed_rank_test(&[]), None);
        let mut random = fastrand::Rng::with_seed(8);
        for shift in [0.0, 0.1, 0.3] {
            let values: Vec<f64> = (0..40).map(|_| (20.0 * (random.f64() - 0.5 + shift)).round()).collect();
            let exact = signed_rank_test(&values).unwrap();
            let near = signed_rank_test_within(&values, 0.0).unwrap();
            assert!((exact - near).abs() < 0.01 + 0.1 * exact, "{shift}: {exact} {near}");
        }
    }

    /// The sum over strata must not depend on the scale of a stratum.
    #[test]
    fn one_distribution_is_rarely_called_two() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut value = |scale: f64| scale * (1.0 + 0.2 * random.f64());
        let rounds = 2000;
        let mut found = 0;
        for _ in 0..rounds {
            let mut sample = |scale| (0..5).map(|_| value(scale)).collect::<Vec<_>>();
            let (a, b, c, d) = (sample(1.0), sample(1.0), sample(50.0), sample(50.0));
            let p = rank_test(&[(&a, &b), (&c, &d)]).unwrap();
            found += u32::from(p <= 0.05);
        }
        // 100 expected at most; more than 150 would be five standard deviations away.
        assert!(found < 150, "{found} of {rounds}");
        assert!(found > 40, "{found} of {rounds}: the test has no power");
    }

    #[test]
    fn discoveries_bound_false_ones() {
        assert_eq!(discoveries(&[0.001, 0.9, 0.03, 0.04], 0.05), [true, false, false, false]);
        assert_eq!(discoveries(&[0.01, 0.02, 0.03, 0.04], 0.05), [true; 4]);
        assert!(discoveries(&[], 0.05).is_empty());
    }
}
