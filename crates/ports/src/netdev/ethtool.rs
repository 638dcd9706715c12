//! Speed and duplex of an interface, where its driver knows them.

use std::os::fd::{AsRawFd, OwnedFd};

/// `ETHTOOL_GSET` (linux/ethtool.h): superseded, and answered for every driver by the kernel.
const GET_SETTINGS: u32 = 1;
/// `SPEED_UNKNOWN`, and its lower half in older drivers.
const UNKNOWN: [u32; 3] = [u32::MAX, 0xffff, 0];
const HALF: u8 = 0;
const FULL: u8 = 1;

/// `struct ethtool_cmd`.
#[repr(C)]
#[derive(Default)]
struct Settings {
    command: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex: u8,
    port: u8,
    phy_address: u8,
    transceiver: u8,
    autoneg: u8,
    mdio: u8,
    max_tx_packets: u32,
    max_rx_packets: u32,
    speed_high: u16,
    tp_mdix: u8,
    tp_mdix_control: u8,
    partner_advertising: u32,
    reserved: [u32; 2],
}

/// Returns speed and duplex of interface `name` in the namespace of `socket`, in words; `None` if unknown.
pub(super) fn speed_and_duplex(socket: &OwnedFd, name: &str) -> (Option<String>, Option<&'static str>) {
    let mut settings = Settings { command: GET_SETTINGS, ..Settings::default() };
    // SAFETY: an `ifreq` is bytes, integers and a pointer; all zeros is one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The longest name is followed by a zero byte.
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut settings).cast();
    // SAFETY: SIOCETHTOOL reads an `ifreq`, and with this command writes a `struct ethtool_cmd` where it points.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) } < 0 {
        return (None, None);
    }
    let speed = u32::from(settings.speed_high) << 16 | u32::from(settings.speed);
    let speed = (!UNKNOWN.contains(&speed)).then(|| format!("{speed} Mbit/s"));
    let duplex = match settings.duplex {
        HALF => Some("half"),
        FULL => Some("full"),
        _ => None,
    };
    (speed, duplex)
}
