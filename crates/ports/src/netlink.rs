//! Netlink messages: building requests and reading answers, for the few that the switch sends and the crates for
//! rtnetlink do not have (nftables) or cannot bound (notifications of a namespace that others fill).
//!
//! Invariants: no socket blocks; an answer that is cut short or malformed ends the iteration and is never indexed.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rtnetlink::packet_core::{NlaBuffer, NlasIterator};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

/// `NLM_F_REQUEST`.
pub(crate) const REQUEST: u16 = 1;
/// `NLM_F_ACK`.
pub(crate) const ACK: u16 = 4;
/// `NLM_F_DUMP`.
pub(crate) const DUMP: u16 = 0x300;
/// `NLM_F_CREATE`.
pub(crate) const CREATE: u16 = 0x400;
/// `NLM_F_APPEND`.
pub(crate) const APPEND: u16 = 0x800;
/// `NLM_F_CREATE | NLM_F_EXCL`.
pub(crate) const CREATE_NEW: u16 = 0x600;
/// `NLM_F_DUMP_INTR`: a dump is inconsistent.
pub(crate) const INTERRUPTED: u16 = 0x10;
/// `NLMSG_ERROR`, also an acknowledgement.
pub(crate) const ERROR: u16 = 2;
/// `NLMSG_DONE`: the end of a dump.
pub(crate) const DONE: u16 = 3;

/// Flag of an attribute that holds others (`NLA_F_NESTED`).
pub(crate) const NESTED: u16 = 1 << 15;
/// Length of a message's header.
const HEADER: usize = 16;
/// Room for the answers of one `recv`: more than the kernel puts into one.
pub(crate) const ROOM: usize = 64 << 10;
/// Longest time for an answer: the kernel's locks may be busy.
const PATIENCE: Duration = Duration::from_secs(4);

/// Opens a socket in the calling thread's namespace, of rtnetlink or another protocol, subscribed to these groups (one
/// bit each).
pub(crate) fn socket(protocol: Option<Protocol>, groups: u32) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Messages to send in one go.
#[derive(Default)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    /// Start of the last message.
    last: usize,
}

impl Messages {
    /// Begins a message with this fixed part behind its header.
    pub(crate) fn begin(&mut self, kind: u16, flags: u16, sequence: u32, fixed: &[u8]) -> &mut Self {
        self.last = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(sequence.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(fixed);
        self.end()
    }

    /// Adds an attribute to the last message.
    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        put_attribute(&mut self.bytes, kind, value);
        self.end()
    }

    /// Adds an attribute that holds others.
    pub(crate) fn nested(&mut self, kind: u16, inner: &[(u16, &[u8])]) -> &mut Self {
        let mut value = Vec::new();
        for (kind, value_of) in inner {
            put_attribute(&mut value, *kind, value_of);
        }
        self.attribute(kind | NESTED, &value)
    }

    /// Writes the last message's length.
    fn end(&mut self) -> &mut Self {
        let len = (self.bytes.len() - self.last) as u32;
        if let Some(field) = self.bytes.get_mut(self.last..self.last + 4) {
            field.copy_from_slice(&len.to_ne_bytes());
        }
        self
    }

    #[cfg(test)]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn send(&self, socket: impl AsFd) -> Result<(), Errno> {
        rustix::net::send(socket, &self.bytes, SendFlags::empty()).map(drop)
    }
}

/// Appends an attribute, padded to the next one's place.
pub(crate) fn put_attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend(((value.len() + 4) as u16).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// A text with the zero that ends it.
pub(crate) fn text(of: &str) -> Vec<u8> {
    [of.as_bytes(), &[0]].concat()
}

/// A received message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// The fixed part, and attributes behind it.
    pub(crate) body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Returns the code of an error or acknowledgement: the latter's is 0.
    pub(crate) fn code(&self) -> Option<i32> {
        let code = self.body.first_chunk().filter(|_| self.kind == ERROR)?;
        Some(i32::from_ne_bytes(*code))
    }

    /// Iterates over the attributes behind a fixed part of `fixed` bytes: kind and value.
    pub(crate) fn attributes(&self, fixed: usize) -> impl Iterator<Item = (u16, &'a [u8])> {
        attributes(self.body.get(fixed..).unwrap_or_default())
    }
}

/// Iterates over attributes: kind and value.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(Result::ok).map(|attribute: NlaBuffer<&[u8]>| {
        let value = attribute.into_inner();
        let (kind, end) = {
            let attribute = NlaBuffer::new(value);
            (attribute.kind(), usize::from(attribute.length()))
        };
        (kind, value.get(4..end).unwrap_or_default())
    })
}

/// Iterates over the messages of one `recv`.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER>()?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let body = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            body,
        })
    })
}

/// Receives once, waiting for at most [`PATIENCE`].
pub(crate) fn receive(socket: impl AsFd, room: &mut [u8]) -> Result<&[u8], Errno> {
    let start = Instant::now();
    loop {
        match rustix::net::recv(&socket, &mut *room, RecvFlags::DONTWAIT) {
            Ok((len, _)) => return Ok(room.get(..len).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if start.elapsed() < PATIENCE => {
                let wait = Timespec { tv_sec: 1, tv_nsec: 0 };
                match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&wait)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
            Err(error) => return Err(error),
        }
    }
}

/// Reads a number in the host's byte order.
pub(crate) fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Reads a text that ends in zero.
pub(crate) fn text_of(value: &[u8]) -> String {
    CStr::from_bytes_until_nul(value).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_built() {
        let mut built = Messages::default();
        built
            .begin(16, REQUEST, 7, &[1, 2, 3, 4])
            .attribute(3, b"eth0\0")
            .nested(4, &[(1, &[9]), (2, b"xyz")]);
        built.begin(2, 0, 8, &(-17_i32).to_ne_bytes());
        let all: Vec<_> = messages(&built.bytes).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].kind, all[0].flags, all[0].sequence, all[0].code()), (16, REQUEST, 7, None));
        assert_eq!((all[1].sequence, all[1].code()), (8, Some(-17)));
        let found: Vec<_> = all[0].attributes(4).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].0, text_of(found[0].1)), (3, "eth0".to_owned()));
        assert_eq!(attributes(found[1].1).collect::<Vec<_>>(), [(1, &[9][..]), (2, &b"xyz"[..])]);
    }

    #[test]
    fn malformed_answers_end_early() {
        let mut built = Messages::default();
        built.begin(16, 0, 1, &[0; 16]).attribute(3, b"eth0\0").attribute(4, &[1, 2, 3, 4]);
        for cut in 0..built.bytes.len() {
            for message in messages(&built.bytes[..cut]) {
                assert_eq!(message.attributes(16).count(), 2, "a message cut at byte {cut} was read");
            }
        }
        for at in 0..built.bytes.len() {
            let mut bytes = built.bytes.clone();
            bytes[at] ^= 0xff;
            for message in messages(&bytes) {
                message.attributes(16).for_each(|(_, value)| assert!(value.len() < bytes.len()));
            }
        }
        // A length of 0 must not repeat a message for ever.
        assert_eq!(messages(&[0; 64]).count(), 0);
    }
}
