//! Peers: the switches that are measured, one file each. A peer starts a switch for a topology and reads its counters.
//!
//! Sockets have one place for all peers, [`Site::socket`], and interfaces one name, [`Site::interface`], so that what
//! drives a switch knows nothing about it.

mod absent;
mod before;
mod linux_bridge;
mod mswitch;
mod ovs;
mod testpmd;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cpus::Cpus;
use crate::error::Result;
use crate::lab::{Lab, Namespace, Process};
use crate::scenarios::{Attachment, Topology};

/// Stations for which a learning switch has room where there are many: more than there are, for all peers alike.
const TABLE: u32 = 32_768;

/// Time allowed for a switch to start.
const START: Duration = Duration::from_secs(30);

/// Where a switch is to run, and what it is to connect.
#[derive(Debug)]
pub struct Site<'a> {
    /// Starts and ends programs.
    pub lab: &'a Lab,
    /// Ports and wires.
    pub topology: &'a Topology,
    /// The switch's folder, empty.
    pub folder: PathBuf,
    /// The namespace of the switch, if there are interfaces.
    pub namespace: Option<&'a Namespace>,
    /// CPUs.
    pub cpus: Cpus,
}

impl Site<'_> {
    /// Path of a port's socket.
    pub fn socket(&self, port: usize) -> PathBuf {
        self.folder.join(format!("p{port}"))
    }

    /// Name of a port's interface in the switch's namespace.
    pub fn interface(&self, port: usize) -> String {
        format!("v{port}")
    }

    /// A command that runs where the switch belongs.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        match self.namespace {
            Some(namespace) => namespace.command(&program.as_ref().to_string_lossy()),
            None => Command::new(program.as_ref()),
        }
    }

    /// Waits until all sockets exist.
    fn sockets_exist(&self, switch: &mut Process) -> Result<()> {
        let sockets: Vec<PathBuf> = self
            .topology
            .ports
            .iter()
            .enumerate()
            .filter(|(_, kind)| **kind != Attachment::Veth)
            .map(|(port, _)| self.socket(port))
            .collect();
        switch.until("sockets", START, |_| Ok(sockets.iter().all(|socket| socket.exists())))
    }
}

/// The work of a switch between two looks at its counters. A switch that does not tell leaves fields empty.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Cycles of the time stamp counter for forwarding a packet once, without empty polls.
    pub cycles_per_packet: Option<f64>,
    /// Mean number of packets in a batch.
    pub packets_per_batch: Option<f64>,
    /// Share of the switch's thread that was not spent on empty polls and sleep.
    pub busy_share: Option<f64>,
}

/// A running switch. Dropping it ends it.
pub trait Switch {
    /// The process whose CPU time counts; `None` for the kernel.
    fn pid(&self) -> Option<u32>;
    /// Begins a measurement of work.
    fn mark(&mut self) -> Result<()>;
    /// Returns the work since the mark.
    fn work(&mut self) -> Result<Work>;
    /// Fails with a reason if the switch has died.
    fn must_run(&mut self) -> Result<()>;
}

/// A kind of switch.
pub trait Peer {
    /// Name on the command line and in reports.
    fn name(&self) -> &str;
    /// One line for people: what it is and how it is configured.
    fn about(&self) -> &str;
    /// Version of the installed program; fails with what is missing and how to install it, or what version is needed.
    fn version(&self) -> Result<String>;
    /// Whether it can run such a topology.
    fn supports(&self, topology: &Topology) -> bool;
    /// Whether it learns addresses: its stations announce themselves first.
    fn learns(&self) -> bool;
    /// Whether it counts its cycles. If it polls and does not, cycles per packet at saturation are all of its core's.
    fn counts(&self) -> bool {
        true
    }
    /// Huge pages of 2 MiB that it needs.
    fn huge_pages(&self) -> u64 {
        0
    }
    /// Command lines that configure and start it, for the report; `DIR` stands for its folder.
    fn commands(&self, site: &Site<'_>) -> Vec<String>;
    /// Starts it.
    fn start(&self, site: &Site<'_>) -> Result<Box<dyn Switch>>;
}

/// All peers. `mswitch` is the program for the peers of that name.
pub fn all(mswitch: &Path) -> Vec<Box<dyn Peer>> {
    let mut peers: Vec<Box<dyn Peer>> = Vec::new();
    peers.extend(mswitch::peers(mswitch));
    peers.extend(ovs::in_its_place(mswitch));
    peers.extend(ovs::peers());
    peers.push(Box::new(testpmd::Testpmd));
    peers.push(Box::new(linux_bridge::LinuxBridge));
    peers
}

pub use absent::{Unsupported, unsupported};
pub(crate) use before::{before, is_before, suffixed};
pub use ovs::on_path as installed;

/// A command line as a shell would read it, with the folder replaced by `DIR`.
fn shown(command: &Command, folder: &Path) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let folder = folder.to_string_lossy();
    let words = words.map(|word| {
        let word = word.to_string_lossy().replace(&*folder, "DIR");
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:@+".contains(c);
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{word}'") }
    });
    words.collect::<Vec<_>>().join(" ")
}
