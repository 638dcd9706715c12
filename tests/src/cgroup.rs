//! Memory cgroups.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Error, Result, unique, until};

/// A memory cgroup, of the version that the machine uses (1 or 2). Drop removes it; its processes must have ended.
#[derive(Debug)]
pub struct Cgroup {
    directory: PathBuf,
    version: u8,
}

impl Cgroup {
    /// Creates a cgroup with a limit in bytes.
    pub fn new(limit: u64) -> Result<Cgroup> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (parent, version) = if v1.join("memory.limit_in_bytes").exists() {
            // Inside our own cgroup, whose limit applies too.
            let own = fs::read_to_string("/proc/self/cgroup")?;
            let own = own.lines().find_map(|line| line.split_once(":memory:/")).map_or("", |(_, own)| own);
            let below = v1.join(own);
            (if below.exists() { below } else { v1.into() }, 1)
        } else {
            // A cgroup that holds processes cannot have limited children, so the new one is a child of the root.
            let root = PathBuf::from("/sys/fs/cgroup");
            fs::write(root.join("cgroup.subtree_control"), "+memory")
                .map_err(Error::while_doing("cgroup"))?;
            (root, 2)
        };
        let directory = parent.join(unique("ms"));
        fs::create_dir(&directory).map_err(Error::while_doing("cannot create a memory cgroup"))?;
        let cgroup = Cgroup { directory, version };
        cgroup.write(["memory.limit_in_bytes", "memory.max"], limit)?;
        Ok(cgroup)
    }

    /// File that takes the ids of processes to move in.
    pub fn procs(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// Moves a process in. Its earlier allocations are not charged to the cgroup.
    pub fn add(&self, pid: u32) -> Result<()> {
        fs::write(self.procs(), pid.to_string())
            .map_err(Error::while_doing("cannot move a process into a cgroup"))
    }

    /// Bytes charged to the cgroup.
    pub fn used(&self) -> Result<u64> {
        self.number(["memory.usage_in_bytes", "memory.current"])
    }

    /// Number of processes killed for lack of memory.
    pub fn killed(&self) -> Result<u64> {
        let text =
            fs::read_to_string(self.directory.join(self.name(["memory.oom_control", "memory.events"])))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|n| n.parse().ok());
        count.ok_or_else(|| Error(format!("no count of kills in {text}")))
    }

    fn name<'a>(&self, [v1, v2]: [&'a str; 2]) -> &'a str {
        if self.version == 1 { v1 } else { v2 }
    }

    fn write(&self, names: [&str; 2], value: u64) -> Result<()> {
        let path = self.directory.join(self.name(names));
        fs::write(path, value.to_string()).map_err(Error::while_doing("cannot set a cgroup's limit"))
    }

    fn number(&self, names: [&str; 2]) -> Result<u64> {
        let text = fs::read_to_string(self.directory.join(self.name(names)))?;
        text.trim().parse().map_err(|_| Error(format!("`{text}` is not a number")))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes have ended; the kernel may need a moment more.
        let removed = || Ok(fs::remove_dir(&self.directory).ok());
        if let Err(error) = until("the cgroup to be removed", Duration::from_secs(5), removed) {
            eprintln!("{}: {error}", self.directory.display());
        }
    }
}
