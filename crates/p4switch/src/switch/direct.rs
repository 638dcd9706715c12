//! Counters and meters of entries.

use std::sync::Arc;

use p4::info::proto::meter_spec::Type as MeterType;
use p4runtime_proto::v1::{
    CounterData, DirectCounterEntry, DirectMeterEntry, MeterConfig, MeterCounterData, TableEntry,
    update::Type as Kind,
};
use pipeline::ir::CounterKind;
use pipeline::state::{EntryStats, Rates};

use super::table::{key, not_found, table};
use super::work::{Later, Work, only_modify};
use crate::Failure;
use crate::schema::Table;

/// What a controller sets of an entry's counter and meter.
#[derive(Debug, Default)]
pub(super) struct Direct {
    pub(super) counts: Option<(u64, u64)>,
    pub(super) rates: Option<Rates>,
}

impl Direct {
    /// Reads them from an entry.
    pub(super) fn of(table: &Table, entry: &TableEntry) -> Result<Self, Failure> {
        let counts = match (&entry.counter_data, table.counter) {
            (None, _) => None,
            (Some(data), Some(kind)) => Some(counts(data, kind)?),
            (Some(_), None) => return Err(Failure::invalid("its entries have no counter")),
        };
        let rates = match (&entry.meter_config, table.meter) {
            (None, _) => None,
            (Some(config), Some(ty)) => Some(rates(config, ty)?),
            (Some(_), None) => return Err(Failure::invalid("its entries have no meter")),
        };
        if let Some(data) = &entry.meter_counter_data {
            no_color_counts(data)?;
        }
        Ok(Self { counts, rates })
    }
}

/// Sets an entry's counter and meter once the write is committed.
pub(super) fn set(later: &mut Vec<Later>, stats: &Arc<EntryStats>, direct: &Direct, resets_meter: bool) {
    if let Some((packets, bytes)) = direct.counts {
        later.push(Later::Hits(stats.clone(), packets, bytes));
    }
    if resets_meter || direct.rates.is_some() {
        later.push(Later::EntryMeter(stats.clone(), direct.rates));
    }
}

impl Work<'_> {
    pub(super) fn direct_counter_entry(
        &mut self,
        kind: Kind,
        entry: &DirectCounterEntry,
    ) -> Result<(), Failure> {
        only_modify(kind, "an entry's counter")?;
        let (table, stats) = self.stats(entry.table_entry.as_ref())?;
        let Some(unit) = table.counter else {
            return Err(Failure::invalid(format!("table {}: its entries have no counter", table.name)));
        };
        if let Some(data) = &entry.data {
            let (packets, bytes) = counts(data, unit)?;
            self.later.push(Later::Hits(stats, packets, bytes));
        }
        Ok(())
    }

    pub(super) fn direct_meter_entry(&mut self, kind: Kind, entry: &DirectMeterEntry) -> Result<(), Failure> {
        only_modify(kind, "an entry's meter")?;
        let (table, stats) = self.stats(entry.table_entry.as_ref())?;
        let Some(ty) = table.meter else {
            return Err(Failure::invalid(format!("table {}: its entries have no meter", table.name)));
        };
        if let Some(data) = &entry.counter_data {
            no_color_counts(data)?;
        }
        let rates = entry.config.as_ref().map(|config| rates(config, ty)).transpose()?;
        self.later.push(Later::EntryMeter(stats, rates));
        Ok(())
    }

    /// The counts of an entry.
    fn stats(&self, entry: Option<&TableEntry>) -> Result<(&Table, Arc<EntryStats>), Failure> {
        let entry = entry.ok_or_else(|| Failure::invalid("the table entry is missing"))?;
        let table = table(self.schema, entry.table_id)?;
        let at = |failure: Failure| failure.at(format_args!("table {}", table.name));
        if entry.is_default_action {
            return Err(at(Failure::unimplemented(
                "its default has no counter or meter: misses are not counted",
            )));
        }
        let (conditions, priority) = key(table, entry).map_err(at)?;
        let found = self.state.table(table.ir).and_then(|state| state.find(&conditions, priority));
        Ok((table, found.ok_or_else(|| at(not_found()))?.stats.clone()))
    }
}

/// Packets and bytes.
pub(super) fn counts(data: &CounterData, kind: CounterKind) -> Result<(u64, u64), Failure> {
    let number = |value: i64, what: &str| {
        u64::try_from(value)
            .map_err(|_| Failure::invalid(format!("the number of {what} is negative ({value})")))
    };
    let (packets, bytes) = (number(data.packet_count, "packets")?, number(data.byte_count, "bytes")?);
    Ok(match kind {
        CounterKind::Packets => (packets, 0),
        CounterKind::Bytes => (0, bytes),
        CounterKind::Both => (packets, bytes),
    })
}

/// Counts of a kind, as they are read.
pub(super) fn counter_data((packets, bytes): (u64, u64), kind: CounterKind) -> CounterData {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let (packets, bytes) = match kind {
        CounterKind::Packets => (packets, 0),
        CounterKind::Bytes => (0, bytes),
        CounterKind::Both => (packets, bytes),
    };
    CounterData { packet_count: number(packets), byte_count: number(bytes) }
}

/// Meters do not count by colour: such counts can only be cleared.
pub(super) fn no_color_counts(data: &MeterCounterData) -> Result<(), Failure> {
    let counts = [&data.green, &data.yellow, &data.red];
    match counts.into_iter().flatten().any(|data| data.packet_count != 0 || data.byte_count != 0) {
        true => Err(Failure::invalid("a meter's counts can only be set to 0")),
        false => Ok(()),
    }
}

/// A meter's configuration.
pub(super) fn rates(config: &MeterConfig, ty: MeterType) -> Result<Rates, Failure> {
    let number = |value: i64, name: &str| {
        u64::try_from(value)
            .map_err(|_| Failure::invalid(format!("the meter's {name} is negative ({value})")))
    };
    let (rate, burst) = (number(config.cir, "cir")?, number(config.cburst, "cburst")?);
    let (peak_rate, peak_burst) = (number(config.pir, "pir")?, number(config.pburst, "pburst")?);
    let excess = number(config.eburst, "eburst")?;
    match ty {
        MeterType::TwoRateThreeColor => {
            if excess != 0 {
                return Err(Failure::invalid("the meter has two rates, and no eburst"));
            }
            if peak_rate < rate {
                return Err(Failure::invalid(format!(
                    "the meter's pir ({peak_rate}) is below its cir ({rate})"
                )));
            }
            Ok(Rates::Two { rate, burst, peak_rate, peak_burst })
        }
        MeterType::SingleRateThreeColor | MeterType::SingleRateTwoColor => {
            if (peak_rate, peak_burst) != (rate, burst) {
                return Err(Failure::invalid(
                    "the meter has one rate: pir and pburst must be cir and cburst",
                ));
            }
            if ty == MeterType::SingleRateTwoColor && excess != 0 {
                return Err(Failure::invalid("the meter has two colours, and no eburst"));
            }
            Ok(Rates::Single { rate, burst, excess })
        }
    }
}

/// A meter's configuration, as it is read.
pub(super) fn meter_config(rates: Rates) -> MeterConfig {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let (cir, cburst, pir, pburst, eburst) = match rates {
        Rates::Two { rate, burst, peak_rate, peak_burst } => (rate, burst, peak_rate, peak_burst, 0),
        Rates::Single { rate, burst, excess } => (rate, burst, rate, burst, excess),
    };
    MeterConfig {
        cir: number(cir),
        cburst: number(cburst),
        pir: number(pir),
        pburst: number(pburst),
        eburst: number(eburst),
    }
}
