//! Sampling of packets to collectors.

use super::Content;
use crate::error::ErrorCode;
use crate::oxm::{OxmHeader, Subfield};
use crate::version::PortNo;
use crate::wire::{Coder, Record, Step, numbers};

/// Samples packets to collectors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sample {
    /// Packets to sample, of 65,536.
    pub probability: u16,
    /// The collectors.
    pub collectors: u32,
    /// Observation domain.
    pub domain: u32,
    /// Observation point.
    pub point: u32,
}

impl Content for Sample {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u16(&mut self.probability)?;
        c.u32(&mut self.collectors)?;
        c.u32(&mut self.domain)?;
        c.u32(&mut self.point)
    }
}

/// Samples packets of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sample2 {
    /// What to sample.
    pub sample: Sample,
    /// The port to state.
    pub port: PortNo,
}

impl Content for Sample2 {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        self.sample.walk_content(c)?;
        c.port16(&mut self.port)?;
        c.pad(6)
    }
}

numbers! {
    /// Whether packets are sampled before or after their flow's actions.
    pub enum SampleDirection: u8 / u8 else BacBadArgument {
        /// As the switch likes.
        #[default]
        Default = 0,
        /// On ingress.
        Ingress = 1,
        /// On egress.
        Egress = 2,
    }
}

/// Samples packets of a port in a direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sample3 {
    /// What to sample.
    pub sample: Sample,
    /// The port to state.
    pub port: PortNo,
    /// The direction.
    pub direction: SampleDirection,
}

impl Content for Sample3 {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        self.sample.walk_content(c)?;
        c.port16(&mut self.port)?;
        c.record(&mut self.direction)?;
        c.zeros(5, ErrorCode::NxBrcMustBeZero)
    }
}

/// An observation id: a number, or up to 32 bits of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Observation {
    /// A number.
    Id(u32),
    /// A field's value.
    Field(Subfield),
}

impl Default for Observation {
    fn default() -> Self {
        Observation::Id(0)
    }
}

impl Record for Observation {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        let mut header = match self {
            Observation::Id(_) => OxmHeader::default(),
            Observation::Field(source) => source.header,
        };
        header.walk32(c)?;
        if C::READS && header != OxmHeader::default() {
            *self = Observation::Field(Subfield { header, ..Subfield::default() });
        }
        match self {
            Observation::Id(id) => c.u32(id),
            Observation::Field(source) => {
                source.walk_range(c)?;
                c.pad(2)
            }
        }
    }
}

/// Samples packets, with observation ids from fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sample4 {
    /// Packets to sample, of 65,536.
    pub probability: u16,
    /// The collectors.
    pub collectors: u32,
    /// Observation domain.
    pub domain: Observation,
    /// Observation point.
    pub point: Observation,
    /// The port to state.
    pub port: PortNo,
    /// The direction.
    pub direction: SampleDirection,
}

impl Content for Sample4 {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u16(&mut self.probability)?;
        c.u32(&mut self.collectors)?;
        c.record(&mut self.domain)?;
        c.record(&mut self.point)?;
        c.port16(&mut self.port)?;
        c.record(&mut self.direction)?;
        c.zeros(5, ErrorCode::NxBrcMustBeZero)
    }
}
