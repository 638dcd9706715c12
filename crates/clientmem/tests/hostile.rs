//! Attacks of a client on the memory that it shares: each costs only the client.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Barrier;

use clientmem::{MAX_REGION_SIZE, MapError, Region};
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals,
    ftruncate, memfd_create, open,
};

const PAGE: u64 = 4096;

fn file(size: u64) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, size).unwrap();
    fd
}

fn write(region: &Region, offset: u64, value: u8) {
    // SAFETY: `at` checked the byte; the region outlives the call.
    unsafe { region.at(offset, 1).unwrap().as_ptr().write_volatile(value) };
}

fn read(region: &Region, offset: u64) -> u8 {
    // SAFETY: `at` checked the byte; the region outlives the call.
    unsafe { region.at(offset, 1).unwrap().as_ptr().read_volatile() }
}

#[test]
fn both_sides_see_the_same_bytes() {
    let fd = file(2 * PAGE);
    let ours = Region::map(fd.as_fd(), 2 * PAGE).unwrap();
    let theirs = Region::map(fd.as_fd(), 2 * PAGE).unwrap();
    write(&ours, PAGE + 5, 77);
    assert_eq!(read(&theirs, PAGE + 5), 77);
    assert!(!ours.faulted());
}

#[test]
fn bounds_are_those_announced_and_not_those_of_the_page() {
    let fd = file(2 * PAGE);
    let region = Region::map(fd.as_fd(), PAGE + 10).unwrap();
    assert_eq!(region.len(), PAGE + 10);
    assert_eq!(region.at(0, PAGE + 10), Some(region.base()));
    assert!(region.at(PAGE + 9, 1).is_some());
    assert!(region.at(PAGE + 10, 0).is_some());
    assert!(region.at(PAGE + 10, 1).is_none());
    assert!(region.at(0, PAGE + 11).is_none());
    assert!(region.at(u64::MAX, 1).is_none());
    assert!(region.at(1, u64::MAX).is_none());
}

#[test]
fn a_truncated_file_reads_as_zeros_and_is_noticed() {
    let fd = file(4 * PAGE);
    let region = Region::map(fd.as_fd(), 4 * PAGE).unwrap();
    write(&region, 0, 1);
    write(&region, 3 * PAGE, 1);
    ftruncate(&fd, PAGE).unwrap();
    // The first page still exists, so nothing has been noticed.
    assert_eq!(read(&region, 0), 1);
    assert!(!region.faulted());
    assert_eq!(read(&region, 3 * PAGE), 0);
    assert!(region.faulted());
    // The lost pages were replaced and can be written.
    write(&region, 2 * PAGE, 9);
    assert_eq!(read(&region, 2 * PAGE), 9);
    // Growing the file again changes nothing.
    ftruncate(&fd, 4 * PAGE).unwrap();
    assert!(region.faulted());
    assert_eq!(read(&region, 2 * PAGE), 9);
}

#[test]
fn a_copy_across_the_truncation_completes() {
    let fd = file(4 * PAGE);
    let region = Region::map(fd.as_fd(), 4 * PAGE).unwrap();
    for page in 0..4 {
        write(&region, page * PAGE + PAGE - 1, 5);
    }
    ftruncate(&fd, 2 * PAGE).unwrap();
    let mut copy = vec![1u8; 4 * PAGE as usize];
    // SAFETY: source and destination have that many bytes and are different memory.
    unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(region.base().as_ptr(), copy.len()) };
    assert!(region.faulted());
    assert!(copy[2 * PAGE as usize..].iter().all(|b| *b == 0));
}

#[test]
fn a_fault_leaves_other_regions_and_errno_alone() {
    let (victim, bystander) = (file(PAGE), file(PAGE));
    let victim_region = Region::map(victim.as_fd(), PAGE).unwrap();
    let bystander_region = Region::map(bystander.as_fd(), PAGE).unwrap();
    write(&bystander_region, 0, 42);
    ftruncate(&victim, 0).unwrap();
    // SAFETY: errno is a valid thread-local.
    unsafe { *libc::__errno_location() = 4321 };
    assert_eq!(read(&victim_region, 0), 0);
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 4321);
    assert!(victim_region.faulted());
    assert!(!bystander_region.faulted());
    assert_eq!(read(&bystander_region, 0), 42);
}

#[test]
fn a_hole_in_a_small_page_file_is_refilled_by_the_kernel() {
    let fd = file(2 * PAGE);
    let region = Region::map(fd.as_fd(), 2 * PAGE).unwrap();
    write(&region, PAGE, 3);
    fallocate(&fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, PAGE, PAGE).unwrap();
    assert_eq!(read(&region, PAGE), 0);
    assert!(!region.faulted());
}

