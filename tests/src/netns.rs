//! Network namespaces.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::command::{Running, output, succeeded};
use crate::{Error, Result, unique};

/// A network namespace with its loopback interface up. Drop removes it.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// Creates a namespace.
    pub fn new() -> Result<Netns> {
        let name = unique("ms");
        output("ip", &["netns", "add", &name])?;
        let netns = Netns { name };
        netns.run(&["ip", "link", "set", "lo", "up"])?;
        Ok(netns)
    }

    /// Name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a program in the namespace to its end and returns its standard output; a failure is an error.
    pub fn run(&self, command: &[&str]) -> Result<String> {
        succeeded(&command.join(" "), self.command(command).stdin(Stdio::null()).output()?)
    }

    /// Starts a program in the namespace with its output in a pipe to this process.
    pub fn start(&self, command: &[&str]) -> Result<Running> {
        Running::start(
            self.command(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()),
        )
    }

    /// Program in the namespace, not yet started.
    pub fn command(&self, command: &[&str]) -> Command {
        let mut all = Command::new("ip");
        // `ip netns exec` replaces itself by the program, so signals reach it.
        all.args(["netns", "exec", &self.name]).args(command);
        all
    }

    /// Calls `f` in the namespace, on a thread of its own.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        let file = File::open(format!("/run/netns/{}", self.name))?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(Error::while_doing("cannot enter the namespace"))?;
                Ok(f())
            });
            thread.join().unwrap_or_else(|_| Err(Error::new("the function called in the namespace panicked")))
        })
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // Best effort: names are unique, so a namespace left behind harms no later test.
        let _ = output("ip", &["netns", "del", &self.name]);
    }
}
