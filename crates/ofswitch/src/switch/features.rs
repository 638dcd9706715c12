//! What tables can do (OpenFlow 1.3.5, section 7.3.5.5): all of them the same.

use std::collections::BTreeMap;

use openflow::error::ErrorCode;
use openflow::field::{Access, FIELDS, Field, Masks};
use openflow::message::{
    FieldIds, TableConfig, TableFeature, TableFeatures, TableIds, TypeId, TypeIds, Words,
};
use openflow::oxm::{OxmHeader, OxmId};
use openflow::{Text, Version};

use super::Switch;
use crate::ports::text;
use crate::program::{Layout, TABLES};

/// Actions of the standard in the set and at once: all but those of later versions.
const ACTIONS: [u16; 16] = [0, 11, 12, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27];

fn types(kinds: impl Iterator<Item = u16>) -> TypeIds {
    TypeIds(kinds.map(|kind| TypeId { kind, body: vec![] }).collect())
}

/// Fields of the standard that tables match.
fn standard(version: Version) -> impl Iterator<Item = (&'static Field, OxmId)> {
    let keys = &Layout::get().keys;
    FIELDS.iter().filter(|field| keys.spot(field.id).is_some()).filter_map(move |field| {
        let id = field.number_in(version);
        (id.class == OxmId::BASIC).then_some((field, id))
    })
}

fn header(field: &Field, id: OxmId, masked: bool) -> OxmHeader {
    let len = field.bytes as u8;
    OxmHeader { id, masked, length: if masked { len * 2 } else { len } }
}

impl Switch {
    /// A table's name: the configured one, or that of a controller; empty if it has none, as in Open vSwitch.
    pub(super) fn table_name(&self, number: u8) -> Text {
        let given = || self.datapath.model.settings.get(usize::from(number))?.name.clone();
        let configured = self.settings.tables.get(&number).map(|name| text(name, 32));
        configured.or_else(given).unwrap_or_default()
    }

    /// Names of the tables that have one, by number.
    pub fn table_names(&self) -> BTreeMap<u8, String> {
        let name = |number| String::from_utf8_lossy(&self.table_name(number).0).into_owned();
        (0..TABLES).map(|number| (number, name(number))).filter(|(_, name)| !name.is_empty()).collect()
    }

    /// What all tables can do.
    pub(super) fn table_features(&self, version: Version) -> Vec<TableFeatures> {
        (0..TABLES).map(|number| self.features_of(number, version)).collect()
    }

    fn features_of(&self, number: u8, version: Version) -> TableFeatures {
        let last = number + 1 == TABLES;
        let instructions = || {
            let with_meter = version < Version::V1_5;
            types(
                [1u16, 2, 3, 4, 5, 6]
                    .into_iter()
                    .filter(|kind| !(last && *kind == 1) && (*kind != 6 || with_meter)),
            )
        };
        let actions = || types(ACTIONS.into_iter());
        let next = || TableIds((number + 1..TABLES).collect());
        let matched =
            standard(version).map(|(field, id)| header(field, id, field.masks == Masks::Masked)).collect();
        let wildcards = standard(version).map(|(field, id)| header(field, id, false)).collect();
        let settable = || {
            let layout = Layout::get();
            let fields = standard(version).filter(|(field, _)| {
                field.access >= Access::SetField && layout.stores.contains_key(&field.id)
            });
            FieldIds(fields.map(|(field, id)| header(field, id, false)).collect())
        };
        let mut properties = vec![
            TableFeature::Instructions(instructions()),
            TableFeature::InstructionsMiss(instructions()),
            TableFeature::NextTables(next()),
            TableFeature::NextTablesMiss(next()),
            TableFeature::WriteActions(actions()),
            TableFeature::WriteActionsMiss(actions()),
            TableFeature::ApplyActions(actions()),
            TableFeature::ApplyActionsMiss(actions()),
            TableFeature::Match(FieldIds(matched)),
            TableFeature::Wildcards(FieldIds(wildcards)),
            TableFeature::WriteSetField(settable()),
            TableFeature::WriteSetFieldMiss(settable()),
            TableFeature::ApplySetField(settable()),
            TableFeature::ApplySetFieldMiss(settable()),
        ];
        if version >= Version::V1_5 {
            // Ethernet packets only.
            properties.push(TableFeature::PacketTypes(Words(vec![0])));
        }
        let settings = self.datapath.model.settings.get(usize::from(number));
        TableFeatures {
            table_id: number,
            command: 0,
            features: u32::from(version >= Version::V1_5),
            name: self.table_name(number),
            metadata_match: u64::MAX,
            metadata_write: u64::MAX,
            capabilities: match version >= Version::V1_4 {
                true => TableConfig::EVICTION | TableConfig::VACANCY_EVENTS,
                false => TableConfig::empty(),
            },
            max_entries: settings.map_or(0, |settings| settings.size(&self.settings.limits)),
            properties,
        }
    }

    /// Names and sizes of tables can be changed; what they can do stays as it is.
    pub(super) fn set_table_features(
        &mut self,
        wanted: &[TableFeatures],
        version: Version,
    ) -> Result<(), ErrorCode> {
        for (at, features) in wanted.iter().enumerate() {
            if features.table_id >= TABLES {
                return Err(ErrorCode::TffcBadTable);
            }
            let earlier = wanted.get(..at).unwrap_or_default();
            if earlier.iter().any(|other| other.table_id == features.table_id) {
                return Err(ErrorCode::TffcBadTable);
            }
            // The configuration's names stay.
            let configured = self.settings.tables.get(&features.table_id).map(|name| text(name, 32));
            if configured.is_some_and(|name| !features.name.0.is_empty() && name != features.name) {
                return Err(ErrorCode::TffcEperm);
            }
            // Enabling and disabling are the last version's.
            if version >= Version::V1_5 && features.command > 1 {
                return Err(ErrorCode::TffcBadTable);
            }
        }
        for features in wanted {
            let Some(settings) = self.datapath.model.settings.get_mut(usize::from(features.table_id)) else {
                continue;
            };
            if !self.settings.tables.contains_key(&features.table_id) {
                settings.name = Some(features.name.clone());
            }
            settings.max_entries = (features.max_entries > 0).then_some(features.max_entries);
        }
        Ok(())
    }
}
