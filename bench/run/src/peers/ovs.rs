//! Open vSwitch with DPDK, or mswitch in its daemon's place: a private daemon and database, one thread, a bridge per wire.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Peer, START, Site, Switch, TABLE, Work, mswitch, shown};
use crate::error::{Error, Result};
use crate::fingerprint::fingerprint;
use crate::lab::{Process, Stream, output};
use crate::scenarios::{Attachment, Topology};

const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Name of DPDK's runtime folder, which it leaves behind.
const PREFIX: &str = "mswitch-bench-ovs";
/// Oldest version with the counters that are read.
const OLDEST: u32 = 2;

/// Flows from port to port, or a learning switch.
struct Ovs {
    learns: bool,
    /// The program `mswitch` beside which is its `ovs-vswitchd`; `None` for Open vSwitch's own.
    mswitch: Option<PathBuf>,
}

pub(super) fn peers() -> Vec<Box<dyn Peer>> {
    let of = |learns| -> Box<dyn Peer> { Box::new(Ovs { learns, mswitch: None }) };
    vec![of(false), of(true)]
}

/// mswitch, configured by the same commands; `program` is `mswitch`.
pub(super) fn in_its_place(program: &Path) -> Vec<Box<dyn Peer>> {
    let of = |learns| -> Box<dyn Peer> { Box::new(Ovs { learns, mswitch: Some(program.to_owned()) }) };
    vec![of(false), of(true)]
}

impl Ovs {
    /// Options of the daemon, one per word of `ovs-vsctl set Open_vSwitch .`.
    fn options(site: &Site<'_>) -> Vec<String> {
        let mask = |cpu: usize| format!("0x{:x}", 1u128.checked_shl(cpu as u32).unwrap_or(0));
        vec![
            "other_config:dpdk-init=true".into(),
            format!("other_config:pmd-cpu-mask={}", mask(site.cpus.switch)),
            format!("other_config:dpdk-lcore-mask={}", mask(site.cpus.generator)),
            "other_config:dpdk-socket-mem=512".into(),
            format!("other_config:dpdk-extra=--no-pci --in-memory --file-prefix={PREFIX}"),
        ]
    }

