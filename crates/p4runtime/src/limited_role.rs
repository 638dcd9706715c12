//! Limits of a role: its access to entities, and its part of the messages on the stream.
//!
//! Invariant: a stream of a limited role receives no packet, digest or idle entry that the limits do not name.

use std::time::Instant;

use p4runtime_proto::P4Info;
use p4runtime_proto::v1::stream_message_response::Update;
use p4runtime_proto::v1::{IdleTimeoutNotification, StreamMessageResponse};
use p4switch::{Access, ObjectKind};

/// Limits of a role.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LimitedRole {
    /// Entities that it may write, of which it also receives digests and idle timeouts.
    pub access: Access,
    /// Whether it receives packets and may send some.
    pub packets: bool,
    /// Most packets a second that it receives; `None` is unlimited.
    pub packet_rate: Option<u32>,
}

/// A role's part of a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Whole,
    Some(Box<StreamMessageResponse>),
    Nothing,
}

impl LimitedRole {
    /// Returns the role's part of a message of the device.
    pub(crate) fn part(&self, message: &StreamMessageResponse, info: &P4Info) -> Part {
        let whole = |is_it: bool| if is_it { Part::Whole } else { Part::Nothing };
        let has = |kind, id| self.access.has(info, kind, id);
        match &message.update {
            Some(Update::Packet(_)) => whole(self.packets),
            Some(Update::Digest(list)) => whole(has(ObjectKind::Digest, list.digest_id)),
            Some(Update::IdleTimeoutNotification(idle)) => {
                let own = idle.table_entry.iter().filter(|entry| has(ObjectKind::Table, entry.table_id));
                let table_entry: Vec<_> = own.cloned().collect();
                if table_entry.is_empty() {
                    return Part::Nothing;
                }
                let idle = IdleTimeoutNotification { table_entry, timestamp: idle.timestamp };
                let update = Some(Update::IdleTimeoutNotification(idle));
                Part::Some(Box::new(StreamMessageResponse { update }))
            }
            _ => Part::Whole,
        }
    }
}

/// Token bucket of a role's packets: up to those of a second at once.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: u32,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// Makes a full bucket.
    pub(crate) fn new(rate: u32, now: Instant) -> Self {
        Self { rate, tokens: rate.into(), filled: now }
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let rate = f64::from(self.rate);
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + since * rate).min(rate);
        self.filled = now;
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_has_the_packets_of_a_second() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, start);
        let taken = |bucket: &mut Bucket, ms| {
            let now = start + Duration::from_millis(ms);
            (0..100).filter(|_| bucket.take(now)).count()
        };
        assert_eq!(taken(&mut bucket, 0), 10);
        assert_eq!(taken(&mut bucket, 250), 2);
        assert_eq!(taken(&mut bucket, 300), 1);
        assert_eq!(taken(&mut bucket, 60_000), 10);
    }
}
