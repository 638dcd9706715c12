//! The messages between front-end and back-end, and their encoding.
//!
//! A message is a header of 12 bytes (request, flags, size) and a payload of `size` bytes, all in the machine's byte
//! order; descriptors travel beside it. QEMU's `docs/interop/vhost-user.rst` specifies the payload of each request.
//!
//! Invariants:
//! - [`Request::decode`] accepts any bytes and returns a request or an error.
//! - Descriptors are not examined here; [`Request::descriptors`] is the number that a request needs.

use std::fmt;

/// Length of the header.
pub const HEADER_LEN: usize = 12;
/// The longest payload of any supported request: a full memory table.
pub const MAX_PAYLOAD: usize = 8 + MAX_REGIONS * REGION_LEN;
/// Maximum number of regions in one memory table.
pub const MAX_REGIONS: usize = 8;
/// Maximum number of descriptors with one message.
pub const MAX_DESCRIPTORS: usize = 8;

const REGION_LEN: usize = 32;

/// The protocol version: the lower two bits of the flags.
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const FLAG_REPLY: u32 = 1 << 2;
const FLAG_NEED_REPLY: u32 = 1 << 3;

/// Flag in requests that carry a ring's index and a descriptor: no descriptor is attached.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The number of the request, or of the request that this replies to.
    pub code: u32,
    /// Whether this is a reply.
    pub is_reply: bool,
    /// Whether the sender asks for a reply.
    pub need_reply: bool,
    /// Length of the payload.
    pub size: u32,
}

impl Header {
    /// Decodes the header of a message.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Header, DecodeError> {
        let [c0, c1, c2, c3, f0, f1, f2, f3, s0, s1, s2, s3] = *bytes;
        let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
        let size = u32::from_ne_bytes([s0, s1, s2, s3]);
        let version = flags & VERSION_MASK;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let code = u32::from_ne_bytes([c0, c1, c2, c3]);
        if size as usize > MAX_PAYLOAD {
            return Err(DecodeError::TooLong { name: name_of(code), size });
        }
        let (is_reply, need_reply) = (flags & FLAG_REPLY != 0, flags & FLAG_NEED_REPLY != 0);
        Ok(Header { code, is_reply, need_reply, size })
    }

    fn encode(&self) -> [u8; HEADER_LEN] {
        let mut flags = VERSION;
        if self.is_reply {
            flags |= FLAG_REPLY;
        }
        if self.need_reply {
            flags |= FLAG_NEED_REPLY;
        }
        let [c0, c1, c2, c3] = self.code.to_ne_bytes();
        let [f0, f1, f2, f3] = flags.to_ne_bytes();
        let [s0, s1, s2, s3] = self.size.to_ne_bytes();
        [c0, c1, c2, c3, f0, f1, f2, f3, s0, s1, s2, s3]
    }
}

/// Reasons for refusing the bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The protocol version differs.
    #[error("message of protocol version {0}, expected 1")]
    Version(u32),
    /// The payload is longer than that of any request.
    #[error("{name} announces {size} bytes (at most {MAX_PAYLOAD})")]
    TooLong {
        /// The request.
        name: Name,
        /// The size in its header.
        size: u32,
    },
    /// The payload's length is wrong for the request.
    #[error("{name} with {size} bytes of payload, expected {expected}")]
    Size {
        /// The request.
        name: Name,
        /// The length found.
        size: usize,
        /// The length expected.
        expected: usize,
    },
    /// The memory table has no region, or too many.
    #[error("SET_MEM_TABLE with {0} regions, expected 1 to {MAX_REGIONS}")]
    Regions(u32),
    /// A reply in place of a request, or a request in place of a reply.
    #[error("{0} with the wrong reply flag")]
    Direction(Name),
    /// The request number is unknown.
    #[error("unknown request {0}")]
    Unknown(u32),
}

/// A request's name, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name(u32);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(code, _)| *code == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "request {}", self.0),
        }
    }
}

fn name_of(code: u32) -> Name {
    Name(code)
}

