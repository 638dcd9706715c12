//! The kernel's bridge between veth pairs. It runs in the context of whoever sends, so its CPU time is not its own: the
//! report has the machine's.

use std::process::Command;

use super::{Peer, Site, Switch, Work, shown};
use crate::error::{Error, Result};
use crate::lab::output;
use crate::scenarios::{Attachment, Topology};

/// The kernel's bridge.
pub(super) struct LinuxBridge;

fn commands(site: &Site<'_>) -> Vec<Command> {
    let mut commands = Vec::new();
    let mut ip = |words: &[&str]| {
        let mut command = site.command("ip");
        command.args(["link"]).args(words);
        commands.push(command);
    };
    for (wire, (a, b)) in site.topology.wires.iter().enumerate() {
        let bridge = format!("w{wire}");
        ip(&["add", &bridge, "type", "bridge"]);
        for port in [*a, *b] {
            ip(&["set", &site.interface(port), "master", &bridge]);
        }
        ip(&["set", &bridge, "up"]);
    }
    commands
}

impl Peer for LinuxBridge {
    fn name(&self) -> &str {
        "linux-bridge"
    }

    fn about(&self) -> &str {
        "the kernel's bridge"
    }

    fn version(&self) -> Result<String> {
        if !super::ovs::on_path("ip") {
            return Err(Error::new("ip is missing; on Debian: apt-get install iproute2"));
        }
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        Ok(format!("Linux {}", release.map_err(Error::while_doing("kernel"))?.trim()))
    }

    fn supports(&self, topology: &Topology) -> bool {
        topology.ports.iter().all(|kind| *kind == Attachment::Veth)
    }

    fn learns(&self) -> bool {
        true
    }

    fn commands(&self, site: &Site<'_>) -> Vec<String> {
        commands(site).iter().map(|command| shown(command, &site.folder)).collect()
    }

    fn start(&self, site: &Site<'_>) -> Result<Box<dyn Switch>> {
        for mut command in commands(site) {
            output(&mut command)?;
        }
        Ok(Box::new(Running))
    }
}

/// A bridge in a namespace, which goes with it.
struct Running;

impl Switch for Running {
    fn pid(&self) -> Option<u32> {
        None
    }

    fn mark(&mut self) -> Result<()> {
        Ok(())
    }

    fn work(&mut self) -> Result<Work> {
        Ok(Work::default())
    }

    fn must_run(&mut self) -> Result<()> {
        Ok(())
    }
}
