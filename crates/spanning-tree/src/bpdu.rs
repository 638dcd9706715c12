//! Bridge protocol data units (IEEE 802.1D-2004 clause 9) in their Ethernet frames (IEEE 802.2 LLC).

use packet::MacAddr;

use crate::{BridgeId, PortId};

/// Destination of all frames with BPDUs: the Bridge Group Address (§7.12.3).
pub const GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0]);

/// Header of logical link control: both service access points are those of bridges, unnumbered information (§7.12.3).
const LLC: [u8; 3] = [0x42, 0x42, 0x03];
/// Bytes in front of a BPDU: addresses and length, then LLC.
const ETHERNET: usize = 14;
/// Shortest Ethernet frame, without its checksum.
const SHORTEST: usize = 60;

/// Lengths of a Configuration BPDU, of a Topology Change Notification and of an RST BPDU (§9.3).
const CONFIG_LEN: usize = 35;
const TCN_LEN: usize = 4;
const RST_LEN: usize = 36;
/// Protocol version of RST BPDUs.
const RSTP_VERSION: u8 = 2;
/// Types of BPDUs.
const CONFIG: u8 = 0x00;
const RST: u8 = 0x02;
const TCN: u8 = 0x80;
/// Units of times within a second.
const TICKS: u32 = 256;

/// Bits of the flags (§9.3.3).
mod flag {
    pub(super) const TOPOLOGY_CHANGE: u8 = 0x01;
    pub(super) const PROPOSAL: u8 = 0x02;
    pub(super) const LEARNING: u8 = 0x10;
    pub(super) const FORWARDING: u8 = 0x20;
    pub(super) const AGREEMENT: u8 = 0x40;
    pub(super) const ACKNOWLEDGEMENT: u8 = 0x80;
    /// Place of the port's role, two bits.
    pub(super) const ROLE: u32 = 2;
}

/// A BPDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bpdu {
    /// Configuration BPDU (STP).
    Config(Message),
    /// Topology Change Notification (STP).
    Tcn,
    /// RST BPDU: the same message, with the sender's role and states.
    Rst(Message, Rapid),
}

/// A time, in 1/256 of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ticks(pub u16);

impl Ticks {
    /// Of whole seconds; more than fit are as many as fit.
    pub fn of_seconds(seconds: u16) -> Self {
        Self(seconds.min((u32::from(u16::MAX) / TICKS) as u16) * TICKS as u16)
    }

    /// Of milliseconds.
    pub fn of_millis(millis: u64) -> Self {
        Self(u16::try_from(millis.saturating_mul(TICKS.into()) / 1000).unwrap_or(u16::MAX))
    }

    /// Rounded to the nearest second.
    pub fn seconds(self) -> u16 {
        ((u32::from(self.0) + TICKS / 2) / TICKS) as u16
    }

    /// In milliseconds, rounded down.
    pub fn millis(self) -> u64 {
        u64::from(self.0) * 1000 / u64::from(TICKS)
    }
}

/// The configuration message of Configuration BPDUs and of RST BPDUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Message {
    /// The root of the tree.
    pub root: BridgeId,
    /// Cost of the sender's path to the root.
    pub cost: u32,
    /// The sender.
    pub bridge: BridgeId,
    /// The sender's port.
    pub port: PortId,
    /// Age of the message since the root sent it.
    pub message_age: Ticks,
    /// Age at which it is no longer valid.
    pub max_age: Ticks,
    /// Time between two messages of the root.
    pub hello_time: Ticks,
    /// Time in each of the states Listening and Learning.
    pub forward_delay: Ticks,
    /// The topology changes.
    pub topology_change: bool,
    /// A Topology Change Notification has come.
    pub acknowledgement: bool,
}

/// Role of a port in RST BPDUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// None that the sender tells.
    Unknown,
    /// Alternate or backup.
    Alternate,
    /// Root.
    Root,
    /// Designated.
    Designated,
}

/// What an RST BPDU has beyond the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rapid {
    /// The sender's role.
    pub role: Role,
    /// The sender asks whether its port may forward at once.
    pub proposal: bool,
    /// The receiver's port may.
    pub agreement: bool,
    /// The sender's port learns.
    pub learning: bool,
    /// The sender's port forwards.
    pub forwarding: bool,
}

/// Reasons for ignoring a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It ends too early.
    TooShort(usize),
    /// It is no frame of LLC with the bridges' service access points.
    NoBpdu,
    /// Another protocol than that of spanning trees.
    Protocol(u16),
    /// Type and version that are not known.
    Type(u8, u8),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooShort(length) => write!(f, "BPDU of {length} bytes is too short"),
            Self::NoBpdu => f.write_str("not a BPDU"),
            Self::Protocol(number) => write!(f, "protocol {number}, expected 0"),
            Self::Type(kind, version) => write!(f, "unknown BPDU type {kind:#x} of version {version}"),
        }
    }
}

