//! What tables can do (OpenFlow 1.3.5, section 7.3.5.5): all of them the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use openflow::error::ErrorCode;
use openflow::field::{Access, FIELDS, Field, FieldId, Masks};
use openflow::message::{
    Body, FieldIds, TableConfig, TableFeature, TableFeatures, TableIds, TypeId, TypeIds, Words,
};
use openflow::oxm::{OxmHeader, OxmId};
use openflow::{Message, Text, Version};

use super::Switch;
use crate::connection::{ConnectionId, Partial};
use crate::ports::text;
use crate::program::{Layout, TABLES};

/// Messages of a request at most: all tables, with all that they can do, take about a dozen.
const MOST_MESSAGES: usize = 32;

/// The last action of version 1.2: its number is that of `set_field`.
const LAST_OF_V1_2: u16 = 25;
/// Actions of the standard in the set and at once: all but those of later versions.
const ACTIONS: [u16; 16] = [0, 11, 12, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27];

fn types(kinds: impl Iterator<Item = u16>) -> TypeIds {
    TypeIds(kinds.map(|kind| TypeId { kind, body: vec![] }).collect())
}

/// Fields that tables match, with their numbers in a version. Tunnels' options can be matched once they have a map.
fn matched(version: Version) -> impl Iterator<Item = (&'static Field, OxmId)> {
    let keys = &Layout::get().keys;
    let is_matched = |field: &&Field| keys.spot(field.id).is_some() || field.is_variable();
    FIELDS.iter().filter(is_matched).map(move |field| (field, field.number_in(version)))
}

/// Fields that actions set. Those that say what follows, such as types, can be set too; that makes packets that others
/// misread, and is not offered.
fn settable(version: Version) -> impl Iterator<Item = (&'static Field, OxmId)> {
    let layout = Layout::get();
    let has_action = |field: &Field| {
        field.is_variable() || field.id == FieldId::NwTos || layout.stores.contains_key(&field.id)
    };
    matched(version).filter(move |(field, _)| field.access == Access::Settable && has_action(field))
}

/// What all tables can do, as the bitmaps of version 1.2.
pub(super) struct Bitmaps {
    pub(super) matched: u64,
    pub(super) settable: u64,
    pub(super) actions: u32,
}

impl Bitmaps {
    pub(super) fn new(version: Version) -> Self {
        let of_standard = |bits: u64, (_, id): (&Field, OxmId)| match id.class {
            OxmId::BASIC => bits | 1u64.checked_shl(id.field.into()).unwrap_or(0),
            _ => bits,
        };
        let actions = ACTIONS.iter().filter(|kind| **kind <= LAST_OF_V1_2);
        Bitmaps {
            matched: matched(version).fold(0, of_standard),
            settable: settable(version).fold(0, of_standard),
            actions: actions.fold(0, |bits, kind| bits | 1 << kind),
        }
    }
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
        let wildcards = matched(version).map(|(field, id)| header(field, id, false)).collect();
        let matched =
            matched(version).map(|(field, id)| header(field, id, field.masks == Masks::Masked)).collect();
        let settable = || FieldIds(settable(version).map(|(field, id)| header(field, id, false)).collect());
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

    /// Puts a request of several messages together, which is answered once; `None`: more of it follows.
    pub(super) fn whole_request(
        &mut self,
        id: ConnectionId,
        message: &Message,
        part: &[TableFeatures],
    ) -> Result<Option<Vec<TableFeatures>>, ErrorCode> {
        let more = matches!(&message.body, Body::MultipartRequest(request) if request.more);
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(None) };
        let before = connection.partial.take().filter(|partial| partial.xid == message.xid);
        let mut partial = before.unwrap_or_else(|| Partial { xid: message.xid, ..Partial::default() });
        partial.messages += 1;
        partial.tables.extend_from_slice(part);
        if !more {
            return Ok(Some(partial.tables));
        }
        if partial.messages >= MOST_MESSAGES {
            return Err(ErrorCode::BrcMultipartBufferOverflow);
        }
        connection.partial = Some(partial);
        Ok(None)
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
        let all = Arc::make_mut(&mut self.datapath.model.settings);
        for features in wanted {
            let Some(settings) = all.get_mut(usize::from(features.table_id)) else { continue };
            if !self.settings.tables.contains_key(&features.table_id) {
                settings.name = Some(features.name.clone());
            }
            settings.max_entries = (features.max_entries > 0).then_some(features.max_entries);
        }
        Ok(())
    }
}
