//! Numbers that tell bridges and ports apart where the configuration has none.
//!
//! They are digests of names, so that a bridge has the same number after each start, and another one than bridges of
//! other machines and daemons.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::settings::DatapathId;

/// Derives the id of a bridge from the machine, the daemon's control socket and the bridge's name.
pub(super) fn datapath_id(control: &Path, bridge: &str) -> DatapathId {
    // A machine without an id has its host name at least.
    let machine = ["/etc/machine-id", "/proc/sys/kernel/hostname"]
        .iter()
        .find_map(|file| std::fs::read(file).ok().filter(|text| !text.is_empty()))
        .unwrap_or_default();
    let control = control.as_os_str().as_encoded_bytes();
    let [a, b, c, d, e, f] = address(&[&machine, control, bridge.as_bytes()]);
    DatapathId(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

/// Derives the Ethernet address of a port without one from its bridge's id and its name.
pub(super) fn port_address(bridge: DatapathId, port: &str) -> [u8; 6] {
    address(&[&bridge.0.to_be_bytes(), port.as_bytes()])
}

/// A locally administered address of a station.
fn address(parts: &[&[u8]]) -> [u8; 6] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let mut address = [0; 6];
    address.iter_mut().zip(digest.finalize()).for_each(|(byte, digest)| *byte = digest);
    address[0] = address[0] & 0xfc | 0x02;
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stable_and_differ() {
        let id = |socket: &str, bridge| datapath_id(Path::new(socket), bridge);
        assert_eq!(id("/a", "br0"), id("/a", "br0"));
        assert_ne!(id("/a", "br0"), id("/b", "br0"));
        assert_ne!(id("/a", "br0"), id("/a", "br1"));
        assert_eq!(id("/a", "br0").0 >> 40 & 0xff03, 0x02, "a unicast address of local administration");
        assert_ne!(port_address(DatapathId(1), "a"), port_address(DatapathId(1), "b"));
        assert_ne!(port_address(DatapathId(1), "a"), port_address(DatapathId(2), "a"));
    }
}
