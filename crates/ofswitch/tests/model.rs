//! Flow-mods against a plain list of flows: additions, modifications and deletions, strict or not, with cookies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use openflow::Version;
use openflow::message::{Body, FlowModCommand};
use openflow::multipart::{FlowStatsRequest, Multipart, Reply, Request};
use openflow::{PortNo, version};
use proptest::prelude::*;
use support::World;

/// A match of the model: an ingress port, or any; and the low bits of a destination, as value and mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pattern {
    port: Option<u8>,
    dst: (u8, u8),
}

impl Pattern {
    fn text(self) -> String {
        let mut text = String::new();
        if let Some(port) = self.port {
            text += &format!(",in_port={port}");
        }
        if self.dst.1 != 0 {
            text += &format!(",dl_dst=00:00:00:00:00:{:02x}/00:00:00:00:00:{:02x}", self.dst.0, self.dst.1);
        }
        text
    }

    fn covers(self, other: Pattern) -> bool {
        let port = self.port.is_none() || self.port == other.port;
        port && self.dst.1 & other.dst.1 == self.dst.1 && other.dst.0 & self.dst.1 == self.dst.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    table: u8,
    priority: u16,
    pattern: Pattern,
    cookie: u64,
    output: u8,
}

#[derive(Debug, Clone)]
struct Change {
    command: FlowModCommand,
    entry: Entry,
    cookie_mask: u64,
    all_tables: bool,
}

fn changes() -> impl Strategy<Value = Change> {
    use FlowModCommand::*;
    let command = prop_oneof![3 => Just(Add), 1 => Just(Modify), 1 => Just(ModifyStrict), 1 => Just(Delete), 1 => Just(DeleteStrict)];
    let pattern = (prop::option::of(1u8..3), 0u8..4, 0u8..4)
        .prop_map(|(port, value, mask)| Pattern { port, dst: (value & mask, mask) });
    let entry =
        (0u8..2, 0u16..2, pattern, 0u64..4, 1u8..5).prop_map(|(table, priority, pattern, cookie, output)| {
            Entry { table, priority, pattern, cookie, output }
        });
    (command, entry, 0u64..4, any::<bool>()).prop_map(|(command, entry, cookie_mask, all_tables)| Change {
        command,
        entry,
        cookie_mask,
        all_tables,
    })
}

fn apply(model: &mut Vec<Entry>, change: &Change) {
    let wanted = &change.entry;
    let all =
        change.all_tables && matches!(change.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
    let strict = matches!(change.command, FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict);
    let chosen = |entry: &Entry| {
        let fits = match strict {
            true => entry.priority == wanted.priority && entry.pattern == wanted.pattern,
            false => wanted.pattern.covers(entry.pattern),
        };
        fits && (all || entry.table == wanted.table)
            && entry.cookie & change.cookie_mask == wanted.cookie & change.cookie_mask
    };
    match change.command {
        FlowModCommand::Add => {
            let same = |e: &Entry| {
                (e.table, e.priority, e.pattern) == (wanted.table, wanted.priority, wanted.pattern)
            };
            model.retain(|entry| !same(entry));
            model.push(wanted.clone());
        }
        FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
            model.iter_mut().filter(|entry| chosen(entry)).for_each(|entry| entry.output = wanted.output);
        }
        FlowModCommand::Delete | FlowModCommand::DeleteStrict => model.retain(|entry| !chosen(entry)),
    }
}

/// The flows that the switch has, as it tells them.
fn told(world: &mut World) -> Vec<Entry> {
    let request = FlowStatsRequest {
        table_id: version::table::ALL,
        out_port: PortNo::ANY,
        out_group: version::group::ANY,
        ..FlowStatsRequest::default()
    };
    world.send(Body::MultipartRequest(Multipart { more: false, content: Request::Flow(request) }));
    let mut entries = Vec::new();
    for message in world.messages() {
        let Body::MultipartReply(Multipart { content: Reply::Flow(flows), .. }) = message.body else {
            panic!("{message:?}")
        };
        for flow in flows {
            let fields = flow.matching.to_fields().unwrap();
            let mut pattern = Pattern { port: None, dst: (0, 0) };
            for oxm in &fields {
                match oxm.field().unwrap().id {
                    openflow::field::FieldId::InPortOxm => pattern.port = Some(oxm.value_number() as u8),
                    _ => pattern.dst = (oxm.value_number() as u8, oxm.mask_number() as u8),
                }
            }
            let output = match flow.instructions.applied() {
                [openflow::action::Action::Output(output)] => output.port.0 as u8,
                actions => panic!("{actions:?}"),
            };
            entries.push(Entry {
                table: flow.table_id,
                priority: flow.priority,
                pattern,
                cookie: flow.cookie,
                output,
            });
        }
    }
    entries.sort();
    entries
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn flow_mods_do_what_a_list_does(changes in prop::collection::vec(changes(), 1..40)) {
        let mut world = World::new(Version::V1_3);
        let mut model = Vec::new();
        for change in &changes {
            apply(&mut model, change);
            let entry = &change.entry;
            let flow = format!("table={},priority={}{},actions=output:{}", entry.table, entry.priority, entry.pattern.text(), entry.output);
            let mut flow = openflow::text::parse_flow(&flow, FlowModCommand::Add, Version::V1_3).unwrap();
            flow.command = change.command;
            flow.cookie = entry.cookie;
            flow.cookie_mask = change.cookie_mask;
            if matches!(change.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict) && change.all_tables {
                flow.table_id = version::table::ALL;
            }
            world.send(Body::FlowMod(Box::new(flow)));
            prop_assert_eq!(world.errors(), [""; 0]);
        }
        model.sort();
        prop_assert_eq!(told(&mut world), model.clone());
        prop_assert_eq!(world.switch.flow_count(), model.len());
        // Packets meet the first table's flow with the highest priority; of equal ones any.
        for (port, dst) in [(1, 0u8), (1, 3), (2, 1), (2, 2)] {
            let mut packet = vec![0; 60];
            packet[5] = dst;
            packet[12] = 0x90;
            let matches = |e: &&Entry| e.table == 0 && e.pattern.port.is_none_or(|p| u32::from(p) == port) && dst & e.pattern.dst.1 == e.pattern.dst.0;
            let best = model.iter().filter(matches).map(|entry| entry.priority).max();
            let wanted: Vec<u8> = model.iter().filter(matches).filter(|e| Some(e.priority) == best).map(|e| e.output).collect();
            let got = world.packet(port, &packet);
            match got.first().and_then(|line| line.split(": ").next()?.parse::<u8>().ok()) {
                Some(output) => prop_assert!(wanted.contains(&output), "{:?} {:?}", got, wanted),
                None => prop_assert!(wanted.is_empty() || wanted.iter().any(|output| u32::from(*output) == port), "{:?} {:?}", got, wanted),
            }
        }
    }
}
