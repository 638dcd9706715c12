//! The logic `openflow`: an OpenFlow switch on the fabric.
#![forbid(unsafe_code)]

mod ports;

use std::sync::Arc;

use fabric::{Batch, Injector, PortIndex, PortSettings, SwitchLogic};
use logic::Logic;
use ofagent::SharedSwitch;
use openflow::PortNo;

pub use ports::{NumberedPort, PortFacts};

/// Reasons why the logic cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No thread.
    #[error("the thread for controllers' packets does not start: {0}")]
    Thread(#[from] std::io::Error),
}

/// The logic `openflow`.
pub struct OpenFlow {
    switch: Arc<SharedSwitch>,
}

impl OpenFlow {
    /// Makes the logic, without ports and flows.
    ///
    /// # Errors
    /// Its thread does not start.
    pub fn new(settings: ofswitch::Settings) -> Result<Arc<Self>, StartError> {
        let switch = SharedSwitch::new(ofswitch::Switch::new(settings), |_| {});
        Ok(Arc::new(Self { switch }))
    }

    /// The OpenFlow switch, for an [`ofagent::Agent`] and for commands.
    pub fn switch(&self) -> &Arc<SharedSwitch> {
        &self.switch
    }

    /// Sets how packets of controllers reach ports: the bridge's injector ([`fabric::Switch::injector`]).
    pub fn set_injector(&self, _injector: Injector) {}

    /// Makes the bridge forward like a learning switch, past its flows (fail mode `standalone`), or no more.
    pub fn set_standalone(&self, _standalone: bool) {}

    /// Whether the bridge forwards like a learning switch.
    pub fn is_standalone(&self) -> bool {
        false
    }

    /// Tells what the control plane knows of ports. To be called whenever links or addresses change, and after a port is
    /// added: a port without facts is down, and has the lowest free number. Ports that are not named keep theirs.
    pub fn set_ports(&self, _facts: &[PortFacts]) {}

    /// Sets where statistics of ports come from: usually [`fabric::Switch::counters`]. Called when a controller asks, under
    /// the switch's lock: it must not use [`OpenFlow::switch`].
    pub fn set_statistics(
        &self,
        _source: impl Fn(PortIndex) -> Option<fabric::switch::PortSnapshot> + Send + Sync + 'static,
    ) {
    }

    /// The ports with their numbers.
    pub fn ports(&self) -> Vec<NumberedPort> {
        Vec::new()
    }

    /// The port with a number.
    pub fn port(&self, _number: PortNo) -> Option<PortIndex> {
        None
    }
}

impl SwitchLogic for OpenFlow {
    fn forward(&self, _batch: &mut Batch<'_>) {}

    fn ports_changed(&self, _ports: &[(PortIndex, Arc<PortSettings>)]) {}
}

impl Logic for OpenFlow {
    fn name(&self) -> &str {
        "openflow"
    }

    fn params(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}
