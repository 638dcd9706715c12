//! Meters: two token buckets that colour packets (RFC 2697, RFC 2698).
//!
//! Tokens are kept in billionths of a unit, so that adding `rate * nanoseconds` is exact. Buckets start full.

use std::sync::{Mutex, PoisonError};

/// Colour of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Color {
    /// Within the committed rate.
    Green,
    /// Above it, within the excess burst or the peak rate.
    Yellow,
    /// Above both.
    Red,
}

impl Color {
    /// The colour of a number; numbers above 2 are red.
    pub fn from_number(number: u64) -> Self {
        match number {
            0 => Color::Green,
            1 => Color::Yellow,
            _ => Color::Red,
        }
    }
}

/// Configuration of a meter. Rates are in units per second, bursts in units: packets or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rates {
    /// Single rate, three colours (RFC 2697). Without excess burst it is a policer: green or red.
    Single {
        /// Committed rate.
        rate: u64,
        /// Committed burst.
        burst: u64,
        /// Excess burst.
        excess: u64,
    },
    /// Two rates, three colours (RFC 2698).
    Two {
        /// Committed rate.
        rate: u64,
        /// Committed burst.
        burst: u64,
        /// Peak rate.
        peak_rate: u64,
        /// Peak burst.
        peak_burst: u64,
    },
}

/// A meter: unconfigured ones colour everything green.
#[derive(Debug, Default)]
pub struct MeterCell(Mutex<Option<Buckets>>);

#[derive(Debug, Clone, Copy)]
struct Buckets {
    rates: Rates,
    /// Committed tokens, then excess or peak tokens, in billionths.
    tokens: [u128; 2],
    /// Time of the last packet.
    last: u64,
}

const UNIT: u128 = 1_000_000_000;

impl MeterCell {
    /// Configures the meter, its buckets full at time `now`; `None` removes the configuration.
    pub fn configure(&self, rates: Option<Rates>, now: u64) {
        let buckets = rates.map(|rates| Buckets { rates, tokens: capacities(rates), last: now });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = buckets;
    }

    /// Returns the configuration.
    pub fn rates(&self) -> Option<Rates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|buckets| buckets.rates)
    }

    /// Colours a packet of `units` at time `now`, nanoseconds, that has the colour `before`.
    pub fn color(&self, units: u64, before: Color, now: u64) -> Color {
        let mut cell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match cell.as_mut() {
            Some(buckets) => buckets.color(units, before, now),
            None => Color::Green,
        }
    }

    /// The colour that [`MeterCell::color`] would give a packet; the meter stays as it is.
    pub fn foresee(&self, units: u64, before: Color, now: u64) -> Color {
        let buckets = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.map_or(Color::Green, |mut buckets| buckets.color(units, before, now))
    }
}

fn capacities(rates: Rates) -> [u128; 2] {
    match rates {
        Rates::Single { burst, excess, .. } => [u128::from(burst) * UNIT, u128::from(excess) * UNIT],
        Rates::Two { burst, peak_burst, .. } => [u128::from(burst) * UNIT, u128::from(peak_burst) * UNIT],
    }
}

impl Buckets {
    fn refill(&mut self, now: u64) {
        let elapsed = u128::from(now.saturating_sub(self.last));
        self.last = self.last.max(now);
        let [first, second] = capacities(self.rates);
        match self.rates {
            Rates::Single { rate, .. } => {
                let committed = self.tokens[0] + u128::from(rate) * elapsed;
                let spill = committed.saturating_sub(first);
                self.tokens = [committed.min(first), (self.tokens[1] + spill).min(second)];
            }
            Rates::Two { rate, peak_rate, .. } => {
                self.tokens = [
                    (self.tokens[0] + u128::from(rate) * elapsed).min(first),
                    (self.tokens[1] + u128::from(peak_rate) * elapsed).min(second),
                ];
            }
        }
    }

    fn color(&mut self, units: u64, before: Color, now: u64) -> Color {
        self.refill(now);
        let need = u128::from(units) * UNIT;
        let [first, second] = self.tokens;
        match self.rates {
            Rates::Single { .. } if before == Color::Green && first >= need => {
                self.tokens[0] -= need;
                Color::Green
            }
            Rates::Single { .. } if before <= Color::Yellow && second >= need => {
                self.tokens[1] -= need;
                Color::Yellow
            }
            Rates::Two { .. } if before <= Color::Yellow && second >= need => {
                self.tokens[1] -= need;
                if before == Color::Yellow || first < need {
                    return Color::Yellow;
                }
                self.tokens[0] -= need;
                Color::Green
            }
            _ => Color::Red,
        }
    }
}
