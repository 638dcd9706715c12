//! From the switch to an interface: one packet socket as a destination.
//!
//! The call contract: a `sendmmsg` sends many outputs, each as header, private bytes and the payload in its sender's
//! memory. Invariants: nothing waits, allocates or locks; the payload is never read here. If its memory is gone or not
//! there yet, the kernel returns `EFAULT`; then it is touched as a copy would touch it ([`payload::touch`]), and the
//! frame is sent again, once.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use fabric::counters::Drops;
use fabric::rx::MAX_SEGMENTS;
use fabric::{DropReason, Egress, Fault, Output, OutputList, QueueCounters, Tools};
use packet::virtio_net::{self, HEADER_LEN};
use rustix::io::Errno;

use super::LEGACY_HEADER;
use super::backlog::{Backlog, Totals};
use super::socket;
use super::stall::Lookout;
use crate::payload;

/// Messages of one system call.
const MESSAGES: usize = 32;
/// Pieces of one system call.
const PIECES: usize = 160;
/// Largest number of pieces of one output: the `virtio_net_hdr`, the private header, the payload's pieces.
const MOST_PIECES: usize = 2 + MAX_SEGMENTS;
/// Runs of refused outputs that are shown to observers; the counters know all.
const RUNS: usize = 32;

const _: () = assert!(PIECES >= 2 * MOST_PIECES);

/// Sending end of one packet socket.
pub(super) struct PacketTx {
    socket: Arc<OwnedFd>,
    /// Looks at the rings of the port, if it has any.
    lookout: Option<Arc<Lookout>>,
    backlog: Backlog,
}

impl PacketTx {
    pub(super) fn new(socket: Arc<OwnedFd>, lookout: Option<Arc<Lookout>>) -> Self {
        Self { socket, lookout, backlog: Backlog::default() }
    }
}

impl Egress for PacketTx {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        _tools: &mut Tools,
    ) -> Result<(), Fault> {
        let mut sending = self.send(list, counters);
        counters.add_drops(&mut sending.drops);
        Ok(())
    }

    fn deliver_front(
        &self,
        list: &mut OutputList<'_>,
        least: u32,
        counters: &QueueCounters,
        _tools: &mut Tools,
    ) -> Result<u32, Fault> {
        if least > 0 {
            // The kernel does not tell how much it would take.
            return Ok(0);
        }
        let all = list.len() as u32;
        let mut sending = self.send(list, counters);
        let full = sending.full_from.map_or(0, |from| all - from);
        let without_room = sending.drops.take(DropReason::RingFull);
        sending.drops.add(DropReason::RingFull, without_room.saturating_sub(full));
        counters.add_drops(&mut sending.drops);
        Ok(all - full)
    }

    fn depth(&self, counters: &QueueCounters) -> u32 {
        let sent = counters.snapshot();
        let sent = Totals { packets: sent.packets, bytes: sent.bytes };
        self.backlog.packets(socket::unsent(&self.socket), sent)
    }
}

impl PacketTx {
    /// Sends a list and counts what has left; drops are the caller's to count.
    #[inline]
    fn send(&self, list: &mut OutputList<'_>, counters: &QueueCounters) -> Sending {
        let mut sending = Sending::new(self.socket.as_raw_fd());
        list.for_each(|output| sending.add(output));
        sending.flush();
        if sending.packets > 0 {
            counters.add_batch(sending.packets, sending.bytes);
        }
        if let Some(lookout) = &self.lookout {
            lookout.look_if_due();
        }
        let refused = sending.refused.get(..sending.runs).unwrap_or_default();
        if !refused.is_empty() {
            let mut number = 0;
            list.retain(|_| {
                let run = refused.iter().find(|run| (run.first..run.end).contains(&number));
                number += 1;
                run.map_or(Ok(()), |run| Err(run.reason))
            });
        }
        sending
    }
}

/// Outputs that were refused for the same reason, by their numbers in the list.
#[derive(Clone, Copy)]
struct Run {
    first: u32,
    end: u32,
    reason: DropReason,
}

/// A list being sent.
struct Sending {
    socket: i32,
    headers: [libc::mmsghdr; MESSAGES],
    pieces: [libc::iovec; PIECES],
    offloads: [[u8; HEADER_LEN]; MESSAGES],
    lens: [u32; MESSAGES],
    /// The first piece of each message.
    firsts: [u16; MESSAGES],
    messages: usize,
    used_pieces: usize,
    /// Number of the next output in the list.
    next: u32,
    /// Reason for which the rest of the list is dropped.
    stopped: Option<DropReason>,
    /// The first output for which the socket has no room, nor for any after it.
    full_from: Option<u32>,
    packets: u64,
    bytes: u64,
    drops: Drops,
    refused: [Run; RUNS],
    runs: usize,
}

impl Sending {
    #[inline]
    fn new(socket: i32) -> Self {
        Self {
            socket,
            // SAFETY: integers and pointers; all zeros is a value of each.
            headers: unsafe { std::mem::zeroed() },
            pieces: [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES],
            offloads: [[0; HEADER_LEN]; MESSAGES],
            lens: [0; MESSAGES],
            firsts: [0; MESSAGES],
            messages: 0,
            used_pieces: 0,
            next: 0,
            stopped: None,
            full_from: None,
            packets: 0,
            bytes: 0,
            drops: Drops::default(),
            refused: [Run { first: 0, end: 0, reason: DropReason::Device }; RUNS],
            runs: 0,
        }
    }

