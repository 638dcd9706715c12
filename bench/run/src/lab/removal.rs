//! Removal of recorded things. Each function succeeds where the thing is gone already.

use std::path::{Path, PathBuf};
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
            if let Some(folder) = runtime_folder(*pid, name) {
                remove_path(&folder);
            }
        }
        Record::Namespace { name } => remove_namespace(name),
        Record::Path { path } => remove_path(Path::new(path)),
        Record::HugePages { before, set } => huge_pages::restore(*before, *set),
    }
}

/// DPDK's runtime folder of a generator that has ended, which DPDK leaves behind. `None` if another process has this id
/// now: the folder may be that one's.
fn runtime_folder(pid: u32, name: &str) -> Option<PathBuf> {
    let reused = process::started(pid).is_some_and(|since| process::runs(pid, since));
    let generator = name.starts_with("generator");
    (generator && !reused).then(|| PathBuf::from(format!("/run/dpdk/mswitch-generator-{pid}")))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Id of a process that has ended and been waited for.
    fn ended() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn only_what_a_record_names_is_removed() {
        let other = tempfile::Builder::new().prefix("mswitch-generator-").tempdir_in("/tmp").unwrap();
        std::fs::write(other.path().join("notes"), "").unwrap();
        let empty = tempfile::Builder::new().prefix("mswitch-generator-").tempdir_in("/tmp").unwrap();
        remove(&Record::Process { pid: ended(), started: 1, name: "generator".into() });
        assert!(other.path().join("notes").exists() && empty.path().exists());
    }

    #[test]
    fn the_folder_of_a_reused_id_is_left_alone() {
        let pid = ended();
        let folder = PathBuf::from(format!("/run/dpdk/mswitch-generator-{pid}"));
        assert_eq!(runtime_folder(pid, "generator-functions"), Some(folder));
        assert_eq!(runtime_folder(pid, "testpmd"), None);
        assert_eq!(runtime_folder(std::process::id(), "generator"), None);
    }
}
