//! Counters, meters and registers.

use std::ops::Range;

use p4runtime_proto::v1::{CounterEntry, Index, MeterEntry, RegisterEntry, update::Type as Kind};

use super::direct::{counts, no_color_counts, rates};
use super::work::{Later, Work, only_modify};
use crate::Failure;
use crate::data::Shape;

/// The cells that an index means: without one, all.
pub(super) fn cells(index: Option<&Index>, size: u32) -> Result<Range<u32>, Failure> {
    let Some(Index { index }) = index else { return Ok(0..size) };
    if *index < 0 {
        return Err(Failure::invalid(format!("the index is negative ({index})")));
    }
    match u32::try_from(*index) {
        Ok(index) if index < size => Ok(index..index + 1),
        _ => Err(Failure::out_of_range(format!("the index is {index}, and the size {size}"))),
    }
}

/// An array by its id.
pub(super) fn array<'s, T>(
    arrays: &'s std::collections::HashMap<u32, T>,
    what: &str,
    id: u32,
) -> Result<&'s T, Failure> {
    match arrays.get(&id) {
        Some(array) => Ok(array),
        None if id == 0 => Err(Failure::invalid(format!("the {what}'s id is missing"))),
        None => Err(Failure::not_found(format!("the program has no {what} {id} ({id:#010x})"))),
    }
}

impl Work<'_> {
    pub(super) fn counter_entry(&mut self, kind: Kind, entry: &CounterEntry) -> Result<(), Failure> {
        only_modify(kind, "a counter")?;
        let counter = array(&self.schema.counters, "counter", entry.counter_id)?;
        let at = |failure: Failure| failure.at(format_args!("counter {}", counter.name));
        let cells = cells(entry.index.as_ref(), counter.size).map_err(at)?;
        if let Some(data) = &entry.data {
            let (packets, bytes) = counts(data, counter.kind).map_err(at)?;
            self.spend(&cells)?;
            self.later.push(Later::Counter(counter.ir, cells, packets, bytes));
        }
        Ok(())
    }

    pub(super) fn meter_entry(&mut self, kind: Kind, entry: &MeterEntry) -> Result<(), Failure> {
        only_modify(kind, "a meter")?;
        let meter = array(&self.schema.meters, "meter", entry.meter_id)?;
        let at = |failure: Failure| failure.at(format_args!("meter {}", meter.name));
        let cells = cells(entry.index.as_ref(), meter.size).map_err(at)?;
        if let Some(data) = &entry.counter_data {
            no_color_counts(data).map_err(at)?;
        }
        let rates = entry.config.as_ref().map(|config| rates(config, meter.ty)).transpose().map_err(at)?;
        self.spend(&cells)?;
        self.later.push(Later::Meter(meter.ir, cells, rates));
        Ok(())
    }

    pub(super) fn register_entry(&mut self, kind: Kind, entry: &RegisterEntry) -> Result<(), Failure> {
        only_modify(kind, "a register")?;
        let register = array(&self.schema.registers, "register", entry.register_id)?;
        let at = |failure: Failure| failure.at(format_args!("register {}", register.name));
        let cells = cells(entry.index.as_ref(), register.size).map_err(at)?;
        if register.shape == Shape::Other {
            return Err(at(Failure::unimplemented("its cells are not numbers")));
        }
        let data = entry.data.as_ref().ok_or_else(|| at(Failure::invalid("the data is missing")))?;
        let value = register.shape.read(data, register.ty.width()).map_err(at)?;
        self.spend(&cells)?;
        self.later.push(Later::Register(register.ir, cells, value));
        Ok(())
    }
}
