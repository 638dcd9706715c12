//! The holder of a TUN/TAP interface, for the error message when its name is taken.

use std::fs;
use std::path::Path;

/// Holder of an interface.
pub(super) enum Holder {
    /// Another port of this switch.
    Us,
    /// A process, with the name of its program.
    Process(u32, String),
}

/// Returns the process that holds the TUN/TAP interface `name`, in any namespace.
pub(super) fn of(name: &str) -> Option<Holder> {
    let line = format!("iff:\t{name}");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|pid| pid.parse::<u32>().ok()) else {
            continue;
        };
        // Other users' open files may be hidden.
        let Ok(open) = fs::read_dir(process.path().join("fd")) else { continue };
        for fd in open.flatten() {
            if fs::read_link(fd.path()).is_ok_and(|to| to == Path::new("/dev/net/tun"))
                && let Ok(info) = fs::read_to_string(process.path().join("fdinfo").join(fd.file_name()))
                && info.lines().any(|l| l == line)
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
