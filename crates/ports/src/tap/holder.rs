//! The holder of a TUN/TAP interface, for the error message when its name is taken.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::name_watch::{Identity, identity};

/// Holder of an interface.
pub(super) enum Holder {
    /// Another port of this switch.
    Us,
    /// A process, with the name of its program.
    Process(u32, String),
}

/// Returns the process that holds the TUN/TAP interface `name` of the calling thread's network namespace.
pub(super) fn of(name: &str) -> Option<Holder> {
    let here = namespace_at(Path::new("/proc/thread-self/ns/net"))?;
    let line = format!("iff:\t{name}");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|pid| pid.parse::<u32>().ok()) else {
            continue;
        };
        // Other users' open files may be hidden.
        let Ok(open) = fs::read_dir(process.path().join("fd")) else { continue };
        for fd in open.flatten() {
            let Some(number) = fd.file_name().to_str().and_then(|number| number.parse().ok()) else {
                continue;
            };
            if is_tun(&fd.path())
                && let Ok(info) = fs::read_to_string(process.path().join("fdinfo").join(fd.file_name()))
                && info.lines().any(|l| l == line)
                && namespace_of(pid, number) == Some(here)
            {
                if pid == std::process::id() {
                    return Some(Holder::Us);
                }
                let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                return Some(Holder::Process(pid, command.trim_end().to_owned()));
            }
        }
    }
    None
}

fn is_tun(link: &Path) -> bool {
    fs::read_link(link).is_ok_and(|to| to == Path::new("/dev/net/tun"))
}

fn namespace_at(path: &Path) -> Option<Identity> {
    rustix::fs::stat(path).ok().map(|file| (file.st_dev, file.st_ino))
}

/// Returns the network namespace of the interface behind a file descriptor of a process: what the kernel says of the
/// interface, or where the descriptor may not be copied, the namespace of the process.
fn namespace_of(pid: u32, fd: RawFd) -> Option<Identity> {
    let copy = if pid == std::process::id() { own(fd) } else { copied(pid, fd) };
    copy.and_then(|queue| namespace_behind(&queue))
        .or_else(|| namespace_at(Path::new(&format!("/proc/{pid}/ns/net"))))
}

/// Copies a descriptor of another process. That needs the right to trace the process.
fn copied(pid: u32, fd: RawFd) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid.try_into().ok()?)?, PidfdFlags::empty()).ok()?;
    pidfd_getfd(process, fd, PidfdGetfdFlags::empty()).ok()
}

/// Copies a descriptor of this process.
fn own(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: the number is only copied, which the kernel refuses if another thread has closed it. If that thread has
    // opened another file by this number, the copy leads to that file, of which only its kind is asked.
    let copy = rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, 0).ok()?;
    is_tun(Path::new(&format!("/proc/self/fd/{}", copy.as_raw_fd()))).then_some(copy)
}

/// Returns the network namespace of the interface behind a queue.
fn namespace_behind(queue: &OwnedFd) -> Option<Identity> {
    // SAFETY: TUNGETDEVNETNS takes no argument and returns a new file descriptor.
    let fd = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNGETDEVNETNS) };
    // SAFETY: the descriptor is new, and nothing else owns it.
    let namespace = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })?;
    identity(namespace).ok()
}
