//! How many frames of a link protocol a port may hand to the control side: a neighbour that sends more loses its own,
//! and those of other ports find room.
//!
//! For LACP and spanning trees, whose neighbours send a few frames a second (IEEE 802.1AX §6.4.16, IEEE 802.1D-2004
//! §17.13.12).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Frames in a second of the clock.
pub(crate) const MOST: u32 = 64;

/// The frames of a port in the current second: the second, and their number. Workers share it.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicU64);

impl Pace {
    /// Whether one more frame may be handed over in this second; if so, it counts.
    pub(crate) fn admits(&self, second: u32) -> bool {
        let one_more = |found: u64| {
            let (at, frames) = ((found >> 32) as u32, found as u32);
            let frames = if at == second { frames } else { 0 };
            (frames < MOST).then(|| u64::from(second) << 32 | u64::from(frames + 1))
        };
        self.0.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_admits_so_many_frames() {
        let pace = Pace::default();
        for second in [0, 7, 8] {
            assert_eq!((0..3 * MOST).filter(|_| pace.admits(second)).count(), MOST as usize);
        }
    }
}