    /// Words of `ovs-vsctl` that make the bridges and ports.
    fn bridges(&self, site: &Site<'_>) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        for (wire, (a, b)) in site.topology.wires.iter().enumerate() {
            if wire > 0 {
                words.push("--".into());
            }
            words.extend(["add-br".into(), format!("w{wire}"), "--".into()]);
            words.extend(["set".into(), "bridge".into(), format!("w{wire}"), "datapath_type=netdev".into()]);
            if site.topology.stations > 1 {
                words.push(format!("other_config:mac-table-size={TABLE}"));
            }
            for (number, port) in [*a, *b].into_iter().enumerate() {
                let name = self.port(site, port);
                words.extend(["--".into(), "add-port".into(), format!("w{wire}"), name.clone()]);
                words.extend(["--".into(), "set".into(), "Interface".into(), name]);
                words.push(format!("ofport_request={}", number + 1));
                words.extend(self.interface(site, port));
            }
        }
        words
    }

    /// Name of a port: that of the network device where mswitch has one.
    fn port(&self, site: &Site<'_>, port: usize) -> String {
        match site.topology.ports.get(port) {
            Some(Attachment::Veth) if self.mswitch.is_some() => site.interface(port),
            _ => format!("p{port}"),
        }
    }

    fn interface(&self, site: &Site<'_>, port: usize) -> Vec<String> {
        let device = |device: String| vec!["type=dpdk".into(), format!("options:dpdk-devargs={device}")];
        match site.topology.ports.get(port) {
            Some(Attachment::Memif) if self.mswitch.is_some() => {
                vec!["type=memif".into(), format!("options:socket={}", site.socket(port).display())]
            }
            Some(Attachment::Veth) if self.mswitch.is_some() => vec!["type=afxdp".into()],
            Some(Attachment::Memif) => {
                let socket = site.socket(port);
                let mut words = device(format!(
                    "net_memif{port},role=server,id=0,rsize=11,socket={},socket-abstract=no",
                    socket.display()
                ));
                words.push(format!("options:n_rxq={}", site.topology.queues()));
                words
            }
            // Its socket has the port's name, in OVS_RUNDIR.
            Some(Attachment::VhostUser) => vec!["type=dpdkvhostuser".into()],
            Some(Attachment::Veth) | None => {
                device(format!("net_af_xdp{port},iface={},start_queue=0,queue_count=1", site.interface(port)))
            }
        }
    }

    fn with_environment(mut command: Command, folder: &Path) -> Command {
        for variable in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR"] {
            command.env(variable, folder);
        }
        command
    }

    fn database(site: &Site<'_>) -> Command {
        let mut command = Command::new("ovsdb-server");
        command.arg(site.folder.join("conf.db"));
        command.arg(format!("--remote=punix:{}", site.folder.join("db.sock").display()));
        command.arg(format!("--unixctl={}", site.folder.join("db.ctl").display()));
        Ovs::with_environment(command, &site.folder)
    }

    fn program(&self) -> PathBuf {
        self.mswitch.as_ref().map_or_else(|| DAEMON.into(), |mswitch| mswitch.with_file_name("ovs-vswitchd"))
    }

    fn daemon(&self, site: &Site<'_>) -> Command {
        let mut command = site.command(self.program());
        command.arg(format!("unix:{}", site.folder.join("db.sock").display()));
        command.arg(format!("--unixctl={}", site.folder.join("ctl").display()));
        Ovs::with_environment(command, &site.folder)
    }

    fn vsctl(site: &Site<'_>, words: &[String]) -> Command {
        let mut command = Command::new("ovs-vsctl");
        command.arg(format!("--db=unix:{}", site.folder.join("db.sock").display()));
        command.args(words);
        Ovs::with_environment(command, &site.folder)
    }

    /// Flows from port to port, for each bridge.
    fn flows(&self, site: &Site<'_>) -> Vec<Command> {
        if self.learns {
            return Vec::new();
        }
        let mut commands = Vec::new();
        for wire in 0..site.topology.wires.len() {
            let bridge = format!("unix:{}", site.folder.join(format!("w{wire}.mgmt")).display());
            for words in [
                &["del-flows", &bridge][..],
                &["add-flow", &bridge, "in_port=1,actions=output:2"],
                &["add-flow", &bridge, "in_port=2,actions=output:1"],
            ] {
                let mut command = Command::new("ovs-ofctl");
                command.args(words);
                commands.push(Ovs::with_environment(command, &site.folder));
            }
        }
        commands
    }

    fn set(site: &Site<'_>) -> Command {
        let mut words: Vec<String> = ["--no-wait", "set", "Open_vSwitch", "."].map(String::from).into();
        words.extend(Ovs::options(site));
        Ovs::vsctl(site, &words)
    }
}

impl Peer for Ovs {
    fn name(&self) -> &str {
        match (self.mswitch.is_some(), self.learns) {
            (false, false) => "ovs",
            (false, true) => "ovs-learning",
            (true, false) => "mswitch-ovs",
            (true, true) => "mswitch-ovs-learning",
        }
    }

    fn about(&self) -> &str {
        match (self.mswitch.is_some(), self.learns) {
            (false, false) => "Open vSwitch with DPDK, flows from port to port",
            (false, true) => "Open vSwitch with DPDK, action NORMAL",
            (true, false) => "mswitch in the place of Open vSwitch's daemon, flows from port to port",
            (true, true) => "mswitch in the place of Open vSwitch's daemon, action NORMAL",
        }
    }

