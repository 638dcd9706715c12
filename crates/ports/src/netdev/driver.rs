//! Drivers: ways to exchange packets with an interface. A driver is a folder here, a value of [`options::Driver`] and
//! an arm of [`open`].

use std::sync::Arc;

use fabric::{Caps, Egress, RxQueue};

use super::af_packet;
use super::links::{Interface, Namespace};
use super::options::{Driver, Options};
use crate::OpenError;

/// Queues of an interface, and the driver behind them.
pub(super) struct Opened {
    pub(super) rx: Vec<Box<dyn RxQueue>>,
    pub(super) tx: Vec<Arc<dyn Egress>>,
    /// Work that packets may have left when they are sent.
    pub(super) caps: Caps,
    /// Reads the kernel's counters, as long as the port is attached.
    pub(super) statistics: Box<dyn Statistics>,
}

/// Counters that the kernel keeps for a driver.
pub(super) trait Statistics: Send {
    /// Returns packets that the kernel dropped for lack of room since the last call.
    fn dropped(&self) -> u64;
}

/// Returns the driver that `auto` stands for at this interface, and the reason.
pub(super) fn chosen(driver: Driver) -> (Driver, &'static str) {
    match driver {
        Driver::Auto => (Driver::AfPacket, "chosen by auto: any interface, large segments uncut"),
        Driver::AfPacket => (driver, "as configured"),
    }
}

/// Returns a driver's name, as users write it.
pub(super) fn name(driver: Driver) -> &'static str {
    match driver {
        Driver::Auto => "auto",
        Driver::AfPacket => "af-packet",
    }
}

/// Opens an interface that is up.
pub(super) fn open(
    namespace: &Arc<Namespace>,
    interface: &Interface,
    options: &Options,
) -> Result<Opened, OpenError> {
    match chosen(options.driver).0 {
        Driver::Auto | Driver::AfPacket => af_packet::open(namespace, interface, options.queues),
    }
}
