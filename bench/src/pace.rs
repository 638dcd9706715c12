//! Pacing: the time at which the next packet is due.
//!
//! Invariant: after a pause of the thread, at most `CATCH_UP` packets are due at once, so that no burst exceeds the
//! switch's rings.

use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::shape::SpecError;

/// Maximum number of packets that fall due at once.
const CATCH_UP: f64 = 64.0;

/// The rate at which each port sends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// As fast as the switch accepts packets.
    Max,
    /// Half of the receive rate at full speed, which is measured first.
    Half,
    /// This many packets per second.
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
                _ => Err(SpecError::new(text, "`max`, `half`, or a number of packets per second above 0")),
            },
        }
    }
}

/// Releases packets of one port as they fall due.
#[derive(Debug)]
pub struct Pacer {
    /// Packets per second; `None` for no limit.
    pps: Option<f64>,
    due: f64,
    last: Instant,
}

impl Pacer {
    /// Makes a pacer that starts now.
    pub fn new(pps: Option<f64>) -> Pacer {
        Pacer { pps, due: 0.0, last: Instant::now() }
    }

    /// Returns the number of packets that may be sent now, at most `most`.
    pub fn due(&mut self, now: Instant, most: usize) -> usize {
        let Some(pps) = self.pps else { return most };
        self.due = (self.due + now.duration_since(self.last).as_secs_f64() * pps).min(CATCH_UP);
        self.last = now;
        (self.due as usize).min(most)
    }

    /// Records that `count` packets were sent.
    pub fn sent(&mut self, count: usize) {
        self.due -= count as f64;
    }

    /// Returns the time until the next packet is due.
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
    fn rates_are_parsed() {
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert_eq!("half".parse(), Ok(Rate::Half));
        assert_eq!("1e6".parse(), Ok(Rate::Pps(1e6)));
        for wrong in ["", "0", "-1", "inf", "nan", "fast"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
