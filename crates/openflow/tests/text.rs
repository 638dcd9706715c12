//! Flow-mods as text, against what `ovs-ofctl ofp-print` wrote for the same bytes (`corpus/record.py`).
#![allow(clippy::unwrap_used)]

use openflow::matching::Match;
use openflow::message::{Body, FlowModCommand};
use openflow::multipart::Reply;
use openflow::oxm::Oxm;
use openflow::text::{
    flow_entry_text, flow_mod_text, instructions_text, match_text, parse_flow, parse_instructions,
};
use openflow::{Message, Version};

#[test]
fn flow_mods_print_as_ovs_ofctl_prints_them() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/flow_mods.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let (mut same, mut other) = (0, Vec::new());
    for line in text.lines() {
        let (message, expected) = line.split_once(' ').unwrap();
        // ovs-ofctl leaves out fields of network service headers, ERSPAN and GTP-U, or their masks.
        if ["0x894f", "erspan", "gtpu"].iter().any(|name| expected.contains(name)) {
            continue;
        }
        let pairs = message.as_bytes().chunks_exact(2);
        let bytes: Vec<u8> =
            pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
        let message = Message::decode(&bytes).unwrap();
        let Body::FlowMod(flow) = &message.body else { panic!("not a flow-mod: {message:?}") };
        let printed = flow_mod_text(flow, message.version).unwrap();
        if printed == expected {
            same += 1;
        } else {
            other.push(format!("{expected}\n{printed}\n"));
        }
    }
    assert!(same > 300, "{same}");
    assert!(other.is_empty(), "{} of {}:\n{}", other.len(), same + other.len(), other.join("\n"));
}

/// The recorded flow-mods.
fn recorded() -> Vec<Message> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/flow_mods.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let decode = |line: &str| {
        let pairs = line.split(' ').next().unwrap().as_bytes().chunks_exact(2);
        let bytes: Vec<u8> =
            pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
        Message::decode(&bytes).unwrap()
    };
    text.lines().map(decode).collect()
}

#[test]
fn actions_read_back_as_printed() {
    let mut read = 0;
    for message in recorded() {
        let Body::FlowMod(flow) = &message.body else { panic!("not a flow-mod") };
        let printed = instructions_text(&flow.instructions, message.version);
        let again = parse_instructions(&printed, message.version)
            .unwrap_or_else(|error| panic!("{error}: {printed} in {}", message.version));
        assert_eq!(instructions_text(&again, message.version), printed);
        // What ovs-ofctl writes alike for two actions is read as one of them, and tunnel metadata has a shorter form.
        let alike = [
            "tun_metadata",
            "set_field",
            "move:",
            "load:",
            "resubmit:",
            "CONTROLLER",
            "alg=",
            "sample",
            "pop_queue",
        ];
        if !alike.iter().any(|word| printed.contains(word)) {
            assert_eq!(again, flow.instructions, "{printed}");
            read += 1;
        }
    }
    assert!(read > 200, "{read}");
}

#[test]
fn matches_read_back_as_printed() {
    for message in recorded() {
        let Body::FlowMod(flow) = &message.body else { panic!("not a flow-mod") };
        let printed = flow_mod_text(flow, message.version).unwrap();
        let fields: Vec<Oxm> = flow.matching.to_fields().unwrap();
        let text = format!("{} actions=drop", match_text(&fields));
        // A cookie is no field, tunnel metadata has a shorter form, and fixed matches have another VLAN.
        let fixed = !matches!(flow.matching, Match::Fields(_));
        if printed.contains("cookie:") || text.contains("tun_metadata") || fixed {
            continue;
        }
        let again = parse_flow(&text, FlowModCommand::Add, message.version)
            .unwrap_or_else(|error| panic!("{error}: {text} in {}", message.version));
        let Match::Fields(fields) = &again.matching else { panic!("no fields") };
        assert_eq!(format!("{} actions=drop", match_text(fields)), text, "{}", message.version);
        assert_eq!(again.matching.check(), Ok(()), "{text}");
    }
}

#[test]
fn flows_are_read_as_ovs_ofctl_reads_them() {
    let text = "table=3, priority=7,cookie=0x12,idle_timeout=5 send_flow_rem,tcp,tp_dst=80,nw_src=10.0.0.0/8 \
                actions=mod_nw_dst:1.2.3.4,resubmit(,4),output:LOCAL";
    let flow = parse_flow(text, FlowModCommand::Add, Version::V1_0).unwrap();
    assert_eq!(
        flow_mod_text(&flow, Version::V1_0).unwrap(),
        "ADD table:3 priority=7,tcp,nw_src=10.0.0.0/8,tp_dst=80 cookie:0x12 idle:5 send_flow_rem \
         actions=mod_nw_dst:1.2.3.4,resubmit(,4),LOCAL"
    );
    let message = Message::new(Version::V1_0, 1, Body::FlowMod(Box::new(flow)));
    assert_eq!(message.check(), Ok(()));
    assert_eq!(Message::decode(&message.encode().unwrap()).unwrap(), message);
    let delete = parse_flow("cookie=5/-1,ip", FlowModCommand::Delete, Version::V1_3).unwrap();
    assert_eq!((delete.cookie, delete.cookie_mask, delete.table_id), (5, u64::MAX, 255));
}

#[test]
fn texts_that_are_no_flows_are_refused_with_what_was_expected() {
    let cases = [
        ("in_port=1", "expected actions, found `nothing`"),
        ("nosuch=1,actions=drop", "expected field, found `nosuch`"),
        ("ip,nw_src=1.2.3,actions=drop", "expected IPv4 address, found `1.2.3`"),
        ("actions=fly", "expected action, found `fly`"),
        ("actions=push_vlan:0x8100", "expected action of this version, found `push_vlan:0x8100`"),
        ("priority=70000,actions=drop", "expected number in its range, found `70000`"),
        ("tp_src=5,actions=drop", "expected protocol before a field that depends on it, found `tp_src`"),
    ];
    for (text, expected) in cases {
        let error = parse_flow(text, FlowModCommand::Add, Version::V1_0).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text}");
    }
}

#[test]
fn lists_of_actions_nest_to_a_limit() {
    let text = format!("actions={}{}", "clone(".repeat(100_000), ")".repeat(100_000));
    let error = parse_flow(&text, FlowModCommand::Add, Version::V1_3).unwrap_err();
    assert_eq!(error.expected, "list of actions that nests less");
}

#[test]
fn flows_print_as_ovs_ofctl_dumps_them() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/flow_dumps.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut flows = 0;
    for line in text.lines() {
        let (message, expected) = line.split_once(' ').unwrap();
        let pairs = message.as_bytes().chunks_exact(2);
        let bytes: Vec<u8> =
            pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
        let message = Message::decode(&bytes).unwrap();
        let Body::MultipartReply(reply) = &message.body else { panic!("not a reply") };
        let Reply::Flow(entries) = &reply.content else { panic!("not flows") };
        assert_eq!(entries.len(), expected.split('\t').count());
        for (entry, expected) in entries.iter().zip(expected.split('\t')) {
            if ["0x894f", "erspan", "gtpu"].iter().any(|name| expected.contains(name)) {
                continue;
            }
            assert_eq!(flow_entry_text(entry, message.version).unwrap(), expected);
            flows += 1;
        }
    }
    assert!(flows > 20, "{flows}");
}
