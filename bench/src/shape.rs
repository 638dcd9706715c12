//! Lengths of packets, and their division into pieces.
//!
//! Invariant: random lengths lie within [`MIN_LEN`] and [`MAX_LEN`], and a packet in pieces never takes more than
//! [`MAX_DESCRIPTORS`] descriptors.

use std::str::FromStr;

use crate::packet::{MAX_LEN, MIN_LEN};

/// The longest chain of descriptors that a switch must accept.
pub const MAX_DESCRIPTORS: usize = 64;

/// Error for a text that does not describe sizes, segments, a rate or the like.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct SpecError {
    /// The text.
    pub text: String,
    /// The expected form.
    pub expected: &'static str,
}

impl SpecError {
    /// Makes the error for this text.
    pub fn new(text: &str, expected: &'static str) -> SpecError {
        SpecError { text: text.to_string(), expected }
    }
}

/// Packet lengths in bytes: one of these ranges is chosen at random, then a length within it. `64`, `60-65535`,
/// `64,594,1500-9000`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(Vec<(usize, usize)>);

impl Sizes {
    /// Always this length, clamped to the valid range.
    pub fn fixed(length: usize) -> Sizes {
        let length = length.clamp(MIN_LEN, MAX_LEN);
        Sizes(vec![(length, length)])
    }

    /// Draws a length.
    pub fn draw(&self, random: &mut fastrand::Rng) -> usize {
        let range = match self.0.as_slice() {
            [one] => Some(one),
            many => random.choice(many),
        };
        match range {
            Some((low, high)) if low == high => *low,
            Some((low, high)) => random.usize(*low..=*high),
            None => MIN_LEN,
        }
    }

    /// Returns the longest length that can be drawn.
    pub fn longest(&self) -> usize {
        self.0.iter().map(|(_, high)| *high).max().unwrap_or(MIN_LEN)
    }
}

impl FromStr for Sizes {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Sizes, SpecError> {
        let wrong =
            || SpecError::new(text, "a list of lengths or ranges within 60 and 65535, such as 64,1500-9000");
        let ranges = text.split(',').map(|part| range(part, MIN_LEN, MAX_LEN).ok_or_else(wrong));
        Ok(Sizes(ranges.collect::<Result<_, _>>()?))
    }
}

/// Number of pieces of a packet: `1`, `4`, `1-64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    low: usize,
    high: usize,
}

impl Segments {
    /// Every packet in one piece.
    pub const ONE: Segments = Segments { low: 1, high: 1 };

    /// Draws the offsets at which a packet of `length` bytes is divided: `cuts` is cleared and filled in ascending
    /// order. Pieces have one byte or more; each takes a descriptor for every `buffer_size` bytes or part of it.
    pub fn draw(&self, random: &mut fastrand::Rng, length: usize, buffer_size: usize, cuts: &mut Vec<usize>) {
        cuts.clear();
        // A cut adds at most one descriptor to those that the length alone takes.
        let most = (MAX_DESCRIPTORS + 1).saturating_sub(length.div_ceil(buffer_size));
        let wanted = if self.low == self.high { self.low } else { random.usize(self.low..=self.high) };
        let pieces = wanted.min(most).min(length);
        while cuts.len() + 1 < pieces {
            // Every other cut is close to the front, where headers are and pieces become tiny.
            let until = if random.bool() { length } else { length.min(128) };
            let at = random.usize(1..until);
            match cuts.binary_search(&at) {
                Ok(_) => {
                    // The offset is taken: settle for fewer pieces rather than search forever.
                    if cuts.len() + 2 >= until {
                        break;
                    }
                }
                Err(place) => cuts.insert(place, at),
            }
        }
    }
}

impl FromStr for Segments {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Segments, SpecError> {
        let (low, high) = range(text, 1, MAX_DESCRIPTORS).ok_or_else(|| {
            SpecError::new(text, "a number or range of segments within 1 and 64, such as 1-64")
        })?;
        Ok(Segments { low, high })
    }
}

fn range(text: &str, min: usize, max: usize) -> Option<(usize, usize)> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
    (min <= low && low <= high && high <= max).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_drawn() {
        let mut random = fastrand::Rng::with_seed(1);
        let sizes: Sizes = "64,1500-1502".parse().unwrap();
        let drawn: Vec<_> = (0..200).map(|_| sizes.draw(&mut random)).collect();
        for expected in [64, 1500, 1501, 1502] {
            assert!(drawn.contains(&expected));
        }
        assert!(drawn.iter().all(|d| [64, 1500, 1501, 1502].contains(d)));
        assert_eq!(sizes.longest(), 1502);
        for wrong in ["", "59", "65536", "100-90", "a", "64,,65", "-64"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn cuts_stay_within_the_packet_and_the_chain() {
        let mut random = fastrand::Rng::with_seed(2);
        let segments: Segments = "1-64".parse().unwrap();
        let mut cuts = Vec::new();
        let mut most = 0;
        for (length, buffer_size) in [(60, 2048), (65535, 2048), (65535, 1040), (1500, 64), (4096, 64)] {
            for _ in 0..500 {
                segments.draw(&mut random, length, buffer_size, &mut cuts);
                assert!(cuts.is_sorted_by(|a, b| a < b));
                assert!(cuts.iter().all(|at| (1..length).contains(at)));
                let ends = cuts.iter().chain([&length]);
                let starts = std::iter::once(&0).chain(&cuts);
                let descriptors: usize = ends.zip(starts).map(|(e, s)| (e - s).div_ceil(buffer_size)).sum();
                assert!(descriptors <= MAX_DESCRIPTORS, "{length} {buffer_size}: {descriptors}");
                most = most.max(descriptors);
            }
        }
        assert_eq!(most, MAX_DESCRIPTORS);
        for wrong in ["0", "65", "4-2", ""] {
            assert!(wrong.parse::<Segments>().is_err(), "{wrong}");
        }
    }
}
