//! `dummy`: sends everything from one port of a pair to the other, unread. Ports 0 and 1 are a pair by their indexes, 2
//! and 3, and so on. It shows the cost of the fabric without a decision (the "dummy module" of mSwitch's figures).
//!
//! It reads no packet: neither VLANs nor port security apply.

use std::sync::Arc;

use fabric::{Batch, PortIndex, SwitchLogic, Value};

use crate::{Logic, LogicError, LogicInfo, params};

pub(crate) const INFO: LogicInfo = LogicInfo {
    name: "dummy",
    summary: "for measurements: wires ports 0 and 1, 2 and 3, and so on, ignoring VLANs and addresses",
    params: Vec::new,
    build: |params, _| Ok(Arc::new(Dummy::new(params)?)),
};

/// The logic `dummy`. See the module's documentation.
#[derive(Debug)]
pub struct Dummy(());

impl Dummy {
    /// Makes the logic, which has no parameters.
    pub fn new(given: &[(String, String)]) -> Result<Self, LogicError> {
        params::check(&INFO.describe(), given)?;
        Ok(Self(()))
    }
}

impl SwitchLogic for Dummy {
    fn forward(&self, batch: &mut Batch<'_>) {
        batch.send_all(PortIndex(batch.ingress().0 ^ 1));
    }

    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        let to = PortIndex(batch.ingress().0 ^ 1);
        for v in batch.packets() {
            batch.remark(v, "the other port of its pair is {}", &[Value::Port(to)]);
        }
        self.forward(batch);
        true
    }
}

impl Logic for Dummy {
    fn name(&self) -> &str {
        INFO.name
    }

    fn params(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}
