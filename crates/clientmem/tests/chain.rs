//! Signals that concern no region go where they would have gone.
//!
//! Each case needs its own process, since the handler is installed once per process: the parent restarts this test
//! program with the case's name in the environment.
#![allow(clippy::unwrap_used)]

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

const CASE: &str = "CLIENTMEM_CHAIN_CASE";

fn run(case: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture"]).env(CASE, case);
    command.output().unwrap().status
}

/// Touches a mapping that is not a region and has no file behind it.
fn fault_outside_all_regions() {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, 4096).unwrap();
    // SAFETY: the kernel picks the address.
    let at = unsafe { mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, &fd, 0) }.unwrap();
    ftruncate(&fd, 0).unwrap();
    // SAFETY: mapped just now; the access is meant to fault.
    let _ = unsafe { at.cast::<u8>().read_volatile() };
}

extern "C" fn exit_42(_: i32) {
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(42) }
}

extern "C" fn exit_43_at_fault(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the handler is installed with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(if code == libc::BUS_ADRERR { 43 } else { 1 }) }
}

fn set_action(handler: usize, flags: i32) {
    // SAFETY: plain data, completed before use; the handlers are async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()), 0);
    }
}

#[test]
#[ignore = "started by the other tests"]
fn child() {
    match std::env::var(CASE).unwrap_or_default().as_str() {
        "std" => clientmem::install_fault_handler(),
        "default" => {
            set_action(libc::SIG_DFL, 0);
            clientmem::install_fault_handler();
        }
        "ignored" => {
            set_action(libc::SIG_IGN, 0);
            clientmem::install_fault_handler();
            // SAFETY: a signal to this process, which is set to ignore it.
            unsafe { libc::raise(libc::SIGBUS) };
        }
        "plain handler" => {
            set_action(exit_42 as extern "C" fn(i32) as usize, 0);
            clientmem::install_fault_handler();
        }
        "info handler" => {
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = exit_43_at_fault;
            set_action(handler as usize, libc::SA_SIGINFO);
            clientmem::install_fault_handler();
        }
        "sent" => {
            set_action(libc::SIG_DFL, 0);
            let (_region, fd) = clientmem::Region::create("test", 4096).unwrap();
            assert!(!clientmem::is_eventfd(fd.as_fd()));
            // SAFETY: a signal to this process, which ends it.
            unsafe { libc::raise(libc::SIGBUS) };
            return;
        }
        _ => return,
    }
    // Twice: installing again must not make the handler its own predecessor.
    clientmem::install_fault_handler();
    fault_outside_all_regions();
}

#[test]
fn the_default_action_kills() {
    assert_eq!(run("default").signal(), Some(libc::SIGBUS));
}

#[test]
fn the_standard_library_s_handler_kills() {
    assert_eq!(run("std").signal(), Some(libc::SIGBUS));
}

#[test]
fn an_ignored_signal_is_ignored_but_a_fault_kills() {
    assert_eq!(run("ignored").signal(), Some(libc::SIGBUS));
}

#[test]
fn earlier_handlers_are_called() {
    assert_eq!(run("plain handler").code(), Some(42));
    assert_eq!(run("info handler").code(), Some(43));
}

#[test]
fn a_sent_signal_is_no_fault() {
    assert_eq!(run("sent").signal(), Some(libc::SIGBUS));
}
