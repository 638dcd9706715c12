//! Memif clients that break the rules: one message, one descriptor or one index at a time.
//!
//! [`Peer`] is a control connection that can send anything. [`Hostile`] completes a handshake that is correct except
//! for its [`HostileConfig`], and then controls its memory and rings.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use clientmem::MOST_DESCRIPTORS;
use memif::client::{Direction, Layout};
use memif::message::{AddRegion, AddRing, Init, MODE_ETHERNET, VERSION};
use memif::socket::{Address, Closer, dial, recv, send};
use memif::{Descriptor, Memory, Message, Ring, Secret};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::{Error, Result};

/// Time allowed for the switch to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// A control connection that can send anything.
#[derive(Debug)]
pub struct Peer {
    socket: OwnedFd,
}

impl Peer {
    /// Connects and receives the server's HELLO.
    pub fn connect(socket: &str) -> Result<Peer> {
        let peer = Peer::silent(socket)?;
        match peer.receive()? {
            Some(Message::Hello(_)) => Ok(peer),
            other => Err(Error(format!("{other:?} instead of HELLO"))),
        }
    }

    /// Connects without sending or reading anything.
    pub fn silent(socket: &str) -> Result<Peer> {
        let socket = dial(&Address::new(socket)).map_err(Error::while_doing("cannot connect"))?;
        Ok(Peer { socket })
    }

    /// Sends a message.
    pub fn send_message(&self, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        Ok(send(self.socket.as_fd(), message, fd)?)
    }

    /// Sends a message that the server must accept.
    pub fn ask(&self, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        self.send_message(message, fd)?;
        match self.receive()? {
            Some(Message::Ack | Message::Connected { .. }) => Ok(()),
            other => Err(Error(format!("{other:?} in answer to {}", message.type_name()))),
        }
    }

    /// Receives the next message; `None` if the server has closed the connection.
    pub fn receive(&self) -> Result<Option<Message>> {
        let timeout = Timespec::try_from(LIMIT).map_err(Error::while_doing("cannot wait"))?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => Err(Error::new("the server sent no message")),
            Ok(_) => match recv(self.socket.as_fd(), &Closer::default()) {
                Ok(message) => Ok(message.map(|(message, _)| message)),
                Err(e) => Err(Error(e.to_string())),
            },
            Err(e) => Err(Error(e.to_string())),
        }
    }

    /// Reason of the server's DISCONNECT; earlier messages are ignored.
    pub fn refusal(&self) -> Result<String> {
        loop {
            match self.receive()? {
                Some(Message::Disconnect { reason, .. }) => return Ok(reason),
                Some(_) => {}
                None => return Err(Error::new("the server closed the connection without a reason")),
            }
        }
    }

    /// The control socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends arbitrary bytes with file descriptors.
pub fn send_bytes(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Error::new("too many descriptors"));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
        .map_err(Error::while_doing("cannot send"))?;
    Ok(())
}

/// Creates an unsealed memory file, which can shrink later.
pub fn memfd(size: u64) -> Result<OwnedFd> {
    let fd = memfd_create("hostile", MemfdFlags::CLOEXEC).map_err(Error::while_doing("memfd"))?;
    ftruncate(&fd, size).map_err(Error::while_doing("ftruncate"))?;
    Ok(fd)
}

/// Content of a handshake.
#[derive(Debug)]
pub struct HostileConfig {
    /// The server's socket.
    pub socket: String,
    /// The interface's id.
    pub id: u32,
    /// The secret.
    pub secret: Option<Secret>,
    /// The version in INIT.
    pub version: u16,
    /// Descriptors of each ring, as a power of two.
    pub log2_ring_size: u8,
    /// The memory file; by default a new one without seals.
    pub file: Option<OwnedFd>,
    /// The announced size; by default the required size.
    pub region_size: Option<u64>,
    /// A field of ADD_RING that peers ignore.
    pub private_hdr_size: u16,
}

impl HostileConfig {
    /// A correct handshake.
    pub fn new(socket: &str, id: u32) -> HostileConfig {
        HostileConfig {
            socket: socket.to_string(),
            id,
            secret: None,
            version: VERSION,
            log2_ring_size: 8,
            file: None,
            region_size: None,
            private_hdr_size: 0,
        }
    }

    /// Bytes that the region requires.
    pub fn needed(&self) -> Result<u64> {
        Ok(self.layout()?.total_size())
    }

    fn layout(&self) -> Result<Layout> {
        Layout::new(1, 1, self.log2_ring_size, 2048).map_err(|e| Error(e.to_string()))
    }

