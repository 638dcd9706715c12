//! Packets that `sample` actions choose: given to the control plane's sampler where they are processed, on workers.

use fabric::PortIndex;
use fabric::worker::Threads;
use ofswitch::Sample;
use openflow::PortNo;
use openflow::action::SampleDirection;
use openflow::multipart::IpfixStats;

use crate::ports::PortMap;

/// Bytes of a packet from no worker that a sampler sees at most: as many as workers have at hand.
pub(crate) const FRONT: usize = 128;

/// Takes packets that `sample` actions choose, and tells of IPFIX.
pub trait Sampler: Send + Sync {
    /// Prepares the sampler for these threads: called before each of them takes part.
    fn prepare(&self, threads: Threads);

    /// Takes a packet on worker `thread`, or on another thread. On a worker it must not block, allocate, or wait.
    fn sample(&self, thread: Option<usize>, sample: &Sampled<'_>);

    /// Statistics of the IPFIX export of the bridge's packets; `None`: it has none. Called under the switch's lock.
    fn bridge_statistics(&self) -> Option<IpfixStats>;

    /// Statistics of the IPFIX exports of sampled packets. Called under the switch's lock.
    fn set_statistics(&self) -> Vec<IpfixStats>;
}

/// A packet that a `sample` action chose.
#[derive(Debug, Clone, Copy)]
pub struct Sampled<'a> {
    /// The action's set of collectors.
    pub collectors: u32,
    /// The action's observation domain.
    pub domain: u32,
    /// The action's observation point.
    pub point: u32,
    /// Packets that are sampled, of 65,536.
    pub probability: u16,
    /// The port that it came from, or [`PortIndex::NONE`].
    pub ingress: PortIndex,
    /// The port that the action names.
    pub port: Option<PortIndex>,
    /// Whether it is observed where it leaves, if the action says so.
    pub is_egress: Option<bool>,
    /// Its front, as received.
    pub front: &'a [u8],
    /// Its length.
    pub length: u32,
}

impl<'a> Sampled<'a> {
    pub(crate) fn new(
        sample: &Sample,
        ingress: PortIndex,
        ports: &PortMap,
        front: &'a [u8],
        length: u32,
    ) -> Self {
        let port = match sample.port {
            PortNo::ANY => None,
            PortNo::IN_PORT => Some(ingress),
            port => ports.index(port.0),
        };
        let is_egress = match sample.direction {
            SampleDirection::Default => None,
            SampleDirection::Ingress => Some(false),
            SampleDirection::Egress => Some(true),
        };
        let Sample { collectors, domain, point, probability, .. } = *sample;
        Self { collectors, domain, point, probability, ingress, port, is_egress, front, length }
    }
}
