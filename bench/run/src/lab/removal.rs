//! Removal of recorded things. Each function succeeds where the thing is gone already.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::records::Record;
use super::{huge_pages, process};

/// Time allowed for a process to end on request, and to disappear after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether a thing may still exist. Most processes of a killed benchmark had ended before.
pub(super) fn remains(record: &Record) -> bool {
    match record {
        Record::Process { pid, started, .. } => process::runs(*pid, *started),
        _ => true,
    }
}

/// Removes a thing, as far as possible: nobody is left to tell about a failure, and the next benchmark tries again.
pub(super) fn remove(record: &Record) {
    match record {
        Record::Process { pid, started, name } => {
            if process::started(*pid) == Some(*started) {
                end(*pid, *started);
            }
            if name.starts_with("generator") {
                remove_path(Path::new(&format!("/run/dpdk/mswitch-generator-{pid}")));
                remove_dead_ceilings();
            }
        }
        Record::Namespace { name } => remove_namespace(name),
        Record::Path { path } => remove_path(Path::new(path)),
        Record::HugePages { before } => huge_pages::restore(*before),
    }
}

/// Ends a process: SIGTERM, then SIGKILL.
pub(super) fn end(pid: u32, started: u64) {
    for signal in [Signal::TERM, Signal::KILL] {
        let Some(pid_of) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        let _ = kill_process(pid_of, signal);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !process::runs(pid, started) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Removes a file or folder.
pub(super) fn remove_path(path: &Path) {
    let is_folder = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    let _ = if is_folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
}

/// Removes a namespace with its interfaces.
pub(super) fn remove_namespace(name: &str) {
    let mut command = Command::new("ip");
    command.args(["netns", "del", name]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = command.status();
}

/// Removes the sockets that generators in mode `ceiling` leave when they are killed: those at which nobody listens.
fn remove_dead_ceilings() {
    let Ok(entries) = std::fs::read_dir("/tmp") else { return };
    for folder in entries.flatten() {
        if !folder.file_name().to_string_lossy().starts_with("mswitch-generator-") {
            continue;
        }
        let Ok(mut sockets) = std::fs::read_dir(folder.path()) else { continue };
        let dead = sockets.all(|socket| {
            let refused = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
            socket.is_ok_and(|socket| UnixStream::connect(socket.path()).is_err_and(refused))
        });
        if dead {
            remove_path(&folder.path());
        }
    }
}
