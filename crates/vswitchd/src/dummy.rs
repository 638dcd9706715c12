//! `--enable-dummy`: datapaths and interfaces within the process, in the place of those of the host.
//!
//! Open vSwitch has the same types and levels for its tests, and for those of systems built on it.

use std::collections::BTreeMap;

use ovsdb::vswitch::Interface;
use packet::ether::MacAddr;
use ports::dummy;

/// What is replaced by dummies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Level {
    /// Nothing: there are no dummies.
    #[default]
    Off,
    /// Only what is of a dummy type.
    Types,
    /// Also datapaths and interfaces of the type `system`.
    System,
    /// Everything that would be a network device.
    Override,
}

impl Level {
    /// Reads the value of `--enable-dummy`; `None` without a value.
    pub(crate) fn of(value: Option<&str>) -> Result<Self, String> {
        match value {
            None | Some("") => Ok(Level::Types),
            Some("system") => Ok(Level::System),
            Some("override") => Ok(Level::Override),
            Some(other) => Err(format!("--enable-dummy={other}: expected `system` or `override`")),
        }
    }
}

/// Types of datapaths and interfaces that this process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Types {
    /// Dummies.
    pub(crate) level: Level,
    /// Datapaths of the type `system` are refused.
    pub(crate) no_system: bool,
}

const DUMMY_INTERFACES: [&str; 3] = ["dummy", "dummy-internal", "dummy-pmd"];

impl Types {
    /// Returns the types of datapaths, as `Open_vSwitch.datapath_types` lists them. All are this switch.
    pub(crate) fn datapaths(self) -> Vec<&'static str> {
        let system = !self.no_system || self.level > Level::Types;
        let all = [("dummy", self.level > Level::Off), ("netdev", true), ("system", system)];
        all.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
    }

    /// Returns the types of interfaces, as `Open_vSwitch.iface_types` lists them.
    pub(crate) fn interfaces(self) -> Vec<&'static str> {
        let mut types = crate::plan::INTERFACE_TYPES.to_vec();
        if self.level > Level::Off {
            types.extend(DUMMY_INTERFACES);
        }
        types.sort_unstable();
        types
    }

    /// Returns whether an interface of type `kind`, in a datapath of type `datapath`, is a dummy.
    pub(crate) fn is_dummy(self, datapath: &str, kind: &str) -> bool {
        let is_system = matches!(datapath, "" | "system");
        match kind {
            _ if self.level == Level::Off => false,
            kind if DUMMY_INTERFACES.contains(&kind) => true,
            "internal" => {
                datapath == "dummy"
                    || self.level == Level::Override
                    || self.level == Level::System && is_system
            }
            "system" => self.level > Level::Types,
            "tap" => self.level == Level::Override,
            _ => false,
        }
    }
}

/// Returns a dummy's options, from those of its interface, which is of type `kind`.
pub(crate) fn options(interface: &Interface, kind: &str, address: Option<MacAddr>) -> dummy::Options {
    let given: &BTreeMap<String, String> = &interface.options;
    let text = |key: &str| given.get(key).cloned();
    dummy::Options {
        address,
        internal: matches!(kind, "internal" | "dummy-internal"),
        pcap: text("pcap").map(Into::into),
        rxq_pcap: text("rxq_pcap").map(Into::into),
        tx_pcap: text("tx_pcap").map(Into::into),
        stream: text("stream"),
        pstream: text("pstream"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_say_what_is_replaced() {
        let dummy = |level, datapath, kind| Types { level, no_system: false }.is_dummy(datapath, kind);
        for (level, datapath, kind, expected) in [
            (Level::Off, "dummy", "dummy", false),
            (Level::Types, "dummy", "dummy", true),
            (Level::Types, "dummy", "internal", true),
            (Level::Types, "", "internal", false),
            (Level::Types, "dummy", "system", false),
            (Level::System, "", "internal", true),
            (Level::System, "netdev", "internal", false),
            (Level::System, "netdev", "system", true),
            (Level::Override, "netdev", "internal", true),
            (Level::Override, "netdev", "patch", false),
        ] {
            assert_eq!(dummy(level, datapath, kind), expected, "{level:?} {datapath} {kind}");
        }
        assert_eq!(Types::default().datapaths(), ["netdev", "system"]);
        assert_eq!(Types { level: Level::Types, no_system: true }.datapaths(), ["dummy", "netdev"]);
        assert_eq!(
            Types { level: Level::System, no_system: true }.datapaths(),
            ["dummy", "netdev", "system"]
        );
        assert!(Level::of(Some("all")).is_err());
    }
}
