//! Network namespaces.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::command::{Running, output, succeeded};
use crate::{Error, Result, unique};

/// A network namespace with its loopback up. Dropping it removes it.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// A new one.
    pub fn new() -> Result<Netns> {
        let name = unique("ms");
        output("ip", &["netns", "add", &name])?;
        let netns = Netns { name };
        netns.run(&["ip", "link", "set", "lo", "up"])?;
        Ok(netns)
    }

    /// Its name, as `ip netns` has it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a program in it to its end; it must succeed. Returns what it wrote.
    pub fn run(&self, command: &[&str]) -> Result<String> {
        succeeded(&command.join(" "), self.command(command).stdin(Stdio::null()).output()?)
    }

    /// Starts a program in it whose output is a pipe to us.
    pub fn start(&self, command: &[&str]) -> Result<Running> {
        Running::start(
            self.command(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()),
        )
    }

    /// A program in it, not yet started.
    pub fn command(&self, command: &[&str]) -> Command {
        let mut all = Command::new("ip");
        // `ip netns exec` becomes the program: signals reach it.
        all.args(["netns", "exec", &self.name]).args(command);
        all
    }

    /// Calls `f` on a thread of its own in this namespace.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        let file = File::open(format!("/run/netns/{}", self.name))?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(Error::while_doing("cannot enter the namespace"))?;
                Ok(f())
            });
            thread.join().unwrap_or_else(|_| Err(Error::new("what ran in the namespace panicked")))
        })
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // A namespace that cannot be removed is the next one's problem at most in name, and names are unique.
        let _ = output("ip", &["netns", "del", &self.name]);
    }
}
