//! Options of a vhost-user port, and their checks.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vhost_user::features::device;

use crate::access::{Access, check_directory};
use crate::guard::{check_guards, default_hold_off, default_message_rate, default_unclosed_descriptors};
use crate::{OpenError, Size};

/// Longest path of a Unix socket (`sun_path` of unix(7), without the zero at its end).
const MAX_PATH: usize = 107;

/// Side that makes the socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The switch listens; the front-end connects.
    #[default]
    Server,
    /// The front-end listens; the switch connects, and reconnects when it is gone.
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
    /// Largest number of queue pairs that a front-end may use, 1 to 64.
    #[serde(default = "default_queues")]
    pub queues: u16,
    /// Largest number of memory regions that a front-end may share, 1 to 509: a guest with hot-plugged memory takes one
    /// for each piece.
    #[serde(default = "default_memory_slots")]
    pub memory_slots: u16,
    /// Whether packed rings are offered in addition to split ones.
    #[serde(default = "yes")]
    pub packed: bool,
    /// Whether a packet may take several of the front-end's receive buffers.
    #[serde(default = "yes")]
    pub mergeable: bool,
    /// Whether packets may cross with partial checksums or uncut segments. Without, guest and switch complete and cut
    /// each packet.
    #[serde(default = "yes")]
    pub offloads: bool,
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
    /// Memory of a front-end that the switch may allocate by touching it first, such as `256MiB`; by default a quarter
    /// of the memory available to the switch (its memory cgroup's limit, or the machine's).
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

/// Features that leave work on packets to the other side.
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
    /// Checks everything that can be checked without opening anything.
    pub fn check(&self) -> Result<(), OpenError> {
        self.checked().map(drop)
    }

    /// Checks the options, and returns the access to the socket file.
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

    /// Returns the features that front-ends are offered.
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
    fn errors_name_the_option_and_its_range() {
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
    fn disabled_features_are_not_offered() {
        assert_eq!(options("").features(), device::OFFERED);
        let plain = options("packed = false\nmergeable = false\noffloads = false").features();
        assert_eq!(plain & (device::RING_PACKED | device::MRG_RXBUF | OFFLOADS), 0);
        assert_ne!(plain & device::VERSION_1, 0);
    }
}
