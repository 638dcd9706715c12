//! Options of port types: parsed from TOML or from `KEY=VALUE` on the command line, and formatted again.
//!
//! The option structs of the port types are the only list. Serde provides their field names, so the message for an
//! unknown key can list the known ones.

mod fields;
mod text;

use std::collections::BTreeMap;

use ports::Spec;
use serde::de::DeserializeOwned;

use crate::suggest;

/// Reasons for refusing options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// An unknown port type.
    #[error("unknown port type `{0}`; {1}")]
    Type(String, String),
    /// An unknown option.
    #[error("{}", unknown_key(.key, .known))]
    Key {
        /// The unknown name.
        key: String,
        /// The known names.
        known: Vec<&'static str>,
    },
    /// A required option is missing.
    #[error("key `{0}` is missing")]
    Missing(String),
    /// An invalid value.
    #[error("{0}")]
    Value(String),
}

/// Renamed options, as (former, present). The former name is accepted, with a note.
const FORMER: &[(&str, &str)] = &[("socket", "path")];

/// Returns the former and the present name of an option, if `key` is the former one and port type `type_name` has the
/// option.
pub fn renamed(type_name: &str, key: &str) -> Option<(&'static str, &'static str)> {
    let known = known(type_name).ok()?;
    FORMER.iter().copied().find(|(old, new)| *old == key && known.contains(new) && !known.contains(old))
}

/// Returns the former name of an option.
pub fn former_name(key: &str) -> Option<&'static str> {
    FORMER.iter().find(|(_, new)| *new == key).map(|(old, _)| *old)
}

/// The TOML type of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// An integer.
    Number,
    /// A boolean.
    Boolean,
    /// An array of strings.
    List,
    /// A string.
    Text,
}

impl Shape {
    /// Returns whether a value of TOML type `kind`, as the parser names it, has this shape.
    pub fn fits(self, kind: &str) -> bool {
        match self {
            Shape::Number => kind == "integer",
            Shape::Boolean => kind == "boolean",
            Shape::List => kind == "array",
            Shape::Text => kind == "string",
        }
    }
}

/// Returns the shape of an option of a port type; `None` if the type has no such option.
pub fn shape(type_name: &str, key: &str) -> Option<Shape> {
    let schema = Spec::schema(type_name)?;
    let kind = schema.get("properties")?.get(key)?.get("type");
    let named = |name: &str| match kind {
        Some(serde_json::Value::Array(several)) => several.iter().any(|kind| kind == name),
        Some(one) => one == name,
        None => false,
    };
    Some(match () {
        () if named("integer") => Shape::Number,
        () if named("boolean") => Shape::Boolean,
        () if named("array") => Shape::List,
        () => Shape::Text,
    })
}

/// Returns the message for an unknown key.
pub fn unknown_key<S: AsRef<str>>(key: &str, known: &[S]) -> String {
    format!("unknown key `{key}`; {}", suggest::instead(key, known))
}

/// Calls `$f::<Options>` for the port type `$name` and wraps the result in a [`Spec`].
macro_rules! by_type {
    ($name:expr, $f:ident $(, $arg:expr)*) => {
        match $name {
            "memif" => $f::<ports::memif::Options>($($arg),*).map(Spec::Memif),
            "tap" => $f::<ports::tap::Options>($($arg),*).map(Spec::Tap),
            "pcap" => $f::<ports::pcap::Options>($($arg),*).map(Spec::Pcap),
            "vhost-user" => $f::<ports::vhost_user::Options>($($arg),*).map(Spec::VhostUser),
            "patch" => $f::<ports::patch::Options>($($arg),*).map(Spec::Patch),
            "netdev" => $f::<ports::netdev::Options>($($arg),*).map(Spec::Netdev),
            other => Err(unknown_type(other).into()),
        }
    };
}

fn unknown_type(name: &str) -> OptionError {
    // The names of Open vSwitch.
    let instead = match name {
        "dpdkvhostuser" => {
            "it is `vhost-user` with the role `server` here: `--type vhost-user --role server`".into()
        }
        "dpdkvhostuserclient" => {
            "it is `vhost-user` with the role `client` here: `--type vhost-user --role client`".into()
        }
        "system" => "it is `netdev` here, which attaches an existing interface".into(),
        "internal" => "it is `tap` here, which makes an interface of the host".into(),
        _ => suggest::instead(name, Spec::TYPES),
    };
    OptionError::Type(name.into(), instead)
}

