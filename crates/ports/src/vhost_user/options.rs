//! What a user can set on a vhost-user port, and the checks of it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vhost_user::features::device;

use crate::access::{Access, check_directory};
use crate::guard::{check_guards, default_hold_off, default_message_rate, default_unclosed_descriptors};
use crate::{OpenError, Size};

/// Longest path of a Unix socket (`sun_path` of unix(7), without the zero at its end).
const MAX_PATH: usize = 107;

/// Which side makes the socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The switch listens; the front-end connects.
    #[default]
    Server,
    /// The front-end listens; the switch connects, and again when it is gone.
    Client,
}

/// Options of a vhost-user port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// Path of the socket, one for each port.
    #[serde(rename = "path")]
    pub socket: PathBuf,
    /// Server listens, client connects. The front-end (QEMU, virtio-user) takes the other role.
    #[serde(default)]
    pub role: Role,
    /// Most queue pairs that a front-end may use, 1 to 64.
    #[serde(default = "default_queues")]
    pub queues: u16,
    /// Most memory regions that a front-end may share, 1 to 509: a guest to which memory is plugged in while it runs takes
    /// one for each piece.
    #[serde(default = "default_memory_slots")]
    pub memory_slots: u16,
    /// Whether packed rings are offered beside split ones.
    #[serde(default = "yes")]
    pub packed: bool,
    /// Whether a packet may take several of the front-end's receive buffers.
    #[serde(default = "yes")]
    pub mergeable: bool,
    /// Whether packets with checksums to complete or segments to cut may cross. Without, guest and switch do that work
    /// for each packet.
    #[serde(default = "yes")]
    pub offloads: bool,
    /// Messages of clients a second that are served, 10 to 1000000; starting or stopping rings counts as 8, a connection as
    /// 16. A client may be ten seconds of them ahead. One that sends more is served no faster.
    #[serde(default = "default_message_rate")]
    pub message_rate: u32,
    /// Descriptors of clients that may wait to be closed because somebody delays it, 1 to 65536; while there are as many, the
    /// port takes no more.
    #[serde(default = "default_unclosed_descriptors")]
    pub unclosed_descriptors: u32,
    /// Seconds for which the port lets nobody in, at most, after clients that broke it again and again, 0 to 3600. The first
    /// fault costs 0.1 s; a minute without one, or `mswitch port set`, ends it.
    #[serde(default = "default_hold_off")]
    pub hold_off: u32,
    /// Memory of a front-end that the switch may allocate by touching it first, such as `256MiB`; a quarter of the memory
    /// that the switch may have (its memory cgroup's limit, or the machine's) if not given.
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

fn default_queues() -> u16 {
    16
}

fn default_memory_slots() -> u16 {
    32
}

fn yes() -> bool {
    true
}

/// Features that ask for work on packets, or spare it.
const OFFLOADS: u64 = device::CSUM
    | device::HOST_TSO4
    | device::HOST_TSO6
    | device::HOST_ECN
    | device::HOST_USO
    | device::GUEST_CSUM
    | device::GUEST_TSO4
    | device::GUEST_TSO6
    | device::GUEST_ECN
    | device::GUEST_USO4
    | device::GUEST_USO6;

impl Options {
    /// Checks everything that can be known without opening anything.
    pub fn check(&self) -> Result<(), OpenError> {
        self.checked().map(drop)
    }

    /// The same, and who may reach the socket file.
    pub(super) fn checked(&self) -> Result<Access, OpenError> {
        let length = self.socket.as_os_str().len();
        if length == 0 || length > MAX_PATH {
            return Err(OpenError(format!("path: a path of {length} bytes, must be 1 to {MAX_PATH}")));
        }
        check_directory(&self.socket)?;
        if !(1..=64).contains(&self.queues) {
            return Err(OpenError(format!("queues: {} is out of range, must be 1 to 64", self.queues)));
        }
        let most = vhost_user::memory::MAX_REGIONS as u16;
        if !(1..=most).contains(&self.memory_slots) {
            let found = self.memory_slots;
            return Err(OpenError(format!("memory-slots: {found} is out of range, must be 1 to {most}")));
        }
        check_guards(self.message_rate, self.unclosed_descriptors, self.hold_off)?;
        Access::read(self.owner.as_deref(), self.group.as_deref(), self.mode.as_deref())
    }

    /// The features that front-ends are offered.
    pub(super) fn features(&self) -> u64 {
        let without = [
            (self.packed, device::RING_PACKED),
            (self.mergeable, device::MRG_RXBUF),
            (self.offloads, OFFLOADS),
        ];
        without.iter().filter(|(on, _)| !on).fold(device::OFFERED, |offered, (_, bits)| offered & !bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(more: &str) -> Options {
        toml::from_str(&format!("path = \"/tmp/x.sock\"\n{more}")).unwrap()
    }

    #[test]
    fn says_what_is_wrong() {
        let error = |more: &str| options(more).check().unwrap_err().0;
        assert_eq!(error("queues = 0"), "queues: 0 is out of range, must be 1 to 64");
        assert_eq!(error("queues = 65"), "queues: 65 is out of range, must be 1 to 64");
        assert_eq!(error("memory-slots = 0"), "memory-slots: 0 is out of range, must be 1 to 509");
        assert_eq!(error("memory-slots = 510"), "memory-slots: 510 is out of range, must be 1 to 509");
        assert_eq!(error("hold-off = 3601"), "hold-off: 3601 is out of range, must be 0 to 3600");
        assert!(error("mode = \"9\"").contains("not an octal mode"));
        assert!(error("owner = \"nobody-here\"").contains("no user"));
        let at = |path: String| Options { socket: path.into(), ..options("") }.check().unwrap_err().0;
        assert!(at("/no/such/x".into()).contains("/no/such is not a directory"));
        assert_eq!(at(format!("/tmp/{}", "x".repeat(103))), "path: a path of 108 bytes, must be 1 to 107");
        assert_eq!(options("").check(), Ok(()));
        let wrong = toml::from_str::<Options>("path = \"/tmp/x\"\nfirst-touch-limit = \"much\"").unwrap_err();
        assert_eq!(wrong.message(), "`much` is not a size; expected bytes such as `256MiB`");
        for (text, limit) in [("\"1GiB\"", 1 << 30), ("65536", 65536)] {
            let options = options(&format!("first-touch-limit = {text}"));
            assert_eq!(options.first_touch_limit, Some(Size(limit)));
        }
    }

    #[test]
    fn what_is_off_is_not_offered() {
        assert_eq!(options("").features(), device::OFFERED);
        let plain = options("packed = false\nmergeable = false\noffloads = false").features();
        assert_eq!(plain & (device::RING_PACKED | device::MRG_RXBUF | OFFLOADS), 0);
        assert_ne!(plain & device::VERSION_1, 0);
    }
}
