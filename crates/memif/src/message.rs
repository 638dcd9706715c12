//! The control messages and their encoding.
//!
//! Every message is 128 bytes: a type, then fields without padding, little-endian, the rest zeros.
//!
//! Invariants:
//! - [`Message::decode`] accepts any 128 bytes and returns a message or an error.
//! - Text in a decoded message is bounded by its field and holds no control characters: it is safe to print.
//! - [`Message::encode`] ends text fields with a NUL, because C peers read them as strings; it truncates longer text
//!   between characters.

use std::fmt;

/// The size of every message.
pub const MESSAGE_SIZE: usize = 128;
/// The protocol version spoken: 2.0.
pub const VERSION: u16 = 0x0200;
/// The mode of an interface that carries Ethernet frames.
pub const MODE_ETHERNET: u8 = 0;
/// The largest ring: 2 to the power of this many descriptors.
pub const MAX_LOG2_RING_SIZE: u8 = 14;
/// The size of name fields.
pub const NAME_SIZE: usize = 32;
/// The size of the secret.
pub const SECRET_SIZE: usize = 24;
/// The size of the reason in a [`Message::Disconnect`].
pub const REASON_SIZE: usize = 96;

/// Flag in [`AddRing::flags`]: the ring is in direction S2M, client to server.
pub const RING_S2M: u16 = 1;

/// A control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Server to client: the previous message was accepted.
    Ack,
    /// Server to client, first: the server's offer.
    Hello(Hello),
    /// Client to server: the requested interface.
    Init(Init),
    /// Client to server, with a file: a region of memory.
    AddRegion(AddRegion),
    /// Client to server, with an eventfd: a ring within a region.
    AddRing(AddRing),
    /// Client to server: all regions and rings are announced.
    Connect {
        /// The client's name for its interface.
        if_name: String,
    },
    /// Server to client: the connection is up.
    Connected {
        /// The server's name for its interface.
        if_name: String,
    },
    /// Either way: the connection is over.
    Disconnect {
        /// An error code without defined meaning; peers send 0.
        code: u32,
        /// The reason, for people.
        reason: String,
    },
}

/// A server's offer. The `max_` fields are the highest index, one less than the count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The name of the server's program.
    pub name: String,
    /// The lowest version that the server supports.
    pub min_version: u16,
    /// The highest version that the server supports.
    pub max_version: u16,
    /// The highest region index.
    pub max_region: u16,
    /// The highest index of a ring from server to client.
    pub max_m2s_ring: u16,
    /// The highest index of a ring from client to server.
    pub max_s2m_ring: u16,
    /// The largest ring size, as a power of two.
    pub max_log2_ring_size: u8,
}

/// A client's request for an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Init {
    /// The version that the client chose.
    pub version: u16,
    /// The interface's number on this socket.
    pub id: u32,
    /// The kind of packets; most interfaces use [`MODE_ETHERNET`].
    pub mode: u8,
    /// The secret; all zeros when the client has none.
    pub secret: Secret,
    /// The name of the client's program.
    pub name: String,
}

/// A region of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddRegion {
    /// Its index, by which descriptors name it.
    pub index: u16,
    /// Its size in bytes.
    pub size: u64,
}

/// A ring within a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddRing {
    /// [`RING_S2M`] or nothing; other bits have no meaning.
    pub flags: u16,
    /// Its index among the rings of its direction.
    pub index: u16,
    /// The region that holds it.
    pub region: u16,
    /// The offset of its header in the region.
    pub offset: u32,
    /// The number of descriptors, as a power of two.
    pub log2_ring_size: u8,
    /// The size of a private header in buffers; peers send 0 and ignore it, and so does this crate.
    pub private_hdr_size: u16,
}

impl AddRing {
    /// Whether the ring is in direction S2M, client to server.
    pub fn is_s2m(&self) -> bool {
        self.flags & RING_S2M != 0
    }
}

/// The shared secret of an interface, padded with zeros. Debug output hides it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Secret(pub [u8; SECRET_SIZE]);

impl Secret {
    /// Makes a secret from text: 1 to 23 bytes (peers keep a NUL at the end), none of them NUL.
    pub fn new(text: &str) -> Option<Secret> {
        let bytes = text.as_bytes();
        if bytes.is_empty() || bytes.len() >= SECRET_SIZE || bytes.contains(&0) {
            return None;
        }
        let mut secret = [0; SECRET_SIZE];
        secret.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Some(Secret(secret))
    }

    /// Whether the secret is empty.
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }

    /// Compares in a time that does not depend on the position of a difference.
    pub fn matches(&self, other: &Secret) -> bool {
        let difference =
            self.0.iter().zip(&other.0).fold(0u8, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)));
        difference == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Secret(none)" } else { "Secret(...)" })
    }
}

/// Reasons for refusing the bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The type is unknown.
    #[error("unknown message type {0}")]
    UnknownType(u16),
}