    /// Adds an output, whose memory stays until the list is delivered.
    #[inline]
    fn add(&mut self, output: &Output<'_>) {
        if let Some(reason) = self.stopped {
            return self.refuse(self.next, reason);
        }
        if self.messages == MESSAGES || self.used_pieces + MOST_PIECES > PIECES {
            self.flush();
        }
        let number = self.messages;
        let (Some(offload), Some(len), Some(first)) =
            (self.offloads.get_mut(number), self.lens.get_mut(number), self.firsts.get_mut(number))
        else {
            return;
        };
        *offload = virtio_net::encode(&output.offload(), 0);
        *len = output.len();
        *first = self.used_pieces as u16;
        let mut push = |at: *const u8, len: usize| {
            if let Some(piece) = self.pieces.get_mut(self.used_pieces) {
                *piece = libc::iovec { iov_base: at.cast_mut().cast::<c_void>(), iov_len: len };
                self.used_pieces += 1;
            }
        };
        // The address of the metadata follows in `flush`.
        push(std::ptr::null(), LEGACY_HEADER);
        push(output.header().as_ptr(), output.header().len());
        output.for_each_payload(push);
        self.messages += 1;
        self.next += 1;
    }

    /// Sends what was added.
    fn flush(&mut self) {
        let first = self.next - self.messages as u32;
        self.point();
        let (mut done, mut touched, mut told, mut invalid) = (0, None, false, None);
        while done < self.messages && self.stopped.is_none() {
            let headers = self.headers.get_mut(done..self.messages).unwrap_or_default();
            // SAFETY: the headers name pieces of `self`; these name the metadata in `self`, private headers, and
            // payload in its sender's memory, all of which stay until the list is delivered. The kernel only reads
            // them.
            let sent = unsafe {
                libc::sendmmsg(
                    self.socket,
                    headers.as_mut_ptr(),
                    headers.len() as u32,
                    libc::MSG_DONTWAIT as _,
                )
            };
            if sent > 0 {
                let sent_lens = self.lens.get(done..done + sent as usize).unwrap_or_default();
                if invalid == Some(done) {
                    // It was not this message's.
                    self.drops.add(DropReason::BadOffload, 1);
                }
                self.packets += sent as u64;
                self.bytes += sent_lens.iter().map(|len| u64::from(*len)).sum::<u64>();
                done += sent as usize;
                continue;
            }
            // The error is that of the first message.
            let error = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL);
            let reason = match error {
                Errno::INTR => continue,
                Errno::FAULT if touched != Some(done) => {
                    self.touch(done);
                    touched = Some(done);
                    continue;
                }
                // Perhaps news of a link that is up again by now: the kernel tells it once.
                Errno::NETDOWN if !told => {
                    told = true;
                    continue;
                }
                // Perhaps of a received packet that the kernel cannot describe: behind others of one call, its error
                // waits for the next call on the socket, of either direction, and is told once.
                Errno::INVAL if invalid != Some(done) => {
                    invalid = Some(done);
                    continue;
                }
                // The socket has no room: other packets have none either.
                Errno::AGAIN => {
                    self.stopped = Some(DropReason::RingFull);
                    self.full_from = Some(first + done as u32);
                    break;
                }
                Errno::NETDOWN | Errno::NXIO | Errno::NODEV => {
                    self.stopped = Some(DropReason::PortDown);
                    break;
                }
                // The interface's queue dropped it, or the kernel has no memory.
                Errno::NOBUFS | Errno::NOMEM => DropReason::RingFull,
                Errno::MSGSIZE => DropReason::ExceedsMtu,
                _ => DropReason::Device,
            };
            self.refuse_number(first + done as u32, reason);
            done += 1;
        }
        if let Some(reason) = self.stopped {
            for number in done..self.messages {
                self.refuse_number(first + number as u32, reason);
            }
        }
        (self.messages, self.used_pieces) = (0, 0);
    }

    /// Makes each header name the pieces of its message.
    fn point(&mut self) {
        let mut end = self.used_pieces;
        let mut rest = self.pieces.as_mut_slice();
        let messages = self.headers.iter_mut().zip(&mut self.offloads).zip(&self.firsts);
        // Backwards: each message takes the pieces from its first one to the last that is left.
        for ((header, offload), first) in messages.take(self.messages).rev() {
            let (before, pieces) = rest.split_at_mut(usize::from(*first).min(end));
            if let Some(piece) = pieces.first_mut() {
                piece.iov_base = offload.as_mut_ptr().cast();
            }
            header.msg_hdr.msg_iov = pieces.as_mut_ptr();
            header.msg_hdr.msg_iovlen = (end - before.len()) as _;
            (end, rest) = (before.len(), before);
        }
    }

    /// Counts the next output as dropped.
    #[cold]
    fn refuse(&mut self, number: u32, reason: DropReason) {
        self.refuse_number(number, reason);
        self.next += 1;
    }

    #[cold]
    fn refuse_number(&mut self, number: u32, reason: DropReason) {
        self.drops.add(reason, 1);
        let runs = self.runs;
        if let Some(last) = runs.checked_sub(1).and_then(|last| self.refused.get_mut(last))
            && last.end == number
            && last.reason == reason
        {
            last.end = number + 1;
        } else if let Some(run) = self.refused.get_mut(runs) {
            *run = Run { first: number, end: number + 1, reason };
            self.runs += 1;
        }
    }

    /// Touches the payload of message `number`.
    #[cold]
    fn touch(&self, number: usize) {
        let first = self.firsts.get(number).map_or(PIECES, |first| usize::from(*first));
        let next = self.firsts.get(..self.messages).and_then(|firsts| firsts.get(number + 1));
        let end = next.map_or(self.used_pieces, |next| usize::from(*next));
        // The first two are the switch's own.
        for piece in self.pieces.get(first + 2..end).unwrap_or_default() {
            // SAFETY: the payload lies within its sender's memory, which its port keeps mapped for the batch, and whose
            // faults it catches.
            unsafe { payload::touch(piece.iov_base.cast(), piece.iov_len) };
        }
    }
}
