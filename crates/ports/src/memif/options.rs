//! Options of a memif port, and their checks.

use std::path::PathBuf;

use memif::message::Secret;
use memif::socket::Address;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::{Access, check_directory};
use crate::guard::{check_guards, default_hold_off, default_message_rate, default_unclosed_descriptors};
use crate::{OpenError, Size};

/// Side of the protocol that the switch takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The switch listens; clients provide the memory.
    #[default]
    Server,
    /// The switch connects to another server and provides the memory.
    Client,
}

/// Options of a memif port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// Path of the memif socket; with a leading `@` a name in the abstract namespace.
    #[serde(rename = "path")]
    pub socket: PathBuf,
    /// Number of the interface within its socket; several ports can share a socket.
    #[serde(default)]
    pub id: u32,
    /// Server listens, client connects.
    #[serde(default)]
    pub role: Role,
    /// Secret that the other side must present (server) or is given (client): 1 to 23 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Largest number of queues in each direction that a client may bring (server, 16 unless set), or the number to
    /// request (client, 1 unless set): 1 to 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
    /// Entries of each ring, a power of two from 2 to 16384 (client; a server accepts what clients bring).
    #[serde(default = "default_ring_size")]
    pub ring_size: u32,
    /// Bytes of each buffer (client).
    #[serde(default = "default_buffer_size")]
    pub buffer_size: u32,
    /// Largest number of client messages served per second, 10 to 1000000; starting or stopping rings counts as 8, a
    /// connection as 16. A client may use ten seconds' worth in advance; messages beyond that wait.
    #[serde(default = "default_message_rate")]
    pub message_rate: u32,
    /// Largest number of client descriptors that may wait to be closed while another process delays it, 1 to 65536; at
    /// that number the port accepts no more.
    #[serde(default = "default_unclosed_descriptors")]
    pub unclosed_descriptors: u32,
    /// Longest time for which the port admits no client after repeated faults, 0 to 3600 seconds. The first fault costs
    /// 0.1 s; a minute without faults, or `mswitch port set`, resets it.
    #[serde(default = "default_hold_off")]
    pub hold_off: u32,
    /// Memory of a client that the switch may allocate by touching it first (server), such as `256MiB`; by default a
    /// quarter of the memory available to the switch (its memory cgroup's limit, or the machine's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub first_touch_limit: Option<Size>,
    /// Access mode of the socket file, octal (server).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// User that owns the socket file, by name or number (server).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Group of the socket file, by name or number (server).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

fn default_ring_size() -> u32 {
    1024
}

fn default_buffer_size() -> u32 {
    2048
}

/// Options after the checks, in the protocol's terms.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) id: u32,
    pub(super) role: Role,
    pub(super) secret: Option<Secret>,
    pub(super) queues: u16,
    pub(super) log2_ring_size: u8,
    pub(super) buffer_size: u32,
    pub(super) message_rate: u32,
    pub(super) unclosed_descriptors: u32,
    pub(super) hold_off: u32,
    pub(super) first_touch_limit: Option<Size>,
}

impl Options {
    /// Checks everything that can be checked without opening anything.
    pub fn check(&self) -> Result<(), OpenError> {
        self.checked().map(drop)?;
        self.access().map(drop)
    }

    pub(super) fn checked(&self) -> Result<Settings, OpenError> {
        let text = self.socket.to_str().ok_or_else(|| OpenError("path: the path is not UTF-8".into()))?;
        if text.is_empty() || text == "@" {
            return Err(OpenError("path: empty; give a path, or @NAME for an abstract socket".into()));
        }
        let address = Address::new(text);
        if let Address::Path(path) = &address {
            check_directory(path)?;
        }
        let secret = match &self.secret {
            None => None,
            Some(text) => Some(Secret::new(text).filter(|s| !s.is_empty()).ok_or_else(|| {
                OpenError(format!("secret: {} bytes long, must be 1 to 23 without NUL", text.len()))
            })?),
        };
        let queues = self.queues.unwrap_or(if self.role == Role::Server { 16 } else { 1 });
        if !(1..=64).contains(&queues) {
            return Err(OpenError(format!("queues: {queues} is out of range, must be 1 to 64")));
        }
        if !self.ring_size.is_power_of_two() || !(2..=16384).contains(&self.ring_size) {
            return Err(OpenError(format!(
                "ring-size: {} is not a power of two from 2 to 16384",
                self.ring_size
            )));
        }
        if !(64..=65536).contains(&self.buffer_size) {
            return Err(OpenError(format!(
                "buffer-size: {} is out of range, must be 64 to 65536",
                self.buffer_size
            )));
        }
        check_guards(self.message_rate, self.unclosed_descriptors, self.hold_off)?;
        Ok(Settings {
            address,
            id: self.id,
            role: self.role,
            secret,
            queues,
            log2_ring_size: self.ring_size.trailing_zeros() as u8,
            buffer_size: self.buffer_size,
            message_rate: self.message_rate,
            unclosed_descriptors: self.unclosed_descriptors,
            hold_off: self.hold_off,
            first_touch_limit: self.first_touch_limit,
        })
    }

    /// Returns mode, user and group of the socket file, as far as they are set.
    pub(super) fn access(&self) -> Result<Access, OpenError> {
        Access::read(self.owner.as_deref(), self.group.as_deref(), self.mode.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            socket: "/tmp/x.sock".into(),
            id: 0,
            role: Role::Server,
            secret: None,
            queues: None,
            ring_size: 1024,
            buffer_size: 2048,
            message_rate: default_message_rate(),
            unclosed_descriptors: default_unclosed_descriptors(),
            hold_off: default_hold_off(),
            first_touch_limit: None,
            mode: None,
            owner: None,
            group: None,
        }
    }

    #[test]
    fn errors_name_the_option_and_its_range() {
        let error = |change: &dyn Fn(&mut Options)| {
            let mut options = options();
            change(&mut options);
            options.check().unwrap_err().0
        };
        assert!(error(&|o| o.socket = "/no/such/x".into()).contains("/no/such is not a directory"));
        assert!(error(&|o| o.socket = "@".into()).contains("empty"));
        assert!(error(&|o| o.secret = Some("x".repeat(24))).contains("24 bytes long"));
        assert!(error(&|o| o.secret = Some(String::new())).contains("must be 1 to 23"));
        assert!(error(&|o| o.queues = Some(0)).contains("1 to 64"));
        assert!(error(&|o| o.ring_size = 1000).contains("1000 is not a power of two"));
        assert!(error(&|o| o.buffer_size = 1).contains("64 to 65536"));
        assert!(
            error(&|o| o.message_rate = 9).contains("message-rate: 9 is out of range, must be 10 to 1000000")
        );
        assert!(error(&|o| o.unclosed_descriptors = 0).contains("1 to 65536"));
        assert!(error(&|o| o.mode = Some("9".into())).contains("not an octal mode"));
        assert!(error(&|o| o.owner = Some("nobody-here".into())).contains("no user"));
        assert!(error(&|o| o.group = Some("nobody-here".into())).contains("no group"));
        assert_eq!(options().check(), Ok(()));
    }
}
