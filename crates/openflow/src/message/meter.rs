//! Meters: rate limits.

use crate::error::ErrorCode;
use crate::version::meter;
use crate::wire::{Coder, Record, Step, layout, numbers};

numbers! {
    /// What to do with meters.
    pub enum MeterModCommand: u16 / u16 else MmfcBadCommand {
        /// Adds a meter.
        #[default]
        Add = 0,
        /// Changes a meter.
        Modify = 1,
        /// Removes a meter, or all.
        Delete = 2,
    }
}

bitflags::bitflags! {
    /// Options of a meter.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MeterFlags: u16 {
        /// Rates are in kbit/s.
        const KBPS = 1;
        /// Rates are in packets a second.
        const PKTPS = 1 << 1;
        /// Bands have burst sizes.
        const BURST = 1 << 2;
        /// Statistics are kept.
        const STATS = 1 << 3;
    }
}

/// What happens above a rate.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BandKind {
    /// Packets are dropped.
    Drop,
    /// The DSCP's drop precedence rises by this many levels.
    DscpRemark(u8),
    /// Unknown: the type and what follows the burst size.
    Other(u16, Vec<u8>),
}

/// A band: what happens above a rate.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Band {
    /// The rate.
    pub rate: u32,
    /// The burst size, in the rate's units times a second.
    pub burst: u32,
    /// What happens.
    pub kind: BandKind,
}

impl Default for Band {
    fn default() -> Self {
        Band { rate: 0, burst: 0, kind: BandKind::Drop }
    }
}

impl Record for Band {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(2, ErrorCode::BrcBadLen, |c| {
            let mut kind = match &self.kind {
                BandKind::Drop => 1,
                BandKind::DscpRemark(_) => 2,
                BandKind::Other(kind, _) => *kind,
            };
            c.u16(&mut kind)?;
            c.pad(2)?;
            c.u32(&mut self.rate)?;
            c.u32(&mut self.burst)?;
            if C::READS {
                self.kind = match kind {
                    1 => BandKind::Drop,
                    2 => BandKind::DscpRemark(0),
                    _ => BandKind::Other(kind, Vec::new()),
                };
            }
            match &mut self.kind {
                BandKind::Drop => c.pad(4),
                BandKind::DscpRemark(levels) => {
                    c.u8(levels)?;
                    c.pad(3)
                }
                BandKind::Other(_, body) => c.rest(body),
            }
        })
    }
}

/// Changes a meter.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MeterMod {
    /// What to do.
    pub command: MeterModCommand,
    /// Options.
    pub flags: MeterFlags,
    /// The meter.
    pub meter: u32,
    /// Bands.
    pub bands: Vec<Band>,
}

layout!(MeterMod { command: record, flags: flags16, meter: u32, bands: list });

impl MeterMod {
    /// Refuses a change that no switch accepts.
    pub(crate) fn check(&self) -> Result<(), ErrorCode> {
        let virtual_meter = matches!(self.meter, meter::SLOWPATH | meter::CONTROLLER);
        if self.command == MeterModCommand::Delete {
            return Ok(());
        }
        if self.meter == 0 || self.meter > meter::MAX && !virtual_meter {
            return Err(ErrorCode::MmfcInvalidMeter);
        }
        let units = self.flags & (MeterFlags::KBPS | MeterFlags::PKTPS);
        if !MeterFlags::all().contains(self.flags) || units.bits().count_ones() != 1 {
            return Err(ErrorCode::MmfcBadFlags);
        }
        self.bands.iter().try_for_each(|band| match band.kind {
            BandKind::Other(..) => Err(ErrorCode::MmfcBadBand),
            _ => Ok(()),
        })
    }
}

/// A meter's description.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MeterConfig {
    /// Options.
    pub flags: MeterFlags,
    /// The meter.
    pub meter: u32,
    /// Bands.
    pub bands: Vec<Band>,
}

impl Record for MeterConfig {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(0, ErrorCode::BrcBadLen, |c| {
            c.pad(2)?;
            c.flags16(&mut self.flags)?;
            c.u32(&mut self.meter)?;
            c.list(&mut self.bands)
        })
    }
}
