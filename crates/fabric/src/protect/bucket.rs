//! Token buckets that workers share without a lock.
//!
//! A bucket is one number: the instant at which it would be full again without further use (RFC 2697 in reverse; ATM's
//! virtual scheduling algorithm). A token is the time that its refill takes. Taking tokens moves the instant ahead, and
//! is refused if that would put it further ahead of now than a whole bucket takes to fill. So nothing is refilled, and
//! one compare-exchange suffices.
//!
//! Invariant: in any stretch of time `t`, at most `rate * t + burst` is taken, except that one packet longer than the
//! burst passes when the bucket is full; the excess is paid back before the next. A bucket that others charge
//! ([`Bucket::charge`]) pays back in the same way.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock;
use crate::protect::protection::{Limit, Unit};

/// Instants are sixteenths of a cycle since the bucket was made: fine enough for 100 Gbit/s, and enough for twelve
/// years.
const TICKS_PER_CYCLE: u64 = 16;

/// Fraction bits of [`Bucket::token`].
const FRACTION: u32 = 20;

/// A token bucket. See the module.
#[derive(Debug)]
pub struct Bucket {
    limit: Limit,
    /// Ticks that the refill of a token takes, with [`FRACTION`] bits of a fraction.
    token: u64,
    /// Ticks that the refill of the whole bucket takes.
    depth: u64,
    /// Cycle counter when the bucket was made.
    epoch: u64,
    /// When the bucket will be full.
    full_at: AtomicU64,
}

impl Bucket {
    /// A full bucket.
    pub fn new(limit: Limit) -> Self {
        Self::at(limit, clock::frequency(), clock::cycles())
    }

    /// A full bucket at `now` of a clock with `hz` cycles a second.
    fn at(limit: Limit, hz: u64, now: u64) -> Self {
        let rate_per_token = match limit.unit {
            Unit::Bits => 8,
            Unit::Packets => 1,
        };
        let ticks_per_second = u128::from(hz) * u128::from(TICKS_PER_CYCLE);
        // Rounded up: never more than the rate.
        let token = ((ticks_per_second * rate_per_token) << FRACTION).div_ceil(limit.rate.max(1).into());
        let token = u64::try_from(token).unwrap_or(u64::MAX);
        Self { limit, token, depth: ticks(token, limit.burst()), epoch: now, full_at: AtomicU64::new(0) }
    }

    /// The limit that it enforces.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The tokens that a packet of `len` bytes needs.
    #[inline]
    pub fn cost(&self, len: u32) -> u64 {
        match self.limit.unit {
            Unit::Bits => len.into(),
            Unit::Packets => 1,
        }
    }

    /// Takes the tokens of several packets at once, or none.
    #[inline]
    pub fn take(&self, now: u64, tokens: u64) -> bool {
        self.take_above(now, tokens, 0)
    }

    /// Takes a packet's tokens, or none. For a packet longer than the burst, a full bucket suffices.
    #[inline]
    pub fn take_packet(&self, now: u64, len: u32) -> bool {
        self.take_packet_above(now, len, 0)
    }

    /// [`Bucket::take`] that leaves a reserve of so many tokens.
    #[inline]
    pub fn take_above(&self, now: u64, tokens: u64, reserve: u64) -> bool {
        let needed = ticks(self.token, tokens.saturating_add(reserve));
        needed <= self.depth && self.advance(now, ticks(self.token, tokens), needed)
    }

    /// [`Bucket::take_packet`] that leaves a reserve of so many tokens; a full bucket suffices here, too.
    #[inline]
    pub fn take_packet_above(&self, now: u64, len: u32, reserve: u64) -> bool {
        let cost = self.cost(len);
        let needed = ticks(self.token, cost.saturating_add(reserve));
        self.advance(now, ticks(self.token, cost), needed.min(self.depth))
    }

    /// Takes tokens whether they are there or not: nothing else is taken until the debt is paid back.
    #[inline]
    pub fn charge(&self, now: u64, tokens: u64) {
        self.advance(now, ticks(self.token, tokens), 0);
    }

    /// Gives back tokens that were taken.
    #[inline]
    pub fn refund(&self, tokens: u64) {
        let ticks = ticks(self.token, tokens);
        let give = |full_at: u64| Some(full_at.saturating_sub(ticks));
        // The function always returns a value.
        let _ = self.full_at.fetch_update(Relaxed, Relaxed, give);
    }