/// A ring and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingNumber {
    /// The ring.
    pub ring: u32,
    /// A size, a position, or 0 or 1 for off and on, depending on the request.
    pub number: u32,
}

/// Addresses of a ring's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingAddresses {
    /// The ring.
    pub ring: u32,
    /// Bit 0: log writes to the used ring.
    pub flags: u32,
    /// Descriptor table (split) or descriptor ring (packed), user address.
    pub descriptors: u64,
    /// Used ring (split) or device event suppression (packed), user address.
    pub used: u64,
    /// Available ring (split) or driver event suppression (packed), user address.
    pub available: u64,
    /// Log address of the used ring, guest address.
    pub log: u64,
}

/// A ring, and whether a descriptor is attached to the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingDescriptor {
    /// The ring, 0 to 255.
    pub ring: u8,
    /// Whether a descriptor is attached.
    pub present: bool,
}

impl RingDescriptor {
    fn decode(value: u64) -> Self {
        Self { ring: value as u8, present: value & NO_DESCRIPTOR == 0 }
    }

    fn encode(self) -> u64 {
        u64::from(self.ring) | if self.present { 0 } else { NO_DESCRIPTOR }
    }
}

/// A region of the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Its guest address.
    pub guest: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its user address.
    pub user: u64,
    /// Its offset in the file.
    pub offset: u64,
}

/// Location of a log in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogArea {
    /// Size in bytes.
    pub size: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// A front-end's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Asks for the offered features.
    GetFeatures,
    /// Sets the features to use.
    SetFeatures(u64),
    /// Starts the session.
    SetOwner,
    /// Deprecated; ignored.
    ResetOwner,
    /// Sets all memory, with a file for each region.
    SetMemTable(Vec<Region>),
    /// Sets the dirty log.
    SetLogBase(LogArea),
    /// Sets the eventfd to signal after logging.
    SetLogFd,
    /// Sets a ring's size.
    SetVringNum(RingNumber),
    /// Sets a ring's addresses.
    SetVringAddr(RingAddresses),
    /// Sets a ring's position.
    SetVringBase(RingNumber),
    /// Stops a ring and asks for its position.
    GetVringBase(RingNumber),
    /// Sets the eventfd that the driver signals.
    SetVringKick(RingDescriptor),
    /// Sets the eventfd that the driver waits for.
    SetVringCall(RingDescriptor),
    /// Sets the eventfd for errors.
    SetVringErr(RingDescriptor),
    /// Asks for the offered protocol features.
    GetProtocolFeatures,
    /// Sets the protocol features to use.
    SetProtocolFeatures(u64),
    /// Asks for the maximum number of queue pairs.
    GetQueueNum,
    /// Enables or disables a ring.
    SetVringEnable(RingNumber),
    /// Announces this station.
    SendRarp([u8; 6]),
    /// Sets the MTU that the guest received.
    NetSetMtu(u64),
    /// Asks for the maximum number of memory regions.
    GetMaxMemSlots,
    /// Adds a memory region, with its file.
    AddMemReg(Region),
    /// Removes a memory region.
    RemMemReg(Region),
    /// Sets the device status (virtio 1.2 §2.1).
    SetStatus(u64),
    /// Asks for the status last set.
    GetStatus,
}

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const RESET_OWNER: u32 = 4;
const SET_MEM_TABLE: u32 = 5;
const SET_LOG_BASE: u32 = 6;
const SET_LOG_FD: u32 = 7;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;
const SEND_RARP: u32 = 19;
const NET_SET_MTU: u32 = 20;
const GET_MAX_MEM_SLOTS: u32 = 36;
const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;
const SET_STATUS: u32 = 39;
const GET_STATUS: u32 = 40;