#[test]
#[ignore = "takes all free huge pages of the machine for a moment; needs some (vm.nr_hugepages)"]
fn a_hole_in_a_huge_page_file_faults_when_pages_are_out() {
    const HUGE: u64 = 2 << 20;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let fd = memfd_create("test", flags).unwrap();
    ftruncate(&fd, 2 * HUGE).unwrap();
    // Less than a huge page is requested, a whole number of them is mapped.
    let region = Region::map(fd.as_fd(), HUGE + 100).unwrap();
    write(&region, 0, 1);
    write(&region, HUGE, 2);
    fallocate(&fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, HUGE, HUGE).unwrap();
    let hog = memfd_create("hog", flags).unwrap();
    let mut taken = 0;
    while fallocate(&hog, FallocateFlags::empty(), taken, HUGE).is_ok() {
        taken += HUGE;
    }
    assert_eq!(read(&region, HUGE), 0);
    assert!(region.faulted());
    write(&region, 0, 7);
    assert_eq!(read(&region, 0), 7);
}

#[test]
fn many_threads_fault_at_once() {
    const THREADS: u64 = 4;
    for _ in 0..200 {
        let fd = file(64 * PAGE);
        let region = Region::map(fd.as_fd(), 64 * PAGE).unwrap();
        ftruncate(&fd, 0).unwrap();
        let barrier = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (region, barrier) = (&region, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for page in 0..64 {
                        assert_eq!(read(region, (page + thread * 16) % 64 * PAGE), 0);
                    }
                });
            }
        });
        assert!(region.faulted());
    }
}

#[test]
fn faults_while_other_regions_come_and_go() {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..500u64 {
                    let size = (1 + round % 5) * PAGE;
                    let (fd, other) = (file(size), file(PAGE));
                    let region = Region::map(fd.as_fd(), size).unwrap();
                    let intact = Region::map(other.as_fd(), PAGE).unwrap();
                    write(&intact, 0, 11);
                    ftruncate(&fd, 0).unwrap();
                    assert_eq!(read(&region, size - 1), 0);
                    assert!(region.faulted());
                    assert_eq!(read(&intact, 0), 11);
                    assert!(!intact.faulted());
                }
            });
        }
    });
}

#[test]
fn impossible_sizes_are_refused() {
    let fd = file(PAGE);
    assert!(matches!(Region::map(fd.as_fd(), 0), Err(MapError::Empty)));
    let error = Region::map(fd.as_fd(), PAGE + 1).unwrap_err();
    assert_eq!(error.to_string(), "region size 4097 is larger than its file of 4096 bytes");
    let error = Region::map(fd.as_fd(), MAX_REGION_SIZE + 1).unwrap_err();
    assert!(matches!(error, MapError::TooLarge { .. }), "{error}");
    assert!(matches!(Region::map(fd.as_fd(), u64::MAX), Err(MapError::TooLarge { .. })));
}

#[test]
fn files_other_than_memory_files_are_refused() {
    let refused = |fd: OwnedFd, what: &str| match Region::map(fd.as_fd(), 1) {
        Err(e @ MapError::NotRegular { .. }) => assert!(e.to_string().contains(what), "{e}"),
        other => panic!("{what}: {other:?}"),
    };
    refused(std::io::pipe().unwrap().0.into(), "a pipe");
    refused(std::os::unix::net::UnixDatagram::unbound().unwrap().into(), "a socket");
    refused(File::open("/").unwrap().into(), "a directory");
    refused(File::open("/dev/zero").unwrap().into(), "a character device");
    // Newer kernels report these as regular files.
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let error = Region::map(event.as_fd(), 1).unwrap_err();
    assert!(matches!(error, MapError::NotRegular { .. } | MapError::WrongFileSystem), "{error}");
}

#[test]
fn a_named_file_on_tmpfs_is_mapped() {
    let path = format!("/dev/shm/clientmem-test-{}", std::process::id());
    let Ok(file) = File::options().read(true).write(true).create_new(true).open(&path) else {
        eprintln!("skipped: cannot create files in /dev/shm");
        return;
    };
    std::fs::remove_file(&path).unwrap();
    file.set_len(PAGE).unwrap();
    let region = Region::map(file.as_fd(), PAGE).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(read(&region, 0), 0);
    assert!(region.faulted());
}

