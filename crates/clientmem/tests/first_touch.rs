//! Limits on first-touch allocations, and behaviour at the limit.
#![allow(clippy::unwrap_used)]

use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use clientmem::{Exhausted, FirstTouch, Region};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, ftruncate, memfd_create};

const PAGE: u64 = 4096;

fn sparse(pages: u64) -> OwnedFd {
    let fd = memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, pages * PAGE).unwrap();
    fd
}

/// Number of pages that a file has.
fn pages(fd: &OwnedFd) -> u64 {
    fstat(fd).unwrap().st_blocks as u64 * 512 / PAGE
}

fn counted(fd: &OwnedFd, first_touch: &FirstTouch) -> Region {
    let size = fstat(fd).unwrap().st_size as u64;
    let region = Region::map_counted(fd.as_fd(), 0, size, Some(first_touch)).unwrap();
    assert!(first_touch.uncounted().is_none(), "{:?}", first_touch.uncounted());
    region
}

fn write(region: &Region, page: u64, value: u8) {
    // SAFETY: `at` checked the byte; the region outlives the call.
    unsafe { region.at(page * PAGE + 7, 1).unwrap().as_ptr().write_volatile(value) };
}

fn read(region: &Region, page: u64) -> u8 {
    // SAFETY: as above.
    unsafe { region.at(page * PAGE + 7, 1).unwrap().as_ptr().read_volatile() }
}

#[test]
fn missing_pages_are_made_and_counted_once() {
    let (fd, first_touch) = (sparse(64), FirstTouch::new(1 << 20));
    let (ours, theirs) = (counted(&fd, &first_touch), Region::map(fd.as_fd(), 64 * PAGE).unwrap());
    write(&ours, 3, 5);
    assert_eq!((read(&theirs, 3), read(&ours, 9), first_touch.made()), (5, 0, 2 * PAGE));
    // Pages that the client has touched exist.
    write(&theirs, 20, 8);
    assert_eq!((read(&ours, 20), first_touch.made()), (8, 2 * PAGE));
    write(&ours, 3, 6);
    assert_eq!((pages(&fd), first_touch.made()), (3, 2 * PAGE));
    // Pages that it punches out are missing again.
    fallocate(&fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 3 * PAGE, PAGE).unwrap();
    assert_eq!((read(&ours, 3), first_touch.made()), (0, 3 * PAGE));
    assert!(!ours.faulted() && first_touch.exhausted().is_none());
}

#[test]
fn beyond_the_limit_is_a_fault_and_allocates_no_more_of_the_file() {
    let (fd, first_touch) = (sparse(256), FirstTouch::new(5 * PAGE + 1));
    let (other_fd, other) = (sparse(256), FirstTouch::new(1 << 20));
    let (region, bystander) = (counted(&fd, &first_touch), counted(&other_fd, &other));
    (0..5).for_each(|page| write(&region, page * 40, 1));
    assert!(!region.faulted() && first_touch.exhausted().is_none());
    for page in 0..256 {
        // Completes in any case.
        write(&region, page, 2);
        assert_eq!(read(&region, page), 2);
    }
    assert!(region.faulted());
    assert_eq!(first_touch.exhausted(), Some(Exhausted::Limit));
    assert_eq!((pages(&fd), first_touch.made(), first_touch.limit()), (5, 5 * PAGE, 5 * PAGE + 1));
    write(&bystander, 9, 1);
    assert!(!bystander.faulted() && other.exhausted().is_none());
    assert_eq!(other.made(), PAGE);
}

#[test]
fn regions_of_a_client_share_a_limit() {
    let (a, b, first_touch) = (sparse(4), sparse(4), FirstTouch::new(4 * PAGE));
    let (first, second) = (counted(&a, &first_touch), counted(&b, &first_touch));
    (0..3).for_each(|page| write(&first, page, 1));
    write(&second, 0, 1);
    assert!(!first.faulted() && !second.faulted());
    write(&second, 1, 1);
    assert!(!first.faulted() && second.faulted());
}

#[test]
fn no_page_is_made_beyond_the_end_of_the_file() {
    let (fd, first_touch) = (sparse(64), FirstTouch::new(1 << 20));
    let region = counted(&fd, &first_touch);
    ftruncate(&fd, PAGE).unwrap();
    assert_eq!(read(&region, 40), 0);
    assert!(region.faulted());
    assert_eq!((first_touch.made(), first_touch.exhausted()), (0, None));
}