/// Whether a frame is for bridges' protocols: spanning trees.
pub fn is_for_bridges(frame: &[u8]) -> bool {
    frame.starts_with(&GROUP.0)
}

/// Splits a number of `N` bytes off.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}

impl Message {
    /// Reads the fields behind the type.
    fn read(mut rest: &[u8]) -> Option<(u8, Self)> {
        let rest = &mut rest;
        let [flags] = take(rest)?;
        let root = BridgeId(u64::from_be_bytes(take(rest)?));
        let cost = u32::from_be_bytes(take(rest)?);
        let bridge = BridgeId(u64::from_be_bytes(take(rest)?));
        let port = PortId(u16::from_be_bytes(take(rest)?));
        let mut ticks = || Some(Ticks(u16::from_be_bytes(take(rest)?)));
        let message = Self {
            root,
            cost,
            bridge,
            port,
            message_age: ticks()?,
            max_age: ticks()?,
            hello_time: ticks()?,
            forward_delay: ticks()?,
            topology_change: flags & flag::TOPOLOGY_CHANGE != 0,
            acknowledgement: flags & flag::ACKNOWLEDGEMENT != 0,
        };
        Some((flags, message))
    }

    fn write(&self, more_flags: u8, bytes: &mut Vec<u8>) {
        let mut flags = more_flags;
        for (is_set, bit) in
            [(self.topology_change, flag::TOPOLOGY_CHANGE), (self.acknowledgement, flag::ACKNOWLEDGEMENT)]
        {
            flags |= if is_set { bit } else { 0 };
        }
        bytes.push(flags);
        bytes.extend(self.root.0.to_be_bytes());
        bytes.extend(self.cost.to_be_bytes());
        bytes.extend(self.bridge.0.to_be_bytes());
        bytes.extend(self.port.0.to_be_bytes());
        for time in [self.message_age, self.max_age, self.hello_time, self.forward_delay] {
            bytes.extend(time.0.to_be_bytes());
        }
    }
}

impl Rapid {
    fn of_flags(flags: u8) -> Self {
        let role = match flags >> flag::ROLE & 3 {
            0 => Role::Unknown,
            1 => Role::Alternate,
            2 => Role::Root,
            _ => Role::Designated,
        };
        let has = |bit| flags & bit != 0;
        Self {
            role,
            proposal: has(flag::PROPOSAL),
            agreement: has(flag::AGREEMENT),
            learning: has(flag::LEARNING),
            forwarding: has(flag::FORWARDING),
        }
    }

    fn flags(self) -> u8 {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        bit(self.proposal, flag::PROPOSAL)
            | bit(self.agreement, flag::AGREEMENT)
            | bit(self.learning, flag::LEARNING)
            | bit(self.forwarding, flag::FORWARDING)
            | (self.role as u8) << flag::ROLE
    }
}

impl Bpdu {
    /// Reads the BPDU in an Ethernet frame (§9.3.4). Bytes behind it are padding, or of later versions.
    ///
    /// # Errors
    /// The frame has none that is known.
    pub fn of_frame(frame: &[u8]) -> Result<Self, Fault> {
        let length = frame.get(ETHERNET - 2..ETHERNET).and_then(|bytes| bytes.first_chunk());
        let length = usize::from(u16::from_be_bytes(*length.ok_or(Fault::TooShort(frame.len()))?));
        let behind = frame.get(ETHERNET..).unwrap_or_default();
        let payload = behind.get(..length).unwrap_or(behind);
        Self::of_payload(payload.strip_prefix(&LLC).ok_or(Fault::NoBpdu)?)
    }

    fn of_payload(bytes: &[u8]) -> Result<Self, Fault> {
        let short = Fault::TooShort(bytes.len());
        let Some(([p0, p1, version, kind], rest)) = bytes.split_first_chunk::<TCN_LEN>() else {
            return Err(short);
        };
        let protocol = u16::from_be_bytes([*p0, *p1]);
        if protocol != 0 {
            return Err(Fault::Protocol(protocol));
        }
        match *kind {
            TCN => Ok(Self::Tcn),
            CONFIG => Message::read(rest).map(|(_, message)| Self::Config(message)).ok_or(short),
            RST if *version >= RSTP_VERSION => {
                let (flags, message) = Message::read(rest).filter(|_| bytes.len() >= RST_LEN).ok_or(short)?;
                Ok(Self::Rst(message, Rapid::of_flags(flags)))
            }
            kind => Err(Fault::Type(kind, *version)),
        }
    }