#[test]
fn a_file_on_disk_or_in_proc_is_refused() {
    let error = Region::map(File::open("/proc/self/maps").unwrap().as_fd(), 1).unwrap_err();
    assert!(matches!(error, MapError::WrongFileSystem), "{error}");
    // The build folder is on a disk, or at least not shared memory, on every sensible machine.
    let error = Region::map(File::open(std::env::current_exe().unwrap()).unwrap().as_fd(), 1).unwrap_err();
    let on_tmpfs = matches!(error, MapError::NotReadWrite);
    assert!(on_tmpfs || matches!(error, MapError::WrongFileSystem), "{error}");
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let fd = file(PAGE);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    let read_only = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    assert!(matches!(Region::map(read_only.as_fd(), PAGE), Err(MapError::NotReadWrite)));
    fcntl_add_seals(&fd, SealFlags::WRITE).unwrap();
    assert!(matches!(Region::map(fd.as_fd(), PAGE), Err(MapError::Map(_))));
}

#[test]
fn our_own_memory_cannot_be_resized() {
    let (region, fd) = Region::create("ours", 3 * PAGE).unwrap();
    assert_eq!(region.len(), 3 * PAGE);
    assert!(fcntl_get_seals(&fd).unwrap().contains(SealFlags::SHRINK | SealFlags::GROW));
    assert!(ftruncate(&fd, PAGE).is_err());
    write(&region, 2 * PAGE, 1);
    let peer = Region::map(fd.as_fd(), 3 * PAGE).unwrap();
    assert_eq!(read(&peer, 2 * PAGE), 1);
}

#[test]
fn dropping_unmaps() {
    let lines = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains("memfd:dropped-here")).count()
    };
    let (region, _fd) = Region::create("dropped-here", PAGE).unwrap();
    assert_eq!(lines(), 1);
    drop(region);
    assert_eq!(lines(), 0);
}

#[test]
fn a_part_of_a_file_is_mapped_and_no_more() {
    let fd = file(64 * PAGE);
    let whole = Region::map(fd.as_fd(), 64 * PAGE).unwrap();
    // Neither start nor end is page-aligned.
    let part = Region::map_part(fd.as_fd(), 10 * PAGE + 100, 2 * PAGE).unwrap();
    write(&whole, 10 * PAGE + 100, 7);
    write(&whole, 12 * PAGE + 99, 9);
    assert_eq!((read(&part, 0), read(&part, 2 * PAGE - 1)), (7, 9));
    assert_eq!((part.at(2 * PAGE, 1), part.len()), (None, 2 * PAGE));
    let start = part.base().as_ptr() as u64 - 100;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = format!("{start:08x}-{:08x} rw-s {:08x}", start + 3 * PAGE, 10 * PAGE);
    assert!(maps.lines().any(|found| found.starts_with(&line)), "{line} is not in {maps}");

    ftruncate(&fd, 11 * PAGE).unwrap();
    assert_eq!(read(&part, 2 * PAGE - 1), 0);
    assert!(part.faulted() && !whole.faulted());
    for (offset, size) in [(10 * PAGE, PAGE + 1), (u64::MAX, 2), (1 << 62, PAGE)] {
        let error = Region::map_part(fd.as_fd(), offset, size).unwrap_err().to_string();
        let expected =
            format!("region size {size} at offset {offset} is larger than its file of 45056 bytes");
        assert_eq!(error, expected);
    }
}

#[test]
fn a_fault_replaces_what_is_around_it_and_nothing_else() {
    const WINDOW: u64 = 64 << 10;
    let pages = 64 << 20;
    let (fd, other) = (file(pages), file(pages));
    let (before, region, after) = (
        Region::map(other.as_fd(), pages).unwrap(),
        Region::map(fd.as_fd(), pages).unwrap(),
        Region::map(other.as_fd(), pages).unwrap(),
    );
    for offset in (0..pages).step_by(PAGE as usize) {
        write(&region, offset, 1);
        write(&before, offset, 2);
    }
    ftruncate(&fd, pages - PAGE).unwrap();
    assert_eq!(read(&region, pages - 1), 0);
    assert!(region.faulted() && !before.faulted() && !after.faulted());
    let lost = (0..pages).step_by(PAGE as usize).filter(|offset| read(&region, *offset) != 1).count() as u64;
    assert!((1..=WINDOW / PAGE).contains(&lost), "{lost} pages");
    for offset in (0..pages).step_by(PAGE as usize) {
        assert_eq!((read(&before, offset), read(&after, offset)), (2, 2), "at {offset}");
    }
}