    fn version(&self) -> Result<String> {
        let daemon = self.program();
        let daemon = daemon.to_string_lossy();
        if self.mswitch.is_some() && !on_path(&daemon) {
            return Err(Error::new(format!(
                "{daemon} is missing: cargo build --release -p mswitch-vswitchd"
            )));
        }
        let programs = [&daemon, "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"];
        for program in programs {
            if !on_path(program) {
                return Err(Error::new(format!(
                    "{program} is missing; on Debian: apt-get install openvswitch-switch-dpdk"
                )));
            }
        }
        if !Path::new(SCHEMA).exists() {
            return Err(Error::new(format!(
                "{SCHEMA} is missing; on Debian: apt-get install openvswitch-common"
            )));
        }
        let version = output(Command::new(&*daemon).arg("--version"))?;
        if self.mswitch.is_some() {
            return Ok(format!("{}, program {:08x}", version.trim(), fingerprint(Path::new(&*daemon))?));
        }
        version_of(&version)
    }

    /// Its memif ports need clients with two queues, and DPDK's AF_XDP driver has one on veth.
    fn supports(&self, topology: &Topology) -> bool {
        self.mswitch.is_some() || !(topology.has(Attachment::Memif) && topology.has(Attachment::Veth))
    }

    fn learns(&self) -> bool {
        self.learns
    }

    fn huge_pages(&self) -> u64 {
        if self.mswitch.is_some() {
            return 0;
        }
        // 512 MiB, and what DPDK takes on the way.
        320
    }

    fn commands(&self, site: &Site<'_>) -> Vec<String> {
        let folder = &site.folder;
        let mut lines = vec![
            "export OVS_RUNDIR=DIR OVS_DBDIR=DIR OVS_LOGDIR=DIR".to_owned(),
            format!("ovsdb-tool create DIR/conf.db {SCHEMA}"),
            shown(&Ovs::database(site), folder),
            shown(&Ovs::set(site), folder),
            shown(&self.daemon(site), folder),
            shown(&Ovs::vsctl(site, &self.bridges(site)), folder),
        ];
        lines.extend(self.flows(site).iter().map(|command| shown(command, folder)));
        lines
    }

    fn start(&self, site: &Site<'_>) -> Result<Box<dyn Switch>> {
        if self.mswitch.is_none() {
            site.lab.owns(&format!("/run/dpdk/{PREFIX}"))?;
        }
        let mut create = Command::new("ovsdb-tool");
        create.arg("create").arg(site.folder.join("conf.db")).arg(SCHEMA);
        output(&mut create)?;
        let mut database = site.lab.start("ovsdb-server", Ovs::database(site), Stream::Log)?;
        let socket = site.folder.join("db.sock");
        database.until("database socket", START, |_| Ok(socket.exists()))?;
        output(&mut Ovs::vsctl(site, &["--no-wait".into(), "init".into()]))?;
        output(&mut Ovs::set(site))?;
        let mut process = site.lab.start(self.name(), self.daemon(site), Stream::Log)?;
        let control = site.folder.join("ctl");
        process.until("control socket", START, |_| Ok(control.exists()))?;
        // The command waits for the daemon, which may die over it.
        let mut bridges: Vec<String> = vec![format!("--timeout={}", START.as_secs())];
        bridges.extend(self.bridges(site));
        output(&mut Ovs::vsctl(site, &bridges)).map_err(|error| process.failure(&error.to_string()))?;
        site.sockets_exist(&mut process)?;
        let trouble = process.log().lines().rfind(|line| line.contains("|ERR|")).map(str::to_owned);
        if let Some(line) = trouble {
            return Err(Error::new(format!("{}: {line}", self.name())));
        }
        for mut flow in self.flows(site) {
            output(&mut flow)?;
        }
        match &self.mswitch {
            None => Ok(Box::new(Running { process, _database: database, control })),
            Some(program) => {
                let control = site.folder.join("mswitch.sock");
                let running = mswitch::Running::new(process, program.clone(), control, site)?;
                Ok(Box::new(InItsPlace { running, _database: database }))
            }
        }
    }
}

