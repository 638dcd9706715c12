//! Forms in which a P4Info is written and read.

use std::sync::OnceLock;

use prost::Message;
use prost_reflect::text_format::FormatOptions;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

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
            let heading = "# proto-file: p4/config/v1/p4info.proto\n# proto-message: p4.config.v1.P4Info\n\n";
            let text = message.to_text_format_with_options(&FormatOptions::new().pretty(true));
            Ok(format!("{heading}{text}\n").into_bytes())
        }
    }
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
