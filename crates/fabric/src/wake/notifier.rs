//! Rings doorbells ([`crate::wake::doorbell`]) after a batch, without ever waiting for a receiver.
//!
//! A receiver sleeps on an eventfd that it created and shares with us. `O_NONBLOCK` belongs to the shared open file
//! description, so the receiver can clear it, fill the counter, and make a plain `write` of ours block forever;
//! checking first only narrows the race. The kernel's own way of signalling an eventfd never blocks, and asynchronous
//! I/O offers it: an operation that completes at once (reading nothing from `/dev/null`) with `IOCB_FLAG_RESFD` signals
//! the descriptor on completion, full or not, blocking or not.
//!
//! A receiver can make its signal expensive: the kernel calls every watch of the eventfd in our context, with
//! interrupts disabled. So receivers are signalled one by one, though `io_submit` takes many: the watchdog
//! (`worker/watchdog.rs`) sees which one it is, and another thread signals the rest. The watchdog itself may wait for a
//! timer of the blocked CPU, so a thread times its signals too: after a slow one, during which it may have lost its
//! CPU, it measures the CPU time of each for a while. A client is not served again if its signals take `EXPENSIVE`
//! twice within `NEIGHBOURS`: a hypervisor that takes the CPU away may make one look so.

use std::ffi::c_long;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::clock;
use crate::deliver::client::Clients;
use crate::fault::Fault;
use crate::wake::doorbell::{Ring, SystemCall};
use crate::wake::muted::MutedClients;
use crate::worker::activity::{Activity, Signal};

/// Most doorbells of one kind to collect before they are rung.
pub(crate) const MOST: usize = 64;

/// Duration of a slow signal.
const SLOW: Duration = Duration::from_micros(500);
/// Time for which signals are measured after a slow one.
const MEASURED: Duration = Duration::from_secs(10);
/// CPU time of a signal that costs its client the port. Usual signals take a few microseconds.
const EXPENSIVE: Duration = Duration::from_millis(4);
/// Most signals of a thread between two expensive ones of a client that cost it the port.
const NEIGHBOURS: u64 = 64;
/// Most clients with an expensive signal that a thread remembers.
const SUSPECTS: usize = 8;

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_FLAG_RESFD: u32 = 1;

/// `struct iocb` of linux/aio_abi.h (little-endian layout).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    reqprio: i16,
    fildes: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved2: u64,
    flags: u32,
    resfd: u32,
}

/// Head of the completion ring that the kernel maps at the context's address.
#[repr(C)]
struct AioRing {
    id: u32,
    nr: u32,
    head: AtomicU32,
    tail: AtomicU32,
}

/// Collects doorbells during a batch and rings them after it, one by one.
pub struct Notifier {
    context: usize,
    null: File,
    pending: Vec<Signal>,
    calls: Vec<SystemCall>,
    bells: Vec<Arc<dyn Ring>>,
    notified: u64,
    /// A doorbell of this process has woken its waiter: see [`Notifier::take_woke`].
    woke: bool,
    /// Clients whose memory or descriptor the thread is using.
    activity: Arc<Activity>,
    muted: Arc<MutedClients>,
    clients: Arc<Clients>,
    /// [`SLOW`] and [`MEASURED`] in cycles.
    slow: u64,
    measured: u64,
    /// Clients with an expensive signal lately, and the number of signals until then.
    suspects: Vec<(u64, u64)>,
}

impl Notifier {
    /// Creates a kernel context. Fails if the kernel has no asynchronous I/O (`CONFIG_AIO`) or `fs.aio-max-nr` is
    /// exhausted.
    pub fn new() -> io::Result<Self> {
        Self::at(Arc::default(), Arc::default(), Arc::default())
    }

    /// The same; publishes in `activity` which of `clients` it signals, and reads there which one a descriptor belongs
    /// to.
    pub(crate) fn at(
        activity: Arc<Activity>,
        muted: Arc<MutedClients>,
        clients: Arc<Clients>,
    ) -> io::Result<Self> {
        let null = File::open("/dev/null")?;
        let mut context = 0usize;
        // SAFETY: io_setup writes the new context to `context`, which must be zero before, and is.
        let rc = unsafe { libc::syscall(libc::SYS_io_setup, 1 as c_long, &mut context as *mut usize) };
        if rc != 0 {
            let error = io::Error::last_os_error();
            return Err(io::Error::new(
                error.kind(),
                format!("io_setup: {error}; raise fs.aio-max-nr, or enable CONFIG_AIO in the kernel"),
            ));
        }
        present(context);
        Ok(Self {
            context,
            null,
            pending: Vec::with_capacity(MOST),
            calls: Vec::with_capacity(MOST),
            bells: Vec::with_capacity(MOST),
            notified: 0,
            woke: false,
            activity,
            muted,
            clients,
            slow: clock::from_duration(SLOW),
            measured: clock::from_duration(MEASURED),
            suspects: Vec::with_capacity(SUSPECTS),
        })
    }

