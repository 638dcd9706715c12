//! Meters (OpenFlow 1.3.5, section 6.6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openflow::error::ErrorCode;
use openflow::message::{Band, BandKind, MeterConfig, MeterFlags, MeterMod, MeterModCommand};
use openflow::multipart::{Counter, MeterStats};
use openflow::version;
use pipeline::state::Update;

use crate::datapath::{Datapath, Transaction, exact, exact_match};
use crate::lower::{meter, rates};
use crate::program::Layout;
use crate::uses::Object;

/// Reason of flow-removed messages: the flow's meter was deleted.
const METER_DELETED: u8 = 4;

/// A meter as controllers know it.
#[derive(Debug, Clone)]
pub(crate) struct MeterEntry {
    pub(crate) flags: MeterFlags,
    /// Bands, each with the number of its cell.
    pub(crate) bands: Vec<(Band, u32)>,
    /// Nanoseconds.
    pub(crate) created: u64,
}

impl MeterEntry {
    /// The meter's description.
    pub(crate) fn config(&self, meter: u32) -> MeterConfig {
        let bands = self.bands.iter().map(|(band, _)| band.clone()).collect();
        MeterConfig { flags: self.flags, meter, bands }
    }
}

impl Datapath {
    /// Prepares a meter-mod.
    pub(crate) fn meter_mod(
        &mut self,
        request: &MeterMod,
        now: u64,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        let exists = self.model.meters.contains_key(&request.meter);
        match request.command {
            MeterModCommand::Add if exists => Err(ErrorCode::MmfcMeterExists),
            MeterModCommand::Modify if !exists => Err(ErrorCode::MmfcUnknownMeter),
            MeterModCommand::Add | MeterModCommand::Modify => self.put_meter(request, now, transaction),
            MeterModCommand::Delete if request.meter == version::meter::ALL => {
                let all = self.model.meters.keys().copied().collect();
                self.delete_meters(&all, now, transaction);
                Ok(())
            }
            // Nothing happens to a meter that is not there.
            MeterModCommand::Delete => {
                self.delete_meters(&BTreeSet::from([request.meter]), now, transaction);
                Ok(())
            }
        }
    }

    fn put_meter(
        &mut self,
        request: &MeterMod,
        now: u64,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        let before = self.model.meters.get(&request.meter).cloned();
        if before.is_none() && self.model.meters.len() >= self.limits.meters as usize {
            return Err(ErrorCode::MmfcOutOfMeters);
        }
        if request.bands.len() > usize::from(self.limits.bands) {
            return Err(ErrorCode::MmfcOutOfBands);
        }
        let reused = before.as_ref().map_or(0, |before| before.bands.len());
        if self.model.bands.free() + reused < request.bands.len() {
            return Err(ErrorCode::MmfcOutOfBands);
        }
        if request.bands.iter().any(|band| matches!(band.kind, BandKind::Other(..))) {
            return Err(ErrorCode::MmfcBadBand);
        }
        let layout = Layout::get();
        if let Some(before) = &before {
            self.free_bands(before, transaction);
        }
        let cells = match request.flags.contains(MeterFlags::PKTPS) {
            true => layout.packet_rates,
            false => layout.byte_rates,
        };
        let mut bands = Vec::new();
        for band in &request.bands {
            let cell = self.model.bands.take().ok_or(ErrorCode::MmfcOutOfBands)?;
            transaction.updates.push(Update::Meter(cells, cell, Some(rates(band, request.flags))));
            transaction.bands.push(cell);
            bands.push((band.clone(), cell));
        }
        let call = self.define(meter(request.flags, &bands))?;
        let entry = exact(request.meter, call);
        transaction.updates.push(match before {
            Some(_) => Update::Modify(layout.meters, entry),
            None => Update::Insert(layout.meters, entry),
        });
        let created = before.map_or(now, |before| before.created);
        let entry = MeterEntry { flags: request.flags, bands, created };
        self.model.meters.insert(request.meter, Arc::new(entry));
        Ok(())
    }

    fn free_bands(&mut self, entry: &MeterEntry, transaction: &mut Transaction) {
        let layout = Layout::get();
        for (_, cell) in &entry.bands {
            for cells in [layout.packet_rates, layout.byte_rates] {
                transaction.updates.push(Update::Meter(cells, *cell, None));
            }
            self.model.bands.give_back(*cell);
        }
    }

    /// Removes those of some meters that are there, and the flows that refer to them.
    fn delete_meters(&mut self, ids: &BTreeSet<u32>, now: u64, transaction: &mut Transaction) {
        let mut removed: BTreeMap<u32, Arc<MeterEntry>> = BTreeMap::new();
        removed.extend(ids.iter().filter_map(|id| Some((*id, self.model.meters.remove(id)?))));
        let flows = self.model.flows_with(removed.keys().copied().map(Object::Meter));
        flows.iter().for_each(|flow| self.remove_flow(flow, METER_DELETED, now, transaction));
        for (id, entry) in removed {
            transaction.updates.push(Update::DeleteMatch(Layout::get().meters, exact_match(id), 0));
            self.free_bands(&entry, transaction);
        }
    }

    /// A meter's statistics.
    pub(crate) fn meter_stats(&self, id: u32, entry: &MeterEntry, now: u64) -> MeterStats {
        let layout = Layout::get();
        let installed = self.state.table(layout.meters).and_then(|table| table.find(&exact_match(id), 0));
        let (packets, bytes) = installed.map_or((0, 0), |installed| installed.stats.hits());
        let band = |(_, cell): &(Band, u32)| {
            let counter = self.state.arrays().counter(layout.band_counts, (*cell).into());
            let (packets, bytes) = counter.map_or((0, 0), |counter| counter.get());
            Counter { packets, bytes }
        };
        let age = now.saturating_sub(entry.created);
        MeterStats {
            meter: id,
            flows: self.model.uses().of(Object::Meter(id)).count() as u32,
            total: Counter { packets, bytes },
            duration_sec: (age / 1_000_000_000) as u32,
            duration_nsec: (age % 1_000_000_000) as u32,
            bands: entry.bands.iter().map(band).collect(),
        }
    }
}
