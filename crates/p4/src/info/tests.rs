use super::*;
use crate::check::check;
use crate::parse::{self, Parsed};

const TEXT: &str = r#"# proto-file: p4/config/v1/p4info.proto
# proto-message: p4.config.v1.P4Info

pkg_info {
  arch: "v1model"
}
tables {
  preamble {
    id: 33554439
    name: "ingress.t"
    alias: "t"
  }
  match_fields {
    id: 1
    name: "hdr.ethernet.dst"
    bitwidth: 48
    match_type: EXACT
  }
  initial_default_action {
    action_id: 21257015
  }
  size: 1024
}
type_info {
  serializable_enums {
    key: "kind"
    value {
      underlying_type {
        bitwidth: 8
      }
      members {
        name: "odd"
        value: "\201"
      }
    }
  }
}
"#;

#[test]
fn the_text_form_is_read_and_written() {
    let info = read(TEXT).unwrap();
    assert_eq!(info.tables[0].match_fields[0].bitwidth, 48);
    assert_eq!(String::from_utf8(print(&info, Form::Text).unwrap()).unwrap(), TEXT);
}

#[test]
fn the_json_form_is_that_of_protocol_buffers() {
    let info = read("tables { preamble { id: 7 } const_default_action_id: 3 size: 5 }").unwrap();
    let json: serde_json::Value = serde_json::from_slice(&print(&info, Form::Json).unwrap()).unwrap();
    let expected =
        serde_json::json!({"tables": [{"preamble": {"id": 7}, "constDefaultActionId": 3, "size": "5"}]});
    assert_eq!(json, expected);
}

#[test]
fn the_binary_form_is_read_again() {
    let info = read(TEXT).unwrap();
    let bytes = print(&info, Form::Binary).unwrap();
    assert_eq!(<P4Info as prost::Message>::decode(bytes.as_slice()).unwrap(), info);
}

#[test]
fn an_unknown_field_is_an_error() {
    assert!(read("tables { colour: 1 }").unwrap_err().contains("colour"));
}

/// A program for V1Switch: declarations, and the ingress control's declarations and body.
fn program(declarations: &str, locals: &str, body: &str) -> String {
    format!(
        r#"#include <core.p4>
#include <v1model.p4>
header ethernet_t {{ bit<48> dst; bit<48> src; bit<16> kind; }}
struct headers {{ ethernet_t eth; }}
struct metadata {{ bit<8> a; bit<8> b; }}
{declarations}
parser prs(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t s) {{
    state start {{ transition accept; }}
}}
control none(inout headers hdr, inout metadata m) {{ apply {{}} }}
control ingress(inout headers hdr, inout metadata m, inout standard_metadata_t s) {{
    {locals}
    apply {{ {body} }}
}}
control egress(inout headers hdr, inout metadata m, inout standard_metadata_t s) {{ apply {{}} }}
control deparser(packet_out p, in headers hdr) {{ apply {{}} }}
V1Switch(prs(), none(), ingress(), egress(), none(), deparser()) main;
"#
    )
}

/// The P4Info of a program, with its errors.
fn compiled(text: &str) -> (P4Info, Vec<String>) {
    let Parsed { program, sources, mut diagnostics, .. } = parse::text("t.p4", text, &Default::default());
    let checked = check(&program, &mut diagnostics).filter(|_| diagnostics.errors() == 0);
    let checked = checked.unwrap_or_else(|| panic!("{:?}", diagnostics.list()));
    let info = of(&checked, &sources, &mut diagnostics);
    let errors = diagnostics.list().iter().filter(|d| d.severity == crate::diagnostic::Severity::Error);
    let errors = errors.map(|error| error.message.clone()).collect();
    (info, errors)
}

fn info(declarations: &str, locals: &str, body: &str) -> P4Info {
    let (info, errors) = compiled(&program(declarations, locals, body));
    assert_eq!(errors, [""; 0]);
    info
}

/// Names of a list of objects.
macro_rules! names {
    ($list:expr) => {
        $list.iter().map(|object| object.preamble.as_ref().unwrap().name.as_str()).collect::<Vec<_>>()
    };
}

