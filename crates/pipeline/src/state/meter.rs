//! Meters: two token buckets that colour packets (RFC 2697, RFC 2698).
//!
//! Tokens are kept in billionths of a unit, so that adding `rate * nanoseconds` is exact. Buckets start full.
//!
//! A meter that others use, too, is words in their memory ([`METER_WORDS`]): the kind of its [`Rates`] (0: none, 1, 2), the
//! committed and the peak rate, then pairs of words, low ones first: most committed tokens, most others, committed tokens,
//! others; and the time of the last packet.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use super::arrays::Arrays;

/// Words of a meter in shared memory.
pub const METER_WORDS: usize = 12;

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

/// The words of a meter whose buckets are full at time `now`; all 0 without rates.
pub fn meter_words(rates: Option<Rates>, now: u64) -> [u64; METER_WORDS] {
    rates.map_or([0; METER_WORDS], |rates| Buckets::full(rates, now).words())
}

/// A meter, wherever it is.
#[derive(Debug, Clone, Copy)]
pub enum Meter<'a> {
    /// In a state's own memory.
    Own(&'a MeterCell),
    /// In memory that others use, too: the words, and the arrays whose lock guards them.
    Shared(&'a [AtomicU64], &'a Arrays),
}

impl Meter<'_> {
    /// Returns the configuration.
    pub fn rates(self) -> Option<Rates> {
        match self {
            Meter::Own(cell) => cell.rates(),
            Meter::Shared(words, arrays) => {
                let _guard = arrays.lock();
                Buckets::of(words).map(|buckets| buckets.rates())
            }
        }
    }

    /// Colours a packet of `units` at time `now`, nanoseconds, that has the colour `before`.
    #[inline]
    pub fn color(self, units: u64, before: Color, now: u64) -> Color {
        match self {
            Meter::Own(cell) => cell.color(units, before, now),
            Meter::Shared(words, arrays) => color_shared(words, arrays, units, before, now),
        }
    }

    /// The colour that [`Meter::color`] would give a packet; the meter stays as it is.
    pub fn foresee(self, units: u64, before: Color, now: u64) -> Color {
        match self {
            Meter::Own(cell) => cell.foresee(units, before, now),
            Meter::Shared(words, arrays) => {
                let _guard = arrays.lock();
                Buckets::of(words).map_or(Color::Green, |mut buckets| buckets.color(units, before, now))
            }
        }
    }
}

fn color_shared(words: &[AtomicU64], arrays: &Arrays, units: u64, before: Color, now: u64) -> Color {
    let _guard = arrays.lock();
    let Some(mut buckets) = Buckets::of(words) else { return Color::Green };
    let color = buckets.color(units, before, now);
    words.iter().zip(buckets.words()).for_each(|(to, word)| to.store(word, Relaxed));
    color
}

/// A meter: unconfigured ones colour everything green.
#[derive(Debug, Default)]
pub struct MeterCell(Mutex<Option<Buckets>>);

#[derive(Debug, Clone, Copy)]
struct Buckets {
    has_two_rates: bool,
    /// The committed rate, and the peak rate if there are two.
    rates: [u64; 2],
    /// Most committed tokens, then most excess or peak tokens, in billionths.
    most: [u128; 2],
    /// Tokens that there are.
    tokens: [u128; 2],
    /// Time of the last packet.
    last: u64,
}

const UNIT: u128 = 1_000_000_000;

impl MeterCell {
    /// Configures the meter, its buckets full at time `now`; `None` removes the configuration.
    pub fn configure(&self, rates: Option<Rates>, now: u64) {
        let buckets = rates.map(|rates| Buckets::full(rates, now));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = buckets;
    }

    /// The words that the meter would be in shared memory.
    pub(super) fn words(&self) -> [u64; METER_WORDS] {
        let buckets = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.map_or([0; METER_WORDS], Buckets::words)
    }

    /// Returns the configuration.
    pub fn rates(&self) -> Option<Rates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|buckets| buckets.rates())
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

impl Buckets {
    fn full(rates: Rates, now: u64) -> Self {
        let (has_two_rates, rates, bursts) = match rates {
            Rates::Single { rate, burst, excess } => (false, [rate, 0], [burst, excess]),
            Rates::Two { rate, burst, peak_rate, peak_burst } => {
                (true, [rate, peak_rate], [burst, peak_burst])
            }
        };
        let most = bursts.map(|burst| u128::from(burst) * UNIT);
        Self { has_two_rates, rates, most, tokens: most, last: now }
    }

    fn rates(&self) -> Rates {
        let [rate, peak_rate] = self.rates;
        let [burst, other] = self.most.map(|most| u64::try_from(most / UNIT).unwrap_or(u64::MAX));
        match self.has_two_rates {
            false => Rates::Single { rate, burst, excess: other },
            true => Rates::Two { rate, burst, peak_rate, peak_burst: other },
        }
    }

    /// The words of these buckets.
    fn words(self) -> [u64; METER_WORDS] {
        let Self { has_two_rates, rates: [rate, peak_rate], most, tokens, last } = self;
        let halves = |number: u128| [number as u64, (number >> 64) as u64];
        let ([[a, b], [c, d]], [[e, f], [g, h]]) = (most.map(halves), tokens.map(halves));
        [1 + u64::from(has_two_rates), rate, peak_rate, a, b, c, d, e, f, g, h, last]
    }

    /// The buckets that words are; `None` without rates.
    fn of(words: &[AtomicU64]) -> Option<Self> {
        let word = |i: usize| words.get(i).map_or(0, |word| word.load(Relaxed));
        let long = |i: usize| u128::from(word(i)) | u128::from(word(i + 1)) << 64;
        let kind = Some(word(0)).filter(|kind| *kind != 0)?;
        let (most, tokens) = ([long(3), long(5)], [long(7), long(9)]);
        Some(Self { has_two_rates: kind == 2, rates: [word(1), word(2)], most, tokens, last: word(11) })
    }

    fn refill(&mut self, now: u64) {
        let elapsed = u128::from(now.saturating_sub(self.last));
        self.last = self.last.max(now);
        let ([rate, peak_rate], [first, second]) = (self.rates.map(u128::from), self.most);
        let committed = self.tokens[0] + rate * elapsed;
        let more = match self.has_two_rates {
            false => committed.saturating_sub(first),
            true => peak_rate * elapsed,
        };
        self.tokens = [committed.min(first), (self.tokens[1] + more).min(second)];
    }

    fn color(&mut self, units: u64, before: Color, now: u64) -> Color {
        self.refill(now);
        let need = u128::from(units) * UNIT;
        let [first, second] = self.tokens;
        match self.has_two_rates {
            false if before == Color::Green && first >= need => {
                self.tokens[0] -= need;
                Color::Green
            }
            false if before <= Color::Yellow && second >= need => {
                self.tokens[1] -= need;
                Color::Yellow
            }
            true if before <= Color::Yellow && second >= need => {
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
