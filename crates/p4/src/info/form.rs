//! Forms in which a P4Info is written and read.

use std::sync::OnceLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};

use super::P4Info;

/// Forms of a P4Info.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The text form of protocol buffers, which p4c writes as `.p4info.txtpb`.
    Text,
    /// Their JSON form.
    Json,
    /// Their binary form.
    Binary,
}

/// Writes a P4Info.
pub fn print(info: &P4Info, form: Form) -> Result<Vec<u8>, String> {
    if form == Form::Binary {
        return Ok(info.encode_to_vec());
    }
    let mut message = DynamicMessage::new(descriptor()?);
    message.transcode_from(info).map_err(|error| error.to_string())?;
    match form {
        Form::Json => serde_json::to_vec_pretty(&message).map_err(|error| error.to_string()),
        Form::Text | Form::Binary => {
            let mut text =
                "# proto-file: p4/config/v1/p4info.proto\n# proto-message: p4.config.v1.P4Info\n\n"
                    .to_owned();
            fields(&message, 0, &mut text);
            Ok(text.into_bytes())
        }
    }
}

/// Writes the fields of a message as text, in the order of their numbers. Elements of lists are written one by one, as
/// p4c does, which some tools that compare lines depend on.
fn fields(message: &DynamicMessage, depth: usize, text: &mut String) {
    let mut set: Vec<(FieldDescriptor, &Value)> = message.fields().collect();
    set.sort_by_key(|(field, _)| field.number());
    for (field, value) in set {
        match value {
            Value::List(elements) => elements.iter().for_each(|element| one(&field, element, depth, text)),
            Value::Map(entries) => {
                let mut entries: Vec<(String, &Value)> = entries
                    .iter()
                    .map(|(key, value)| (key.as_str().unwrap_or_default().to_owned(), value))
                    .collect();
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                for (key, value) in entries {
                    open(&field, depth, text);
                    indent(depth + 1, text);
                    text.push_str(&format!("key: {}\n", quoted(key.as_bytes())));
                    indent(depth + 1, text);
                    text.push_str("value {\n");
                    if let Value::Message(value) = value {
                        fields(value, depth + 2, text);
                    }
                    close(depth + 1, text);
                    close(depth, text);
                }
            }
            value => one(&field, value, depth, text),
        }
    }
}

/// Writes a value of a field.
fn one(field: &FieldDescriptor, value: &Value, depth: usize, text: &mut String) {
    let scalar = match value {
        Value::Message(message) => {
            open(field, depth, text);
            fields(message, depth + 1, text);
            close(depth, text);
            return;
        }
        Value::String(value) => quoted(value.as_bytes()),
        Value::Bytes(value) => quoted(value),
        Value::EnumNumber(number) => match field.kind() {
            Kind::Enum(kind) => {
                kind.get_value(*number).map_or_else(|| number.to_string(), |v| v.name().to_owned())
            }
            _ => number.to_string(),
        },
        value => value.to_string(),
    };
    indent(depth, text);
    text.push_str(&format!("{}: {scalar}\n", field.name()));
}

fn open(field: &FieldDescriptor, depth: usize, text: &mut String) {
    indent(depth, text);
    text.push_str(field.name());
    text.push_str(" {\n");
}

fn close(depth: usize, text: &mut String) {
    indent(depth, text);
    text.push_str("}\n");
}

fn indent(depth: usize, text: &mut String) {
    text.extend(std::iter::repeat_n("  ", depth));
}

/// A string in quotes; what is not printable ASCII is written in octal.
fn quoted(bytes: &[u8]) -> String {
    let mut text = "\"".to_owned();
    for byte in bytes {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'"' | b'\'' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('"');
    text
}

/// Reads the text form of a P4Info.
pub fn read(text: &str) -> Result<P4Info, String> {
    let message =
        DynamicMessage::parse_text_format(descriptor()?, text).map_err(|error| error.to_string())?;
    message.transcode_to().map_err(|error| error.to_string())
}

fn descriptor() -> Result<MessageDescriptor, String> {
    static DESCRIPTOR: OnceLock<Result<MessageDescriptor, String>> = OnceLock::new();
    let load = || {
        let bytes: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
        let pool = DescriptorPool::decode(bytes).map_err(|error| error.to_string())?;
        pool.get_message_by_name("p4.config.v1.P4Info").ok_or_else(|| "no message P4Info".to_owned())
    };
    DESCRIPTOR.get_or_init(load).clone()
}