    /// Performs the handshake. If the server refuses, the error is its reason.
    pub fn connect(self) -> Result<Hostile> {
        let layout = self.layout()?;
        let size = layout.total_size();
        let peer = Peer::connect(&self.socket)?;
        let step = |message: Message, fd: Option<BorrowedFd<'_>>| -> Result<()> {
            peer.send_message(&message, fd)?;
            match peer.receive()? {
                Some(Message::Ack | Message::Connected { .. }) => Ok(()),
                Some(Message::Disconnect { reason, .. }) => Err(Error(reason)),
                other => Err(Error(format!("{other:?} in answer to {}", message.type_name()))),
            }
        };
        let init = Init {
            version: self.version,
            id: self.id,
            mode: MODE_ETHERNET,
            secret: self.secret.unwrap_or_default(),
            name: "hostile".to_string(),
        };
        step(Message::Init(init), None)?;
        let file = match self.file {
            Some(file) => file,
            None => memfd(size)?,
        };
        let add = AddRegion { index: 0, size: self.region_size.unwrap_or(size) };
        // Our own mapping comes first: the server expects the rings' cookies in place.
        let region = clientmem::Region::map(file.as_fd(), size);
        let rings = match region {
            Ok(region) => {
                let memory = Arc::new(Memory::new(vec![region]));
                let ring = |direction| -> Result<Ring> {
                    let ring = Ring::new(memory.clone(), &layout.ring(direction, 0))
                        .map_err(|e| Error(e.to_string()))?;
                    ring.initialise();
                    Ok(ring)
                };
                Some((ring(Direction::S2m)?, ring(Direction::M2s)?, memory))
            }
            Err(_) => None,
        };
        step(Message::AddRegion(add), Some(file.as_fd()))?;
        let (tx, rx, memory) =
            rings.ok_or_else(|| Error::new("the server took a file that we could not map"))?;
        let event = || {
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Error::while_doing("eventfd"))
        };
        let (tx_event, rx_event) = (event()?, event()?);
        for (direction, event) in [(Direction::S2m, &tx_event), (Direction::M2s, &rx_event)] {
            let add = AddRing { private_hdr_size: self.private_hdr_size, ..layout.ring(direction, 0) };
            step(Message::AddRing(add), Some(event.as_fd()))?;
        }
        step(Message::Connect { if_name: "hostile0".to_string() }, None)?;
        let mut hostile = Hostile { peer, file, memory, layout, tx, rx, tx_event, rx_event, head: 0 };
        hostile.post_all();
        Ok(hostile)
    }
}

/// A connected client that can do anything to its rings.
#[derive(Debug)]
pub struct Hostile {
    /// The control connection.
    pub peer: Peer,
    /// The memory file.
    pub file: OwnedFd,
    /// The memory.
    pub memory: Arc<Memory>,
    /// Layout of rings and buffers.
    pub layout: Layout,
    /// The ring to the server.
    pub tx: Ring,
    /// The ring from the server; all buffers are posted.
    pub rx: Ring,
    /// Eventfd that wakes the server.
    pub tx_event: OwnedFd,
    /// Eventfd that wakes the client.
    pub rx_event: OwnedFd,
    head: u16,
}

impl Hostile {
    /// Returns a valid descriptor for the next packet, with `packet` in its buffer.
    pub fn descriptor(&self, packet: &[u8]) -> Descriptor {
        let offset = self.layout.buffer(Direction::S2m, 0, self.head);
        let length = packet.len().min(2048) as u32;
        if let Some(to) = self.memory.translate(0, offset, length) {
            // SAFETY: `translate` found room for `length` bytes in the mapping; `packet` is private memory.
            unsafe { to.as_ptr().copy_from_nonoverlapping(packet.as_ptr(), length as usize) };
        }
        Descriptor { flags: 0, region: 0, length, offset, metadata: 0 }
    }

    /// Writes a descriptor to the next slot without publishing it.
    pub fn put(&mut self, descriptor: &Descriptor) {
        self.tx.write_desc(self.head, descriptor);
        self.head = self.head.wrapping_add(1);
    }

    /// Publishes the written descriptors and wakes the server.
    pub fn publish(&mut self) {
        self.publish_head(self.head);
    }

    /// Publishes this index, valid or not, and wakes the server.
    pub fn publish_head(&self, head: u16) {
        self.tx.set_head(head);
        fence(Ordering::SeqCst);
        // A full counter means that the server has been woken.
        let _ = rustix::io::write(&self.tx_event, &1u64.to_ne_bytes());
    }

    /// Sends a packet as a correct client would; returns `false` if the ring is full.
    pub fn send(&mut self, packet: &[u8]) -> bool {
        if self.head.wrapping_sub(self.tx.tail()) >= self.tx.size() {
            return false;
        }
        let descriptor = self.descriptor(packet);
        self.put(&descriptor);
        self.publish();
        true
    }

    /// Posts all receive buffers, filled or not.
    pub fn post_all(&mut self) {
        let tail = self.rx.tail();
        for slot in 0..self.rx.size() {
            let index = tail.wrapping_add(slot);
            let offset = self.layout.buffer(Direction::M2s, 0, index);
            self.rx.write_desc(index, &Descriptor { flags: 0, region: 0, length: 2048, offset, metadata: 0 });
        }
        self.rx.set_head(tail.wrapping_add(self.rx.size()));
    }

    /// Waits for the server's DISCONNECT and returns its reason.
    pub fn refusal(&self) -> Result<String> {
        self.peer.refusal()
    }
}
