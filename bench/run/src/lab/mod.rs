//! The laboratory: processes, namespaces, files and huge pages of a benchmark, all in one place that is emptied.
//!
//! | module | idea |
//! | --- | --- |
//! | `records` | what exists at the moment, on disk, for a benchmark that is killed |
//! | `removal` | takes it away again |
//! | `process` | a program that a benchmark runs |
//! | `huge_pages` | the kernel's pool of huge pages |
//!
//! Invariants: a machine has one laboratory at a time (a file lock, which the kernel releases with its holder); each
//! thing is recorded before it is made; dropping the laboratory removes all of them.

mod huge_pages;
mod process;
mod records;
mod removal;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::FlockOperation;

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

pub use huge_pages::free as free_huge_pages;
pub use process::{Process, Stream, output};
use records::{Record, Records};

/// Folder of the laboratory: short, because paths of sockets have at most 107 bytes.
const FOLDER: &str = "/run/mswitch-bench";

/// The laboratory.
#[derive(Debug)]
pub struct Lab {
    folder: PathBuf,
    records: Records,
    /// Its lock is held as long as this is open.
    _lock: File,
    interrupt: Interrupt,
    /// What an earlier benchmark had left behind, in words; empty if nothing.
    found: Vec<String>,
}

impl Lab {
    /// Opens the laboratory, which must not be in use, and removes what a killed benchmark has left behind.
    pub fn open(interrupt: &Interrupt) -> Result<Lab> {
        Lab::open_at(Path::new(FOLDER), interrupt)
    }

    pub(crate) fn open_at(folder: &Path, interrupt: &Interrupt) -> Result<Lab> {
        let cannot = |operation: &str| Error::while_doing(format!("cannot {operation} {}", folder.display()));
        std::fs::create_dir_all(folder).map_err(cannot("create"))?;
        let path = folder.join("lock");
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(cannot("lock"))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            // The name of the holder is a help, not a condition.
            let _ = lock.read_to_string(&mut holder);
            return Err(Error::new(format!(
                "another benchmark is running on this machine (process {}); wait for its end: two would disturb each other",
                holder.trim()
            )));
        }
        let (records, left) = Records::open(&folder.join("records.jsonl"))?;
        let found = left.iter().filter(|record| removal::remains(record)).map(Record::to_string).collect();
        for record in left.iter().rev() {
            removal::remove(record);
        }
        empty(folder);
        records.clear()?;
        lock.set_len(0).and_then(|()| lock.rewind()).map_err(cannot("lock"))?;
        write!(lock, "{}", std::process::id()).map_err(cannot("lock"))?;
        Ok(Lab { folder: folder.to_owned(), records, _lock: lock, interrupt: interrupt.clone(), found })
    }

    /// Removed by `open`, in words.
    pub fn found(&self) -> &[String] {
        &self.found
    }

    /// The flag of the signals.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A path for a socket, file or folder, which goes with the laboratory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes an empty folder; an older one of that name is removed.
    pub fn fresh_folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        removal::remove_path(&path);
        std::fs::create_dir_all(&path).map_err(Error::while_doing(path.display()))?;
        Ok(path)
    }

    /// Records a file or folder outside the laboratory that a program is about to make.
    pub fn owns(&self, path: &str) -> Result<()> {
        self.records.add(Record::Path { path: path.to_owned() })
    }

    /// Starts a program, whose output goes to the file `NAME.log` of the laboratory unless `stream` says otherwise.
    pub fn start(&self, name: &str, command: Command, stream: Stream) -> Result<Process> {
        process::start(
            &self.records,
            &self.interrupt,
            &self.path(&format!("{name}.log")),
            name,
            command,
            stream,
        )
    }

    /// Creates a network namespace with a loopback device, without IPv6; returns its name.
    pub fn namespace(&self, name: &str) -> Result<Namespace> {
        let name = format!("mswitch-bench-{name}");
        self.records.add(Record::Namespace { name: name.clone() })?;
        // A namespace of that name is of an earlier unit.
        removal::remove_namespace(&name);
        output(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Namespace { name };
        // Nothing but the load.
        let quiet = "net.ipv6.conf.default.disable_ipv6=1";
        output(namespace.command("sysctl").args(["-qw", quiet]))?;
        Ok(namespace)
    }

    /// Makes sure that this many huge pages of 2 MiB are free; pages added to the pool are returned at the end.
    pub fn huge_pages(&self, count: u64) -> Result<()> {
        huge_pages::reserve(&self.records, &self.interrupt, count)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for record in self.records.all().iter().rev() {
            removal::remove(record);
        }
        // Best effort: if this fails, the next benchmark tries again.
        let _ = self.records.clear();
        empty(&self.folder);
        removal::remove_path(&self.folder.join("records.jsonl"));
        removal::remove_path(&self.folder.join("lock"));
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// A network namespace of the laboratory.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs a program inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        removal::remove_namespace(&self.name);
    }
}

/// Removes all files of the laboratory but the lock and the records.
fn empty(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name() != "lock" && entry.file_name() != "records.jsonl" {
            removal::remove_path(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_laboratory_is_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("lab");
        let lab = Lab::open_at(&folder, &Interrupt::default()).unwrap();
        let refused = Lab::open_at(&folder, &Interrupt::default()).unwrap_err().to_string();
        assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
        std::fs::write(lab.path("x"), "").unwrap();
        drop(lab);
        assert!(!folder.exists());
    }

    #[test]
    fn what_a_killed_benchmark_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        let folder = folder.path().join("lab");
        let mut lab = Lab::open_at(&folder, &Interrupt::default()).unwrap();
        lab.owns(outside.to_str().unwrap()).unwrap();
        std::fs::write(&outside, "").unwrap();
        let mut sleep = Command::new("sleep");
        sleep.arg("1000");
        let process = lab.start("sleep", sleep, Stream::Log).unwrap();
        let pid = process.pid();
        // As after SIGKILL: neither destructor runs, and the kernel releases the lock.
        std::mem::forget(process);
        let records = std::fs::read_to_string(folder.join("records.jsonl")).unwrap();
        assert_eq!(records.lines().count(), 2, "{records}");
        lab.records = Records::open(&outside.with_extension("other")).unwrap().0;
        std::fs::create_dir_all(&folder).unwrap();
        drop(lab);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("records.jsonl"), records).unwrap();

        let lab = Lab::open_at(&folder, &Interrupt::default()).unwrap();
        assert_eq!(lab.found().len(), 2, "{:?}", lab.found());
        assert!(!outside.exists());
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        assert!(state.contains(") Z "), "{state}");
    }
}
