//! Documents that are damaged or made to cost: refused, with a reason, and soon.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy exempts test functions, but not their helpers")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

fn document(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn refusal(document: &Value) -> String {
    let text = document.to_string();
    let started = Instant::now();
    let refused = bmv2::lower(text.as_bytes(), None);
    assert!(started.elapsed() < Duration::from_secs(60), "{} bytes take {:?}", text.len(), started.elapsed());
    refused.map_or_else(|refusal| refusal.to_string(), |_| "accepted".into())
}

/// An action that is called by tables without keys.
fn calls(tables: usize, primitives: usize) -> Value {
    let mut document = document("calculator");
    let assign = json!({"op": "assign", "parameters": [
        {"type": "field", "value": ["scalars", "asker"]}, {"type": "field", "value": ["ethernet", "src"]},
    ]});
    document["actions"] =
        json!([{"name": "a", "id": 0, "runtime_data": [], "primitives": vec![assign; primitives]}]);
    let table = |i: usize| {
        let next = (i + 1 < tables).then(|| format!("tbl_{}", i + 1));
        json!({
            "name": format!("tbl_{i}"), "id": i, "key": [], "match_type": "exact", "type": "simple", "max_size": 1,
            "action_ids": [0], "actions": ["a"], "base_default_next": next, "next_tables": {"a": next},
            "default_entry": {"action_id": 0, "action_data": [], "action_entry_const": true},
        })
    };
    document["pipelines"][0]["tables"] = (0..tables).map(table).collect();
    document["pipelines"][0]["conditionals"] = json!([]);
    document["pipelines"][0]["init_table"] = json!("tbl_0");
    document
}

#[test]
fn nesting_is_bounded() {
    let mut document = document("calculator");
    let mut value = json!({"type": "hexstr", "value": "0x01"});
    for _ in 0..100 {
        value = json!({"type": "expression", "value": {"op": "~", "left": null, "right": value}});
    }
    document["actions"][0]["primitives"][0]["parameters"][1] = value;
    assert!(refusal(&document).contains("recursion limit"), "{}", refusal(&document));
    let deep = format!("{{\"header_types\": {}", "[".repeat(1 << 20));
    assert!(bmv2::lower(deep.as_bytes(), None).is_err());

    let mut document = crate::document("services");
    let jump = |to: usize| {
        let condition = json!({"type": "field", "value": ["op", "code"]});
        json!({"op": "_jump_if_zero", "parameters": [condition, {"type": "hexstr", "value": format!("{to:#x}")}]})
    };
    document["actions"][0]["primitives"] = (0..1000).map(|_| jump(1000)).collect();
    assert!(refusal(&document).contains("nested deeper"), "{}", refusal(&document));
    document["actions"][0]["primitives"] = json!([jump(0)]);
    assert!(refusal(&document).contains("a jump other than around a branch"), "{}", refusal(&document));
}

#[test]
fn comparisons_of_long_headers_are_shallow() {
    let mut document = document("services");
    let fields: Vec<_> = (0..10_000).map(|i| json!([format!("f{i}"), 8, false])).collect();
    let of = |list: &mut Value, value: Value| list.as_array_mut().unwrap().push(value);
    of(&mut document["header_types"], json!({"name": "long", "id": 90, "fields": fields}));
    for (id, name) in [(90, "a"), (91, "b")] {
        of(
            &mut document["headers"],
            json!({"name": name, "id": id, "header_type": "long", "metadata": false, "pi_omit": true}),
        );
    }
    let header = |name: &str| json!({"type": "header", "value": name});
    document["pipelines"][0]["conditionals"][0]["expression"] = json!({"type": "expression", "value":
        {"op": "==", "left": header("a"), "right": header("b")}});
    assert_eq!(refusal(&document), "accepted");
}

#[test]
fn widths_are_bounded() {
    let mut document = document("services");
    document["header_types"][2]["fields"][0][1] = json!(1 << 20);
    assert_eq!(
        refusal(&document),
        "header type ethernet_t: field dst has 1048576 bits; 1 to 2048 are supported"
    );
    let mut document = crate::document("services");
    document["register_arrays"][0]["bitwidth"] = json!(1 << 20);
    assert_eq!(refusal(&document), "register array In.sums: cells of 1048576 bits; 1 to 2048 are supported");
    document["register_arrays"][0] = json!({"name": "In.sums", "id": 0, "size": 1u64 << 40, "bitwidth": 16});
    assert!(refusal(&document).contains("at most 268435456 are supported"), "{}", refusal(&document));
    let mut document = crate::document("services");
    document["actions"][0]["primitives"][1]["parameters"][1]["value"] =
        json!(format!("0x{}", "f".repeat(1 << 16)));
    assert!(refusal(&document).contains("a number of 262144 bits"), "{}", refusal(&document));
    let mut document = crate::document("services");
    let shifted = json!({"op": "<<", "left": {"type": "field", "value": ["op", "value"]},
        "right": {"type": "field", "value": ["op", "value"]}});
    document["pipelines"][0]["conditionals"][0]["expression"] = json!({"type": "expression", "value":
        {"op": "==", "left": {"type": "expression", "value": shifted}, "right": {"type": "hexstr", "value": "0x0"}}});
    assert!(refusal(&document).contains("at most 2048 are supported: mask"), "{}", refusal(&document));
}

#[test]
fn cycles_are_refused() {
    let mut document = document("services");
    document["pipelines"][0]["tables"][1]["next_tables"]["In.push"] = json!("node_2");
    assert_eq!(refusal(&document), "pipeline ingress: conditional node_2 is in a cycle");
    let mut document = crate::document("services");
    document["parsers"][0]["parse_states"][2]["transitions"][0]["next_state"] = json!("special");
    assert!(refusal(&document).contains("cycle of states that consumes nothing"), "{}", refusal(&document));
}

#[test]
fn many_objects_are_refused() {
    let mut document = document("services");
    let action = |i: usize| json!({"name": format!("a{i}"), "id": i + 100, "primitives": []});
    document["actions"] = (0..1_000_000).map(action).collect();
    assert_eq!(refusal(&document), "1000000 actions; at most 4096 are supported");
    assert_eq!(refusal(&calls(100, 100)), "accepted");
    assert!(
        refusal(&calls(4_000, 1_000)).contains("the program is too large"),
        "{}",
        refusal(&calls(4_000, 1_000))
    );
}

#[test]
fn names_are_bounded() {
    let mut document = document("services");
    let original = document.clone();
    let long = json!("h".repeat(1 << 20));
    document["headers"][0]["name"] = long.clone();
    assert!(refusal(&document).contains("a name of 1048576 bytes; at most 256"), "{}", refusal(&document));
    document = original.clone();
    document["header_types"][2]["fields"][0][0] = long.clone();
    assert!(refusal(&document).contains("a name of 1048576 bytes; at most 256"), "{}", refusal(&document));
    document = original;
    document["actions"][0]["runtime_data"] = json!([{"name": long, "bitwidth": 8}]);
    assert!(refusal(&document).contains("a name of 1048576 bytes; at most 256"), "{}", refusal(&document));
}

#[test]
fn widths_of_parameters_lookaheads_and_value_sets_are_bounded() {
    for bits in [0, 2049, 65_536] {
        let mut document = document("calculator");
        document["actions"][0]["runtime_data"] = json!([{"name": "p", "bitwidth": bits}]);
        let expected = format!("parameter p has {bits} bits; 1 to 2048 are supported");
        assert!(refusal(&document).ends_with(&expected), "{}", refusal(&document));
        let mut document = crate::document("services");
        document["parsers"][0]["parse_states"][0]["transition_key"] =
            json!([{"type": "lookahead", "value": [0, bits]}]);
        let expected = format!("a lookahead has {bits} bits; 1 to 2048 are supported");
        assert!(refusal(&document).contains(&expected), "{}", refusal(&document));
        let mut document = crate::document("services");
        let unused = json!({"name": "set", "id": 99, "compressed_bitwidth": bits});
        document["parse_vsets"].as_array_mut().unwrap().push(unused);
        let expected = format!("value set set has {bits} bits; 1 to 2048 are supported");
        assert!(refusal(&document).contains(&expected), "{}", refusal(&document));
    }
}

/// Every value of a document, one after the other.
fn each(value: &mut Value, change: &mut dyn FnMut(&mut Value)) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| each(value, change)),
        Value::Object(map) => map.iter_mut().for_each(|(_, value)| each(value, change)),
        _ => {}
    }
    change(value);
}

