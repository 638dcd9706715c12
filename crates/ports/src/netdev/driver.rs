//! Drivers: ways to exchange packets with an interface. A driver is a folder here, a value of [`Driver`] and an arm of
//! [`open`].

use std::sync::Arc;

use fabric::{Caps, Egress, RxQueue};

use super::af_packet::{self, Stall};
use super::af_xdp;
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
    /// The driver's name and, in words, its mode.
    pub(super) driver: String,
    /// Reason for the choice of the driver.
    pub(super) reason: String,
    /// The interface for those who have an XDP program for it, while its driver has one.
    pub(super) xdp: Option<Arc<dyn xsk::Interface>>,
}

/// Counters that the kernel keeps for a driver, and limits of its queues.
pub(super) trait Statistics: Send {
    /// Returns packets that the kernel dropped for lack of room since the last call.
    fn dropped(&self) -> u64;

    /// Returns the reason if the queues receive nothing any more, which no notification announces.
    fn lost(&self) -> Option<&'static str> {
        None
    }

    /// Returns whether the queues take packets of this MTU.
    fn fits(&self, _mtu: u32) -> bool {
        true
    }
}

/// Opens an interface that is up.
pub(super) fn open(
    namespace: &Arc<Namespace>,
    interface: &Interface,
    options: &Options,
    stall: &Arc<Stall>,
    runtime: &tokio::runtime::Handle,
) -> Result<Opened, OpenError> {
    stall.acknowledge();
    let packet = || af_packet::open(namespace, interface, options.queues, stall);
    let xdp = |mode| af_xdp::open(namespace, interface, mode, options.busy_poll, runtime);
    let with = |reason: String| move |opened: Opened| Opened { reason, ..opened };
    match options.driver {
        Driver::AfPacket => packet().map(with("as configured".into())),
        Driver::AfXdp => xdp(None).map(with("as configured".into())),
        Driver::Auto if interface.kind.is_empty() => match xdp(Some(xsk::Mode::Native)) {
            Ok(opened) => Ok(with("chosen by auto: the card's driver supports native XDP".into())(opened)),
            Err(error) => packet().map(with(format!("chosen by auto: no af-xdp, {}", error.0))),
        },
        Driver::Auto => {
            let kind = &interface.kind;
            packet().map(with(format!("chosen by auto: {kind} interfaces carry large segments uncut")))
        }
    }
}