    /// Whether [`Bucket::take_packet`] would succeed.
    pub fn has_for_packet(&self, now: u64, len: u32) -> bool {
        let needed = ticks(self.token, self.cost(len)).min(self.depth);
        let now = now.saturating_sub(self.epoch).saturating_mul(TICKS_PER_CYCLE);
        self.full_at.load(Relaxed).saturating_sub(now).saturating_add(needed) <= self.depth
    }

    /// When the bucket holds a token, on the cycle counter: a time that has passed if it does now. For users that take
    /// by [`Bucket::charge`], so that a packet may leave as long as there is any token.
    #[inline]
    pub fn opens_at(&self) -> u64 {
        let ticks = self.full_at.load(Relaxed).saturating_sub(self.depth);
        self.epoch.saturating_add(ticks / TICKS_PER_CYCLE).saturating_add(u64::from(ticks > 0))
    }

    /// Tokens that the bucket holds, rounded up: more than 0 if it [is open](Bucket::opens_at).
    #[inline]
    pub fn level(&self, now: u64) -> u64 {
        let now = now.saturating_sub(self.epoch).saturating_mul(TICKS_PER_CYCLE);
        let ahead = self.full_at.load(Relaxed).saturating_sub(now);
        let ticks = u128::from(self.depth.saturating_sub(ahead)) << FRACTION;
        u64::try_from(ticks.div_ceil(u128::from(self.token.max(1)))).unwrap_or(u64::MAX)
    }

    /// Moves the instant of being full by `ticks` if at least `needed` of them are available.
    #[inline]
    fn advance(&self, now: u64, ticks: u64, needed: u64) -> bool {
        let now = now.saturating_sub(self.epoch).saturating_mul(TICKS_PER_CYCLE);
        let mut full_at = self.full_at.load(Relaxed);
        loop {
            let ahead = full_at.saturating_sub(now);
            if needed > 0 && ahead.saturating_add(needed) > self.depth {
                return false;
            }
            let next = full_at.max(now).saturating_add(ticks);
            match self.full_at.compare_exchange_weak(full_at, next, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(other) => full_at = other,
            }
        }
    }
}

