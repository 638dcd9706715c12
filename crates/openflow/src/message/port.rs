//! Ports: descriptions, changes of state and of configuration.

use crate::error::ErrorCode;
use crate::property::properties;
use crate::version::{Mac, PortNo, Version};
use crate::wire::{Coder, Record, Step, Text, layout, numbers};

bitflags::bitflags! {
    /// A port's configuration.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct PortConfig: u32 {
        /// Administratively down.
        const PORT_DOWN = 1;
        /// Excluded from the spanning tree (1.0).
        const NO_STP = 1 << 1;
        /// Drops what it receives.
        const NO_RECV = 1 << 2;
        /// Drops what it receives of spanning tree packets (1.0).
        const NO_RECV_STP = 1 << 3;
        /// Excluded from flooding (1.0).
        const NO_FLOOD = 1 << 4;
        /// Drops what is sent to it.
        const NO_FWD = 1 << 5;
        /// Sends nothing to controllers.
        const NO_PACKET_IN = 1 << 6;
    }

    /// A port's state.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct PortState: u32 {
        /// No link.
        const LINK_DOWN = 1;
        /// Blocked by another protocol (since 1.1).
        const BLOCKED = 1 << 1;
        /// Live for fast failover (since 1.1).
        const LIVE = 1 << 2;
        /// The spanning tree's state (1.0).
        const STP_MASK = 3 << 8;
    }
}

/// An Ethernet port's link modes, as bitmaps, and speeds in kbit/s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct EthernetPort {
    /// Modes in use.
    pub current: u32,
    /// Modes advertised.
    pub advertised: u32,
    /// Modes supported.
    pub supported: u32,
    /// Modes that the peer advertises.
    pub peer: u32,
    /// Current speed, since version 1.1.
    pub current_speed: u32,
    /// Highest speed, since version 1.1.
    pub max_speed: u32,
}

impl Record for EthernetPort {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        // As a property, the modes stand behind padding.
        if c.version() >= Version::V1_4 {
            c.pad(4)?;
        }
        c.u32(&mut self.current)?;
        c.u32(&mut self.advertised)?;
        c.u32(&mut self.supported)?;
        c.u32(&mut self.peer)?;
        if c.version() >= Version::V1_1 {
            c.u32(&mut self.current_speed)?;
            c.u32(&mut self.max_speed)?;
        }
        Ok(())
    }
}

/// An optical port's abilities.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OpticalPort {
    /// Features, as a bitmap.
    pub supported: u32,
    /// Lowest transmit frequency or wavelength.
    pub tx_min: u32,
    /// Highest transmit frequency or wavelength.
    pub tx_max: u32,
    /// Transmit grid spacing.
    pub tx_grid: u32,
    /// Lowest receive frequency or wavelength.
    pub rx_min: u32,
    /// Highest receive frequency or wavelength.
    pub rx_max: u32,
    /// Receive grid spacing.
    pub rx_grid: u32,
    /// Lowest transmit power.
    pub power_min: u16,
    /// Highest transmit power.
    pub power_max: u16,
}

layout!(OpticalPort {
    _: 4,
    supported: u32,
    tx_min: u32,
    tx_max: u32,
    tx_grid: u32,
    rx_min: u32,
    rx_max: u32,
    rx_grid: u32,
    power_min: u16,
    power_max: u16,
});

properties! {
    /// A property of a port.
    pub enum PortProperty {
        /// An Ethernet port.
        0 => Ethernet(EthernetPort),
        /// An optical port.
        1 => Optical(OpticalPort),
    }
}

/// A port.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Port {
    /// The number.
    pub number: PortNo,
    /// The Ethernet address.
    pub address: Mac,
    /// The name, of 16 bytes with its terminator.
    pub name: Text,
    /// Configuration.
    pub config: PortConfig,
    /// State.
    pub state: PortState,
    /// Properties. Before version 1.4 there is exactly one, [`PortProperty::Ethernet`].
    pub properties: Vec<PortProperty>,
}

/// Bytes of a port's name.
const NAME: usize = 16;

impl Port {
    /// The link modes of an Ethernet port.
    pub fn ethernet(&self) -> Option<&EthernetPort> {
        self.properties.iter().find_map(|property| match property {
            PortProperty::Ethernet(ethernet) => Some(ethernet),
            _ => None,
        })
    }

    fn walk_rest<C: Coder>(&mut self, c: &mut C) -> Step {
        if c.version() == Version::V1_0 {
            c.port16(&mut self.number)?;
            c.mac(&mut self.address)?;
        } else {
            c.port(&mut self.number)?;
            c.pad(4)?;
            c.mac(&mut self.address)?;
            c.pad(2)?;
        }
        c.text(&mut self.name, NAME)?;
        c.flags32(&mut self.config)?;
        c.flags32(&mut self.state)
    }
}

impl Record for Port {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        if c.version() >= Version::V1_4 {
            return c.entry(4, ErrorCode::BrcBadLen, |c| {
                self.walk_rest(c)?;
                c.list(&mut self.properties)
            });
        }
        self.walk_rest(c)?;
        let mut ethernet = self.ethernet().copied().unwrap_or_default();
        c.record(&mut ethernet)?;
        self.properties = vec![PortProperty::Ethernet(ethernet)];
        Ok(())
    }
}

numbers! {
    /// What happened to a port.
    pub enum PortReason: u8 / u8 else NxBrcBadReason {
        /// The port is new.
        #[default]
        Add = 0,
        /// The port is gone.
        Delete = 1,
        /// The port has changed.
        Modify = 2,
    }
}

/// A port has changed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortStatus {
    /// What happened.
    pub reason: PortReason,
    /// The port.
    pub port: Port,
}

layout!(PortStatus { reason: record, _: 7, port: record, });

/// An optical port's settings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OpticalSettings {
    /// Settings to change, as a bitmap.
    pub configure: u32,
    /// Frequency or wavelength.
    pub frequency: u32,
    /// Frequency offset.
    pub offset: u32,
    /// Grid spacing.
    pub grid: u32,
    /// Transmit power.
    pub power: u32,
}

layout!(OpticalSettings { configure: u32, frequency: u32, offset: u32, grid: u32, power: u32 });

properties! {
    /// A property of a change of configuration.
    pub enum PortModProperty {
        /// Link modes to advertise; 0: unchanged.
        0 => Ethernet(u32),
        /// An optical port's settings.
        1 => Optical(OpticalSettings),
    }
}

/// Changes a port's configuration.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PortMod {
    /// The port.
    pub number: PortNo,
    /// Its address, as a check.
    pub address: Mac,
    /// The new configuration.
    pub config: PortConfig,
    /// Bits to change.
    pub mask: PortConfig,
    /// Properties. Before version 1.4 there is exactly one, [`PortModProperty::Ethernet`].
    pub properties: Vec<PortModProperty>,
}

impl Record for PortMod {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        if c.version() == Version::V1_0 {
            c.port16(&mut self.number)?;
            c.mac(&mut self.address)?;
        } else {
            c.port(&mut self.number)?;
            c.pad(4)?;
            c.mac(&mut self.address)?;
            c.pad(2)?;
        }
        c.flags32(&mut self.config)?;
        c.flags32(&mut self.mask)?;
        if c.version() >= Version::V1_4 {
            return c.list(&mut self.properties);
        }
        let mut advertise = match self.properties.first() {
            Some(PortModProperty::Ethernet(advertise)) => *advertise,
            _ => 0,
        };
        c.u32(&mut advertise)?;
        self.properties = vec![PortModProperty::Ethernet(advertise)];
        c.pad(4)
    }
}
