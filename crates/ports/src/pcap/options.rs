//! Options of a pcap port, and their checks.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::speed::{Rounds, Speed};
use crate::{Access, OpenError};

/// Options of a pcap port, at least one of `read` and `write`. Their paths are absolute: the daemon's working directory
/// is not the client's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Options {
    /// File to replay into the switch, pcap or pcapng, of Ethernet frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<PathBuf>,
    /// Speed: `recorded`, a multiple of that such as `2x`, `full`, frames a second such as `10000pps`, or bits a second
    /// such as `100Mbit`.
    #[schemars(with = "String")]
    pub speed: Speed,
    /// Number of rounds, or `forever`.
    #[serde(rename = "loop")]
    #[schemars(with = "String")]
    pub rounds: Rounds,
    /// File in which to record the frames sent to the port, pcapng. An existing file is continued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<PathBuf>,
    /// Bytes of each frame to record, 14 to 65535; all if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snaplen: Option<u32>,
    /// Access mode of the recorded file, octal; 0640 for a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// User that owns the recorded file, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Group of the recorded file, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl Options {
    /// Checks everything that can be checked without opening a file.
    pub fn check(&self) -> Result<(), OpenError> {
        let refused = |message: String| Err(OpenError(message));
        if self.read.is_none() && self.write.is_none() {
            return refused(
                "read: neither `read` nor `write` is set; name the file to replay, the file to record to, or both"
                    .into(),
            );
        }
        for (key, path) in [("read", &self.read), ("write", &self.write)] {
            if let Some(path) = path.as_ref().filter(|path| !path.is_absolute()) {
                let path = path.display();
                return refused(format!("{key}: `{path}` is not an absolute path, which the daemon needs"));
            }
        }
        if let Some(write) = &self.write {
            if self.read.as_ref() == Some(write) {
                let path = write.display();
                return refused(format!("write: {path} is also the file to replay; record to another file"));
            }
            check_directory(write)?;
        }
        if let Some(snaplen) = self.snaplen.filter(|snaplen| !(14..=65_535).contains(snaplen)) {
            return refused(format!("snaplen: {snaplen} is out of range, must be 14 to 65535 bytes"));
        }
        self.access().map(drop)
    }

    /// Returns mode, user and group of the recorded file, as far as they are set.
    pub(super) fn access(&self) -> Result<Access, OpenError> {
        Access::read(self.owner.as_deref(), self.group.as_deref(), self.mode.as_deref())
    }
}

fn check_directory(file: &Path) -> Result<(), OpenError> {
    // Only the root directory has no parent.
    let directory = file.parent().unwrap_or(file);
    if directory.is_dir() {
        return Ok(());
    }
    Err(OpenError(format!(
        "write: {} is not a directory; create it first, or choose another path",
        directory.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        match toml::from_str::<Options>(text) {
            Ok(options) => options.check().unwrap_err().0,
            Err(error) => error.message().into(),
        }
    }

    #[test]
    fn options_have_defaults_and_survive_a_round_trip() {
        let some: Options = toml::from_str("read = \"/tmp/a\"").unwrap();
        assert_eq!(some.check(), Ok(()));
        assert_eq!((some.speed, some.rounds), (Speed::default(), Rounds::Times(1)));
        let text = "read = \"/tmp/a.pcap\"\nspeed = \"2x\"\nloop = \"forever\"\nwrite = \"/tmp/b.pcapng\"\n\
                    snaplen = 96\nmode = \"0600\"\nowner = \"0\"\ngroup = \"root\"\n";
        let all: Options = toml::from_str(text).unwrap();
        assert_eq!(all.check(), Ok(()));
        assert_eq!(toml::to_string(&all).unwrap(), text);
        let again: Options = toml::from_str("read = \"/a\"\nloop = \"7\"").unwrap();
        assert_eq!(again.rounds, Rounds::Times(7));
        assert!(toml::to_string(&again).unwrap().contains("loop = 7\n"));
    }

    #[test]
    fn errors_name_the_option_and_the_remedy() {
        for (text, expected) in [
            ("", "read: neither `read` nor `write` is set; name the file to replay"),
            ("read = \"\"", "read: `` is not an absolute path, which the daemon needs"),
            ("write = \"a.pcapng\"", "write: `a.pcapng` is not an absolute path, which the daemon needs"),
            (
                "read = \"/tmp/a\"\nwrite = \"/tmp/a\"",
                "write: /tmp/a is also the file to replay; record to another file",
            ),
            ("write = \"/no/such/a\"", "write: /no/such is not a directory; create it first"),
            ("write = \"/tmp/a\"\nsnaplen = 13", "snaplen: 13 is out of range, must be 14 to 65535 bytes"),
            ("write = \"/tmp/a\"\nsnaplen = 65536", "snaplen: 65536 is out of range"),
            ("write = \"/tmp/a\"\nmode = \"rw\"", "mode: \"rw\" is not an octal mode"),
            ("write = \"/tmp/a\"\nowner = \"nobody-here\"", "owner: there is no user \"nobody-here\""),
            ("speed = \"fast\"", "`fast` is not a speed; expected `recorded`"),
            ("loop = 0", "invalid value: integer `0`, expected 1 to 4294967295 rounds, or `forever`"),
            ("loop = \"ever\"", "invalid value: string \"ever\", expected 1 to"),
            ("path = \"/tmp/a\"", "unknown field `path`, expected one of `read`, `speed`, `loop`"),
        ] {
            let error = error(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