/// The refill time of `tokens`, rounded up.
#[inline]
fn ticks(token: u64, tokens: u64) -> u64 {
    let ticks = (u128::from(token) * u128::from(tokens)).div_ceil(1 << FRACTION);
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HZ: u64 = 3_000_000_000;

    fn limit(unit: Unit, rate: u64, burst: u64) -> Limit {
        Limit { unit, rate, burst: Some(burst) }
    }

    #[test]
    fn a_burst_then_the_rate() {
        let bucket = Bucket::at(limit(Unit::Packets, 1000, 10), HZ, 5);
        assert!((0..20).all(|_| bucket.has_for_packet(5, 60)), "asking takes nothing");
        assert_eq!((0..20).filter(|_| bucket.take_packet(5, 60)).count(), 10);
        assert!(!bucket.has_for_packet(5, 60));
        let ms = HZ / 1000;
        // A packet each millisecond from now on, give or take the rounding.
        let passed = (1..=100).filter(|i| bucket.take_packet(5 + i * ms + 1, 60)).count();
        assert!((99..=100).contains(&passed), "{passed}");
        // A pause fills it, but not beyond the burst.
        assert_eq!((0..20).filter(|_| bucket.take_packet(HZ * 60, 60)).count(), 10);
    }

    #[test]
    fn a_user_that_charges_while_it_is_open_gets_the_rate() {
        // 8 Mbit/s: a byte a microsecond.
        let bucket = Bucket::at(limit(Unit::Bits, 8_000_000, 3000), HZ, 7);
        let (mut now, mut sent) = (7, 0u64);
        while now < 7 + HZ {
            while bucket.opens_at() <= now {
                bucket.charge(now, 1514);
                sent += 1514;
            }
            let opens = bucket.opens_at();
            assert!(opens > now);
            now = opens;
        }
        assert!((1_000_000..=1_000_000 + 3000 + 1514).contains(&sent), "{sent}");
        assert!(bucket.level(now) <= 1);
        assert!((999..=1001).contains(&bucket.level(now + HZ / 1000)), "{}", bucket.level(now + HZ / 1000));
        assert_eq!(bucket.level(now + HZ), 3000);
    }

    #[test]
    fn several_are_taken_together_or_not_at_all() {
        let bucket = Bucket::at(limit(Unit::Bits, 8_000_000, 3000), HZ, 0);
        assert!(!bucket.take(0, 3001));
        assert!(bucket.take(0, 2000));
        assert!(!bucket.take(0, 2000));
        assert!(bucket.take(0, 1000));
        assert!(!bucket.take_packet(0, 60));
    }

    #[test]
    fn a_packet_longer_than_the_burst_passes_and_is_paid_back() {
        let bucket = Bucket::at(limit(Unit::Bits, 8_000_000, 1500), HZ, 0);
        assert!(!bucket.take(0, 64_000), "not together with others");
        assert!(bucket.take_packet(0, 64_000));
        // 62,500 bytes of debt at 1 MB/s.
        assert!(!bucket.take_packet(HZ / 1000 * 62, 60));
        assert!(bucket.take_packet(HZ / 1000 * 63, 60));
        assert!(!bucket.take_packet(HZ / 1000 * 63, 64_000), "only when it is full");
    }

    #[test]
    fn extremes_do_not_overflow() {
        for (rate, burst) in [(1, u64::MAX), (u64::MAX, 1), (0, 0), (1, 1)] {
            for unit in [Unit::Bits, Unit::Packets] {
                let bucket = Bucket::at(limit(unit, rate, burst), HZ, 0);
                assert!(bucket.take_packet(0, 65_535));
                bucket.take_packet(u64::MAX, 65_535);
                bucket.take(u64::MAX, u64::MAX);
            }
        }
    }

    #[test]
    fn workers_together_take_no_more_than_one_bucket() {
        let bucket = Bucket::at(limit(Unit::Packets, 1, 10_000), HZ, 0);
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..5000).filter(|_| bucket.take_packet(0, 60)).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 10_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn never_more_than_rate_times_time_and_a_burst(
            bits: bool,
            rate in prop_oneof![1u64..2000, 1_000u64..100_000_000_000],
            burst in 1u64..200_000,
            start: u32,
            steps in prop::collection::vec((0u64..50_000_000, 1u32..3000, any::<bool>()), 1..300),
        ) {
            let unit = if bits { Unit::Bits } else { Unit::Packets };
            let bucket = Bucket::at(limit(unit, rate, burst), HZ, start.into());
            let per_second = if bits { rate as f64 / 8.0 } else { rate as f64 };
            let mut now = u64::from(start);
            // Passed before each instant that a stretch may begin at.
            let mut passed = Vec::new();
            let mut total = 0;
            for (pause, len, together) in steps {
                now += pause;
                // At most the burst: longer packets have their own test.
                let len = len.min(u32::try_from(burst).unwrap());
                let cost = bucket.cost(len);
                passed.push((now, total));
                total += if together {
                    [cost * 3, cost].into_iter().find(|tokens| bucket.take(now, *tokens)).unwrap_or(0)
                } else {
                    u64::from(bucket.take_packet(now, len)) * cost
                };
                for (since, before) in &passed {
                    let allowed = per_second * (now - since) as f64 / HZ as f64 + burst as f64;
                    prop_assert!((total - before) as f64 <= allowed + 1e-3);
                }
            }
        }

        #[test]
        fn a_sender_that_waits_gets_its_rate(
            // A bucket that holds the packets between two steps: 40 at most.
            rate in 1_000u64..200_000, burst in 51u64..1000, seconds in 1u64..3,
        ) {
            let bucket = Bucket::at(limit(Unit::Packets, rate, burst), HZ, 0);
            let steps = 5_000u64;
            let passed: u64 = (0..steps * seconds)
                .map(|step| {
                    let now = step * (HZ / steps);
                    let mut n = 0;
                    while bucket.take_packet(now, 60) {
                        n += 1;
                    }
                    n
                })
                .sum();
            // The last step comes a step before the end.
            let expected = rate * seconds - rate / steps;
            prop_assert!(passed * 1000 >= expected * 999, "{} of {}", passed, expected);
        }
    }
}
