//! Bundles: a program in one file, with what it includes.
//!
//! A bundle is an object in JSON that names the format and its version: the program's text behind the preprocessor, and
//! its P4Info. It needs no folders for includes. It is JSON since controllers made for BMv2, which takes JSON, read the
//! file that they push as text, and some check that it is JSON.

use p4::compile::Front;
use p4::info::Form;
use p4::lex;
use p4runtime_proto::P4Info;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{LoadError, Program};

/// What a bundle says of itself.
const FORMAT: &str = "mswitch P4 bundle";
/// The format's version.
const VERSION: u64 = 1;

/// What a bundle begins with.
#[derive(Deserialize)]
struct Kind {
    format: String,
    version: Option<u64>,
}

/// The program in a bundle. Its P4Info is for tools that read bundles.
#[derive(Deserialize)]
pub(super) struct Bundle {
    /// Name of the program's file.
    pub(super) name: String,
    /// Program behind the preprocessor.
    pub(super) text: String,
}

impl Bundle {
    /// Reads a bundle; `None` if the bytes are none.
    pub(super) fn read(bytes: &[u8]) -> Option<Result<Self, String>> {
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return None;
        }
        let kind: Kind = serde_json::from_slice(bytes).ok()?;
        if kind.format != FORMAT {
            return None;
        }
        if kind.version != Some(VERSION) {
            return Some(Err(
                "the bundle is of another version: make it anew with `mswitch p4 compile`".to_owned()
            ));
        }
        Some(serde_json::from_slice(bytes).map_err(|error| format!("the bundle is damaged: {error}")))
    }
}

impl Program {
    /// The program as a bundle, which controllers send as device config.
    pub fn bundle(&self) -> &[u8] {
        &self.bundle
    }
}

/// The bundle of a program without errors.
pub(super) fn of(front: &Front, info: &P4Info) -> Result<Vec<u8>, LoadError> {
    let name = front.sources.files().first().map_or("program.p4", |file| file.name.as_str());
    let name = name.rsplit('/').next().unwrap_or(name);
    let info = p4::info::print(info, Form::Json).map_err(LoadError::Program)?;
    let info: Value = serde_json::from_slice(&info).map_err(|error| LoadError::Program(error.to_string()))?;
    let bundle = json!({
        "format": FORMAT, "version": VERSION, "name": name, "text": lex::text(&front.tokens), "p4info": info,
    });
    Ok(format!("{bundle:#}\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use p4::preprocess::Options;
    use p4runtime_proto::v1::ForwardingPipelineConfig;

    use super::*;

    const PROGRAM: &str = include_str!("../../../p4logic/tests/programs/l3.p4");

    fn bundle() -> Vec<u8> {
        Program::text("folder/l3.p4", PROGRAM, &Options::default()).unwrap().bundle().to_vec()
    }

    fn load(device_config: Vec<u8>) -> Result<Program, String> {
        let config = ForwardingPipelineConfig { p4_device_config: device_config, ..Default::default() };
        Program::from_config(&config).map_err(|failure| failure.message)
    }

    #[test]
    fn a_bundle_is_json_and_has_the_program_and_its_info() {
        let value: Value = serde_json::from_slice(&bundle()).unwrap();
        assert_eq!((&value["format"], &value["name"]), (&json!(FORMAT), &json!("l3.p4")));
        let program = load(bundle()).unwrap();
        let info = p4::info::print(&program.info, Form::Json).unwrap();
        assert_eq!(value["p4info"], serde_json::from_slice::<Value>(&info).unwrap());
    }

    #[test]
    fn other_versions_and_damage_are_told_apart_from_other_json() {
        let mut value: Value = serde_json::from_slice(&bundle()).unwrap();
        value["text"] = json!(7);
        assert!(
            load(value.to_string().into_bytes()).unwrap_err().contains("the bundle is damaged: invalid type")
        );
        value["version"] = json!(2);
        assert!(load(value.to_string().into_bytes()).unwrap_err().contains("another version"));
        value["format"] = json!("other");
        assert!(
            load(value.to_string().into_bytes()).unwrap_err().contains("neither a bundle nor what p4c makes")
        );
    }
}
