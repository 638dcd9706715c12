//! Counters, meters and registers.

use std::ops::Range;

use p4runtime_proto::v1::{CounterEntry, Index, MeterEntry, RegisterEntry, entity::Entity as Kind};

use super::super::arrays::cells;
use super::super::direct::{counter_data, meter_config};
use super::{End, Parts, Reader, chosen};
use crate::Failure;
use crate::data::Shape;

impl Reader<'_> {
    /// The cells of an array that are not read yet.
    fn unread(&self, id: u32, cells: Range<u32>) -> Range<u32> {
        let next = self.behind(id).and_then(|cell| u32::try_from(cell).ok()?.checked_add(1));
        next.map_or(cells.start, |next| next.max(cells.start))..cells.end
    }

    pub(super) fn counters(&self, wanted: &CounterEntry, parts: &mut Parts) -> Result<(), End> {
        let objects = chosen(&self.schema.counters, "counter", wanted.counter_id)?;
        for (id, counter) in self.rest(objects, |(id, _)| *id) {
            // Without an id, an index means nothing.
            let index = wanted.index.as_ref().filter(|_| wanted.counter_id != 0);
            let cells = cells(index, counter.size);
            let cells = cells.map_err(|failure| failure.at(format_args!("counter {}", counter.name)))?;
            for cell in self.unread(id, cells) {
                let counts = self.state.arrays().used_counter(counter.ir, cell.into());
                let counts = counts.map_or((0, 0), |stats| stats.get());
                let data = Some(counter_data(counts, counter.kind));
                let entry = CounterEntry { counter_id: id, index: Some(Index { index: cell.into() }), data };
                parts.add_at(Kind::CounterEntry(entry), id, cell.into())?;
            }
        }
        Ok(())
    }

    pub(super) fn meters(&self, wanted: &MeterEntry, parts: &mut Parts) -> Result<(), End> {
        let objects = chosen(&self.schema.meters, "meter", wanted.meter_id)?;
        for (id, meter) in self.rest(objects, |(id, _)| *id) {
            let index = wanted.index.as_ref().filter(|_| wanted.meter_id != 0);
            let cells = cells(index, meter.size);
            let cells = cells.map_err(|failure| failure.at(format_args!("meter {}", meter.name)))?;
            for cell in self.unread(id, cells) {
                let rates = self.state.arrays().meter(meter.ir, cell.into()).and_then(|meter| meter.rates());
                let entry = MeterEntry {
                    meter_id: id,
                    index: Some(Index { index: cell.into() }),
                    config: rates.map(meter_config),
                    counter_data: None,
                };
                parts.add_at(Kind::MeterEntry(entry), id, cell.into())?;
            }
        }
        Ok(())
    }

    pub(super) fn registers(&self, wanted: &RegisterEntry, parts: &mut Parts) -> Result<(), End> {
        let objects = chosen(&self.schema.registers, "register", wanted.register_id)?;
        for (id, register) in self.rest(objects, |(id, _)| *id) {
            if register.shape == Shape::Other {
                if wanted.register_id != 0 {
                    let message = format!("register {}: its cells are not numbers", register.name);
                    return Err(Failure::unimplemented(message).into());
                }
                continue;
            }
            let index = wanted.index.as_ref().filter(|_| wanted.register_id != 0);
            let cells = cells(index, register.size);
            let cells = cells.map_err(|failure| failure.at(format_args!("register {}", register.name)))?;
            for cell in self.unread(id, cells) {
                let value = {
                    let guard = self.state.arrays().lock();
                    self.state.arrays().read(&guard, register.ir, cell.into())
                };
                let entry = RegisterEntry {
                    register_id: id,
                    index: Some(Index { index: cell.into() }),
                    data: value.map(|value| register.shape.write(&value)),
                };
                parts.add_at(Kind::RegisterEntry(entry), id, cell.into())?;
            }
        }
        Ok(())
    }
}