#[test]
fn a_table_has_keys_actions_and_a_default() {
    let info = info(
        "",
        r#"action set(bit<9> port, @id(7) bit<8> a, bool b) { s.egress_spec = port; }
        @brief("what it does") @id(9) table t {
            key = {
                hdr.eth.dst: exact; hdr.eth.isValid(): ternary @name("valid");
                m.a & 0x0f: lpm; hdr.eth.kind[7:0]: optional;
            }
            actions = { set; @defaultonly NoAction; }
            const default_action = set(5, 6, true);
            size = 100;
        }"#,
        "t.apply();",
    );
    let table = &info.tables[0];
    let preamble = table.preamble.as_ref().unwrap();
    assert_eq!(
        (preamble.id, preamble.name.as_str(), preamble.alias.as_str()),
        (0x0200_0009, "ingress.t", "t")
    );
    assert_eq!(preamble.doc.as_ref().unwrap().brief, "what it does");
    let keys: Vec<_> =
        table.match_fields.iter().map(|key| (key.id, key.name.as_str(), key.bitwidth)).collect();
    let expected =
        [(1, "hdr.eth.dst", 48), (2, "valid", 1), (3, "m.a & 0xf", 8), (4, "hdr.eth.kind[7:0]", 8)];
    assert_eq!(keys, expected);
    let params: Vec<_> = info.actions[0].params.iter().map(|p| (p.id, p.name.as_str(), p.bitwidth)).collect();
    assert_eq!(params, [(1, "port", 9), (7, "a", 8), (2, "b", 1)]);
    let set = info.actions[0].preamble.as_ref().unwrap().id;
    assert_eq!(table.const_default_action_id, set);
    let arguments = &table.initial_default_action.as_ref().unwrap().arguments;
    let arguments: Vec<_> = arguments.iter().map(|a| (a.param_id, a.value.as_slice())).collect();
    assert_eq!(arguments, [(1, &[0, 5][..]), (7, &[6]), (2, &[1])]);
    let scopes: Vec<_> = table.action_refs.iter().map(|action| action.scope().as_str_name()).collect();
    assert_eq!(scopes, ["TABLE_AND_DEFAULT", "DEFAULT_ONLY"]);
    assert_eq!((table.size, table.is_const_table), (100, false));
}

#[test]
fn what_is_not_used_is_left_out() {
    let info = info(
        "control unused() { counter(1, CounterType.bytes) c; apply {} }",
        r#"action a() {} action b() {} action d() {} action c() { d(); }
        table t { actions = { a; } }
        table u { actions = { b; } }
        table v { key = { m.a: exact; } actions = { NoAction; } }
        table w { key = { v.apply().hit: exact @name("v"); } actions = { NoAction; } }
        unused() other;
        register<bit<8>>(4) r;"#,
        "if (false) { u.apply(); } else { t.apply(); } c(); w.apply();",
    );
    assert_eq!(names!(info.tables), ["ingress.t", "ingress.w", "ingress.v"]);
    assert_eq!(names!(info.actions), ["ingress.a", "NoAction", "ingress.c"]);
    assert_eq!(names!(info.counters), [""; 0]);
    assert_eq!(names!(info.registers), ["ingress.r"]);
}

#[test]
fn controls_are_listed_as_often_as_they_are_instantiated() {
    let info = info(
        "control sub(inout metadata m)(bit<32> size, bool on) {
            counter(size, CounterType.packets) seen;
            action a(bit<8> v) { m.a = v; }
            table t { actions = { a; } size = 2 * size; }
            apply { if (on) { t.apply(); } seen.count(0); }
        }",
        r#"sub(10, true) x; @name("named") sub(20, true) y; sub(30, false) z;"#,
        "x.apply(m); y.apply(m); z.apply(m);",
    );
    let sizes: Vec<_> = info.tables.iter().map(|table| table.size).collect();
    assert_eq!((names!(info.tables), sizes), (vec!["ingress.x.t", "ingress.named.t"], vec![20, 40]));
    let alias = &info.tables[0].preamble.as_ref().unwrap().alias;
    assert_eq!(alias, "x.t");
    assert_eq!(names!(info.counters), ["ingress.x.seen", "ingress.named.seen", "ingress.z.seen"]);
}