const NAMES: &[(u32, &str)] = &[
    (GET_FEATURES, "GET_FEATURES"),
    (SET_FEATURES, "SET_FEATURES"),
    (SET_OWNER, "SET_OWNER"),
    (RESET_OWNER, "RESET_OWNER"),
    (SET_MEM_TABLE, "SET_MEM_TABLE"),
    (SET_LOG_BASE, "SET_LOG_BASE"),
    (SET_LOG_FD, "SET_LOG_FD"),
    (SET_VRING_NUM, "SET_VRING_NUM"),
    (SET_VRING_ADDR, "SET_VRING_ADDR"),
    (SET_VRING_BASE, "SET_VRING_BASE"),
    (GET_VRING_BASE, "GET_VRING_BASE"),
    (SET_VRING_KICK, "SET_VRING_KICK"),
    (SET_VRING_CALL, "SET_VRING_CALL"),
    (SET_VRING_ERR, "SET_VRING_ERR"),
    (GET_PROTOCOL_FEATURES, "GET_PROTOCOL_FEATURES"),
    (SET_PROTOCOL_FEATURES, "SET_PROTOCOL_FEATURES"),
    (GET_QUEUE_NUM, "GET_QUEUE_NUM"),
    (SET_VRING_ENABLE, "SET_VRING_ENABLE"),
    (SEND_RARP, "SEND_RARP"),
    (NET_SET_MTU, "NET_SET_MTU"),
    (GET_MAX_MEM_SLOTS, "GET_MAX_MEM_SLOTS"),
    (ADD_MEM_REG, "ADD_MEM_REG"),
    (REM_MEM_REG, "REM_MEM_REG"),
    (SET_STATUS, "SET_STATUS"),
    (GET_STATUS, "GET_STATUS"),
];

impl Request {
    /// Decodes the request from a header and its payload.
    pub fn decode(header: &Header, payload: &[u8]) -> Result<Request, DecodeError> {
        if header.is_reply {
            return Err(DecodeError::Direction(name_of(header.code)));
        }
        let mut fields = Fields { name: name_of(header.code), size: payload.len(), at: 0, payload };
        let request = match header.code {
            GET_FEATURES => Request::GetFeatures,
            SET_FEATURES => Request::SetFeatures(fields.u64()?),
            SET_OWNER => Request::SetOwner,
            RESET_OWNER => Request::ResetOwner,
            SET_MEM_TABLE => {
                let count = fields.u32()?;
                fields.u32()?;
                if count == 0 || count as usize > MAX_REGIONS {
                    return Err(DecodeError::Regions(count));
                }
                let mut regions = Vec::with_capacity(count as usize);
                for _ in 0..count {
                    regions.push(fields.region()?);
                }
                // Front-ends may send the whole structure, however much of it is used.
                fields.at = fields.size;
                Request::SetMemTable(regions)
            }
            SET_LOG_BASE => Request::SetLogBase(LogArea { size: fields.u64()?, offset: fields.u64()? }),
            // Only its descriptor matters; the payload is ignored.
            SET_LOG_FD => return Ok(Request::SetLogFd),
            SET_VRING_NUM => Request::SetVringNum(fields.ring_number()?),
            SET_VRING_ADDR => Request::SetVringAddr(RingAddresses {
                ring: fields.u32()?,
                flags: fields.u32()?,
                descriptors: fields.u64()?,
                used: fields.u64()?,
                available: fields.u64()?,
                log: fields.u64()?,
            }),
            SET_VRING_BASE => Request::SetVringBase(fields.ring_number()?),
            GET_VRING_BASE => Request::GetVringBase(fields.ring_number()?),
            SET_VRING_KICK => Request::SetVringKick(RingDescriptor::decode(fields.u64()?)),
            SET_VRING_CALL => Request::SetVringCall(RingDescriptor::decode(fields.u64()?)),
            SET_VRING_ERR => Request::SetVringErr(RingDescriptor::decode(fields.u64()?)),
            GET_PROTOCOL_FEATURES => Request::GetProtocolFeatures,
            SET_PROTOCOL_FEATURES => Request::SetProtocolFeatures(fields.u64()?),
            GET_QUEUE_NUM => Request::GetQueueNum,
            SET_VRING_ENABLE => Request::SetVringEnable(fields.ring_number()?),
            SEND_RARP => {
                let [a, b, c, d, e, f, _, _] = fields.u64()?.to_ne_bytes();
                Request::SendRarp([a, b, c, d, e, f])
            }
            NET_SET_MTU => Request::NetSetMtu(fields.u64()?),
            GET_MAX_MEM_SLOTS => Request::GetMaxMemSlots,
            ADD_MEM_REG => Request::AddMemReg(fields.single_region()?),
            REM_MEM_REG => Request::RemMemReg(fields.single_region()?),
            SET_STATUS => Request::SetStatus(fields.u64()?),
            GET_STATUS => Request::GetStatus,
            other => return Err(DecodeError::Unknown(other)),
        };
        fields.end()?;
        Ok(request)
    }

