//! Recovery of interfaces whose addresses an earlier daemon had moved to a host port, when that daemon and its guardian
//! have died.
//!
//! The name of a journal contains the inode of its network namespace, in which the recovery has to run. Configured
//! namespaces, those with a name, and those of processes are searched for it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hostnet::Recovered;

use crate::host_ports::JOURNAL;
use crate::netns::{self, Netns};
use crate::{OpenError, Spec};

/// Longest time for a recovery, of which a guardian at the same work may take five seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Recovers from all journals whose paths begin with `prefix`, and logs the results. `specs` are the configured ports.
pub fn recover<'a>(prefix: &Path, specs: impl Iterator<Item = &'a Spec>) {
    let journals = journals(prefix);
    if journals.is_empty() {
        return;
    }
    let configured: Vec<PathBuf> = specs.filter_map(|spec| Some(netns_of(spec)?.path())).collect();
    for (journal, inode) in journals {
        let path = journal.display().to_string();
        match recover_in(&configured, inode, journal) {
            Ok(Recovered::Restored(interface)) => tracing::warn!(
                "interface {interface} has its addresses and routes back: a daemon and its guardian had died"
            ),
            Ok(Recovered::Gone(interface)) => {
                tracing::warn!("interface {interface} is gone: the addresses in {path} are discarded");
            }
            Ok(Recovered::EarlierBoot) => {
                tracing::info!("{path} is from before the last boot, and is removed")
            }
            Ok(Recovered::Nothing) => {}
            Err(error) => tracing::error!("recovering the host's addresses: {error}"),
        }
    }
}

fn netns_of(spec: &Spec) -> Option<&Netns> {
    match spec {
        Spec::Netdev(options) => options.netns.as_ref(),
        _ => None,
    }
}

/// Returns the journals with the inodes of their namespaces.
fn journals(prefix: &Path) -> Vec<(PathBuf, u64)> {
    let (Some(directory), Some(start)) = (prefix.parent(), prefix.file_name().and_then(|name| name.to_str()))
    else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let (inode, index) =
                name.to_str()?.strip_prefix(start)?.strip_suffix(JOURNAL)?.split_once('-')?;
            index.parse::<u32>().ok()?;
            Some((entry.path(), inode.parse().ok()?))
        })
        .collect();
    found.sort();
    found
}

fn recover_in(configured: &[PathBuf], inode: u64, journal: PathBuf) -> Result<Recovered, OpenError> {
    let recover = move || hostnet::recover(&journal).map_err(|error| OpenError(error.to_string()));
    // The library refuses the journal of a namespace that is not found, and names it.
    match namespace(configured, inode) {
        None => netns::run_for(LIMIT, recover),
        Some(netns) => netns::run_for(LIMIT, move || {
            let file = netns::open(&netns)?;
            netns::enter(&netns, std::os::fd::AsFd::as_fd(&file))?;
            recover()
        }),
    }
}

/// Returns another namespace than the calling thread's, by the inode of its file.
fn namespace(configured: &[PathBuf], inode: u64) -> Option<Netns> {
    let is = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|file| file.ino() == inode);
    if is(&PathBuf::from("/proc/thread-self/ns/net")) {
        return None;
    }
    let listed = |folder: &str, below: &'static str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(move |entry| entry.path().join(below))
    };
    let named = listed("/run/netns", "");
    let all = configured.iter().cloned().chain(named).chain(listed("/proc", "ns/net"));
    all.map(trimmed).find(is).map(Netns::Path)
}

/// Removes the slash that joining an empty path appends.
fn trimmed(path: PathBuf) -> PathBuf {
    path.components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_are_found_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "ctl-host-7-2.journal",
            "ctl-host-7-2.journal.lock",
            "ctl-host-x-2.journal",
            "b-host-7-2.journal",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let prefix = folder.path().join("ctl-host-");
        assert_eq!(journals(&prefix), [(folder.path().join("ctl-host-7-2.journal"), 7)]);
        assert_eq!(journals(&folder.path().join("none/ctl")), []);
    }

    #[test]
    fn namespaces_are_found_by_their_inodes() {
        let own = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        assert_eq!(namespace(&[], own), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("blue");
        std::fs::write(&file, "").unwrap();
        let inode = std::fs::metadata(&file).unwrap().ino();
        assert_eq!(namespace(std::slice::from_ref(&file), inode), Some(Netns::Path(file)));
    }
}
