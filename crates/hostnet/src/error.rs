//! Failures, worded for the operator: the object, the reason, and the remedy.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::link::Interface;
use crate::netlink::Refusal;

/// Reason for which addresses and routes were not moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The interface does not exist.
    #[error("interface `{0}` does not exist in this network namespace; `ip link` lists the interfaces")]
    Missing(String),
    /// Source and target are the same interface.
    #[error("interface `{0}` cannot take over its own addresses; name another interface as the host port")]
    Same(String),
    /// The interface has no MAC address.
    #[error("interface `{interface}` is not an Ethernet interface; only those have addresses that can move")]
    NotEthernet {
        /// Name of the interface.
        interface: String,
    },
    /// The interface belongs to a bridge, bond or VRF.
    #[error(
        "interface `{interface}` belongs to {master}, so its traffic is not its own; free it with \
         `ip link set {interface} nomaster`"
    )]
    Enslaved {
        /// Name of the interface.
        interface: String,
        /// Quoted name of its master.
        master: String,
    },
    /// Another interface lies on this one, and would lose its traffic.
    #[error(
        "{kind} interface `{upper}` lies on `{interface}` and would be cut off; remove it with `ip link del {upper}`, \
         and create it on the host port afterwards"
    )]
    Stacked {
        /// Name of the lower interface.
        interface: String,
        /// Name of the interface that lies on it.
        upper: String,
        /// Kind of that interface, such as `vlan`.
        kind: String,
    },
    /// The kernel cannot be asked.
    #[error("cannot read the configuration of interface `{interface}`: {refusal}")]
    Unreadable {
        /// Name of the interface.
        interface: String,
        /// The kernel's answer.
        refusal: Refusal,
    },
    /// The kernel refuses an operation.
    #[error("cannot {operation}: {refusal}{remedy}")]
    Refused {
        /// The operation, such as "add address 10.0.0.1/24 to `host0`".
        operation: String,
        /// The kernel's answer.
        refusal: Refusal,
        /// What to do, after a semicolon; may be empty.
        remedy: String,
    },
    /// An object did not arrive although the kernel accepted it.
    #[error(
        "{object} is missing at {on} although the kernel accepted it; another program may have removed it: stop \
         NetworkManager or systemd-networkd from managing {on}"
    )]
    Vanished {
        /// The object.
        object: String,
        /// Quoted name of the interface.
        on: String,
    },
    /// Moving failed, and moving back failed as well.
    #[error("{cause}; then the previous state could not be restored: {rollback}; the journal {} is kept", journal.display())]
    RollbackFailed {
        /// First failure.
        cause: Box<Self>,
        /// Failure of the rollback.
        rollback: Box<Self>,
        /// Journal with the previous state.
        journal: PathBuf,
    },
    /// The journal cannot be read, written, or understood.
    #[error("journal {}: {what}", path.display())]
    Journal {
        /// Path of the journal.
        path: PathBuf,
        /// The failure and its remedy.
        what: String,
    },
    /// The guardian did not start.
    #[error("cannot start the guardian process: {0}")]
    Guardian(String),
}

impl Error {
    pub(crate) fn unreadable(interface: &str) -> impl Fn(Refusal) -> Self {
        move |refusal| Self::Unreadable { interface: interface.to_owned(), refusal }
    }

    /// Explains why an operation was refused.
    pub(crate) fn refused(operation: String, on: &Interface, refusal: Refusal) -> Self {
        let remedy = match refusal.errno {
            Errno::PERM | Errno::ACCESS => "; CAP_NET_ADMIN is needed".to_owned(),
            Errno::ROFS => "; the service needs ReadWritePaths=/proc/sys/net".to_owned(),
            Errno::NODEV | Errno::NXIO => format!("; interface {on} was removed meanwhile"),
            Errno::NETUNREACH | Errno::HOSTUNREACH => {
                "; no address of the interface reaches the gateway: add the route with `onlink`, or remove it"
                    .to_owned()
            }
            Errno::NETDOWN => format!("; interface {on} was set down meanwhile"),
            _ => String::new(),
        };
        Self::Refused { operation, refusal, remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_object_and_the_remedy() {
        let on = Interface { index: 2, name: "host0".into() };
        let refusal = |errno| Refusal { errno, explanation: None };
        for (errno, message) in [
            (Errno::PERM, "cannot set `host0` up: Operation not permitted; CAP_NET_ADMIN is needed"),
            (Errno::NODEV, "cannot set `host0` up: No such device; interface `host0` was removed meanwhile"),
            (Errno::INVAL, "cannot set `host0` up: Invalid argument"),
            (
                Errno::ROFS,
                "cannot set `host0` up: Read-only file system; the service needs ReadWritePaths=/proc/sys/net",
            ),
        ] {
            let error = Error::refused("set `host0` up".into(), &on, refusal(errno));
            assert_eq!(error.to_string(), message);
        }
        assert_eq!(
            Error::Missing("eth9".into()).to_string(),
            "interface `eth9` does not exist in this network namespace; `ip link` lists the interfaces"
        );
        let stacked =
            Error::Stacked { interface: "eth0".into(), upper: "eth0.7".into(), kind: "vlan".into() };
        assert_eq!(
            stacked.to_string(),
            "vlan interface `eth0.7` lies on `eth0` and would be cut off; remove it with `ip link del eth0.7`, and \
             create it on the host port afterwards"
        );
        assert_eq!(
            Error::Enslaved { interface: "eth0".into(), master: "`bond0`".into() }.to_string(),
            "interface `eth0` belongs to `bond0`, so its traffic is not its own; free it with `ip link set eth0 nomaster`"
        );
    }
}
