//! Settings that an interface's driver knows: speed and duplex, receive queues, VLAN tags, place on the bus.

use std::os::fd::{AsRawFd, OwnedFd};

/// `ETHTOOL_GSET` (linux/ethtool.h): superseded, and answered for every driver by the kernel.
const GET_SETTINGS: u32 = 1;
/// `ETHTOOL_GDRVINFO`.
const GET_DRIVER: u32 = 3;
/// `ETHTOOL_GCHANNELS`, `ETHTOOL_GFLAGS` and `ETHTOOL_SFLAGS`.
const GET_CHANNELS: u32 = 0x3c;
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;
/// `ETH_FLAG_RXVLAN`: the driver takes VLAN tags out of received packets.
const RX_VLAN: u32 = 1 << 8;
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

/// `struct ethtool_drvinfo`.
#[repr(C)]
#[derive(Default)]
struct Driver {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus_info: [u8; 32],
    rom_version: [u8; 32],
    reserved: [u8; 12],
    numbers: [u32; 5],
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most_rx: u32,
    most_tx: u32,
    most_other: u32,
    most_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_value`.
#[repr(C)]
#[derive(Default)]
struct Flags {
    command: u32,
    flags: u32,
}

/// Sends the command in `data`, whose first field it is, and receives the answer there. Returns whether the driver
/// knows it.
///
/// # Safety
/// The kernel writes no more than a `T` for this command.
unsafe fn ask<T>(socket: &OwnedFd, name: &str, data: &mut T) -> bool {
    // SAFETY: an `ifreq` is bytes, integers and a pointer; all zeros is one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The longest name is followed by a zero byte.
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(data).cast();
    // SAFETY: SIOCETHTOOL reads an `ifreq`, and reads and writes a `T` where it points, by the caller's promise.
    unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) >= 0 }
}

/// Returns the number of receive queues of interface `name`; 1 if its driver does not say.
pub(super) fn receive_queues(socket: &OwnedFd, name: &str) -> u32 {
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    // SAFETY: with this command the kernel writes a `struct ethtool_channels`.
    let known = unsafe { ask(socket, name, &mut channels) };
    if known { (channels.rx + channels.combined).max(1) } else { 1 }
}

/// Has the driver of interface `name` leave VLAN tags in received packets, or take them out. Returns whether that
/// changed anything.
pub(super) fn keep_vlan_tags(socket: &OwnedFd, name: &str, keep: bool) -> bool {
    let mut flags = Flags { command: GET_FLAGS, flags: 0 };
    // SAFETY: with this command the kernel writes a `struct ethtool_value`.
    if !unsafe { ask(socket, name, &mut flags) } || (flags.flags & RX_VLAN == 0) == keep {
        return false;
    }
    flags = Flags { command: SET_FLAGS, flags: flags.flags ^ RX_VLAN };
    // SAFETY: with this command the kernel writes nothing.
    unsafe { ask(socket, name, &mut flags) }
}

/// Returns the address on its bus of the device behind interface `name`, such as `0000:3b:00.0`; empty if the driver
/// does not say.
pub(super) fn bus_address(socket: &OwnedFd, name: &str) -> String {
    let mut driver = Driver { command: GET_DRIVER, ..Driver::default() };
    // SAFETY: with this command the kernel writes a `struct ethtool_drvinfo`.
    if !unsafe { ask(socket, name, &mut driver) } {
        return String::new();
    }
    let text: Vec<u8> = driver.bus_info.into_iter().take_while(|byte| *byte != 0).collect();
    String::from_utf8(text).unwrap_or_default()
}

/// Returns speed in Mbit/s and duplex of interface `name` in the namespace of `socket`; `None` if unknown.
pub(super) fn speed_and_duplex(socket: &OwnedFd, name: &str) -> (Option<u32>, Option<&'static str>) {
    let mut settings = Settings { command: GET_SETTINGS, ..Settings::default() };
    // SAFETY: with this command the kernel writes a `struct ethtool_cmd`.
    if !unsafe { ask(socket, name, &mut settings) } {
        return (None, None);
    }
    let speed = u32::from(settings.speed_high) << 16 | u32::from(settings.speed);
    let speed = (!UNKNOWN.contains(&speed)).then_some(speed);
    let duplex = match settings.duplex {
        HALF => Some("half"),
        FULL => Some("full"),
        _ => None,
    };
    (speed, duplex)
}
