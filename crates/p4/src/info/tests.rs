use super::*;

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
