//! From an interface into the switch: one packet socket as a receive queue.
//!
//! A `recvmmsg` takes a batch of frames into [rooms](super::rooms), memory of the queue that stays until the batch is
//! delivered.
//!
//! Invariants: room `n` is written only by the kernel, in `receive`, and only before a packet of the batch lies in it;
//! the socket is read until it is dry, or frames were taken or dropped, because its signal announces only later frames.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use fabric::{DropReason, Fault, RxBatch, RxQueue, Tools};
use packet::ether::VLAN_TAG_LEN as TAG_LEN;
use packet::virtio_net::HEADER_LEN;
use rustix::io::Errno;

use super::LEGACY_HEADER;
use super::rooms::{FRONT, REST, ROOMS, Rooms};
use crate::offload_header;

/// Bytes to take in at once: the usual bound of a batch.
const BYTES: usize = 128 << 10;
/// Messages to ask for after a call that found the socket dry.
const FEW: usize = 8;
/// Errors to step over in one batch: each is a packet that the kernel could not describe, or news of the interface.
const MOST_ERRORS: u32 = 1024;

/// Addresses in front of a frame's VLAN tag.
const ADDRESSES: usize = 12;

const _: () = assert!(FRONT + REST > fabric::rx::MAX_PACKET as usize + TAG_LEN);

/// Receiving end of one packet socket.
pub(super) struct PacketRx {
    socket: Arc<OwnedFd>,
    rooms: Rooms,
    messages: Box<Messages>,
    /// Messages to ask for.
    ask: usize,
    /// Average length of the last frames, bytes.
    average: usize,
}

/// Arguments of `recvmmsg`, one of each for a room.
struct Messages {
    headers: [libc::mmsghdr; ROOMS],
    pieces: [[libc::iovec; 3]; ROOMS],
    offloads: [[u8; HEADER_LEN]; ROOMS],
    control: [Control; ROOMS],
}

// SAFETY: its pointers are written anew for each call and not used after it.
unsafe impl Send for Messages {}

/// Room for the one control message of a frame.
#[repr(C)]
#[derive(Clone, Copy)]
struct Control {
    header: libc::cmsghdr,
    data: libc::tpacket_auxdata,
}

impl PacketRx {
    pub(super) fn new(socket: Arc<OwnedFd>) -> Result<Self, Errno> {
        let rooms = Rooms::new()?;
        // SAFETY: integers and pointers; all zeros is a value of each.
        let messages = unsafe { Box::new(std::mem::zeroed()) };
        Ok(Self { socket, rooms, messages, ask: FEW, average: FRONT })
    }

    /// Receives into rooms `first..first + count`. Returns the number of frames.
    fn receive_into(&mut self, first: usize, count: usize) -> Result<usize, Errno> {
        let Messages { headers, pieces, offloads, control } = &mut *self.messages;
        let rooms = first..first + count;
        let headers = headers.get_mut(rooms.clone()).unwrap_or_default();
        let arrays = pieces.iter_mut().zip(offloads).zip(control).skip(first);
        for ((n, header), ((pieces, offload), control)) in rooms.zip(headers.iter_mut()).zip(arrays) {
            let piece = |at: *mut u8, len| libc::iovec { iov_base: at.cast(), iov_len: len };
            let (Some(front), Some(rest)) = (self.rooms.front(n), self.rooms.rest(n)) else { continue };
            *pieces = [
                piece(offload.as_mut_ptr(), LEGACY_HEADER),
                // Behind room for a tag that is put back.
                piece(front.as_ptr().wrapping_add(TAG_LEN), FRONT - TAG_LEN),
                piece(rest.as_ptr(), REST),
            ];
            header.msg_hdr.msg_iov = pieces.as_mut_ptr();
            header.msg_hdr.msg_iovlen = pieces.len() as _;
            header.msg_hdr.msg_control = (&raw mut *control).cast();
            header.msg_hdr.msg_controllen = size_of::<Control>() as _;
        }
        let (at, len) = (headers.as_mut_ptr(), headers.len() as u32);
        let flags = libc::MSG_DONTWAIT as _;
        // SAFETY: the headers name rooms and arrays of this queue, which outlive the call, or none; nothing else refers
        // to these rooms, as no packet of the batch lies there yet.
        let received =
            unsafe { libc::recvmmsg(self.socket.as_raw_fd(), at, len, flags, std::ptr::null_mut()) };
        if received < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        Ok(received as usize)
    }