    /// Signals the receiver behind `fd` at the next [`Notifier::flush`]. The descriptor must stay open until then.
    #[inline]
    pub fn add(&mut self, fd: RawFd) {
        if self.pending.len() == MOST {
            self.flush();
        }
        self.collect((fd, self.activity.client()));
    }

    /// Signals receivers at the next [`Notifier::flush`] in place of another thread.
    pub(crate) fn add_all(&mut self, receivers: impl IntoIterator<Item = Signal>) {
        for receiver in receivers {
            if self.pending.len() == MOST {
                self.flush();
            }
            self.collect(receiver);
        }
    }

    #[inline]
    fn collect(&mut self, receiver: Signal) {
        self.activity.collect(self.pending.len(), receiver);
        self.pending.push(receiver);
    }

    /// Makes a system call at the next [`Notifier::flush`], for a socket that must stay open until then.
    #[inline]
    pub fn add_call(&mut self, call: SystemCall) {
        if self.calls.contains(&call) {
            return;
        }
        if self.calls.len() == MOST {
            self.flush();
        }
        self.calls.push(call);
    }

    /// Rings a doorbell of this process at the next [`Notifier::flush`].
    #[inline]
    pub fn add_bell<R: Ring + 'static>(&mut self, bell: &Arc<R>) {
        if self.bells.iter().any(|other| std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(bell))) {
            return;
        }
        if self.bells.len() == MOST {
            self.flush();
        }
        self.bells.push(bell.clone());
    }

    /// Whether no doorbell is pending.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.calls.is_empty() && self.bells.is_empty()
    }

    /// Receivers notified so far, not counting doorbells of this process, at most of which no thread waits.
    pub fn notified(&self) -> u64 {
        self.notified
    }

    /// Whether a doorbell of this process has woken its waiter since the last call. The waiter may be another task of
    /// the calling thread.
    pub(crate) fn take_woke(&mut self) -> bool {
        std::mem::take(&mut self.woke)
    }

    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Rings all collected doorbells. Returns the number of receivers notified.
    pub fn flush(&mut self) -> u64 {
        let before = self.notified;
        for bell in self.bells.drain(..) {
            self.woke |= bell.ring();
        }
        for call in self.calls.drain(..) {
            call.make();
            self.notified += 1;
        }
        if !self.pending.is_empty() {
            self.signal_clients();
        }
        self.notified - before
    }

    /// Signals the clients' eventfds.
    fn signal_clients(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        for receiver in pending.drain(..) {
            if !self.muted.skips(receiver) {
                self.signal(receiver);
            }
        }
        self.activity.all_signalled();
        self.pending = pending;
    }

    fn signal(&mut self, (fd, client): Signal) {
        let start = clock::cycles();
        let cpu_time = (start < self.muted.measured_until()).then(cpu_time);
        self.notified += u64::from(self.activity.signalling(client, || signal(self.context, &self.null, fd)));
        let end = clock::cycles();
        if end.wrapping_sub(start) > self.slow {
            self.muted.measure_until(end.saturating_add(self.measured));
            if cpu_time.is_some_and(expensive)
                && self.confirms(client)
                && let Some(client) = self.clients.get(client)
            {
                client.abandon(Fault::Signal);
            }
        }
    }

    /// Notes an expensive signal of a client. Returns whether it had another one a few signals ago.
    #[cold]
    fn confirms(&mut self, client: u64) -> bool {
        let now = self.notified;
        self.suspects.retain(|(_, at)| now.wrapping_sub(*at) <= NEIGHBOURS);
        if self.suspects.iter().any(|(suspect, _)| *suspect == client) {
            return true;
        }
        self.suspects.truncate(SUSPECTS - 1);
        self.suspects.insert(0, (client, now));
        false
    }
}

/// CPU time of the calling thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Whether the calling thread has used [`EXPENSIVE`] since its CPU time was `before`.
#[cold]
fn expensive(before: Duration) -> bool {
    cpu_time().saturating_sub(before) >= EXPENSIVE
}

/// Signals one eventfd. Returns whether that worked.
fn signal(context: usize, null: &File, fd: RawFd) -> bool {
    let iocb = Iocb {
        opcode: IOCB_CMD_PREAD,
        fildes: null.as_raw_fd() as u32,
        flags: IOCB_FLAG_RESFD,
        resfd: fd as u32,
        ..Iocb::default()
    };
    let mut operations = [&raw const iocb];
    reap(context);
    // SAFETY: the pointer refers to an initialised iocb that outlives the call; the operation reads zero bytes, so no
    // buffer is involved.
    let rc = unsafe { libc::syscall(libc::SYS_io_submit, context, 1 as c_long, operations.as_mut_ptr()) };
    rc == 1
}

