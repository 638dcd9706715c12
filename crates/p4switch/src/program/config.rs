//! Programs that controllers send.
//!
//! A device config is the text of a program, a bundle, or the JSON that p4c makes for BMv2; alone or in the message in
//! which the P4 tutorials' controllers wrap it.

use p4::preprocess::Options;
use p4runtime_proto::P4Info;
use p4runtime_proto::v1::ForwardingPipelineConfig;
use prost::Message;

use super::bundle::Bundle;
use super::compare::difference;
use super::{LoadError, Program};
use crate::{Code, Failure};

/// Most bytes of a refusal: the status of a call has no room for more.
const MOST_TEXT: usize = 4000;

/// What controllers of the P4 tutorials wrap a device config in.
#[derive(Clone, PartialEq, Message)]
struct Wrapped {
    #[prost(bool, tag = "1")]
    reassign: bool,
    #[prost(bytes = "vec", tag = "3")]
    device_data: Vec<u8>,
}

impl Program {
    /// The program that a controller sends.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the device config is no program, the program has errors, or its P4Info is not the one sent.
    pub fn from_config(config: &ForwardingPipelineConfig) -> Result<Self, Failure> {
        let unwrapped = unwrapped(&config.p4_device_config);
        let bytes = unwrapped.as_deref().unwrap_or(&config.p4_device_config);
        if bmv2::is_document(bytes) && Bundle::read(bytes).is_none() {
            return Self::bmv2_config(bytes, config.p4info.as_ref());
        }
        let program = Self::device_config(bytes)?;
        if let Some(info) = &config.p4info
            && let Some(difference) = difference(info, &program.info)
        {
            return Err(refused(format!(
                "the P4Info is not that of the program: {difference}; send the one that `mswitch p4 info` prints"
            )));
        }
        Ok(program)
    }

    fn bmv2_config(bytes: &[u8], info: Option<&P4Info>) -> Result<Self, Failure> {
        let info = info.ok_or_else(|| {
            Failure::invalid("the device config is BMv2's JSON: send the P4Info that p4c made with it, too")
        })?;
        Self::bmv2(bytes, info)
            .map_err(|error| refused(format!("BMv2's JSON is refused: {}", error.to_string().trim_end())))
    }

    fn device_config(bytes: &[u8]) -> Result<Self, Failure> {
        if bytes.is_empty() {
            return Err(Failure::invalid("the device config is empty: send P4 source text or a bundle"));
        }
        let options = Options::default();
        let compiled = match Bundle::read(bytes) {
            Some(bundle) => {
                let bundle = bundle.map_err(Failure::invalid)?;
                Self::text(&bundle.name, &bundle.text, &options)
            }
            None => Self::text("program.p4", source(bytes)?, &options),
        };
        compiled.map_err(|error| match error {
            LoadError::Program(text) => refused(format!("the program has errors:\n{}", text.trim_end())),
            LoadError::Read(error) => Failure::invalid(error.to_string()),
        })
    }
}

/// The text of a program.
fn source(bytes: &[u8]) -> Result<&str, Failure> {
    let what_to_send = "send P4 source text, or a bundle made by `mswitch p4 compile PROGRAM.p4`";
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Failure::invalid(format!("the device config is no text: {what_to_send}")))?;
    match text.trim_start().starts_with('{') {
        true => Err(Failure::invalid(format!(
            "the device config is JSON, and neither a bundle nor what p4c makes for BMv2, which has `header_types`: \
             {what_to_send}"
        ))),
        false => Ok(text),
    }
}

/// The device config in a wrapping message, whose first byte no text begins with.
fn unwrapped(bytes: &[u8]) -> Option<Vec<u8>> {
    match bytes.first() {
        Some(0x08 | 0x1a) => Wrapped::decode(bytes).ok().map(|wrapped| wrapped.device_data),
        _ => None,
    }
}

/// Refuses a program. Its errors may be longer than other refusals ([`Failure::new`]), since there is one of them only.
fn refused(mut text: String) -> Failure {
    if text.len() > MOST_TEXT {
        let end = text.floor_char_boundary(MOST_TEXT);
        let rest = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("… ({rest} more bytes: `mswitch p4 check` prints all)"));
    }
    Failure { code: Code::InvalidArgument, message: text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_program_are_longer_than_other_refusals() {
        let text: String = (0..200).map(|i| format!("const bit<8> c{i} = missing{i};\n")).collect();
        let config = ForwardingPipelineConfig { p4_device_config: text.into_bytes(), ..Default::default() };
        let refused = Program::from_config(&config).unwrap_err();
        assert!(refused.message.len() > 2000 && refused.message.contains("missing9"), "{refused}");
        assert!(refused.message.ends_with("`mswitch p4 check` prints all)"), "{refused}");
        assert!(Failure::invalid("a".repeat(2000)).message.len() <= 1024);
    }
}
