//! Whether two P4Infos describe the same interface.
//!
//! Order, documentation, annotations and the package do not matter, nor does what older compilers leave out.

use std::collections::{BTreeMap, BTreeSet};

use p4::info::proto::{self, MatchField, Preamble};
use p4runtime_proto::P4Info;

/// The first difference between the P4Info that a controller sends and the program's, in words.
pub(super) fn difference(sent: &P4Info, own: &P4Info) -> Option<String> {
    let (sent, own) = (interface(sent), interface(own));
    macro_rules! first_difference {
        ($($list:ident = $what:literal),*) => {
            $(if let Some(difference) = lists($what, &sent.$list, &own.$list, |x| x.preamble.as_ref()) {
                return Some(difference);
            })*
        };
    }
    first_difference!(
        tables = "table",
        actions = "action",
        action_profiles = "action profile",
        counters = "counter",
        direct_counters = "direct counter",
        meters = "meter",
        direct_meters = "direct meter",
        controller_packet_metadata = "controller header",
        value_sets = "value set",
        registers = "register",
        digests = "digest"
    );
    None
}

fn lists<T: PartialEq>(
    what: &str,
    sent: &[T],
    own: &[T],
    preamble: impl Fn(&T) -> Option<&Preamble>,
) -> Option<String> {
    let key = |item: &T| preamble(item).map_or((0, String::new()), |p| (p.id, p.name.clone()));
    let own: BTreeMap<_, _> = own.iter().map(|item| (key(item), item)).collect();
    let mut seen = BTreeSet::new();
    for item in sent {
        let key = key(item);
        match own.get(&key) {
            None => return Some(format!("{what} {} with id {} is not in the program", key.1, key.0)),
            Some(other) if *other != item => return Some(format!("{what} {} differs", key.1)),
            Some(_) => drop(seen.insert(key)),
        }
    }
    let missing = own.keys().find(|key| !seen.contains(*key));
    missing.map(|(id, name)| format!("{what} {name} with id {id} is missing in it"))
}

/// The part that is compared, in a fixed order.
fn interface(info: &P4Info) -> P4Info {
    let mut info = info.clone();
    info.pkg_info = None;
    info.type_info = None;
    for table in &mut info.tables {
        strip(&mut table.preamble);
        fields(&mut table.match_fields);
        for reference in &mut table.action_refs {
            *reference = proto::ActionRef { id: reference.id, scope: reference.scope, ..Default::default() };
        }
        table.action_refs.sort_by_key(|reference| reference.id);
        table.direct_resource_ids.sort_unstable();
        table.initial_default_action = None;
        table.has_initial_entries = false;
        table.other_properties = None;
    }
    for action in &mut info.actions {
        strip(&mut action.preamble);
        for param in &mut action.params {
            *param = proto::action::Param {
                id: param.id,
                name: std::mem::take(&mut param.name),
                bitwidth: param.bitwidth,
                ..Default::default()
            };
        }
        action.params.sort_by_key(|param| param.id);
    }
    for profile in &mut info.action_profiles {
        strip(&mut profile.preamble);
        profile.table_ids.sort_unstable();
    }
    for counter in &mut info.counters {
        strip(&mut counter.preamble);
        counter.index_type_name = None;
    }
    info.direct_counters.iter_mut().for_each(|counter| strip(&mut counter.preamble));
    for meter in &mut info.meters {
        strip(&mut meter.preamble);
        meter.index_type_name = None;
    }
    info.direct_meters.iter_mut().for_each(|meter| strip(&mut meter.preamble));
    for header in &mut info.controller_packet_metadata {
        strip(&mut header.preamble);
        for field in &mut header.metadata {
            *field = proto::controller_packet_metadata::Metadata {
                id: field.id,
                name: std::mem::take(&mut field.name),
                bitwidth: field.bitwidth,
                ..Default::default()
            };
        }
        header.metadata.sort_by_key(|field| field.id);
    }
    for set in &mut info.value_sets {
        strip(&mut set.preamble);
        fields(&mut set.r#match);
    }
    for register in &mut info.registers {
        strip(&mut register.preamble);
        register.index_type_name = None;
    }
    info.digests.iter_mut().for_each(|digest| strip(&mut digest.preamble));
    info
}

fn strip(preamble: &mut Option<Preamble>) {
    if let Some(preamble) = preamble {
        *preamble =
            Preamble { id: preamble.id, name: std::mem::take(&mut preamble.name), ..Default::default() };
    }
}

fn fields(list: &mut [MatchField]) {
    for field in list.iter_mut() {
        *field = MatchField {
            id: field.id,
            name: std::mem::take(&mut field.name),
            bitwidth: field.bitwidth,
            r#match: field.r#match.take(),
            ..Default::default()
        };
    }
    list.sort_by_key(|field| field.id);
}
