//! DPDK's testpmd in mode `io`: forwards between ports 0 and 1, 2 and 3, and so on, and does nothing else. The bare
//! reference.

use std::process::Command;

use super::{Peer, START, Site, Switch, Work, shown};
use crate::error::{Error, Result};
use crate::lab::{Process, Stream, output};
use crate::scenarios::{Attachment, Topology};

const PROGRAM: &str = "dpdk-testpmd";
/// Name of its runtime folder, which DPDK leaves behind.
const PREFIX: &str = "mswitch-bench-testpmd";

/// dpdk-testpmd.
pub(super) struct Testpmd;

fn command(site: &Site<'_>) -> Command {
    let mut command = site.command(PROGRAM);
    let (switch, main) = (site.cpus.switch, site.cpus.generator);
    command.args([
        "--lcores",
        &format!("(0)@{main},(1)@{switch}"),
        "--main-lcore",
        "0",
        "--no-pci",
        "--in-memory",
    ]);
    command.arg(format!("--file-prefix={PREFIX}"));
    let queues = site.topology.queues().to_string();
    for (port, kind) in site.topology.ports.iter().enumerate() {
        let socket = site.socket(port);
        let device = match kind {
            Attachment::Memif => {
                format!("net_memif{port},role=server,socket={},socket-abstract=no,rsize=11", socket.display())
            }
            Attachment::VhostUser => format!("net_vhost{port},iface={},queues=1", socket.display()),
            Attachment::Veth => format!("net_af_xdp{port},iface={}", site.interface(port)),
        };
        command.arg("--vdev").arg(device);
    }
    command.args(["--", "-i", "--no-mlockall", "--total-num-mbufs=65536", "--nb-cores=1"]);
    command.args(["--rxq", &queues, "--txq", &queues, "--rxd=2048", "--txd=2048", "--no-flush-rx"]);
    command
}

impl Peer for Testpmd {
    fn name(&self) -> &str {
        "testpmd"
    }

    fn about(&self) -> &str {
        "dpdk-testpmd, mode `io`: forwards between pairs of ports without a look at packets"
    }

    fn version(&self) -> Result<String> {
        if !super::ovs::on_path(PROGRAM) {
            return Err(Error::new(format!("{PROGRAM} is missing; on Debian: apt-get install dpdk-dev")));
        }
        // testpmd has no option for its version, and DPDK's library prints it only at start.
        let package = output(Command::new("dpkg-query").args(["-W", "-f=${Version}", "dpdk"]));
        Ok(package
            .map_or_else(|_| "dpdk-testpmd".into(), |version| format!("dpdk-testpmd {}", version.trim())))
    }

    fn supports(&self, _: &Topology) -> bool {
        true
    }

    fn learns(&self) -> bool {
        false
    }

    fn counts(&self) -> bool {
        false
    }

    fn huge_pages(&self) -> u64 {
        200
    }

    fn commands(&self, site: &Site<'_>) -> Vec<String> {
        vec![shown(&command(site), &site.folder)]
    }

    fn start(&self, site: &Site<'_>) -> Result<Box<dyn Switch>> {
        site.lab.owns(&format!("/run/dpdk/{PREFIX}"))?;
        let mut process = site.lab.start("testpmd", command(site), Stream::Input)?;
        process.until("prompt", START, |process| Ok(process.log().contains("testpmd> ")))?;
        site.sockets_exist(&mut process)?;
        process.command("start")?;
        Ok(Box::new(Running { process }))
    }
}

/// A running testpmd. It forgets the counters of memif ports when clients disconnect, so none are read.
struct Running {
    process: Process,
}

impl Switch for Running {
    fn pid(&self) -> Option<u32> {
        Some(self.process.pid())
    }

    fn mark(&mut self) -> Result<()> {
        Ok(())
    }

    fn work(&mut self) -> Result<Work> {
        Ok(Work::default())
    }

    fn must_run(&mut self) -> Result<()> {
        self.process.must_run()
    }
}
