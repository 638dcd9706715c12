//! A port type's own options: which there are, read from TOML or from the command line's `KEY=VALUE`, and written back.
//!
//! The option structs of the port types are the only list. Their field names come from serde, so that an unknown key
//! can be answered with the known ones before anything is read.

mod fields;
mod text;

use std::collections::BTreeMap;

use ports::Spec;
use serde::de::DeserializeOwned;

use crate::suggest;

/// Why options are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such port type.
    #[error("unknown port type `{0}`; {1}")]
    Type(String, String),
    /// No such option.
    #[error("{}", unknown_key(.key, .known))]
    Key {
        /// What was written.
        key: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// A value that does not fit, or a missing one.
    #[error("{0}")]
    Value(String),
}

/// The message for a key that does not exist.
pub fn unknown_key<S: AsRef<str>>(key: &str, known: &[S]) -> String {
    format!("unknown key `{key}`; {}", suggest::instead(key, known))
}

/// Calls `$f::<Options>` of the type called `$name` and wraps what it returns.
macro_rules! by_type {
    ($name:expr, $f:ident $(, $arg:expr)*) => {
        match $name {
            "memif" => $f::<ports::memif::Options>($($arg),*).map(Spec::Memif),
            "tap" => $f::<ports::tap::Options>($($arg),*).map(Spec::Tap),
            "pcap" => $f::<ports::pcap::Options>($($arg),*).map(Spec::Pcap),
            "vhost-user" => $f::<ports::vhost_user::Options>($($arg),*).map(Spec::VhostUser),
            "patch" => $f::<ports::patch::Options>($($arg),*).map(Spec::Patch),
            other => Err(unknown_type(other).into()),
        }
    };
}

fn unknown_type(name: &str) -> OptionError {
    OptionError::Type(name.into(), suggest::instead(name, Spec::TYPES))
}

/// The options that a port type has.
pub fn known(type_name: &str) -> Result<&'static [&'static str], OptionError> {
    match type_name {
        "memif" => Ok(fields::of::<ports::memif::Options>()),
        "tap" => Ok(fields::of::<ports::tap::Options>()),
        "pcap" => Ok(fields::of::<ports::pcap::Options>()),
        "vhost-user" => Ok(fields::of::<ports::vhost_user::Options>()),
        "patch" => Ok(fields::of::<ports::patch::Options>()),
        other => Err(unknown_type(other)),
    }
}

/// Why a TOML value is not a port type's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TomlError {
    /// What is wrong.
    pub message: String,
    /// Which bytes of the text it is about, if it is not about all of it.
    pub span: Option<std::ops::Range<usize>>,
}

impl From<OptionError> for TomlError {
    fn from(error: OptionError) -> Self {
        Self { message: error.to_string(), span: None }
    }
}

/// Reads options from a TOML table that holds nothing else.
pub fn from_toml(type_name: &str, table: toml::de::ValueDeserializer<'_>) -> Result<Spec, TomlError> {
    fn read<T: DeserializeOwned>(table: toml::de::ValueDeserializer<'_>) -> Result<T, TomlError> {
        T::deserialize(table).map_err(|e| TomlError { message: plain(e.message()), span: e.span() })
    }
    by_type!(type_name, read, table)
}

/// Reads options from text values; lists are written with commas.
pub fn from_text(type_name: &str, options: &BTreeMap<String, String>) -> Result<Spec, OptionError> {
    fn read<T: DeserializeOwned>(options: &BTreeMap<String, String>) -> Result<T, OptionError> {
        T::deserialize(text::Table(options)).map_err(|e| OptionError::Value(plain(&e.to_string())))
    }
    let known = known(type_name)?;
    if let Some(key) = options.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(OptionError::Key { key: key.clone(), known: known.to_vec() });
    }
    by_type!(type_name, read, options)
}

