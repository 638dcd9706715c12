//! From an interface into the switch: one packet socket as a receive queue.
//!
//! Frames come from the socket's [ring](super::ring), and those too large for it by [system
//! calls](super::messages); without a ring, all of them do.
//!
//! Invariants: slots `held..next` of the ring are those of the batch, and go back to the kernel when it is delivered; a
//! socket is read until it is dry, or frames were taken or dropped, because its signal announces only later frames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use fabric::{DropReason, Fault, RxBatch, RxQueue, Tools};
use packet::ether::VLAN_TAG_LEN as TAG_LEN;
use rustix::io::Errno;

use super::messages::Messages;
use super::ring::{Ring, SLOTS, Slot};
use super::rooms::{FRONT, ROOMS};
use super::stall::Progress;
use super::tag::ADDRESSES;
use crate::offload_header;

/// Bytes to take in at once: the usual bound of a batch.
const BYTES: usize = 128 << 10;
/// Messages to ask for after a call that found the socket dry.
const FEW: usize = 8;
/// Errors to step over in one batch: each is a packet that the kernel could not describe, or news of the interface.
const MOST_ERRORS: u32 = 1024;

/// Receiving end of one packet socket.
pub(super) struct PacketRx {
    socket: Arc<OwnedFd>,
    ring: Option<Taking>,
    messages: Messages,
    /// Messages to ask for.
    ask: usize,
    /// Average length of the last frames, bytes.
    average: usize,
}

/// Slots of a ring being taken, counted on over its rounds.
struct Taking {
    ring: Arc<Ring>,
    progress: Arc<Progress>,
    /// The next slot to take.
    next: u64,
    /// The first slot taken that the kernel does not have again.
    held: u64,
}

/// What an error of the socket means for the frame that was asked for.
enum Read {
    /// It is still there, if it was.
    Again,
    /// No frame is there.
    Dry,
    /// It is gone.
    Lost(DropReason),
}

impl Read {
    fn of(error: Errno) -> Result<Self, Fault> {
        match error {
            Errno::INTR | Errno::NETDOWN | Errno::NXIO | Errno::NODEV | Errno::NOBUFS | Errno::NOMEM => {
                Ok(Self::Again)
            }
            Errno::AGAIN => Ok(Self::Dry),
            // A kind of segment that a `virtio_net_hdr` cannot describe: the kernel has discarded it.
            Errno::INVAL => Ok(Self::Lost(DropReason::BadOffload)),
            error => Err(Fault::Device(error)),
        }
    }
}

impl PacketRx {
    pub(super) fn new(
        socket: Arc<OwnedFd>,
        ring: Option<Arc<Ring>>,
        progress: Arc<Progress>,
    ) -> Result<Self, Errno> {
        let messages = Messages::new(socket.clone())?;
        let ring = ring.map(|ring| Taking { ring, progress, next: 0, held: 0 });
        Ok(Self { socket, ring, messages, ask: FEW, average: FRONT })
    }