/// Returns the names of a port type's options.
pub fn known(type_name: &str) -> Result<&'static [&'static str], OptionError> {
    match type_name {
        "memif" => Ok(fields::of::<ports::memif::Options>()),
        "tap" => Ok(fields::of::<ports::tap::Options>()),
        "pcap" => Ok(fields::of::<ports::pcap::Options>()),
        "vhost-user" => Ok(fields::of::<ports::vhost_user::Options>()),
        "patch" => Ok(fields::of::<ports::patch::Options>()),
        "netdev" => Ok(fields::of::<ports::netdev::Options>()),
        other => Err(unknown_type(other)),
    }
}

/// Reason for refusing the options in a TOML value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TomlError {
    /// The value found and the value expected.
    pub message: String,
    /// The bytes of the text with the mistake; `None` for the whole text.
    pub span: Option<std::ops::Range<usize>>,
}

impl From<OptionError> for TomlError {
    fn from(error: OptionError) -> Self {
        Self { message: error.to_string(), span: None }
    }
}

/// Reads options from a TOML table that contains only options.
pub fn from_toml(type_name: &str, table: toml::de::ValueDeserializer<'_>) -> Result<Spec, TomlError> {
    fn read<T: DeserializeOwned>(table: toml::de::ValueDeserializer<'_>) -> Result<T, TomlError> {
        T::deserialize(table).map_err(|e| TomlError { message: plain(e.message()), span: e.span() })
    }
    by_type!(type_name, read, table)
}

/// Reads options from texts; the items of a list are separated by commas.
pub fn from_text(type_name: &str, options: &BTreeMap<String, String>) -> Result<Spec, OptionError> {
    fn read<T: DeserializeOwned>(options: &BTreeMap<String, String>) -> Result<T, OptionError> {
        T::deserialize(text::Table(options)).map_err(|error| {
            let message = error.to_string();
            match missing(&message) {
                Some(key) => OptionError::Missing(key.into()),
                None => OptionError::Value(plain(&message)),
            }
        })
    }
    let known = known(type_name)?;
    let mut present = BTreeMap::new();
    for (key, value) in options {
        let name = renamed(type_name, key).map_or(key.as_str(), |(_, new)| new);
        if !known.contains(&name) {
            return Err(OptionError::Key { key: key.clone(), known: known.to_vec() });
        }
        if present.insert(name.to_owned(), value.clone()).is_some() {
            let message = format!("`{name}` is given twice, once by its former name; give it once");
            return Err(OptionError::Value(message));
        }
    }
    by_type!(type_name, read, &present)
}

/// Returns the key in serde's message about a missing field.
fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// Rewords serde's message like the other messages.
fn plain(message: &str) -> String {
    if let Some(key) = missing(message) {
        return format!("key `{key}` is missing");
    }
    if let Some((found, kind)) =
        message.strip_prefix("invalid value: integer ").and_then(|rest| rest.split_once(", expected "))
    {
        let max = match kind {
            "u8" => Some(u8::MAX.into()),
            "u16" => Some(u16::MAX.into()),
            "u32" => Some(u64::from(u32::MAX)),
            _ => None,
        };
        if let Some(max) = max {
            return format!("{found} is out of range; expected 0 to {max}");
        }
    }
    if let Some((found, expected)) = message.split_once("unknown variant ").and_then(|(start, rest)| {
        let (found, expected) = rest.split_once(", expected ")?;
        Some((format!("{start}{found}"), expected))
    }) {
        return format!("{found} is unknown; expected {expected}");
    }
    message.into()
}

/// Placeholder for a secret that is not shown.
pub const HIDDEN: &str = "(set)";

/// Formats options as TOML. Options that are not set are left out.
pub fn to_toml(spec: &Spec) -> toml::Table {
    let value = match spec {
        Spec::Memif(options) => toml::Table::try_from(options),
        Spec::Tap(options) => toml::Table::try_from(options),
        Spec::Pcap(options) => toml::Table::try_from(options),
        Spec::VhostUser(options) => toml::Table::try_from(options),
        Spec::Patch(options) => toml::Table::try_from(options),
        Spec::Netdev(options) => toml::Table::try_from(options),
        Spec::Dummy(options) => toml::Table::try_from(options),
    };
    // Option structs are plain tables, which TOML can always represent.
    value.unwrap_or_default()
}

/// Returns the defaults of the type's options.
pub fn defaults(spec: &Spec) -> toml::Table {
    let required = ["path", "peer"].map(|key| (key.to_owned(), to_toml(spec).get(key).map(value_to_text)));
    let required = required.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let mut table = from_text(spec.type_name(), &required).map(|spec| to_toml(&spec)).unwrap_or_default();
    // A required option has no default.
    table.retain(|key, _| !required.contains_key(key));
    table
}

