//! Alarms: a logic that wants to be called now and then has one at every worker, a timer that wakes it as a queue does.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::bridge_cell::BridgeCell;
use crate::counters::QueueCounters;

/// Lets a bridge's logic know that its time has come.
pub(crate) struct Alarm {
    /// Becomes readable then.
    pub(crate) timer: OwnedFd,
    pub(crate) bridge: Arc<BridgeCell>,
    /// Of packets that went nowhere.
    pub(crate) counters: Arc<QueueCounters>,
    token: u64,
}

impl Alarm {
    /// One that goes off every `period`.
    pub(crate) fn every(
        period: Duration,
        bridge: Arc<BridgeCell>,
        counters: Arc<QueueCounters>,
        token: u64,
    ) -> std::io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let period = Timespec { tv_sec: period.as_secs() as i64, tv_nsec: i64::from(period.subsec_nanos()) };
        let times = Itimerspec { it_interval: period, it_value: period };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
        Ok(Self { timer, bridge, counters, token })
    }

    /// Tells the alarms of one logic from those of others.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }
}
