//! A client with a small IP stack ([smoltcp](https://docs.rs/smoltcp)): answers ARP, neighbour discovery and pings, and
//! echoes TCP data.
//!
//! It has no offloads: every received frame must be complete. Frames that exceed its MTU or have a wrong checksum are
//! counted here, before the stack sees them.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packet::checksum::{pseudo_header_v4, pseudo_header_v6};
use packet::{IpVersion, Layers};
use serde::{Deserialize, Serialize};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};

use crate::packet::announcement;
use crate::port::{Client, Error, PortSpec, Rings, check_connected, connect, sleep};
use crate::shape::SpecError;

/// The TCP port of the "echo" service.
pub const ECHO_PORT: u16 = 7;
/// Maximum number of concurrent TCP connections.
const CONNECTIONS: usize = 4;
/// Size of each connection's buffers in bytes.
const WINDOW: usize = 256 << 10;
const ETHERNET_LEN: usize = 14;

/// An IP address with the prefix length of its network: `10.0.0.3/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    ip: IpAddr,
    prefix: u8,
}

impl FromStr for Address {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Address, SpecError> {
        let parsed = text.split_once('/').and_then(|(ip, prefix)| {
            let (ip, prefix) = (ip.parse::<IpAddr>().ok()?, prefix.parse().ok()?);
            let most = if ip.is_ipv4() { 32 } else { 128 };
            (prefix <= most).then_some(Address { ip, prefix })
        });
        parsed.ok_or_else(|| SpecError::new(text, "an address with a prefix length, such as 10.0.0.3/24"))
    }
}

/// Statistics of a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// Frames received.
    pub frames: u64,
    /// Frames longer than the MTU allows.
    pub oversized: u64,
    /// Frames with a wrong IPv4, TCP, UDP or ICMP checksum.
    pub bad_checksums: u64,
    /// Frames whose checksums were all correct.
    pub good_checksums: u64,
    /// The longest frame.
    pub longest: u64,
    /// Bytes received over TCP and echoed.
    pub echoed_bytes: u64,
}

/// Runs a host until `stop` is set.
pub fn serve(
    spec: &PortSpec,
    rings: Rings,
    addresses: &[Address],
    mtu: usize,
    stop: &AtomicBool,
) -> Result<HostReport, Error> {
    let mac = spec.address(0);
    let client = connect(spec, rings)?;
    let mut device = SwitchPort { client, mtu, report: HostReport::default(), packet: Vec::new() };
    // Announces the host, so that the switch need not flood.
    device.send(&announcement(mac));
    let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac.0)));
    let mut interface = Interface::new(config, &mut device, Instant::now());
    interface.update_ip_addrs(|list| {
        for address in addresses {
            // The list holds a few addresses, which is enough for this tool.
            let _ = list.push(IpCidr::new(address.ip.into(), address.prefix));
        }
    });
    let mut sockets = SocketSet::new(Vec::new());
    let handles: Vec<SocketHandle> = (0..CONNECTIONS)
        .map(|_| {
            let buffer = || tcp::SocketBuffer::new(vec![0; WINDOW]);
            sockets.add(tcp::Socket::new(buffer(), buffer()))
        })
        .collect();
    while !stop.load(Ordering::Relaxed) {
        check_connected(&mut *device.client, spec)?;
        interface.poll(Instant::now(), &mut device, &mut sockets);
        let mut moved = 0;
        for handle in &handles {
            moved += echo(sockets.get_mut::<tcp::Socket<'_>>(*handle));
        }
        device.report.echoed_bytes += moved as u64;
        if moved > 0 {
            continue;
        }
        let wait = interface.poll_delay(Instant::now(), &sockets).map(Duration::from);
        sleep(
            std::iter::once(&mut device.client),
            wait.unwrap_or(Duration::MAX).min(Duration::from_millis(100)),
        )?;
    }
    Ok(device.report)
}

/// Echoes a connection's received data as far as the send buffer has room; listens again once the connection is closed.
/// Returns the number of bytes moved.
fn echo(socket: &mut tcp::Socket<'_>) -> usize {
    if !socket.is_open() {
        // Fails only for port 0.
        let _ = socket.listen(ECHO_PORT);
        return 0;
    }
    let room = socket.send_capacity() - socket.send_queue();
    let mut moved = 0;
    if room > 0 && socket.can_recv() && socket.can_send() {
        // Takes data in pieces, because the closure sees only contiguous parts of the buffer.
        let taken = socket.recv(|data| {
            let part = data[..data.len().min(room)].to_vec();
            (part.len(), part)
        });
        if let Ok(part) = taken {
            // The buffer has room: nothing else sends.
            moved = socket.send_slice(&part).unwrap_or(0);
        }
    }
    if !socket.may_recv() && !socket.can_recv() && socket.may_send() {
        socket.close();
    }
    moved
}