#[test]
fn threads_that_touch_the_same_pages_are_counted_once() {
    const THREADS: u64 = 4;
    for round in 0..50 {
        // Pages being allocated count too, though another thread may turn out to be first: one page per thread.
        let (fd, first_touch) = (sparse(64), FirstTouch::new((64 + THREADS) * PAGE));
        let region = counted(&fd, &first_touch);
        let barrier = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (region, barrier) = (&region, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    (0..64).for_each(|page| write(region, (page + thread * round) % 64, 1));
                });
            }
        });
        assert!(pages(&fd) == 64 && first_touch.made() == 64 * PAGE, "{}", first_touch.made());
    }
}

#[test]
fn system_calls_get_an_error_until_the_page_was_touched() {
    let (fd, first_touch) = (sparse(4), FirstTouch::new(1 << 20));
    let region = counted(&fd, &first_touch);
    let (_to, from) = std::io::pipe().unwrap();
    let copy = || {
        // SAFETY: the bytes are within the region; the kernel reads them if it can.
        let bytes = unsafe { std::slice::from_raw_parts(region.at(PAGE, 9).unwrap().as_ptr(), 9) };
        rustix::io::write(&from, bytes)
    };
    assert_eq!(copy(), Err(rustix::io::Errno::FAULT));
    assert!(!region.faulted());
    read(&region, 1);
    assert_eq!(copy(), Ok(9));
}

#[test]
fn errno_is_left_alone() {
    let (fd, first_touch) = (sparse(4), FirstTouch::new(PAGE));
    let region = counted(&fd, &first_touch);
    // SAFETY: errno is a valid thread-local.
    unsafe { *libc::__errno_location() = 4321 };
    (0..4).for_each(|page| write(&region, page, 1));
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 4321);
    assert!(region.faulted());
}

/// `cargo test -p mswitch-clientmem --test first_touch cost -- --nocapture` prints the figures.
#[test]
fn a_first_touch_costs_a_few_times_what_the_kernel_alone_takes() {
    const PAGES: u64 = 16384;
    let touch = |first_touch: Option<&FirstTouch>| {
        let fd = sparse(PAGES);
        let region = Region::map_counted(fd.as_fd(), 0, PAGES * PAGE, first_touch).unwrap();
        let start = Instant::now();
        (0..PAGES).for_each(|page| write(&region, page, 1));
        start.elapsed() / PAGES as u32
    };
    // Once, so that the machine has the memory ready.
    touch(None);
    let rounds: Vec<_> = (0..7).map(|_| (touch(None), touch(Some(&FirstTouch::new(u64::MAX))))).collect();
    println!("first touch of a page, by the kernel alone and counted: {rounds:?}");
    let median = |mut of: Vec<Duration>| {
        of.sort();
        of[of.len() / 2]
    };
    let (plain, counted) = rounds.into_iter().unzip();
    let (plain, counted) = (median(plain), median(counted));
    assert!(counted < 20 * plain, "{counted:?}, by the kernel alone {plain:?}");
}

const CASE: &str = "CLIENTMEM_FIRST_TOUCH_CASE";

/// Runs `child` in its own process.
fn run(case: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture"]).env(CASE, case);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "started by the other tests"]
fn child() {
    if std::env::var(CASE).as_deref() != Ok("forbidden") {
        return;
    }
    forbid_userfaultfd();
    let (fd, first_touch) = (sparse(64), FirstTouch::new(PAGE));
    let region = Region::map_counted(fd.as_fd(), 0, 64 * PAGE, Some(&first_touch)).unwrap();
    let why = first_touch.uncounted().unwrap().to_string();
    assert!(why.starts_with("Operation not permitted"), "{why}");
    (0..64).for_each(|page| write(&region, page, 1));
    assert_eq!((first_touch.made(), first_touch.exhausted()), (0, None));
    assert!(!region.faulted() && pages(&fd) == 64);
    ftruncate(&fd, 0).unwrap();
    assert_eq!(read(&region, 40), 0);
    assert!(region.faulted());
}

#[test]
fn without_a_userfaultfd_nothing_is_counted_and_that_is_reported() {
    run("forbidden");
}

/// Denies userfaultfd as a container's seccomp filter does.
fn forbid_userfaultfd() {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(JUMP_IF_EQUAL, 0, 1, libc::SYS_userfaultfd as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is valid and outlives the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}
