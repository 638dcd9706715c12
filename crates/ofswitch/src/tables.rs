//! Configuration of tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use openflow::error::ErrorCode;
use openflow::field::{Field, FieldId};
use openflow::message::{TableConfig, TableDesc, TableMod, TableModProperty, Vacancy};
use openflow::{Text, Version, version};
use pipeline::ir::ActionCall;
use pipeline::ir::Constant;
use pipeline::state::Update;

use crate::datapath::{Datapath, Transaction};
use crate::program::Layout;
use crate::settings::{Limits, TableLimit};

/// What eviction goes by: other things, importance, lifetime.
const EVICTION_FLAGS: u32 = 7;

/// What becomes of packets that no flow of a table matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Miss {
    /// What the controllers' versions expect: to those before 1.3, else dropped.
    #[default]
    Default,
    Controller,
    Continue,
    Drop,
}

/// A table's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TableSettings {
    pub(crate) miss: Miss,
    pub(crate) evicts: bool,
    /// Thresholds of vacancy events.
    pub(crate) vacancy: Option<Vacancy>,
    /// Whether the next vacancy event is that of enough free space, rather than that of too little.
    pub(crate) is_low: bool,
    pub(crate) name: Option<Text>,
    /// Flows at most, if a controller set a number.
    pub(crate) max_entries: Option<u32>,
    /// What the configuration says.
    pub(crate) configured: TableLimit,
}

impl TableSettings {
    /// Flows at most.
    pub(crate) fn size(&self, limits: &Limits) -> u32 {
        let chosen = [self.max_entries, self.configured.flows];
        chosen.into_iter().flatten().fold(limits.flows_per_table, u32::min)
    }

    /// Whether a full table loses flows to new ones.
    pub(crate) fn evicts(&self) -> bool {
        self.evicts || self.configured.evicts
    }

    /// Fields by whose values flows are grouped for eviction.
    pub(crate) fn group_fields(&self) -> Vec<FieldId> {
        // Parts of fields are not told apart.
        let names = self.configured.groups.iter().filter_map(|name| name.split('[').next());
        let mut fields: Vec<FieldId> =
            names.filter_map(|name| Some(Field::with_any_name(name)?.id)).collect();
        // The ingress port has two forms.
        if fields.contains(&FieldId::InPort) {
            fields.push(FieldId::InPortOxm);
        }
        fields
    }

    /// The configuration as messages have it.
    pub(crate) fn config(&self, version: Version) -> TableConfig {
        let mut config = TableConfig::empty();
        if version >= Version::V1_4 {
            config.set(TableConfig::EVICTION, self.evicts());
            config.set(TableConfig::VACANCY_EVENTS, self.vacancy.is_some());
        } else if version <= Version::V1_2 {
            let miss = match self.miss {
                Miss::Default | Miss::Controller => 0,
                Miss::Continue => 1,
                Miss::Drop => 2,
            };
            config = TableConfig::from_bits_retain(miss);
        }
        config
    }
}

impl Datapath {
    /// Prepares a change of tables' configuration.
    pub(crate) fn table_mod(
        &mut self,
        request: &TableMod,
        version: Version,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        let numbers = match request.table_id {
            version::table::ALL => 0..self.model.settings.len(),
            number if usize::from(number) < self.model.settings.len() => {
                usize::from(number)..usize::from(number) + 1
            }
            _ => return Err(ErrorCode::TmfcBadTable),
        };
        let miss = match (version <= Version::V1_2, request.config.bits() & 3) {
            (true, 0) => Some(Miss::Controller),
            (true, 1) => Some(Miss::Continue),
            (true, 2) => Some(Miss::Drop),
            (true, _) => return Err(ErrorCode::TmfcBadConfig),
            (false, _) => None,
        };
        let mut vacancy = None;
        for property in &request.properties {
            match property {
                TableModProperty::Vacancy(thresholds)
                    if thresholds.down > thresholds.up || thresholds.up > 100 =>
                {
                    return Err(ErrorCode::BpcBadValue);
                }
                TableModProperty::Vacancy(thresholds) => vacancy = Some(*thresholds),
                TableModProperty::Eviction(flags) if flags & !7 != 0 => return Err(ErrorCode::BpcBadValue),
                TableModProperty::Eviction(_) => {}
                TableModProperty::Other(property) => return Err(property.refusal()),
            }
        }
        for number in numbers {
            let free = self.vacancy(number);
            let Some(settings) = Arc::make_mut(&mut self.model.settings).get_mut(number) else { continue };
            if let Some(miss) = miss {
                settings.miss = miss;
            }
            if version >= Version::V1_4 {
                settings.evicts = request.config.contains(TableConfig::EVICTION);
                let wanted = request.config.contains(TableConfig::VACANCY_EVENTS);
                let thresholds = if wanted { vacancy.or(settings.vacancy) } else { None };
                // Which event comes first depends on the free space at the start (OpenFlow 1.4, section 7.3.4.1).
                if let (None, Some(thresholds)) = (settings.vacancy, thresholds) {
                    settings.is_low = free < thresholds.up;
                }
                settings.vacancy = thresholds;
            }
            let miss = settings.miss;
            self.set_miss(number, miss, transaction)?;
        }
        self.model.sums.watches = self.model.settings.iter().any(|settings| settings.vacancy.is_some());
        Ok(())
    }

