//! From the switch into the host's stack: one queue of the TAP device as a destination.
//!
//! The call contract: each output is one `writev` of header, private bytes and the payload in its sender's memory. The
//! kernel copies and runs its stack within the call. Invariants: nothing waits, allocates or locks; the payload is
//! never read here. If its memory is gone (a truncated file) or not there yet (an untouched page of the file), the
//! kernel returns `EFAULT` where a copy by the switch would meet SIGBUS. Then the memory is touched as a copy would,
//! with the same consequence for the sender, and the frame is written again, once.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use fabric::counters::Drops;
use fabric::rx::MAX_SEGMENTS;
use fabric::{DropReason, Egress, Fault, Output, OutputList, QueueCounters, Tools};
use packet::virtio_net;
use rustix::io::Errno;

use crate::payload;

/// Largest number of pieces: the `virtio_net_hdr`, the private header, the payload's pieces.
const PIECES: usize = 2 + MAX_SEGMENTS;

/// Writing end of one queue of a TAP device.
pub(super) struct TapEgress(pub(super) Arc<OwnedFd>);

impl Egress for TapEgress {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        _tools: &mut Tools,
    ) -> Result<(), Fault> {
        let mut drops = Drops::default();
        let down = self.write_all(list, counters, &mut drops);
        counters.add_drops(&mut drops);
        down
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
        let mut drops = Drops::default();
        let all = list.len() as u32;
        let down = self.write_all(list, counters, &mut drops);
        // The kernel's queue is full from some output on.
        let full = drops.take(DropReason::RingFull);
        counters.add_drops(&mut drops);
        down.map(|()| all - full)
    }
}

impl TapEgress {
    /// Writes outputs until the kernel's queue is full.
    #[inline]
    fn write_all(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        drops: &mut Drops,
    ) -> Result<(), Fault> {
        let mut vector = Vector([libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES]);
        let (mut packets, mut bytes) = (0, 0);
        let mut stopped: Option<(DropReason, Errno)> = None;
        list.retain(|output| {
            let reason = match stopped {
                Some((reason, _)) => reason,
                None => match self.write(output, &mut vector) {
                    Ok(()) => {
                        packets += 1;
                        bytes += u64::from(output.len());
                        return Ok(());
                    }
                    Err(error) => {
                        let (reason, stops) = match error {
                            Errno::AGAIN => (DropReason::RingFull, true),
                            // Administratively down, or gone: the rest of the list would fail too.
                            Errno::IO | Errno::BADFD => (DropReason::PortDown, true),
                            _ => (DropReason::Device, false),
                        };
                        if stops {
                            stopped = Some((reason, error));
                        }
                        reason
                    }
                },
            };
            drops.add(reason, 1);
            Err(reason)
        });
        if packets > 0 {
            counters.add_batch(packets, bytes);
        }
        match stopped {
            Some((_, Errno::BADFD)) => Err(Fault::Device(Errno::BADFD)),
            _ => Ok(()),
        }
    }

    #[inline]
    fn write(&self, output: &Output<'_>, vector: &mut Vector) -> Result<(), Errno> {
        let head = virtio_net::encode(&output.offload(), 0);
        let mut pieces = 0;
        let mut push = |at: *const u8, len: usize| {
            if let Some(piece) = vector.0.get_mut(pieces) {
                *piece = libc::iovec { iov_base: at.cast_mut().cast::<c_void>(), iov_len: len };
                pieces += 1;
            }
        };
        push(head.as_ptr(), head.len());
        push(output.header().as_ptr(), output.header().len());
        output.for_each_payload(push);
        let vector = vector.0.get(..pieces).unwrap_or_default();
        // SAFETY: the entries were set above, and name `head` and the private header, which outlive the call, and
        // payload.
        match unsafe { self.writev(vector) } {
            Err(Errno::FAULT) => {
                // SAFETY: the payload's port keeps it mapped for the batch, and catches its faults.
                output.for_each_payload(|at, len| unsafe { payload::touch(at, len) });
                // SAFETY: as above.
                unsafe { self.writev(vector) }
            }
            other => other,
        }
    }

    /// # Safety
    /// The memory that the entries name stays mapped during the call. It may be gone: the kernel answers that with
    /// EFAULT.
    #[inline]
    unsafe fn writev(&self, vector: &[libc::iovec]) -> Result<(), Errno> {
        // SAFETY: the length is that of the slice; the kernel only reads the memory that the entries name, which is
        // valid by the caller's promise.
        let written =
            unsafe { libc::writev(self.0.as_raw_fd(), vector.as_ptr(), vector.len() as libc::c_int) };
        if written < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
        Ok(())
    }
}

/// Room for the pieces of one `writev`, reused for all outputs of a list.
struct Vector([libc::iovec; PIECES]);