impl Message {
    /// Returns the protocol's name for the message type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Message::Ack => "ACK",
            Message::Hello(_) => "HELLO",
            Message::Init(_) => "INIT",
            Message::AddRegion(_) => "ADD_REGION",
            Message::AddRing(_) => "ADD_RING",
            Message::Connect { .. } => "CONNECT",
            Message::Connected { .. } => "CONNECTED",
            Message::Disconnect { .. } => "DISCONNECT",
        }
    }

    /// Makes a [`Message::Disconnect`] with code 0.
    pub fn disconnect(reason: impl Into<String>) -> Message {
        Message::Disconnect { code: 0, reason: reason.into() }
    }

    /// Returns the 128 bytes of this message.
    ///
    /// ```
    /// use memif::Message;
    /// let bytes = Message::disconnect("done").encode();
    /// assert_eq!(bytes[0], 8);
    /// assert_eq!(Message::decode(&bytes), Ok(Message::disconnect("done")));
    /// ```
    pub fn encode(&self) -> [u8; MESSAGE_SIZE] {
        let mut out = Writer { bytes: [0; MESSAGE_SIZE], at: 0 };
        match self {
            Message::Ack => out.put(&1u16.to_le_bytes()),
            Message::Hello(m) => {
                out.put(&2u16.to_le_bytes());
                out.text(&m.name, NAME_SIZE);
                out.put(&m.min_version.to_le_bytes());
                out.put(&m.max_version.to_le_bytes());
                out.put(&m.max_region.to_le_bytes());
                out.put(&m.max_m2s_ring.to_le_bytes());
                out.put(&m.max_s2m_ring.to_le_bytes());
                out.put(&[m.max_log2_ring_size]);
            }
            Message::Init(m) => {
                out.put(&3u16.to_le_bytes());
                out.put(&m.version.to_le_bytes());
                out.put(&m.id.to_le_bytes());
                out.put(&[m.mode]);
                out.put(&m.secret.0);
                out.text(&m.name, NAME_SIZE);
            }
            Message::AddRegion(m) => {
                out.put(&4u16.to_le_bytes());
                out.put(&m.index.to_le_bytes());
                out.put(&m.size.to_le_bytes());
            }
            Message::AddRing(m) => {
                out.put(&5u16.to_le_bytes());
                out.put(&m.flags.to_le_bytes());
                out.put(&m.index.to_le_bytes());
                out.put(&m.region.to_le_bytes());
                out.put(&m.offset.to_le_bytes());
                out.put(&[m.log2_ring_size]);
                out.put(&m.private_hdr_size.to_le_bytes());
            }
            Message::Connect { if_name } => {
                out.put(&6u16.to_le_bytes());
                out.text(if_name, NAME_SIZE);
            }
            Message::Connected { if_name } => {
                out.put(&7u16.to_le_bytes());
                out.text(if_name, NAME_SIZE);
            }
            Message::Disconnect { code, reason } => {
                out.put(&8u16.to_le_bytes());
                out.put(&code.to_le_bytes());
                out.text(reason, REASON_SIZE);
            }
        }
        out.bytes
    }

    /// Decodes a message.
    pub fn decode(bytes: &[u8; MESSAGE_SIZE]) -> Result<Message, DecodeError> {
        let mut from = Reader { rest: bytes };
        Ok(match from.u16() {
            1 => Message::Ack,
            2 => Message::Hello(Hello {
                name: from.text(NAME_SIZE),
                min_version: from.u16(),
                max_version: from.u16(),
                max_region: from.u16(),
                max_m2s_ring: from.u16(),
                max_s2m_ring: from.u16(),
                max_log2_ring_size: from.u8(),
            }),
            3 => Message::Init(Init {
                version: from.u16(),
                id: from.u32(),
                mode: from.u8(),
                secret: Secret(from.take()),
                name: from.text(NAME_SIZE),
            }),
            4 => Message::AddRegion(AddRegion { index: from.u16(), size: from.u64() }),
            5 => Message::AddRing(AddRing {
                flags: from.u16(),
                index: from.u16(),
                region: from.u16(),
                offset: from.u32(),
                log2_ring_size: from.u8(),
                private_hdr_size: from.u16(),
            }),
            6 => Message::Connect { if_name: from.text(NAME_SIZE) },
            7 => Message::Connected { if_name: from.text(NAME_SIZE) },
            8 => Message::Disconnect { code: from.u32(), reason: from.text(REASON_SIZE) },
            other => return Err(DecodeError::UnknownType(other)),
        })
    }
}

/// Writes a message from the front. Excess bytes are dropped; no message has that many.
struct Writer {
    bytes: [u8; MESSAGE_SIZE],
    at: usize,
}

impl Writer {
    fn put(&mut self, field: &[u8]) {
        self.bytes.iter_mut().skip(self.at).zip(field).for_each(|(to, from)| *to = *from);
        self.at += field.len();
    }

    fn text(&mut self, text: &str, size: usize) {
        let end = text.floor_char_boundary(size - 1);
        let end = text.bytes().take(end).position(|b| b == 0).unwrap_or(end);
        self.bytes.iter_mut().skip(self.at).zip(text.bytes().take(end)).for_each(|(to, from)| *to = from);
        self.at += size;
    }
}

/// Reads fields from the front. Beyond the end it reads zeros; no message has that many fields.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.iter_mut().zip(self.rest).for_each(|(to, from)| *to = *from);
        self.rest = self.rest.get(N..).unwrap_or_default();
        field
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn text(&mut self, size: usize) -> String {
        let (field, rest) = self.rest.split_at_checked(size).unwrap_or((self.rest, &[]));
        self.rest = rest;
        let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
        let text = String::from_utf8_lossy(field.get(..end).unwrap_or_default());
        text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
    }
}