    /// Encodes the whole message.
    pub fn encode(&self, need_reply: bool) -> Vec<u8> {
        let mut payload = Vec::new();
        let mut u64s = |values: &[u64]| values.iter().for_each(|v| payload.extend(v.to_ne_bytes()));
        match self {
            Request::SetFeatures(v) | Request::SetProtocolFeatures(v) => u64s(&[*v]),
            Request::NetSetMtu(v) | Request::SetStatus(v) => u64s(&[*v]),
            Request::SetLogBase(LogArea { size, offset }) => u64s(&[*size, *offset]),
            Request::SetMemTable(regions) => {
                payload.extend((regions.len() as u32).to_ne_bytes());
                payload.extend([0; 4]);
                regions.iter().for_each(|region| region.encode(&mut payload));
            }
            Request::AddMemReg(region) | Request::RemMemReg(region) => {
                u64s(&[0]);
                region.encode(&mut payload);
            }
            Request::SetVringNum(state)
            | Request::SetVringBase(state)
            | Request::GetVringBase(state)
            | Request::SetVringEnable(state) => state.encode(&mut payload),
            Request::SetVringAddr(a) => {
                payload.extend(a.ring.to_ne_bytes());
                payload.extend(a.flags.to_ne_bytes());
                for value in [a.descriptors, a.used, a.available, a.log] {
                    payload.extend(value.to_ne_bytes());
                }
            }
            Request::SetVringKick(ring) | Request::SetVringCall(ring) | Request::SetVringErr(ring) => {
                u64s(&[ring.encode()]);
            }
            Request::SendRarp([a, b, c, d, e, f]) => payload.extend([*a, *b, *c, *d, *e, *f, 0, 0]),
            Request::GetFeatures
            | Request::SetOwner
            | Request::ResetOwner
            | Request::SetLogFd
            | Request::GetProtocolFeatures
            | Request::GetQueueNum
            | Request::GetMaxMemSlots
            | Request::GetStatus => {}
        }
        let size = payload.len() as u32;
        let header = Header { code: self.code(), is_reply: false, need_reply, size };
        [&header.encode()[..], &payload].concat()
    }

    /// Returns the request's number.
    pub fn code(&self) -> u32 {
        match self {
            Request::GetFeatures => GET_FEATURES,
            Request::SetFeatures(_) => SET_FEATURES,
            Request::SetOwner => SET_OWNER,
            Request::ResetOwner => RESET_OWNER,
            Request::SetMemTable(_) => SET_MEM_TABLE,
            Request::SetLogBase(_) => SET_LOG_BASE,
            Request::SetLogFd => SET_LOG_FD,
            Request::SetVringNum(_) => SET_VRING_NUM,
            Request::SetVringAddr(_) => SET_VRING_ADDR,
            Request::SetVringBase(_) => SET_VRING_BASE,
            Request::GetVringBase(_) => GET_VRING_BASE,
            Request::SetVringKick(_) => SET_VRING_KICK,
            Request::SetVringCall(_) => SET_VRING_CALL,
            Request::SetVringErr(_) => SET_VRING_ERR,
            Request::GetProtocolFeatures => GET_PROTOCOL_FEATURES,
            Request::SetProtocolFeatures(_) => SET_PROTOCOL_FEATURES,
            Request::GetQueueNum => GET_QUEUE_NUM,
            Request::SetVringEnable(_) => SET_VRING_ENABLE,
            Request::SendRarp(_) => SEND_RARP,
            Request::NetSetMtu(_) => NET_SET_MTU,
            Request::GetMaxMemSlots => GET_MAX_MEM_SLOTS,
            Request::AddMemReg(_) => ADD_MEM_REG,
            Request::RemMemReg(_) => REM_MEM_REG,
            Request::SetStatus(_) => SET_STATUS,
            Request::GetStatus => GET_STATUS,
        }
    }

