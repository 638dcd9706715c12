//! Limit on the memory that the switch allocates by touching pages of a port's clients first.

use std::sync::{Mutex, PoisonError};

use clientmem::{Exhausted, FirstTouch};

use crate::faults::Limit;
use crate::size::Size;

/// Cause of such a fault on the client's side.
const UNTOUCHED: &str = "and the client's memory has untouched pages";

/// The limit of a port, and the count for its current or last client.
#[derive(Debug)]
pub(crate) struct FirstTouchLimit {
    limit: u64,
    client: Mutex<Option<FirstTouch>>,
}

impl FirstTouchLimit {
    /// Makes a port's limit; without a value, the default one.
    pub(crate) fn new(limit: Option<Size>) -> Self {
        let limit = limit.map_or_else(FirstTouch::default_limit, |Size(limit)| limit);
        Self { limit, client: Mutex::new(None) }
    }

    /// Starts the count of another client.
    pub(crate) fn next_client(&self) -> FirstTouch {
        let count = FirstTouch::new(self.limit);
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(count.clone());
        count
    }

    fn client(&self) -> Option<FirstTouch> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the detail for `port show`.
    pub(crate) fn fact(&self) -> (String, String) {
        let (client, limit) = (self.client(), Size(self.limit));
        let value = match client.as_ref().and_then(FirstTouch::uncounted) {
            Some(why) => format!("not counted: userfaultfd is unavailable ({why})"),
            None => format!("{} of {limit}", Size(client.map_or(0, |client| client.made()))),
        };
        ("first-touch".into(), value)
    }

    /// Returns the limit, if the client has reached it.
    pub(crate) fn reached(&self) -> Option<Limit> {
        let exhausted = self.client()?.exhausted()?;
        matches!(exhausted, Exhausted::Limit)
            .then_some(Limit { option: "first-touch-limit", value: self.limit })
    }

    /// Returns the reason for treating the client's memory as taken away, if its allocations are the reason.
    pub(crate) fn reason(&self) -> Option<String> {
        Some(match self.client()?.exhausted()? {
            Exhausted::Limit => format!(
                "the switch allocated {} of the client's memory by touching it first, the limit (first-touch-limit)",
                Size(self.limit)
            ),
            Exhausted::Cgroup => {
                format!("the switch's memory cgroup has less than an eighth of its limit left, {UNTOUCHED}")
            }
            Exhausted::Machine => format!("the machine has less than 1/64 of its memory left, {UNTOUCHED}"),
        })
    }
}
