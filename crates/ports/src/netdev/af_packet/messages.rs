//! Frames received by system calls: a `recvmmsg` takes a batch of frames into [rooms](super::rooms), memory of the
//! queue that stays until the batch is delivered.
//!
//! Invariant: room `n` is written only by the kernel, in `receive`, and only before a packet of the batch lies in it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use fabric::{DropReason, Fault, RxBatch};
use packet::ether::VLAN_TAG_LEN as TAG_LEN;
use packet::virtio_net::HEADER_LEN;
use rustix::io::Errno;

use super::LEGACY_HEADER;
use super::rooms::{FRONT, REST, ROOMS, Rooms};
use super::tag::{ADDRESSES, Tag};
use crate::offload_header;

const _: () = assert!(FRONT + REST > fabric::rx::MAX_PACKET as usize + TAG_LEN);

/// Receives frames of one packet socket into rooms.
pub(super) struct Messages {
    socket: Arc<OwnedFd>,
    rooms: Rooms,
    arrays: Box<Arrays>,
}

/// Arguments of `recvmmsg`, one of each for a room.
struct Arrays {
    headers: [libc::mmsghdr; ROOMS],
    pieces: [[libc::iovec; 3]; ROOMS],
    offloads: [[u8; HEADER_LEN]; ROOMS],
    control: [Control; ROOMS],
}

// SAFETY: its pointers are written anew for each call and not used after it.
unsafe impl Send for Arrays {}

/// Room for the one control message of a frame.
#[repr(C)]
#[derive(Clone, Copy)]
struct Control {
    header: libc::cmsghdr,
    data: libc::tpacket_auxdata,
}

impl Messages {
    pub(super) fn new(socket: Arc<OwnedFd>) -> Result<Self, Errno> {
        let rooms = Rooms::new()?;
        // SAFETY: integers and pointers; all zeros is a value of each.
        let arrays = unsafe { Box::new(std::mem::zeroed()) };
        Ok(Self { socket, rooms, arrays })
    }

    /// Receives into rooms `first..first + count`, without waiting. Returns the number of frames.
    pub(super) fn receive(&mut self, first: usize, count: usize) -> Result<usize, Errno> {
        let Arrays { headers, pieces, offloads, control } = &mut *self.arrays;
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
    pub(super) fn land(&self, n: usize, batch: &mut RxBatch) -> Result<usize, Fault> {
        let Arrays { headers, offloads, control, .. } = &*self.arrays;
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
        let frame = start.as_ptr().wrapping_add(TAG_LEN);
        let (start, in_front) = match tag {
            Some(tag) => {
                // SAFETY: the front begins with room for a tag, then the frame's addresses; nothing refers to it yet.
                let start = unsafe { tag.put_back(frame) };
                offload.shift(TAG_LEN as i16);
                (NonNull::new(start), TAG_LEN)
            }
            None => (NonNull::new(frame), 0),
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
    fn tag(&self, len: usize) -> Option<Tag> {
        let is_ours =
            self.header.cmsg_level == libc::SOL_PACKET && self.header.cmsg_type == libc::PACKET_AUXDATA;
        // The kernel may leave out the padding behind the data.
        if !is_ours || len < std::mem::offset_of!(Control, data) + size_of::<libc::tpacket_auxdata>() {
            return None;
        }
        let libc::tpacket_auxdata { tp_status, tp_vlan_tci, tp_vlan_tpid, .. } = self.data;
        Tag::of(tp_status, tp_vlan_tpid, tp_vlan_tci)
    }
}