/// serde's words for an absent key, in ours.
fn plain(message: &str) -> String {
    match message.strip_prefix("missing field ") {
        Some(key) => format!("key {key} is missing"),
        None => message.into(),
    }
}

/// What stands for a secret where it is not told.
pub const HIDDEN: &str = "(set)";

/// Options as TOML, in which what is not set is left out.
pub fn to_toml(spec: &Spec) -> toml::Table {
    let value = match spec {
        Spec::Memif(options) => toml::Table::try_from(options),
        Spec::Tap(options) => toml::Table::try_from(options),
        Spec::Pcap(options) => toml::Table::try_from(options),
        Spec::VhostUser(options) => toml::Table::try_from(options),
        Spec::Patch(options) => toml::Table::try_from(options),
    };
    // Option structs are plain tables, which TOML can always hold.
    value.unwrap_or_default()
}

/// What holds for the type's options when only those are given that must be.
pub fn defaults(spec: &Spec) -> toml::Table {
    let required = ["socket", "peer"].map(|key| (key.to_owned(), to_toml(spec).get(key).map(value_to_text)));
    let required = required.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let mut table = from_text(spec.type_name(), &required).map(|usual| to_toml(&usual)).unwrap_or_default();
    // What must be given is never what holds anyway.
    table.retain(|key, _| !required.contains_key(key));
    table
}

/// The secret among the options, if one is set.
pub fn secret(spec: &Spec) -> Option<String> {
    to_toml(spec).get("secret").map(value_to_text)
}

/// Writes options as text; what is not set is left out, a secret is not told.
pub fn to_text(spec: &Spec) -> BTreeMap<String, String> {
    to_toml(spec)
        .into_iter()
        .map(|(key, value)| {
            let text = if key == "secret" { HIDDEN.into() } else { value_to_text(&value) };
            (key, text)
        })
        .collect()
}

/// A value as the command line would say it; lists with commas.
pub fn value_to_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(items) => items.iter().map(value_to_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memif(options: &[(&str, &str)]) -> Result<Spec, OptionError> {
        from_text("memif", &options.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect())
    }

    #[test]
    fn text_becomes_what_the_type_wants() {
        let spec = memif(&[("socket", "/tmp/a"), ("id", "7"), ("role", "client"), ("secret", "12")]).unwrap();
        let Spec::Memif(options) = &spec else { panic!("{spec:?}") };
        assert_eq!(options.id, 7);
        assert_eq!(options.role, ports::memif::Role::Client);
        assert_eq!(options.secret.as_deref(), Some("12"), "a text of digits stays a text");
        let text = to_text(&spec);
        assert_eq!(text["id"], "7");
        assert_eq!(text["role"], "client");
        assert_eq!(text["secret"], "(set)");
    }

    #[test]
    fn mistakes_name_the_key() {
        let missing = memif(&[]).unwrap_err().to_string();
        assert_eq!(missing, "key `socket` is missing");
        let unknown = memif(&[("sokcet", "x")]).unwrap_err().to_string();
        assert!(unknown.starts_with("unknown key `sokcet`; did you mean `socket`? (expected `"), "{unknown}");
        let number = memif(&[("socket", "/a"), ("id", "seven")]).unwrap_err().to_string();
        assert_eq!(number, "`id`: `seven` is not a number that fits; expected a whole number");
        let role = memif(&[("socket", "/a"), ("role", "boss")]).unwrap_err().to_string();
        assert_eq!(role, "`role`: unknown variant `boss`, expected `server` or `client`");
        let kind = from_text("memfi", &BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(
            kind,
            "unknown port type `memfi`; did you mean `memif`? (expected `memif`, `tap`, `pcap`, `vhost-user` or `patch`)"
        );
    }

    #[test]
    fn every_type_is_known_here() {
        for name in Spec::TYPES {
            assert!(known(name).is_ok(), "{name}");
        }
        assert!(known("memif").unwrap().contains(&"ring-size"));
    }
}