    /// Writes the frame that sends the BPDU from a port with this address.
    pub fn frame(&self, source: MacAddr) -> Vec<u8> {
        let mut frame = Vec::with_capacity(SHORTEST);
        frame.extend([GROUP.0, source.0].concat());
        let length = match self {
            Self::Config(_) => CONFIG_LEN,
            Self::Tcn => TCN_LEN,
            Self::Rst(..) => RST_LEN,
        };
        frame.extend(((LLC.len() + length) as u16).to_be_bytes());
        frame.extend(LLC);
        match self {
            Self::Config(message) => {
                frame.extend([0, 0, 0, CONFIG]);
                message.write(0, &mut frame);
            }
            Self::Tcn => frame.extend([0, 0, 0, TCN]),
            Self::Rst(message, rapid) => {
                frame.extend([0, 0, RSTP_VERSION, RST]);
                message.write(rapid.flags(), &mut frame);
                // Length of what version 1 adds: nothing.
                frame.push(0);
            }
        }
        frame.resize(frame.len().max(SHORTEST), 0);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

    fn message() -> Message {
        Message {
            root: BridgeId(0x8000_0000_0000_0001),
            cost: 200,
            bridge: BridgeId(0x8000_0000_0000_0002),
            port: PortId(0x8003),
            message_age: Ticks::of_seconds(1),
            max_age: Ticks::of_seconds(20),
            hello_time: Ticks::of_seconds(2),
            forward_delay: Ticks::of_seconds(15),
            topology_change: true,
            acknowledgement: false,
        }
    }

    fn rapid() -> Rapid {
        Rapid { role: Role::Root, proposal: false, agreement: true, learning: true, forwarding: false }
    }

    #[test]
    fn frames_are_as_the_standard_has_them() {
        let frame = Bpdu::Config(message()).frame(SOURCE);
        assert_eq!(frame.len(), SHORTEST);
        let start = [
            1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 7, 0, 38, 0x42, 0x42, 3, 0, 0, 0, 0, 1, 0x80, 0, 0, 0, 0,
            0, 0, 1, 0, 0, 0, 200, 0x80, 0, 0, 0, 0, 0, 0, 2, 0x80, 3, 1, 0, 20, 0, 2, 0, 15, 0,
        ];
        assert!(frame.starts_with(&start), "{frame:x?}");
        let frame = Bpdu::Rst(message(), rapid()).frame(SOURCE);
        assert_eq!((frame[13], &frame[17..22]), (39, &[0, 0, 2, 2, 0x59][..]));
    }

    #[test]
    fn bpdus_are_read_as_they_were_written() {
        for bpdu in [Bpdu::Config(message()), Bpdu::Tcn, Bpdu::Rst(message(), rapid())] {
            assert_eq!(Bpdu::of_frame(&bpdu.frame(SOURCE)), Ok(bpdu));
        }
    }

    #[test]
    fn what_is_no_bpdu_is_refused() {
        let frame = Bpdu::Rst(message(), rapid()).frame(SOURCE);
        for end in 0..ETHERNET + LLC.len() + RST_LEN {
            assert!(Bpdu::of_frame(&frame[..end]).is_err(), "{end}");
        }
        let with = |at: usize, byte: u8| {
            let mut other = frame.clone();
            other[at] = byte;
            Bpdu::of_frame(&other)
        };
        assert_eq!(with(13, 38), Err(Fault::TooShort(35)), "the length in the frame counts");
        assert_eq!(with(14, 0xaa), Err(Fault::NoBpdu));
        assert_eq!(with(18, 1), Err(Fault::Protocol(1)));
        assert_eq!(with(20, 3), Err(Fault::Type(3, 2)));
        assert_eq!(with(19, 1), Err(Fault::Type(2, 1)));
        assert!(with(19, 3).is_ok(), "a later version");
        assert_eq!(Fault::Type(2, 1).to_string(), "unknown BPDU type 0x2 of version 1");
    }

    #[test]
    fn times_are_rounded_and_bounded() {
        assert_eq!([Ticks(127).seconds(), Ticks(128).seconds(), Ticks(u16::MAX).seconds()], [0, 1, 256]);
        assert_eq!(
            (Ticks::of_seconds(300), Ticks::of_millis(1_000_000)),
            (Ticks(255 * 256), Ticks(u16::MAX))
        );
        assert_eq!((Ticks::of_millis(1500), Ticks(384).millis()), (Ticks(384), 1500));
    }
}
