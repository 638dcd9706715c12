//! Wake-ups that cost the one who causes them: whoever writes to an eventfd, or reads from it, wakes all who watch it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use e2e::{Error, Result};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::dup;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::plug::NEEDED;
use crate::scene::{Scene, Target};

/// Watches of one eventfd.
const WATCHES: u64 = 500_000;
/// Descriptors of it, each of which an epoll instance can watch once.
const COPIES: u64 = 10_000;
/// Chains of epoll instances that watch it.
const NESTED: u64 = 90;
/// Descriptors for everything else.
const OTHERS: u64 = 1_000;
/// Threads that wait for one eventfd.
const THREADS: usize = 500;
/// Pause of a deed that goes on by itself.
const PAUSE: Duration = Duration::from_millis(300);

/// Which end of a port is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The switch writes to it for each batch that it delivers.
    Call,
    /// The switch reads from it when it is woken, which wakes those who wait for room in it.
    Kick,
}

/// Watches an eventfd many times over, with `depth` epoll instances one behind the other.
pub(crate) fn watched(scene: &Scene, end: End, depth: u32) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    // Nobody keeps a process from using all descriptors that it may have.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let room = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OTHERS);
    let copies = COPIES.min(room / 2);
    let mut watching: Option<(Vec<OwnedFd>, Vec<OwnedFd>)> = None;
    scene.feed()?;
    if scene.calm && end == End::Call && depth == 1 {
        std::thread::spawn(move || signal_own(copies));
    }
    let prepare = |_: &Target| Ok(());
    scene.siege(NEEDED, false, end == End::Kick, prepare, |target| {
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

/// Signals eventfds of its own that have as many watches, as the switch does in an attack. The kernel does that with interrupts
/// disabled, so that the CPU is lost to everybody meanwhile: a client does not need a switch for it.
fn signal_own(copies: u64) -> Result<()> {
    loop {
        let own = eventfd(0, EventfdFlags::NONBLOCK).map_err(Error::while_doing("eventfd"))?;
        let _watching = watch(&own, copies, 1)?;
        std::thread::sleep(PAUSE);
        rustix::io::write(&own, &1u64.to_ne_bytes()).map_err(Error::while_doing("write"))?;
    }
}

/// Whether two descriptors are copies of one: eventfds carry their number in the kernel's own description of them.
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
    // Of paths through several instances the kernel allows about a hundred.
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

/// Many threads wait for the eventfd that the switch signals.
pub(crate) fn awaited(scene: &Scene) -> Result<()> {
    scene.feed()?;
    scene.siege(
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
                            // Whether there was a signal or not.
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

/// Signals the switch without end, for nothing.
pub(crate) fn kicked(scene: &Scene) -> Result<()> {
    scene.feed()?;
    scene.siege(
        NEEDED,
        false,
        false,
        |_| Ok(()),
        |target| {
            for _ in 0..100_000 {
                // A full counter is a switch that has been woken.
                let _ = rustix::io::write(&target.kick, &1u64.to_ne_bytes());
            }
            Ok(())
        },
    )
}