/// A port of the switch as a smoltcp device: sends on the first queue, receives on all.
struct SwitchPort {
    client: Box<dyn Client>,
    mtu: usize,
    report: HostReport,
    packet: Vec<u8>,
}

impl SwitchPort {
    fn send(&mut self, frame: &[u8]) {
        // A full ring loses the frame, like a wire.
        self.client.push(0, &[frame]);
        self.client.flush(0);
    }

    fn inspect(&mut self) {
        let length = self.packet.len();
        self.report.frames += 1;
        self.report.longest = self.report.longest.max(length as u64);
        if length > self.mtu + ETHERNET_LEN {
            self.report.oversized += 1;
        }
        match checksums_right(&self.packet) {
            Some(true) => self.report.good_checksums += 1,
            Some(false) => self.report.bad_checksums += 1,
            None => {}
        }
    }
}

/// Whether the checksums of an IP frame are correct; `None` if it has no checksum to verify.
pub fn checksums_right(frame: &[u8]) -> Option<bool> {
    let layers = Layers::parse(frame);
    let (l3, l4, protocol) = (layers.l3?, layers.l4?, layers.protocol?);
    if layers.fragment {
        return None;
    }
    let header = frame.get(usize::from(l3)..usize::from(l4))?;
    let (mut right, end, mut sum) = match layers.ip? {
        IpVersion::V4 => {
            let total = u16::from_be_bytes([header[2], header[3]]);
            let payload = total.checked_sub(l4 - l3)?;
            let source = *header.get(12..)?.first_chunk()?;
            let destination = *header.get(16..)?.first_chunk()?;
            let sum = pseudo_header_v4(source, destination, protocol, payload);
            (packet::Sum::of(header).finish() == 0, usize::from(l3 + total), sum)
        }
        IpVersion::V6 => {
            let total = 40 + u16::from_be_bytes([header[4], header[5]]);
            let payload = total.checked_sub(l4 - l3)?;
            let source: [u8; 16] = *header.get(8..)?.first_chunk()?;
            let destination: [u8; 16] = *header.get(24..)?.first_chunk()?;
            let sum = pseudo_header_v6(
                Ipv6Addr::from(source).octets(),
                Ipv6Addr::from(destination).octets(),
                protocol,
                u32::from(payload),
            );
            (true, usize::from(l3 + total), sum)
        }
    };
    let Some(body) = frame.get(usize::from(l4)..end) else { return Some(false) };
    match protocol {
        6 | 58 => sum.add(body),
        // UDP over IPv4 may omit the checksum.
        17 if body.get(6..8)? == [0, 0] => return Some(right),
        17 => sum.add(body),
        1 => sum = packet::Sum::of(body),
        _ => return Some(right),
    }
    right &= sum.finish() == 0;
    Some(right)
}

impl Device for SwitchPort {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sender<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sender<'_>)> {
        for queue in 0..self.client.queues().1 {
            if self.client.pop(queue, &mut self.packet) {
                self.client.refill(queue);
                self.inspect();
                let frame = self.packet.clone();
                return Some((Received(frame), Sender(self)));
            }
        }
        None
    }

    fn transmit(&mut self, _: Instant) -> Option<Sender<'_>> {
        Some(Sender(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + ETHERNET_LEN;
        capabilities
    }
}

/// A received frame.
struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

/// Permission to send one frame.
struct Sender<'a>(&'a mut SwitchPort);

impl TxToken for Sender<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut frame = vec![0; length];
        let result = f(&mut frame);
        // Pads to Ethernet's minimum length.
        frame.resize(length.max(crate::packet::MIN_LEN), 0);
        self.0.send(&frame);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        assert!("10.0.0.3/24".parse::<Address>().is_ok());
        assert!("fd00::3/64".parse::<Address>().is_ok());
        for wrong in ["10.0.0.3", "10.0.0.3/33", "fd00::/129", "x/1"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn checksums_are_verified() {
        let mut frame = vec![0u8; 12];
        frame.extend_from_slice(&[0x08, 0x00, 0x45, 0, 0, 29, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend_from_slice(&[0, 9, 0, 9, 0, 9, 0, 0, 77]);
        let header = packet::Sum::of(&frame[14..34]).finish().to_be_bytes();
        frame[24..26].copy_from_slice(&header);
        let mut sum = pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], 17, 9);
        sum.add(&frame[34..]);
        frame[40..42].copy_from_slice(&sum.finish().to_be_bytes());
        frame.resize(60, 0xee);
        assert_eq!(checksums_right(&frame), Some(true));
        for at in 14..43 {
            // Changes of lengths and protocols make a different packet.
            if ![14, 17, 20, 21, 23].contains(&at) {
                frame[at] ^= 4;
                assert_eq!(checksums_right(&frame), Some(false), "{at}");
                frame[at] ^= 4;
            }
        }
        assert_eq!(checksums_right(&frame[..41]), Some(false));
        assert_eq!(checksums_right(&[0; 60]), None);
    }
}
