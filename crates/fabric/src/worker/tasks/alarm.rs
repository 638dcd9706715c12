//! Alarms: a logic that wants to be called now and then has one at every worker.

use std::sync::Arc;
use std::time::Duration;

use super::{Context, Next, Ran, Token};
use crate::bridge::cell::BridgeCell;
use crate::clock;
use crate::counters::QueueCounters;
use crate::decide::forward::originate;

/// Calls a bridge's logic every so often.
pub(crate) struct Alarm {
    /// In cycles.
    period: u64,
    due: u64,
    bridge: Arc<BridgeCell>,
    /// Of packets that went nowhere.
    counters: Arc<QueueCounters>,
    token: Token,
}

impl Alarm {
    /// One that goes off every `period` from now on.
    pub(crate) fn every(
        period: Duration,
        bridge: Arc<BridgeCell>,
        counters: Arc<QueueCounters>,
        token: Token,
    ) -> Self {
        let period = clock::from_duration(period).max(1);
        Self { period, due: clock::cycles().saturating_add(period), bridge, counters, token }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// When it goes off next.
    pub(crate) fn due(&self) -> u64 {
        self.due
    }

    /// Calls the logic. A worker that comes late by whole periods calls it once.
    #[cold]
    pub(crate) fn run(&mut self, context: &mut Context, now: u64) -> Ran {
        // SAFETY: the worker that runs this is awake and `bridge` does not outlive this function.
        let bridge = unsafe { self.bridge.get() };
        context.tools.site.leave();
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