    /// Returns the request's name.
    pub fn name(&self) -> Name {
        name_of(self.code())
    }

    /// Returns the minimum and maximum number of descriptors of the request.
    pub fn descriptors(&self) -> (usize, usize) {
        match self {
            Request::SetMemTable(regions) => (regions.len(), regions.len()),
            Request::AddMemReg(_) | Request::SetLogBase(_) => (1, 1),
            // Some front-ends send a descriptor that is not used.
            Request::RemMemReg(_) | Request::SetLogFd => (0, 1),
            Request::SetVringKick(ring) | Request::SetVringCall(ring) | Request::SetVringErr(ring) => {
                let n = usize::from(ring.present);
                (n, n)
            }
            _ => (0, 0),
        }
    }
}

impl RingNumber {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.ring.to_ne_bytes());
        to.extend(self.number.to_ne_bytes());
    }
}

impl Region {
    fn encode(&self, to: &mut Vec<u8>) {
        for value in [self.guest, self.size, self.user, self.offset] {
            to.extend(value.to_ne_bytes());
        }
    }
}

/// A back-end's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A number: features, a count, or 0 for success.
    Number(u64),
    /// A ring's position.
    Ring(RingNumber),
}

impl Answer {
    /// Encodes the whole message that answers the request with this number.
    pub fn encode(&self, code: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        match self {
            Answer::Number(value) => payload.extend(value.to_ne_bytes()),
            Answer::Ring(state) => state.encode(&mut payload),
        }
        let header = Header { code, is_reply: true, need_reply: false, size: payload.len() as u32 };
        [&header.encode()[..], &payload].concat()
    }

    /// Decodes an answer.
    pub fn decode(header: &Header, payload: &[u8]) -> Result<Answer, DecodeError> {
        let name = name_of(header.code);
        if !header.is_reply {
            return Err(DecodeError::Direction(name));
        }
        let mut fields = Fields { name, size: payload.len(), at: 0, payload };
        let answer = match header.code {
            GET_VRING_BASE => Answer::Ring(fields.ring_number()?),
            _ => Answer::Number(fields.u64()?),
        };
        fields.end()?;
        Ok(answer)
    }
}