    /// Adds the frame in room `n` to the batch. Returns its length.
    #[inline]
    fn land(&self, n: usize, batch: &mut RxBatch) -> Result<usize, Fault> {
        let Messages { headers, offloads, control, .. } = &*self.messages;
        let (Some(header), Some(offload), Some(control), Some(start)) =
            (headers.get(n), offloads.get(n), control.get(n), self.rooms.front(n))
        else {
            return Ok(0);
        };
        let len = (header.msg_len as usize).saturating_sub(LEGACY_HEADER);
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            batch.count_drop(DropReason::Oversize);
            return Ok(len);
        }
        let mut offload = offload_header::unverified(offload);
        let tag = control.tag(header.msg_hdr.msg_controllen as _).filter(|_| len >= ADDRESSES);
        let (start, in_front) = match tag {
            Some(tag) => {
                // SAFETY: the front begins with room for a tag, then the frame's addresses; nothing refers to it yet.
                unsafe {
                    std::ptr::copy(start.as_ptr().wrapping_add(TAG_LEN), start.as_ptr(), ADDRESSES);
                    std::ptr::copy_nonoverlapping(
                        tag.as_ptr(),
                        start.as_ptr().wrapping_add(ADDRESSES),
                        TAG_LEN,
                    );
                }
                offload.shift(TAG_LEN as i16);
                (Some(start), TAG_LEN)
            }
            None => (NonNull::new(start.as_ptr().wrapping_add(TAG_LEN)), 0),
        };
        let (Some(start), Some(rest)) = (start, self.rooms.rest(n)) else { return Ok(0) };
        let first = len.min(FRONT - TAG_LEN);
        // SAFETY: the kernel wrote `first` bytes behind the space for a tag, and a tag may precede them; the room stays,
        // and is not written again before the batch is complete.
        unsafe { batch.add_segment(start, (in_front + first) as u32)? };
        if len > first {
            // SAFETY: the kernel wrote the frame's other bytes there; as above.
            unsafe { batch.add_segment(rest, (len - first) as u32)? };
        }
        batch.end_packet(offload);
        Ok(len)
    }
}

impl Control {
    /// Returns the VLAN tag that the kernel took out of the frame.
    #[inline]
    fn tag(&self, len: usize) -> Option<[u8; TAG_LEN]> {
        let is_ours =
            self.header.cmsg_level == libc::SOL_PACKET && self.header.cmsg_type == libc::PACKET_AUXDATA;
        // The kernel may leave out the padding behind the data.
        if !is_ours || len < std::mem::offset_of!(Control, data) + size_of::<libc::tpacket_auxdata>() {
            return None;
        }
        let libc::tpacket_auxdata { tp_status, tp_vlan_tci, tp_vlan_tpid, .. } = self.data;
        if tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let ([p0, p1], [t0, t1]) = (tp_vlan_tpid.to_be_bytes(), tp_vlan_tci.to_be_bytes());
        Some([p0, p1, t0, t1])
    }
}

impl RxQueue for PacketRx {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        let (mut used, mut bytes, mut errors) = (0, 0, 0);
        while batch.has_room() && used < ROOMS {
            // As many large frames as fit within the bound of bytes.
            let left = BYTES.saturating_sub(bytes).div_ceil(self.average.max(1));
            let count = self.ask.min(left).min(batch.room()).clamp(1, ROOMS - used);
            match self.receive_into(used, count) {
                Ok(received) => {
                    let mut sum = 0;
                    for n in used..used + received {
                        sum += self.land(n, batch)?;
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
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.ask = FEW;
                    return Ok(());
                }
                Err(
                    error @ (Errno::INVAL
                    | Errno::NETDOWN
                    | Errno::NXIO
                    | Errno::NODEV
                    | Errno::NOBUFS
                    | Errno::NOMEM),
                ) => {
                    if error == Errno::INVAL {
                        // A kind of segment that a `virtio_net_hdr` cannot describe, such as one of a tunnel: the
                        // kernel has discarded it.
                        batch.count_drop(DropReason::BadOffload);
                    }
                    errors += 1;
                    if errors > MOST_ERRORS {
                        // Called again soon if it has dropped frames.
                        return Ok(());
                    }
                }
                Err(error) => return Err(Fault::Device(error)),
            }
        }
        Ok(())
    }

    fn complete(&mut self, _tools: &mut Tools) -> Result<(), Fault> {
        Ok(())
    }

    fn set_signalled(&mut self, _on: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        false
    }
}
