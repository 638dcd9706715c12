//! Flows, groups and meters in the syntax of `ovs-ofctl`: the first byte chooses version, command and kind.
//!
//! Invariants:
//! - No panic, and none while the result is encoded.
//! - A meter reads back as it prints.
#![no_main]

use libfuzzer_sys::fuzz_target;
use openflow::message::{Body, FlowModCommand, GroupDesc, GroupModCommand, MeterConfig, MeterModCommand};
use openflow::text::{group_text, meter_text, parse_flow, parse_group, parse_meter};
use openflow::{Message, Version};

fuzz_target!(|data: &[u8]| {
    let Some((choice, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let version = Version::ALL[usize::from(choice & 7).min(5)];
    let deletes = choice & 8 != 0;
    let body = match choice >> 4 & 3 {
        0 => {
            let command = if deletes { FlowModCommand::Delete } else { FlowModCommand::Add };
            parse_flow(text, command, version).map(|flow| Body::FlowMod(Box::new(flow)))
        }
        1 => {
            let command = if deletes { GroupModCommand::InsertBucket } else { GroupModCommand::Add };
            parse_group(text, command, version).map(|change| {
                let openflow::message::GroupMod { kind, group, buckets, properties, .. } = change.clone();
                group_text(&GroupDesc { kind, group, buckets, properties }, version);
                Body::GroupMod(change)
            })
        }
        _ => parse_meter(text, MeterModCommand::Add).map(|change| {
            let openflow::message::MeterMod { flags, meter, bands, .. } = change.clone();
            let printed = meter_text(&MeterConfig { flags, meter, bands });
            let read = parse_meter(&printed, MeterModCommand::Add).expect("what is printed can be read");
            assert_eq!((read.meter, read.flags), (change.meter, change.flags));
            assert_eq!(read.bands.len(), change.bands.len());
            Body::MeterMod(change)
        }),
    };
    if let Ok(body) = body {
        let _ = Message::new(version, 1, body).into_bytes();
    }
});
