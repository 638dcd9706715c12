//! Requests to the kernel by rtnetlink, one at a time and without a runtime.
//!
//! A connection belongs to the network namespace of the thread that opens it. The kernel handles a request within the
//! call that sends it, so the answer never has to be waited for.
//!
//! Invariant: a request is answered before the next one is sent; answers to other requests are ignored.

use std::fmt;
use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE,
    NLMSG_ERROR, NetlinkBuffer,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;

use crate::attributes::Attributes;

/// Length of a message's header (`struct nlmsghdr`).
const HEADER: usize = 16;
/// Attribute of a refusal that holds the kernel's explanation.
const NLMSGERR_ATTR_MSG: u16 = 1;
/// Attempts to read a list that changes while it is read.
const ATTEMPTS: u32 = 16;

/// The kernel's refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Error number.
    pub errno: Errno,
    /// The kernel's explanation, if it gave one.
    pub explanation: Option<String>,
}

impl Refusal {
    fn of(errno: Errno) -> Self {
        Self { errno, explanation: None }
    }

    fn malformed() -> Self {
        Self { errno: Errno::BADMSG, explanation: Some("malformed netlink message".to_owned()) }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => Self::of(errno),
            None => Self { errno: Errno::IO, explanation: Some(error.to_string()) },
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // The text of an `io::Error` without its number.
        let text = io::Error::from(self.errno).to_string();
        write!(f, "{}", text.split(" (os error").next().unwrap_or(&text))?;
        if let Some(explanation) = &self.explanation {
            write!(f, " ({})", explanation.trim_end_matches('.'))?;
        }
        Ok(())
    }
}

/// A connection to the kernel's routing tables, addresses and interfaces.
pub struct Connection {
    socket: Socket,
    sequence: u32,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Connection").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects within the calling thread's network namespace.
    pub fn open() -> Result<Self, Refusal> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Explanations are a courtesy of newer kernels.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends a request and returns once the kernel has carried it out.
    pub(crate) fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), Refusal> {
        self.send(kind, flags | NLM_F_ACK, body)?;
        loop {
            let done = self.receive(|kind, _, body| match kind {
                NLMSG_ERROR => verdict(body).map(|()| true),
                _ => Ok(false),
            })?;
            if done {
                return Ok(());
            }
        }
    }

    /// Returns all objects that a request lists: the messages of kind `listed`, without their netlink headers.
    pub(crate) fn list(&mut self, kind: u16, listed: u16, body: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
        for _ in 0..ATTEMPTS {
            if let Some(list) = self.list_once(kind, listed, body)? {
                return Ok(list);
            }
        }
        Err(Refusal {
            errno: Errno::AGAIN,
            explanation: Some("the list keeps changing while it is read".into()),
        })
    }

    /// `None` if the list changed meanwhile.
    fn list_once(&mut self, kind: u16, listed: u16, body: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Refusal> {
        self.send(kind, NLM_F_DUMP, body)?;
        let (mut list, mut consistent) = (Vec::new(), true);
        loop {
            let done = self.receive(|kind, flags, body| {
                consistent &= flags & NLM_F_DUMP_INTR == 0;
                match kind {
                    NLMSG_DONE => verdict(body).map(|()| true),
                    NLMSG_ERROR => verdict(body).map(|()| false),
                    kind if kind == listed => {
                        list.push(body.body.to_vec());
                        Ok(false)
                    }
                    _ => Ok(false),
                }
            })?;
            if done {
                return Ok(consistent.then_some(list));
            }
        }
    }

    /// Asks for one object.
    pub(crate) fn get(&mut self, kind: u16, answered: u16, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.send(kind, NLM_F_ACK, body)?;
        let mut found = None;
        loop {
            let done = self.receive(|kind, _, body| match kind {
                NLMSG_ERROR => verdict(body).map(|()| true),
                kind if kind == answered => {
                    found = Some(body.body.to_vec());
                    Ok(false)
                }
                _ => Ok(false),
            })?;
            if done {
                return found.ok_or_else(Refusal::malformed);
            }
        }
    }

    fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), Refusal> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = vec![0; HEADER];
        message.extend_from_slice(body);
        let length = u32::try_from(message.len()).map_err(|_| Refusal::of(Errno::MSGSIZE))?;
        let mut header = NetlinkBuffer::new(&mut message);
        header.set_length(length);
        header.set_message_type(kind);
        header.set_flags(flags | NLM_F_REQUEST);
        header.set_sequence_number(self.sequence);
        self.socket.send(&message, 0)?;
        Ok(())
    }

    /// Receives one datagram and shows its messages to `see`, until one is the last of an answer.
    fn receive(&self, mut see: impl FnMut(u16, u16, Body) -> Result<bool, Refusal>) -> Result<bool, Refusal> {
        let (datagram, from) = self.socket.recv_from_full()?;
        if from.port_number() != 0 {
            // Another process may send to this socket; only the kernel is listened to.
            return Ok(false);
        }
        let mut rest = datagram.as_slice();
        while rest.len() >= HEADER {
            let message = NetlinkBuffer::new_checked(rest).map_err(|_| Refusal::malformed())?;
            let length = message.length() as usize;
            let body = rest.get(HEADER..length).ok_or_else(Refusal::malformed)?;
            if message.sequence_number() == self.sequence {
                let flags = message.flags();
                if see(message.message_type(), flags, Body { body, flags })? {
                    return Ok(true);
                }
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(false)
    }
}

/// The part of a message behind its netlink header, and the header's flags.
struct Body<'a> {
    body: &'a [u8],
    flags: u16,
}

/// Reads an acknowledgement: success, or the kernel's refusal and explanation.
fn verdict(message: Body) -> Result<(), Refusal> {
    let Some((code, rest)) = message.body.split_first_chunk::<4>() else {
        return Ok(());
    };
    let code = i32::from_ne_bytes(*code);
    if code == 0 {
        return Ok(());
    }
    let mut explanation = None;
    if message.flags & NLM_F_ACK_TLVS != 0 && rest.len() >= HEADER {
        // The refused request follows, whole or only its header, then attributes.
        let request = NetlinkBuffer::new(rest).length() as usize;
        let skip = if message.flags & NLM_F_CAPPED != 0 { HEADER } else { request.next_multiple_of(4) };
        let attributes = rest.get(skip..).and_then(|bytes| Attributes::parse(bytes).ok());
        explanation = attributes.and_then(|attributes| attributes.text(NLMSGERR_ATTR_MSG));
    }
    Err(Refusal { errno: Errno::from_raw_os_error(code.saturating_neg()), explanation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_carry_the_kernels_explanation() {
        let mut body = (-101_i32).to_ne_bytes().to_vec();
        body.extend_from_slice(&[0; HEADER]);
        let mut attributes = Attributes::default();
        attributes.set_text(NLMSGERR_ATTR_MSG, "Nexthop has invalid gateway.");
        attributes.emit(&mut body);
        let message = Body { body: &body, flags: NLM_F_ACK_TLVS | NLM_F_CAPPED };
        let refusal = verdict(message).unwrap_err();
        assert_eq!(refusal.errno, Errno::NETUNREACH);
        assert_eq!(refusal.to_string(), "Network is unreachable (Nexthop has invalid gateway)");
    }

    #[test]
    fn a_missing_interface_is_reported() {
        let mut header = vec![0_u8; 16];
        header[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let error =
            Connection::open().unwrap().get(libc::RTM_GETLINK, libc::RTM_NEWLINK, &header).unwrap_err();
        assert_eq!(error.errno, Errno::NODEV);
    }
}
