//! Options of a dummy port, and their checks.

use std::path::PathBuf;

use packet::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::OpenError;

/// Options of a dummy port. Relative paths are in the daemon's working directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Options {
    /// Ethernet address; the next of aa:55:aa:55:00:00 and on if not given.
    #[serde(with = "crate::tap::options::mac_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub address: Option<MacAddr>,
    /// File for the frames received and sent, pcap. An existing file is continued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcap: Option<PathBuf>,
    /// File for the frames received; ignored with `pcap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rxq_pcap: Option<PathBuf>,
    /// File for the frames sent; ignored with `pcap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_pcap: Option<PathBuf>,
    /// Whether it stands for an interface of the host's own, as commands show it.
    #[serde(skip)]
    pub internal: bool,
    /// Stream to connect to: `unix:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Stream to listen on: `punix:PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pstream: Option<String>,
}

impl Options {
    /// Checks everything that can be checked without opening a file.
    pub fn check(&self) -> Result<(), OpenError> {
        if self.stream.is_some() && self.pstream.is_some() {
            return Err(OpenError("stream: `stream` and `pstream` are both set; set one of them".into()));
        }
        let expect = |key: &str, value: &Option<String>, prefix: &str| match value {
            Some(value) if value.strip_prefix(prefix).is_none_or(str::is_empty) => {
                Err(OpenError(format!("{key}: `{value}` is not a stream (expected `{prefix}PATH`)")))
            }
            _ => Ok(()),
        };
        expect("stream", &self.stream, "unix:")?;
        expect("pstream", &self.pstream, "punix:")
    }

    /// Returns the file for received frames.
    pub(super) fn received_in(&self) -> &Option<PathBuf> {
        if self.pcap.is_some() { &self.pcap } else { &self.rxq_pcap }
    }

    /// Returns the file for sent frames.
    pub(super) fn sent_in(&self) -> &Option<PathBuf> {
        if self.pcap.is_some() { &self.pcap } else { &self.tx_pcap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_checked() {
        let check = |stream: Option<&str>, pstream: Option<&str>| {
            let (stream, pstream) = (stream.map(Into::into), pstream.map(Into::into));
            Options { stream, pstream, ..Options::default() }.check().map_err(|error| error.0)
        };
        assert_eq!(check(Some("unix:/r/p1"), None), Ok(()));
        assert_eq!(check(None, Some("punix:/r/p1")), Ok(()));
        assert_eq!(
            check(Some("tcp:127.0.0.1:1"), None),
            Err("stream: `tcp:127.0.0.1:1` is not a stream (expected `unix:PATH`)".into())
        );
        assert_eq!(
            check(Some("unix:/a"), Some("punix:/b")),
            Err("stream: `stream` and `pstream` are both set; set one of them".into())
        );
    }
}
