//! `hub`: every packet goes to every other port of its VLAN. It learns and remembers nothing.
//!
//! It repeats as classic hubs did (IEEE 802.3 §9), VLAN by VLAN, and a repeater has no addresses of its own: frames
//! addressed to bridges (IEEE 802.1Q table 8-1) pass like all others, so that link protocols work through it. It knows
//! no stations either: no packet is flooded because its station is unknown, so storm control's limit on unknown
//! unicasts does not apply here. Its limits on broadcasts and multicasts do, as in every bridge.

use std::sync::Arc;

use fabric::{Batch, SwitchLogic, Value};
use packet::ether;

use crate::security::admits;
use crate::vlan::Vlans;
use crate::{Logic, LogicError, LogicInfo, params};

pub(crate) const INFO: LogicInfo = LogicInfo {
    name: "hub",
    summary: "a repeater: every packet goes to every other port of its VLAN",
    params: Vec::new,
    build: |params, _| Ok(Arc::new(Hub::new(params)?)),
};

/// The logic `hub`. See the module's documentation.
#[derive(Debug)]
pub struct Hub(());

impl Hub {
    /// Makes the logic, which has no parameters.
    pub fn new(given: &[(String, String)]) -> Result<Self, LogicError> {
        params::check(&INFO.describe(), given)?;
        Ok(Self(()))
    }

    #[inline(always)]
    fn switch<const EXPLAINED: bool>(&self, batch: &mut Batch<'_>) {
        let vlans = Vlans::of(batch);
        let security = batch.security();
        for v in batch.packets() {
            if let Some(security) = security
                && !ether::addresses(batch.header(v)).is_some_and(|(_, src)| admits(security, batch, v, src))
            {
                continue;
            }
            let Some(frame) = vlans.enter(batch, v) else { continue };
            if EXPLAINED {
                match frame.vid {
                    0 => batch.remark(v, "it goes to every other port", &[]),
                    vid => batch.remark(
                        v,
                        "it goes to every other port of VLAN {}",
                        &[Value::Number(vid.into())],
                    ),
                }
            }
            frame.flood(batch);
        }
    }
}

impl SwitchLogic for Hub {
    fn forward(&self, batch: &mut Batch<'_>) {
        self.switch::<false>(batch);
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        self.switch::<true>(batch);
        true
    }
}

impl Logic for Hub {
    fn name(&self) -> &str {
        INFO.name
    }

    fn params(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}