#[test]
fn tables_have_their_resources() {
    let info = info(
        "",
        r#"direct_counter(CounterType.packets_and_bytes) c;
        direct_meter<bit<8>>(MeterType.bytes) d;
        @max_group_size(8) action_selector(HashAlgorithm.crc16, 64, 10) shared;
        action a() { c.count(); d.read(m.a); }
        table t { key = { m.a: exact; m.b: selector; } actions = { a; }
            counters = c; meters = d; implementation = shared; }
        table u { key = { m.b: exact; } actions = { NoAction; } @name("own") implementation = action_profile(3);
            support_timeout = true; }"#,
        "t.apply(); u.apply();",
    );
    let id = |preamble: &Option<proto::Preamble>| preamble.as_ref().unwrap().id;
    let (t, u) = (&info.tables[0], &info.tables[1]);
    let (counter, meter) = (&info.direct_counters[0], &info.direct_meters[0]);
    assert_eq!(t.direct_resource_ids, [id(&counter.preamble), id(&meter.preamble)]);
    assert_eq!((counter.direct_table_id, meter.direct_table_id), (id(&t.preamble), id(&t.preamble)));
    assert_eq!(t.match_fields.len(), 1);
    assert_eq!(names!(info.action_profiles), ["own", "ingress.shared"]);
    let (own, shared) = (&info.action_profiles[0], &info.action_profiles[1]);
    assert_eq!((u.implementation_id, t.implementation_id), (id(&own.preamble), id(&shared.preamble)));
    assert_eq!((own.size, own.with_selector, own.max_group_size), (3, false, 0));
    assert_eq!((shared.size, shared.with_selector, shared.max_group_size), (64, true, 8));
    assert_eq!((&own.table_ids, &shared.table_ids), (&vec![id(&u.preamble)], &vec![id(&t.preamble)]));
    assert_eq!(u.idle_timeout_behavior().as_str_name(), "NOTIFY_CONTROL");
}

#[test]
fn types_that_controllers_see_are_described() {
    let info = info(
        r#"@p4runtime_translation("mine/port", string) type bit<9> port_t;
        enum bit<4> kind_t { A = 1, B = 12 }
        struct pair<T> { T first; kind_t second; }
        @controller_header("packet_in") header in_t { port_t port; bit<7> pad; }"#,
        "register<kind_t>(2) r;
        action a(port_t p) { digest<pair<bit<8>>>(1, { m.a, kind_t.A }); }
        table t { actions = { a; } }",
        "t.apply();",
    );
    let types = info.type_info.as_ref().unwrap();
    let members = &types.serializable_enums["kind_t"].members;
    assert_eq!(members.iter().map(|m| m.value.as_slice()).collect::<Vec<_>>(), [[1], [12]]);
    assert_eq!(types.structs.keys().collect::<Vec<_>>(), ["pair_bit8"]);
    assert_eq!(names!(info.digests), ["pair_bit8"]);
    assert_eq!(info.actions[0].params[0].bitwidth, 0);
    let header = &info.controller_packet_metadata[0];
    assert_eq!(header.preamble.as_ref().unwrap().name, "packet_in");
    let fields: Vec<_> = header.metadata.iter().map(|f| (f.id, f.name.as_str(), f.bitwidth)).collect();
    assert_eq!(fields, [(1, "port", 0), (2, "pad", 7)]);
}

#[test]
fn equal_names_and_foreign_ids_are_errors() {
    let sub = r#"control sub() { @name(".t") table t { actions = { NoAction; } } apply { t.apply(); } }"#;
    let (_, errors) = compiled(&program(sub, "sub() x; sub() y;", "x.apply(); y.apply();"));
    assert_eq!(errors, ["two tables have the name `t`: a controller cannot tell them apart"]);
    let table = "@id(0x01000001) table t { actions = { NoAction; } }";
    let (_, errors) = compiled(&program("", table, "t.apply();"));
    assert_eq!(errors, ["`@id` of `ingress.t` has the top byte of another kind (expected 0x02)"]);
}

#[test]
fn a_small_program_cannot_make_the_message_large() {
    let mut declarations = "typedef bit<1> t0;\n".to_owned();
    for level in 1..16 {
        declarations += &format!("typedef tuple<t{0}, t{0}> t{level};\n", level - 1);
    }
    let text = program(&declarations, "register<t15>(1) a; register<t15>(1) b;", "");
    let (_, errors) = compiled(&text);
    assert_eq!(errors, ["types that a controller sees are too large or too deeply nested"]);
}
