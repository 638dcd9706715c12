//! Expensive wake-ups: each write to and read from an eventfd wakes all its watchers, at the expense of the caller.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use e2e::{Error, Result};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::dup;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::NEEDED;
use crate::setup::{Setup, Target, ended};

/// Watches of one eventfd.
const WATCHES: u64 = 500_000;
/// Duplicates of its descriptor; an epoll instance can watch each once.
const COPIES: u64 = 10_000;
/// Chains of epoll instances that watch the eventfd.
const NESTED: u64 = 90;
/// Descriptors reserved for everything else.
const OTHERS: u64 = 1_000;
/// Threads that wait for one eventfd.
const THREADS: usize = 500;
/// Pause of a round whose effect continues by itself.
const PAUSE: Duration = Duration::from_millis(300);
/// Time between two kicks of a client, about.
const KICK: Duration = Duration::from_millis(1);

/// Watched end of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The switch writes to it for each delivered batch.
    Call,
    /// The switch reads from it when woken, which wakes those waiting for room in it.
    Kick,
}

/// Watches an eventfd many times, through chains of `depth` epoll instances.
pub(crate) fn watch_eventfd(setup: &Setup, end: End, depth: u32) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    // Best effort: a process may raise its own soft limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let room = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OTHERS);
    let copies = COPIES.min(room / 2);
    let mut watching: Option<(Vec<OwnedFd>, Vec<OwnedFd>)> = None;
    setup.feed()?;
    if setup.baseline && depth == 1 {
        std::thread::spawn(move || ended(signal_own(end, copies)));
    }
    let prepare = |_: &Target| Ok(());
    setup.attack_clients(NEEDED, false, end == End::Kick, prepare, |target| {
        let watched = if end == End::Call { &target.call } else { &target.kick };
        let known = watching.as_ref().and_then(|(copies, _)| copies.first());
        if known.is_none_or(|known| !same(known, watched)) {
            watching = None;
            watching = Some(watch(watched, copies, depth)?);
        }
        std::thread::sleep(PAUSE);
        Ok(())
    })
}

/// Signals own eventfds that have as many watches: at the end, as the switch does under attack, or all the time, as an
/// attacker that kicks the switch. The kernel signals with interrupts disabled, so every process loses the CPU
/// meanwhile; a client needs no switch for that.
fn signal_own(end: End, copies: u64) -> Result<()> {
    loop {
        let own = eventfd(0, EventfdFlags::NONBLOCK).map_err(Error::while_doing("eventfd"))?;
        let signal = || rustix::io::write(&own, &1u64.to_ne_bytes()).map_err(Error::while_doing("write"));
        let watched = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let kicks = scope.spawn(|| {
                while end == End::Kick && !watched.load(Ordering::Relaxed) {
                    signal()?;
                    std::thread::sleep(KICK);
                }
                Ok(())
            });
            let watching = watch(&own, copies, 1);
            std::thread::sleep(PAUSE);
            watched.store(true, Ordering::Relaxed);
            let kicked = kicks.join().unwrap_or_else(|_| Err(Error::new("the kicking thread panicked")));
            signal().and(kicked).and(watching.map(drop))
        })?;
    }
}

/// Whether two descriptors are duplicates: the kernel's fdinfo of an eventfd contains its id.
fn same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let id = |fd: &OwnedFd| {
        let info =
            std::fs::read_to_string(format!("/proc/self/fdinfo/{}", std::os::fd::AsRawFd::as_raw_fd(fd)));
        info.ok().and_then(|info| info.lines().find(|line| line.starts_with("eventfd-id")).map(str::to_owned))
    };
    id(one) == id(other)
}

fn watch(watched: &OwnedFd, copies: u64, depth: u32) -> Result<(Vec<OwnedFd>, Vec<OwnedFd>)> {
    let fail = Error::while_doing("cannot watch");
    let copies: Vec<_> =
        (0..copies).map(|_| dup(watched)).collect::<std::result::Result<_, _>>().map_err(&fail)?;
    let events = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
    let mut epolls = Vec::new();
    // The kernel allows about a hundred paths through several instances.
    let (instances, copies) = match depth {
        1 => (WATCHES.div_ceil(copies.len() as u64), copies),
        _ => (NESTED, copies.into_iter().take(1).collect()),
    };
    for _ in 0..instances {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(&fail)?;
        for copy in &copies {
            epoll::add(&epoll, copy, EventData::new_u64(0), events).map_err(&fail)?;
        }
        epolls.push(epoll);
        for _ in 1..depth {
            let outer = epoll::create(CreateFlags::CLOEXEC).map_err(&fail)?;
            if let Some(inner) = epolls.last() {
                epoll::add(&outer, inner, EventData::new_u64(0), EventFlags::IN).map_err(&fail)?;
            }
            epolls.push(outer);
        }
    }
    Ok((copies, epolls))
}

/// Waits with many threads for the eventfd that the switch signals.
pub(crate) fn wait_with_threads(setup: &Setup) -> Result<()> {
    setup.feed()?;
    setup.attack_clients(
        NEEDED,
        false,
        false,
        |_| Ok(()),
        |target| {
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
                        for _ in 0..3 {
                            // Both a signal and a timeout continue.
                            let _ = poll(&mut [PollFd::new(&target.call, PollFlags::IN)], Some(&pause));
                            let _ = rustix::io::read(target.call.as_fd(), &mut [0u8; 8]);
                        }
                    });
                }
            });
            Ok(())
        },
    )
}

/// Signals the switch without end and without packets.
pub(crate) fn flood_kicks(setup: &Setup) -> Result<()> {
    setup.feed()?;
    setup.attack_clients(
        NEEDED,
        false,
        false,
        |_| Ok(()),
        |target| {
            for _ in 0..100_000 {
                // A full counter means that the switch has been woken.
                let _ = rustix::io::write(&target.kick, &1u64.to_ne_bytes());
            }
            Ok(())
        },
    )
}
