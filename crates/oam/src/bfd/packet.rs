//! Control packets (RFC 5880 §4.1) and their headers (RFC 5881 §4, §5).

use std::net::Ipv4Addr;

use packet::MacAddr;
use packet::checksum::Sum;
use packet::headers::{IpVersion, Layers, protocol};

/// UDP port of control packets (RFC 5881 §4).
pub const PORT: u16 = 3784;
/// Destination address of frames unless another is configured, that of Open vSwitch.
pub const DESTINATION: MacAddr = MacAddr([0x00, 0x23, 0x20, 0x00, 0x00, 0x01]);

const VERSION: u8 = 1;
/// Length of a control packet without authentication.
const LENGTH: usize = 24;
const ETHERNET: usize = 14;
const IP: usize = 20;
const UDP: usize = 8;
/// Length of a frame.
pub const FRAME: usize = ETHERNET + IP + UDP + LENGTH;

/// Bits of the flags behind the state.
pub(super) mod flag {
    pub(crate) const MULTIPOINT: u8 = 1;
    pub(crate) const DEMAND: u8 = 1 << 1;
    pub(crate) const AUTHENTICATED: u8 = 1 << 2;
    pub(crate) const CONTROL_PLANE: u8 = 1 << 3;
    pub(crate) const FINAL: u8 = 1 << 4;
    pub(crate) const POLL: u8 = 1 << 5;
    pub(super) const ALL: u8 = (1 << 6) - 1;
}

/// State of a session (RFC 5880 §4.1, "Sta").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Held down by the operator.
    AdminDown,
    /// Down.
    Down,
    /// The remote system talks, but does not hear.
    Init,
    /// Both systems hear each other.
    Up,
}

impl State {
    fn from_flags(flags: u8) -> Self {
        match flags >> 6 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }

    /// The name that Open vSwitch has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AdminDown => "admin_down",
            Self::Down => "down",
            Self::Init => "init",
            Self::Up => "up",
        }
    }
}

/// Reason for a session's last change of state (RFC 5880 §4.1, "Diag").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diagnostic(pub u8);

impl Diagnostic {
    pub(super) const NONE: Self = Self(0);
    pub(super) const EXPIRED: Self = Self(1);
    pub(super) const NEIGHBOR_DOWN: Self = Self(3);
    pub(super) const PATH_DOWN: Self = Self(5);
    pub(super) const CONCATENATED_PATH_DOWN: Self = Self(6);
    pub(super) const REVERSE_CONCATENATED_PATH_DOWN: Self = Self(8);

    /// The name in RFC 5880.
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "No Diagnostic",
            1 => "Control Detection Time Expired",
            2 => "Echo Function Failed",
            3 => "Neighbor Signaled Session Down",
            4 => "Forwarding Plane Reset",
            5 => "Path Down",
            6 => "Concatenated Path Down",
            7 => "Administratively Down",
            8 => "Reverse Concatenated Path Down",
            _ => "Invalid Diagnostic",
        }
    }
}

/// A control packet. Intervals are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) diagnostic: Diagnostic,
    pub(super) state: State,
    pub(super) flags: u8,
    pub(super) multiplier: u8,
    pub(super) mine: u32,
    pub(super) yours: u32,
    pub(super) min_tx: u32,
    pub(super) min_rx: u32,
}

/// Addresses of a session's frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) source: MacAddr,
    pub(super) destination: MacAddr,
    pub(super) from: Ipv4Addr,
    pub(super) to: Ipv4Addr,
    pub(super) port: u16,
}

/// Reasons for discarding a packet (RFC 5880 §6.8.6, RFC 5881 §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is not UDP over IPv4.
    NotUdp,
    /// Its TTL is not 255: it may come from beyond the link.
    Ttl(u8),
    /// It ends too early.
    TooShort(usize),
    /// Its version is not 1.
    Version(u8),
    /// It is authenticated, which is not supported.
    Authenticated,
    /// Its length is less than that of a packet.
    Length(u8),
    /// Its multiplier is zero.
    Multiplier,
    /// It is multipoint, which is not supported.
    Multipoint,
    /// It has no discriminator.
    NoDiscriminator,
    /// It is for another session, or for none although its state says otherwise.
    OtherSession(u32),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotUdp => write!(f, "not UDP over IPv4"),
            Self::Ttl(ttl) => write!(f, "TTL {ttl}, expected 255"),
            Self::TooShort(length) => write!(f, "{length} bytes, expected {LENGTH} or more"),
            Self::Version(version) => write!(f, "version {version}, expected {VERSION}"),
            Self::Authenticated => write!(f, "authentication is not supported"),
            Self::Length(length) => write!(f, "length {length}, expected {LENGTH} or more"),
            Self::Multiplier => write!(f, "multiplier 0"),
            Self::Multipoint => write!(f, "multipoint is not supported"),
            Self::NoDiscriminator => write!(f, "no discriminator"),
            Self::OtherSession(discriminator) => write!(f, "for another session ({discriminator:#x})"),
        }
    }
}

impl Control {
    /// Reads the control packet of a frame.
    pub(super) fn of_frame(frame: &[u8]) -> Result<Self, Fault> {
        let layers = Layers::parse(frame);
        let (Some(IpVersion::V4), Some(protocol::UDP), Some(l3), Some(l4)) =
            (layers.ip, layers.protocol, layers.l3, layers.l4)
        else {
            return Err(Fault::NotUdp);
        };
        let ttl = frame.get(usize::from(l3) + 8).copied().unwrap_or(0);
        if ttl != u8::MAX {
            return Err(Fault::Ttl(ttl));
        }
        Self::decode(frame.get(usize::from(l4) + UDP..).unwrap_or_default())
    }

    fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let Some([vers_diag, flags, multiplier, length, words @ ..]) = bytes.first_chunk::<LENGTH>() else {
            return Err(Fault::TooShort(bytes.len()));
        };
        let word = |at: usize| {
            let bytes = words.get(at * 4..).and_then(|rest| rest.first_chunk::<4>());
            bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
        };
        let control = Self {
            diagnostic: Diagnostic(vers_diag & 0x1f),
            state: State::from_flags(*flags),
            flags: flags & flag::ALL,
            multiplier: *multiplier,
            mine: word(0),
            yours: word(1),
            min_tx: word(2),
            min_rx: word(3),
        };
        match () {
            () if vers_diag >> 5 != VERSION => Err(Fault::Version(vers_diag >> 5)),
            () if control.flags & flag::AUTHENTICATED != 0 => Err(Fault::Authenticated),
            () if usize::from(*length) < LENGTH => Err(Fault::Length(*length)),
            () if control.multiplier == 0 => Err(Fault::Multiplier),
            () if control.flags & flag::MULTIPOINT != 0 => Err(Fault::Multipoint),
            () if control.mine == 0 => Err(Fault::NoDiscriminator),
            () => Ok(control),
        }
    }

    /// Writes a frame.
    pub(super) fn frame(&self, addresses: &Addresses) -> [u8; FRAME] {
        const TOTAL: u16 = (FRAME - ETHERNET) as u16;
        let Addresses { source, destination, from, to, port } = addresses;
        let mut ip = [0; IP];
        let fields: [&[u8]; 4] = [
            // Version and header length, internetwork control.
            &[0x45, 0xc0],
            &TOTAL.to_be_bytes(),
            // No fragment; TTL, protocol, checksum.
            &[0, 0, 0, 0, u8::MAX, protocol::UDP, 0, 0],
            &[from.octets(), to.octets()].concat(),
        ];
        ip.iter_mut().zip(fields.into_iter().flatten()).for_each(|(to, byte)| *to = *byte);
        let sum = Sum::of(&ip).finish().to_be_bytes();
        ip[10..12].copy_from_slice(&sum);
        let state = (self.state as u8) << 6;
        let parts: [&[u8]; 14] = [
            &destination.0,
            &source.0,
            &[0x08, 0x00],
            &ip,
            &port.to_be_bytes(),
            &PORT.to_be_bytes(),
            &(TOTAL - IP as u16).to_be_bytes(),
            // Without a checksum (RFC 768).
            &[0, 0, VERSION << 5 | self.diagnostic.0 & 0x1f, state | self.flags & flag::ALL],
            &[self.multiplier, LENGTH as u8],
            &self.mine.to_be_bytes(),
            &self.yours.to_be_bytes(),
            &self.min_tx.to_be_bytes(),
            &self.min_rx.to_be_bytes(),
            // No echoes.
            &[0; 4],
        ];
        let mut frame = [0; FRAME];
        frame.iter_mut().zip(parts.into_iter().flatten()).for_each(|(to, byte)| *to = *byte);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROL: Control = Control {
        diagnostic: Diagnostic(3),
        state: State::Init,
        flags: flag::POLL,
        multiplier: 3,
        mine: 0x0102_0304,
        yours: 0xa0b0_c0d0,
        min_tx: 100_000,
        min_rx: 1_000_000,
    };

    fn frame(control: &Control) -> [u8; FRAME] {
        control.frame(&Addresses {
            source: MacAddr([2, 0, 0, 0, 0, 1]),
            destination: DESTINATION,
            from: Ipv4Addr::new(169, 254, 1, 1),
            to: Ipv4Addr::new(169, 254, 1, 0),
            port: 49152,
        })
    }

    #[test]
    fn frames_are_as_the_standards_have_them() {
        let frame = frame(&CONTROL);
        let expected = "002320000001020000000001 0800\
             45c0003400000000ff11 64fb a9fe0101a9fe0100\
             c000 0ec8 0020 0000\
             23 a0 03 18 01020304 a0b0c0d0 000186a0 000f4240 00000000";
        let mut hex = String::new();
        frame.iter().for_each(|byte| hex += &format!("{byte:02x}"));
        assert_eq!(hex, expected.replace(' ', ""));
        assert_eq!(Sum::of(&frame[14..34]).finish(), 0);
        assert_eq!(Control::of_frame(&frame), Ok(CONTROL));
    }

    #[test]
    fn invalid_packets_are_discarded() {
        let valid = frame(&CONTROL);
        let with = |at: usize, byte: u8| {
            let mut frame = valid;
            frame[at] = byte;
            Control::of_frame(&frame)
        };
        let control = ETHERNET + IP + UDP;
        for (at, byte, fault) in [
            (12, 0x86, Fault::NotUdp),
            (23, protocol::TCP, Fault::NotUdp),
            (22, 254, Fault::Ttl(254)),
            (control, 0x40, Fault::Version(2)),
            (control + 1, flag::AUTHENTICATED, Fault::Authenticated),
            (control + 1, flag::MULTIPOINT, Fault::Multipoint),
            (control + 2, 0, Fault::Multiplier),
            (control + 3, 23, Fault::Length(23)),
        ] {
            assert_eq!(with(at, byte), Err(fault), "byte {at}");
        }
        assert!(with(control + 3, 30).is_ok(), "a longer packet");
        for end in 0..FRAME {
            assert!(Control::of_frame(&valid[..end]).is_err(), "{end} bytes");
        }
        let mut anonymous = CONTROL;
        anonymous.mine = 0;
        assert_eq!(Control::of_frame(&frame(&anonymous)), Err(Fault::NoDiscriminator));
    }
}