    /// Sets what becomes of packets that no flow of a table matches.
    pub(crate) fn set_miss(
        &mut self,
        number: usize,
        miss: Miss,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        let layout = Layout::get();
        let Some(table) = layout.tables.get(number) else { return Ok(()) };
        let call = match miss {
            Miss::Drop => ActionCall { action: layout.miss_drop, args: [].into() },
            Miss::Default if !self.old_controllers => {
                ActionCall { action: layout.miss_drop, args: [].into() }
            }
            Miss::Default | Miss::Controller => {
                ActionCall { action: layout.miss_controller, args: [Constant::bit(8, number as u64)].into() }
            }
            Miss::Continue => match layout.lookups.get(number + 1) {
                // No table is left to continue in: as in Open vSwitch, controllers are told.
                None => ActionCall {
                    action: layout.miss_controller,
                    args: [Constant::bit(8, number as u64)].into(),
                },
                Some(next) => {
                    let enter = crate::program::terms::set(
                        layout.vars.match_port,
                        crate::program::terms::var(layout.vars.in_port),
                    );
                    // A miss of what an action looks up has no consequence.
                    let further = vec![enter, pipeline::ir::Stmt::Goto(*next)];
                    let body = vec![crate::program::terms::when(layout.vars.is_not_resubmitted(), further)];
                    let action = pipeline::ir::Action { name: "continue".to_owned(), params: vec![], body };
                    self.define(crate::lower::Body { action, args: vec![] })?
                }
            },
        };
        transaction.updates.push(Update::Default(*table, Some(call)));
        Ok(())
    }

    /// Follows the configuration of tables' sizes.
    pub(crate) fn configure_tables(&mut self, limits: &BTreeMap<u8, TableLimit>) {
        for (number, settings) in (0u8..).zip(Arc::make_mut(&mut self.model.settings)) {
            settings.configured = limits.get(&number).cloned().unwrap_or_default();
        }
    }

    /// Descriptions of the tables.
    pub(crate) fn table_descs(&self, version: Version) -> Vec<TableDesc> {
        let desc = |(number, settings): (usize, &TableSettings)| {
            // Importance, lifetime, and the largest group, whether eviction is on or off.
            let mut properties = vec![TableModProperty::Eviction(EVICTION_FLAGS)];
            properties.extend(settings.vacancy.map(|vacancy| {
                let current = self.vacancy(number);
                TableModProperty::Vacancy(Vacancy { current, ..vacancy })
            }));
            TableDesc { table_id: number as u8, config: settings.config(version), properties }
        };
        self.model.settings.iter().enumerate().map(desc).collect()
    }

    /// Free space of a table, per cent.
    pub(crate) fn vacancy(&self, number: usize) -> u8 {
        let used = self.model.tables().get(number).map_or(0, |table| table.len()) as u64;
        let size = self.model.settings.get(number).map_or(1, |settings| settings.size(&self.limits)).max(1);
        (100 - (used * 100 / u64::from(size)).min(100)) as u8
    }

    /// Tables whose free space has crossed a threshold since the last call, each with the reason of the message about
    /// it.
    pub(crate) fn vacancy_events(&mut self) -> Vec<(usize, u8)> {
        let mut events = Vec::new();
        // As a rule none is watched, and every flow-mod asks.
        let tables = if self.model.sums.watches { self.model.settings.len() } else { 0 };
        for number in 0..tables {
            let watched = self.model.settings.get(number).and_then(|settings| settings.vacancy);
            let Some(vacancy) = watched else { continue };
            let free = self.vacancy(number);
            let Some(settings) = Arc::make_mut(&mut self.model.settings).get_mut(number) else { continue };
            if !settings.is_low && free < vacancy.down {
                settings.is_low = true;
                events.push((number, 3));
            } else if settings.is_low && free > vacancy.up {
                settings.is_low = false;
                events.push((number, 4));
            }
        }
        events
    }
}