#[test]
fn damage_anywhere_is_refused_or_harmless() {
    let mut original = document("services");
    let mut count = 0;
    each(&mut original, &mut |_| count += 1);
    let mut refused = 0;
    for at in 0..count {
        let mut document = original.clone();
        let mut i = 0;
        each(&mut document, &mut |value| {
            if i == at {
                *value = match value {
                    Value::String(text) if text.starts_with("0x") => json!("0xffffffffffffffffffffff"),
                    Value::String(_) => json!("nothing"),
                    Value::Number(_) => json!(u64::MAX),
                    Value::Array(_) => json!([]),
                    _ => Value::Null,
                };
            }
            i += 1;
        });
        refused += usize::from(refusal(&document) != "accepted");
    }
    // What is left is text for people, sizes, and what the document alone does not refer to.
    assert!(refused > count / 2, "{refused} of {count} refused");
}

#[test]
fn controller_headers_and_names_of_the_p4info_are_bounded() {
    use p4::info::P4Info;
    use p4::info::proto::{
        Action, ActionRef, ControllerPacketMetadata, Preamble, Register, Table,
        controller_packet_metadata::Metadata,
    };

    let text = document("services").to_string();
    let refusal = |info: &P4Info| bmv2::lower(text.as_bytes(), Some(info)).unwrap_err().to_string();
    let header = |fields: usize, bitwidth: i32| {
        let field = |id| Metadata { id, name: format!("f{id}"), bitwidth, ..Default::default() };
        let metadata = (0..u32::try_from(fields).unwrap()).map(field).collect();
        ControllerPacketMetadata { metadata, ..Default::default() }
    };
    let with = |headers| P4Info { controller_packet_metadata: headers, ..Default::default() };
    assert!(refusal(&with(vec![header(257, 8)])).contains("257 fields of a controller header; at most 256"));
    assert!(refusal(&with(vec![header(1, 0); 17])).contains("17 controller headers; at most 16"));
    assert!(refusal(&with(vec![header(1, 1 << 16)])).contains("field f0 has 65536 bits; 1 to 2048"));
    let actions = vec![Action {
        preamble: Some(Preamble { id: 7, ..Default::default() }),
        params: vec![Default::default(); 1000],
    }];
    let action_refs = vec![ActionRef { id: 7, ..Default::default() }; 66];
    let tables = vec![Table { action_refs, ..Default::default() }];
    let info = P4Info { actions, tables, ..Default::default() };
    assert!(refusal(&info).contains("66000 parameters of the actions of all tables; at most 65536"));
    let register = |id: u32, name: &str| {
        let preamble = Preamble { id, name: name.into(), ..Default::default() };
        Register { preamble: Some(preamble), ..Default::default() }
    };
    let with = |registers| P4Info { registers, ..Default::default() };
    assert!(refusal(&with(vec![register(1, "a"), register(2, "a")])).contains("two registers are called a"));
    assert!(refusal(&with(vec![register(1, "a"), register(1, "b")])).contains("two registers have id 0x1"));
    assert!(refusal(&with(vec![register(1, &"a".repeat(257))])).contains("a name of 257 bytes"));
}