/// The versions of Open vSwitch and DPDK in the output of `--version`.
fn version_of(text: &str) -> Result<String> {
    let after = |mark: &str| {
        let rest = text.lines().find_map(|line| line.split_once(mark))?.1;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let (Some(ovs), Some(dpdk)) = (after("(Open vSwitch) "), after("DPDK ")) else {
        return Err(Error::new(format!(
            "{DAEMON} is built without DPDK, or is not Open vSwitch: {}",
            text.trim()
        )));
    };
    let major: u32 = ovs.split('.').next().and_then(|digits| digits.parse().ok()).unwrap_or(0);
    if major < OLDEST {
        return Err(Error::new(format!("Open vSwitch {ovs} is too old (expected {OLDEST}.0 or later)")));
    }
    Ok(format!("Open vSwitch {ovs}, DPDK {dpdk}"))
}

/// Whether a program exists: at its path, or on the PATH.
pub fn on_path(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A running daemon with its database.
struct Running {
    process: Process,
    _database: Process,
    control: PathBuf,
}

impl Running {
    fn ask(&self, command: &str) -> Result<String> {
        output(Command::new("ovs-appctl").arg("-t").arg(&self.control).args(["--timeout=10", command]))
    }
}

impl Switch for Running {
    fn pid(&self) -> Option<u32> {
        Some(self.process.pid())
    }

    fn mark(&mut self) -> Result<()> {
        self.ask("dpif-netdev/pmd-stats-clear").map(drop)
    }

    fn work(&mut self) -> Result<Work> {
        Ok(work_of(&self.ask("dpif-netdev/pmd-stats-show")?))
    }

    fn must_run(&mut self) -> Result<()> {
        self.process.must_run()
    }
}

/// mswitch in the daemon's place, with its database.
struct InItsPlace {
    running: mswitch::Running,
    _database: Process,
}

impl Switch for InItsPlace {
    fn pid(&self) -> Option<u32> {
        self.running.pid()
    }

    fn mark(&mut self) -> Result<()> {
        self.running.mark()
    }

    fn work(&mut self) -> Result<Work> {
        self.running.work()
    }

    fn must_run(&mut self) -> Result<()> {
        self.running.must_run()
    }
}

/// Reads `pmd-stats-show`; the poll thread comes first. Its batches are those that it sends.
fn work_of(text: &str) -> Work {
    let thread = text.split("main thread").next().unwrap_or_default();
    let number = |name: &str| -> Option<f64> {
        let line = thread.lines().map(str::trim).find(|line| line.starts_with(name))?;
        line.split_once(':')?.1.split_whitespace().next()?.parse().ok()
    };
    let (idle, busy) = (number("idle cycles"), number("processing cycles"));
    Work {
        cycles_per_packet: number("avg processing cycles per packet"),
        packets_per_batch: number("avg. packets per output batch"),
        busy_share: idle.zip(busy).map(|(idle, busy)| busy / (busy + idle)).filter(|share| share.is_finite()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let text = "ovs-vswitchd (Open vSwitch) 3.1.0\nDPDK 22.11.11\n";
        assert_eq!(version_of(text).unwrap(), "Open vSwitch 3.1.0, DPDK 22.11.11");
        assert!(version_of("ovs-vswitchd (Open vSwitch) 3.1.0\n").is_err());
        let old = version_of("ovs-vswitchd (Open vSwitch) 1.9.3\nDPDK 1.7\n").unwrap_err().to_string();
        assert_eq!(old, "Open vSwitch 1.9.3 is too old (expected 2.0 or later)");
    }

    #[test]
    fn counters_are_those_of_the_poll_thread() {
        let text = "pmd thread numa_id 0 core_id 0:\n  packets received: 100\n  avg. packets per output batch: 31.5\n  \
                    idle cycles: 1000 (10.00%)\n  processing cycles: 9000 (90.00%)\n  avg cycles per packet: 100.00 \
                    (10000/100)\n  avg processing cycles per packet: 90.00 (9000/100)\nmain thread:\n  packets received: 0\n";
        let expected =
            Work { cycles_per_packet: Some(90.0), packets_per_batch: Some(31.5), busy_share: Some(0.9) };
        assert_eq!(work_of(text), expected);
        assert_eq!(work_of("main thread:\n"), Work::default());
    }
}