/// Reader over a payload.
struct Fields<'a> {
    name: Name,
    size: usize,
    at: usize,
    payload: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let chunk = self.payload.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        self.at += N;
        chunk.copied().ok_or(DecodeError::Size { name: self.name, size: self.size, expected: self.at })
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_ne_bytes)
    }

    fn ring_number(&mut self) -> Result<RingNumber, DecodeError> {
        Ok(RingNumber { ring: self.u32()?, number: self.u32()? })
    }

    fn region(&mut self) -> Result<Region, DecodeError> {
        Ok(Region { guest: self.u64()?, size: self.u64()?, user: self.u64()?, offset: self.u64()? })
    }

    fn single_region(&mut self) -> Result<Region, DecodeError> {
        self.u64()?;
        self.region()
    }

    fn end(&self) -> Result<(), DecodeError> {
        if self.at == self.size {
            return Ok(());
        }
        Err(DecodeError::Size { name: self.name, size: self.size, expected: self.at })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REGION: Region = Region { guest: 0, size: 1 << 30, user: 0x7f00_0000_0000, offset: 4096 };
    const RING: RingNumber = RingNumber { ring: 3, number: 256 };

    fn parse(bytes: &[u8]) -> Result<Request, DecodeError> {
        let (header, payload) = bytes.split_first_chunk().unwrap();
        Request::decode(&Header::decode(header)?, payload)
    }

    fn every() -> Vec<Request> {
        let fd = RingDescriptor { ring: 7, present: true };
        let addresses = RingAddresses { ring: 1, flags: 1, descriptors: 2, used: 3, available: 4, log: 5 };
        vec![
            Request::GetFeatures,
            Request::SetFeatures(1 << 32),
            Request::SetOwner,
            Request::ResetOwner,
            Request::SetMemTable(vec![REGION; MAX_REGIONS]),
            Request::SetLogBase(LogArea { size: 8192, offset: 64 }),
            Request::SetLogFd,
            Request::SetVringNum(RING),
            Request::SetVringAddr(addresses),
            Request::SetVringBase(RING),
            Request::GetVringBase(RING),
            Request::SetVringKick(fd),
            Request::SetVringCall(RingDescriptor { present: false, ..fd }),
            Request::SetVringErr(fd),
            Request::GetProtocolFeatures,
            Request::SetProtocolFeatures(9),
            Request::GetQueueNum,
            Request::SetVringEnable(RING),
            Request::SendRarp([2, 0, 0, 0, 0, 9]),
            Request::NetSetMtu(1500),
            Request::GetMaxMemSlots,
            Request::AddMemReg(REGION),
            Request::RemMemReg(REGION),
            Request::SetStatus(15),
            Request::GetStatus,
        ]
    }

    #[test]
    fn every_request_survives_a_round_trip() {
        for request in every() {
            assert_eq!(parse(&request.encode(false)), Ok(request.clone()));
            assert!(!request.name().to_string().starts_with("request "), "{request:?} has no name");
        }
    }

    #[test]
    fn a_message_byte_by_byte() {
        let bytes = Request::SetVringKick(RingDescriptor { ring: 2, present: false }).encode(true);
        #[cfg(target_endian = "little")]
        assert_eq!(bytes, [12, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn answers() {
        for (code, answer) in [(GET_FEATURES, Answer::Number(5)), (GET_VRING_BASE, Answer::Ring(RING))] {
            let bytes = answer.encode(code);
            let (header, payload) = bytes.split_first_chunk().unwrap();
            let header = Header::decode(header).unwrap();
            assert!(header.is_reply);
            assert_eq!(Answer::decode(&header, payload), Ok(answer));
            assert!(Request::decode(&header, payload).unwrap_err().to_string().contains("wrong reply flag"));
        }
    }

    #[test]
    fn errors_state_the_problem() {
        let wrong = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Request::SetFeatures(0).encode(false);
            change(&mut bytes);
            parse(&bytes).unwrap_err().to_string()
        };
        assert_eq!(wrong(&|b| b[4] = 2), "message of protocol version 2, expected 1");
        assert_eq!(wrong(&|b| b[0] = 99), "unknown request 99");
        assert_eq!(wrong(&|b| b.truncate(16)), "SET_FEATURES with 4 bytes of payload, expected 8");
        assert_eq!(wrong(&|b| b.push(0)), "SET_FEATURES with 9 bytes of payload, expected 8");
        assert_eq!(
            wrong(&|b| b[8..12].copy_from_slice(&u32::MAX.to_ne_bytes())),
            "SET_FEATURES announces 4294967295 bytes (at most 264)"
        );
        for count in [0, 9] {
            let mut bytes = Request::SetMemTable(vec![REGION]).encode(false);
            bytes[12] = count;
            let error = parse(&bytes).unwrap_err().to_string();
            assert_eq!(error, format!("SET_MEM_TABLE with {count} regions, expected 1 to 8"));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 12..300), code in 0u32..45) {
            let mut bytes = bytes;
            bytes[..4].copy_from_slice(&code.to_ne_bytes());
            bytes[4] = bytes[4] & !3 | 1;
            let size = (bytes.len() - HEADER_LEN) as u32;
            bytes[8..12].copy_from_slice(&size.to_ne_bytes());
            if let Ok(request) = parse(&bytes) {
                let again = request.encode(false);
                prop_assert_eq!(parse(&again), Ok(request));
            }
        }
    }
}
