//! Alarms: call a logic at intervals, on every worker.

use std::sync::Arc;
use std::time::Duration;

use super::{Context, Next, Ran, Token};
use crate::bridge::published::PublishedBridge;
use crate::clock;
use crate::counters::QueueCounters;
use crate::decide::forward::originate;

/// Calls a bridge's logic periodically.
pub(crate) struct Alarm {
    /// In cycles.
    period: u64,
    due: u64,
    bridge: Arc<PublishedBridge>,
    /// Counts packets that went nowhere.
    counters: Arc<QueueCounters>,
    token: Token,
}

impl Alarm {
    /// An alarm that goes off every `period` from now on.
    pub(crate) fn every(
        period: Duration,
        bridge: Arc<PublishedBridge>,
        counters: Arc<QueueCounters>,
        token: Token,
    ) -> Self {
        let period = clock::from_duration(period).max(1);
        Self { period, due: clock::cycles().saturating_add(period), bridge, counters, token }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Time of the next alarm.
    pub(crate) fn due(&self) -> u64 {
        self.due
    }

    /// Calls the logic. A worker that is whole periods late calls it once.
    #[cold]
    pub(crate) fn run(&mut self, context: &mut Context, now: u64) -> Ran {
        // SAFETY: the worker that runs this is awake, and `bridge` does not outlive this function.
        let bridge = unsafe { self.bridge.get() };
        context.tools.activity.leave();
        context.batch.clear();
        context.batch.queue = 0;
        context.load_for(bridge);
        let Context { batch, pad, tools, .. } = context;
        originate(batch, pad, tools, bridge, |batch| bridge.logic.wake(batch));
        self.counters.add_drops(&mut context.pad.drops);
        let late = now.saturating_sub(self.due) / self.period;
        self.due = self.due.saturating_add(self.period.saturating_mul(late.saturating_add(1)));
        Ran { packets: 0, next: Next::At(self.due) }
    }
}
