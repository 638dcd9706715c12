//! What interfaces are to be monitored by: BFD (column `bfd`) and CFM (column `cfm_mpid`, keys of `other_config`).

use oam::{bfd, cfm};
use ovsdb::vswitch::Interface;

/// How a port is monitored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Monitoring {
    pub(crate) bfd: Option<bfd::Settings>,
    pub(crate) cfm: Option<cfm::Settings>,
}

impl Monitoring {
    /// Reads a row. The list has what cannot be used.
    pub(super) fn read(interface: &Interface) -> (Self, Vec<String>) {
        let (bfd, mut wrong) = bfd::Settings::read(&interface.bfd);
        let cfm = interface.cfm_mpid.map(|point| cfm::Settings::read(point, &interface.other_config));
        let cfm = cfm.and_then(|settings| settings.map_err(|error| wrong.push(error)).ok());
        wrong.iter_mut().for_each(|text| *text = format!("interface {}: {text}", interface.name));
        (Self { bfd, cfm }, wrong)
    }

    pub(crate) fn is_none(&self) -> bool {
        self.bfd.is_none() && self.cfm.is_none()
    }
}