    /// Receives by system calls alone.
    fn receive_messages(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        let (mut used, mut bytes, mut errors) = (0, 0, 0);
        while batch.has_room() && used < ROOMS {
            // As many large frames as fit within the bound of bytes.
            let left = BYTES.saturating_sub(bytes).div_ceil(self.average.max(1));
            let count = self.ask.min(left).min(batch.room()).clamp(1, ROOMS - used);
            match self.messages.receive(used, count).map_err(Read::of) {
                Ok(received) => {
                    let mut sum = 0;
                    for n in used..used + received {
                        sum += self.messages.land(n, batch)?;
                    }
                    used += received;
                    bytes += sum;
                    self.average = sum / received.max(1);
                    if received < count {
                        // Dry; an error behind these frames is reported by the next call.
                        self.ask = FEW.max(used);
                        return Ok(());
                    }
                    self.ask = ROOMS;
                }
                Err(error) => {
                    match error? {
                        Read::Dry => {
                            self.ask = FEW;
                            return Ok(());
                        }
                        Read::Again => {}
                        Read::Lost(reason) => batch.count_drop(reason),
                    }
                    errors += 1;
                    if errors > MOST_ERRORS {
                        // Called again soon if it has dropped frames.
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

impl Taking {
    /// Takes frames from the ring, and by `messages` those that do not fit in there.
    #[inline]
    fn receive(&mut self, messages: &mut Messages, batch: &mut RxBatch) -> Result<(), Fault> {
        let (mut used, mut errors) = (0, 0);
        // A slot of the batch has the status of a filled one.
        while batch.has_room() && self.next - self.held < SLOTS as u64 {
            let Some(slot) = self.ring.get(self.next) else { break };
            if !slot.is_cut() {
                Self::land(&slot, batch)?;
                self.next += 1;
            } else if !slot.is_queued() {
                // The socket's queue was full.
                batch.count_drop(DropReason::RingFull);
                self.next += 1;
            } else if used == ROOMS {
                break;
            } else {
                let count = self.queued(batch.room().min(ROOMS - used));
                match messages.receive(used, count).map_err(Read::of) {
                    Ok(received) => {
                        for n in used..used + received {
                            messages.land(n, batch)?;
                        }
                        self.next += received as u64;
                        used += received;
                    }
                    Err(error) => match error? {
                        Read::Again if errors < MOST_ERRORS => errors += 1,
                        Read::Lost(reason) => {
                            batch.count_drop(reason);
                            self.next += 1;
                        }
                        Read::Again | Read::Dry => {
                            batch.count_drop(DropReason::Device);
                            self.next += 1;
                        }
                    },
                }
            }
        }
        Ok(())
    }

    /// Adds the frame in a slot to the batch.
    #[inline(always)]
    fn land(slot: &Slot, batch: &mut RxBatch) -> Result<(), Fault> {
        let (mut start, mut len, offload) = slot.frame().ok_or(Fault::Device(Errno::FAULT))?;
        let mut offload = offload_header::unverified(&offload);
        if len as usize >= ADDRESSES
            && let Some(tag) = slot.tag()
        {
            // SAFETY: the slot is the switch's; in front of the frame is its `virtio_net_hdr`, which has been read.
            start = NonNull::new(unsafe { tag.put_back(start.as_ptr()) }).unwrap_or(start);
            len += TAG_LEN as u32;
            offload.shift(TAG_LEN as i16);
        }
        // SAFETY: the bytes lie in the slot, which stays the switch's until the batch is complete.
        unsafe { batch.add_segment(start, len)? };
        batch.end_packet(offload);
        Ok(())
    }

    /// Returns the number of frames from the next one on that lie one after another in the socket's queue: at most
    /// `most` of them, and as many as fit within the bound of bytes, but at least one.
    fn queued(&self, most: usize) -> usize {
        let (mut count, mut bytes) = (0, 0);
        while count < most && self.next + (count as u64) - self.held < SLOTS as u64 {
            let Some(slot) = self.ring.get(self.next + count as u64) else { break };
            bytes += slot.frame_len();
            if !slot.is_cut() || !slot.is_queued() || bytes > BYTES {
                break;
            }
            count += 1;
        }
        count.max(1)
    }
}

impl RxQueue for PacketRx {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        match &mut self.ring {
            Some(ring) => ring.receive(&mut self.messages, batch),
            None => self.receive_messages(batch),
        }
    }

    fn complete(&mut self, _tools: &mut Tools) -> Result<(), Fault> {
        if let Some(Taking { ring, progress, next, held }) = &mut self.ring
            && *held != *next
        {
            progress.set_taken(*next);
            while *held != *next {
                ring.give_back(*held);
                *held += 1;
            }
        }
        Ok(())
    }

    fn set_signalled(&mut self, _on: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        self.ring.is_some()
    }
}