/// Has the context's first page present before the first signal. Each io_submit reads it in the kernel, where a page
/// fault needs the lock of the address space: a thread stuck in a client's memory may hold that, and a stand-in that
/// signals for the first time would be stuck behind it.
fn present(context: usize) {
    // SAFETY: submits no operation, so the pointer is not used.
    unsafe { libc::syscall(libc::SYS_io_submit, context, 0 as c_long, std::ptr::null_mut::<*const Iocb>()) };
}

/// Empties the completion ring in user space, as io_getevents would with a system call: the last operation completed
/// inside io_submit, and its result does not matter. Just before the next one, this also brings the page back if it was
/// reclaimed, with a fault in user mode, which does not need the lock of the whole address space ([`present`]).
fn reap(context: usize) {
    // SAFETY: the context is the address of the kernel's ring, mapped writable for this process until io_destroy; only
    // this thread consumes from it, and moving head to tail marks entries as consumed (fs/aio.c, struct aio_ring).
    let ring = unsafe { &*(context as *const AioRing) };
    ring.head.store(ring.tail.load(Acquire), Release);
}

impl Drop for Notifier {
    fn drop(&mut self) {
        // SAFETY: the context came from io_setup and is not used after this.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake::doorbell::{Doorbell, EventBell};
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    fn readable(fd: &impl AsFd) -> bool {
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn notifies_many_even_with_full_blocking_eventfds() {
        let mut notifier = Notifier::new().unwrap();
        let full = eventfd(0, EventfdFlags::empty()).unwrap();
        rustix::io::write(&full, &0xffff_ffff_ffff_fffe_u64.to_ne_bytes()).unwrap();
        let fds: Vec<_> = (0..150).map(|_| eventfd(0, EventfdFlags::empty()).unwrap()).collect();
        for round in 0..50 {
            notifier.add(full.as_raw_fd());
            for fd in &fds {
                notifier.add(fd.as_raw_fd());
            }
            notifier.flush();
            for fd in &fds {
                assert!(readable(fd), "round {round}");
                let mut count = [0; 8];
                rustix::io::read(fd, &mut count).unwrap();
                assert_eq!(u64::from_ne_bytes(count), 1);
            }
        }
    }

    #[test]
    fn a_system_call_is_made_once_a_batch() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut notifier = Notifier::new().unwrap();
        for notified in 1..=2 {
            notifier.add_call(SystemCall::Send(ours.as_raw_fd()));
            notifier.add_call(SystemCall::Send(ours.as_raw_fd()));
            assert!(
                !notifier.is_empty() && theirs.recv(&mut [0; 8]).is_err(),
                "called before the batch ended"
            );
            notifier.flush();
            assert_eq!((theirs.recv(&mut [0; 8]).unwrap(), notifier.notified()), (0, notified));
            assert!(notifier.is_empty() && theirs.recv(&mut [0; 8]).is_err(), "called twice");
        }
        ours.send(&[1, 2, 3]).unwrap();
        notifier.add_call(SystemCall::Receive(theirs.as_raw_fd()));
        // Nothing to receive: the call does not wait.
        notifier.add_call(SystemCall::Receive(ours.as_raw_fd()));
        notifier.flush();
        assert!(theirs.recv(&mut [0; 8]).is_err(), "the call receives");
    }

    #[test]
    fn a_doorbell_of_the_process_is_rung_once_a_batch() {
        let doorbells = [(); 100].map(|()| Arc::new(Doorbell::new(EventBell::new().unwrap())));
        let mut notifier = Notifier::new().unwrap();
        for doorbell in doorbells.iter().chain(&doorbells[90..]) {
            doorbell.arm();
            notifier.add_bell(doorbell);
        }
        notifier.flush();
        for doorbell in &doorbells {
            let mut count = [0; 8];
            rustix::io::read(doorbell.bell(), &mut count).unwrap();
            assert_eq!((doorbell.disarm(), u64::from_ne_bytes(count)), (true, 1));
        }
    }

    #[test]
    fn a_descriptor_that_is_no_eventfd_does_not_stop_the_others() {
        let mut notifier = Notifier::new().unwrap();
        let file = File::open("/dev/null").unwrap();
        let good = eventfd(0, EventfdFlags::empty()).unwrap();
        notifier.add(file.as_raw_fd());
        notifier.add(good.as_raw_fd());
        notifier.flush();
        assert!(readable(&good));
    }
}
