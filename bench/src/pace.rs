//! When the next packet is due.
//!
//! Invariant: what was missed while the thread did not run is made up for by at most `CATCH_UP` packets, so that a
//! switch is never hit by a burst that its rings cannot hold.

use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::shape::SpecError;

/// The most packets that fall due at once.
const CATCH_UP: f64 = 64.0;

/// How fast each port sends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// As fast as the switch takes packets.
    Max,
    /// Half of what was received per second when sending as fast as possible, which is tried out first.
    Half,
    /// So many packets a second.
    Pps(f64),
}

impl FromStr for Rate {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Rate, SpecError> {
        match text {
            "max" => Ok(Rate::Max),
            "half" => Ok(Rate::Half),
            number => match number.parse::<f64>() {
                Ok(pps) if pps > 0.0 && pps.is_finite() => Ok(Rate::Pps(pps)),
                _ => Err(SpecError::new(text, "`max`, `half`, or packets a second above 0")),
            },
        }
    }
}

/// Hands out packets that are due, for one port.
#[derive(Debug)]
pub struct Pacer {
    /// Packets a second; `None` for no limit.
    pps: Option<f64>,
    due: f64,
    last: Instant,
}

impl Pacer {
    /// A pacer that starts now.
    pub fn new(pps: Option<f64>) -> Pacer {
        Pacer { pps, due: 0.0, last: Instant::now() }
    }

    /// How many packets may be sent now, at most `most`.
    pub fn due(&mut self, now: Instant, most: usize) -> usize {
        let Some(pps) = self.pps else { return most };
        self.due = (self.due + now.duration_since(self.last).as_secs_f64() * pps).min(CATCH_UP);
        self.last = now;
        (self.due as usize).min(most)
    }

    /// So many were sent.
    pub fn sent(&mut self, count: usize) {
        self.due -= count as f64;
    }

    /// How long until the next packet is due.
    pub fn wait(&self) -> Duration {
        match self.pps {
            Some(pps) => Duration::from_secs_f64(((1.0 - self.due) / pps).max(0.0)),
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_rate_and_catches_up_a_little() {
        let mut pacer = Pacer::new(Some(1000.0));
        let start = pacer.last;
        let mut sent = 0;
        for ms in 0..=500 {
            let due = pacer.due(start + Duration::from_millis(ms), 32);
            pacer.sent(due);
            sent += due;
        }
        assert!((499..=500).contains(&sent), "{sent}");
        assert!(pacer.wait() <= Duration::from_millis(1));
        assert_eq!(pacer.due(start + Duration::from_secs(60), 1000), 64);
    }

    #[test]
    fn rates_are_read() {
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert_eq!("half".parse(), Ok(Rate::Half));
        assert_eq!("1e6".parse(), Ok(Rate::Pps(1e6)));
        for wrong in ["", "0", "-1", "inf", "nan", "fast"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
