//! Repeated measurements: subjects take turns, so that what disturbs the machine for a while disturbs all of them; figures
//! are medians, and ratios are those of neighbours in time.

use std::time::Duration;

use serde::Serialize;

use crate::rig::{Result, Subject};

/// Least share of the CPU for a valid measurement; below it, neighbours have had the caches.
const LEAST_SHARE: f64 = 0.9;

/// How often and how long is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Turns of each subject.
    pub rounds: usize,
    /// Time of a measurement.
    pub time: Duration,
}

/// A median and its spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The least value.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The greatest value.
    pub max: f64,
}

impl Spread {
    /// Summarizes values; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values.get((values.len() - 1) / 2)?, values.get(values.len() / 2)?);
        Some(Self { min, median: (low + high) / 2.0, max })
    }
}

/// Measurements of one subject.
#[derive(Debug, Clone)]
pub struct Series {
    /// Packets per second of CPU time, one for each turn.
    pub rates: Vec<f64>,
    /// Packets in a batch, on average.
    pub batch: f64,
    /// Bytes of a packet, on average.
    pub len: f64,
    /// Packets dropped on the way.
    pub drops: u64,
    /// Measurements in which a worker had less than nine tenths of its CPU, which were repeated once.
    pub disturbed: usize,
}

impl Series {
    /// The rates.
    pub fn rate(&self) -> Option<Spread> {
        Spread::of(self.rates.iter().copied())
    }

    /// Ratio to another series, turn by turn, without turns in which that had no CPU.
    pub fn ratio(&self, base: &Series) -> Option<Spread> {
        let turns = self.rates.iter().zip(&base.rates).filter(|(_, base)| **base > 0.0);
        Spread::of(turns.map(|(rate, base)| rate / base))
    }
}

/// Lets the subjects take turns.
pub fn take_turns(subjects: &[&dyn Subject], effort: Effort) -> Result<Vec<Series>> {
    let none = Series { rates: Vec::new(), batch: 0.0, len: 0.0, drops: 0, disturbed: 0 };
    let mut series = vec![none; subjects.len()];
    for _ in 0..effort.rounds {
        for (subject, series) in subjects.iter().zip(&mut series) {
            let mut interval = subject.run(effort.time)?;
            if interval.share() < LEAST_SHARE {
                series.disturbed += 1;
                interval = subject.run(effort.time)?;
            }
            series.rates.push(interval.rate());
            series.len = interval.bytes as f64 / interval.packets.max(1) as f64;
            series.batch = interval.packets as f64 / interval.batches.max(1) as f64;
            series.drops += interval.drops;
        }
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_lies_in_the_middle() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { min: 1.0, median: 2.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { min: 1.0, median: 2.5, max: 4.0 }));
    }

    #[test]
    fn ratios_are_those_of_neighbours() {
        let series =
            |rates: &[f64]| Series { rates: rates.into(), batch: 1.0, len: 60.0, drops: 0, disturbed: 0 };
        // A disturbance of the second turn, which both meet.
        let ratio = series(&[2.0, 1.0, 2.0]).ratio(&series(&[4.0, 2.0, 4.0])).unwrap();
        assert_eq!(ratio, Spread { min: 0.5, median: 0.5, max: 0.5 });
        assert_eq!(series(&[2.0]).ratio(&series(&[0.0])), None);
    }
}