/// Returns the secret among the options, if it is set.
pub fn secret(spec: &Spec) -> Option<String> {
    to_toml(spec).get("secret").map(value_to_text)
}

/// Formats options as text. Options that are not set are left out; [`HIDDEN`] replaces a secret.
pub fn to_text(spec: &Spec) -> BTreeMap<String, String> {
    to_toml(spec)
        .into_iter()
        .map(|(key, value)| {
            let text = if key == "secret" { HIDDEN.into() } else { value_to_text(&value) };
            (key, text)
        })
        .collect()
}

/// Formats a value as on the command line; commas separate the items of a list.
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
    fn texts_convert_to_the_type_of_the_option() {
        let spec = memif(&[("path", "/tmp/a"), ("id", "7"), ("role", "client"), ("secret", "12")]).unwrap();
        let Spec::Memif(options) = &spec else { panic!("{spec:?}") };
        assert_eq!(options.id, 7);
        assert_eq!(options.role, ports::memif::Role::Client);
        assert_eq!(options.secret.as_deref(), Some("12"), "digits are a text here");
        let text = to_text(&spec);
        assert_eq!(text["id"], "7");
        assert_eq!(text["role"], "client");
        assert_eq!(text["secret"], "(set)");
    }

    #[test]
    fn errors_name_the_key() {
        let missing = memif(&[]).unwrap_err().to_string();
        assert_eq!(missing, "key `path` is missing");
        let unknown = memif(&[("ptah", "x")]).unwrap_err().to_string();
        assert!(unknown.starts_with("unknown key `ptah`; did you mean `path`? (expected `"), "{unknown}");
        let number = memif(&[("path", "/a"), ("id", "seven")]).unwrap_err().to_string();
        assert_eq!(number, "`id`: `seven` is not a whole number from 0 to 4294967295");
        let role = memif(&[("path", "/a"), ("role", "boss")]).unwrap_err().to_string();
        assert_eq!(role, "`role`: `boss` is unknown; expected `server` or `client`");
        for (theirs, ours) in [
            ("system", "it is `netdev` here, which attaches an existing interface"),
            ("internal", "it is `tap` here, which makes an interface of the host"),
        ] {
            let kind = from_text(theirs, &BTreeMap::new()).unwrap_err().to_string();
            assert_eq!(kind, format!("unknown port type `{theirs}`; {ours}"));
        }
        let kind = from_text("memfi", &BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(
            kind,
            "unknown port type `memfi`; did you mean `memif`? (expected `memif`, `tap`, `netdev`, `pcap`, `vhost-user` or `patch`)"
        );
    }

    #[test]
    fn a_former_name_is_accepted() {
        let spec = memif(&[("socket", "/tmp/a")]).unwrap();
        assert_eq!(to_text(&spec)["path"], "/tmp/a");
        assert_eq!(renamed("memif", "socket"), Some(("socket", "path")));
        assert_eq!(renamed("tap", "socket"), None, "a TAP port has neither name");
        let twice = memif(&[("socket", "/a"), ("path", "/b")]).unwrap_err().to_string();
        assert_eq!(twice, "`path` is given twice, once by its former name; give it once");
    }

    #[test]
    fn booleans_are_on_or_off() {
        let tap = |value: &str| from_text("tap", &[("offloads".into(), value.into())].into());
        assert_eq!(tap("off"), tap("false"));
        assert_ne!(tap("on"), tap("off"));
        let error = tap("maybe").unwrap_err().to_string();
        assert_eq!(error, "`offloads`: `maybe` is neither `on` nor `off`");
    }

    #[test]
    fn shapes_match_the_option_structs() {
        let shapes =
            [("id", Shape::Number), ("path", Shape::Text), ("queues", Shape::Number), ("role", Shape::Text)];
        for (key, expected) in shapes {
            assert_eq!(shape("memif", key), Some(expected), "{key}");
        }
        assert_eq!(shape("tap", "addresses"), Some(Shape::List));
        assert_eq!(shape("tap", "offloads"), Some(Shape::Boolean));
        assert_eq!(shape("tap", "colour"), None);
    }

    #[test]
    fn every_type_has_known_options() {
        for name in Spec::TYPES {
            assert!(known(name).is_ok(), "{name}");
        }
        assert!(known("memif").unwrap().contains(&"ring-size"));
    }
}
