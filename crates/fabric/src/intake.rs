//! A receive queue in a worker's hands, and where its packets belong.

use std::sync::Arc;

use crate::bridge_cell::BridgeCell;
use crate::counters::QueueCounters;
use crate::fault::OnFault;
use crate::port::PortIndex;
use crate::rx::RxQueue;

/// A receive queue and where its packets belong.
pub(crate) struct Intake {
    pub(crate) queue: Box<dyn RxQueue>,
    pub(crate) bridge: Arc<BridgeCell>,
    pub(crate) ingress: PortIndex,
    /// Its number in its port.
    pub(crate) number: u16,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) on_fault: OnFault,
    /// Names it among all queues of the switch.
    pub(crate) token: u64,
    /// Its client broke the rules: it is not used again, on whatever worker it is.
    pub(crate) dead: bool,
}
