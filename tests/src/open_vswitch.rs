//! A host with a database of Open vSwitch of its own and `ovs-vswitchd` of mswitch. What fails, fails the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{Netns, Running, binary, until};

/// Time allowed for a change.
pub const LIMIT: Duration = Duration::from_secs(20);
/// Open vSwitch's own daemon, of the package openvswitch-switch.
const OPEN_VSWITCH: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A host: a namespace in which the daemon runs, with a database in a folder.
pub struct Host {
    // Dropped in this order: guests' ends of interfaces go with the host's.
    server: Option<Running>,
    /// The namespace.
    pub netns: Netns,
    folder: tempfile::TempDir,
}

impl Host {
    /// Creates a host with an empty database.
    #[expect(clippy::new_without_default, reason = "it starts a server")]
    pub fn new() -> Self {
        let host = Host { server: None, netns: Netns::new().unwrap(), folder: tempfile::tempdir().unwrap() };
        let created = host.command("ovsdb-tool").args(["create", "conf.db", SCHEMA]).status();
        assert!(created.expect("ovsdb-tool is installed (openvswitch-common)").success());
        let mut host = host;
        host.start_server();
        host.vsctl(&["--no-wait", "init"]);
        host
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program in the folder and the namespace, with Open vSwitch's directories there.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.netns.command(&[program]);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, self.folder.path());
        }
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Starts the database server.
    pub fn start_server(&mut self) {
        let remote = format!("--remote=punix:{}", self.path("db.sock").display());
        let mut command = self.command("ovsdb-server");
        command.args(["--no-chdir", "-vconsole:off", &remote, "conf.db"]);
        self.server = Some(Running::start(&mut command).unwrap());
        until("the database", LIMIT, || {
            let listed = self.command("ovsdb-client").args(["-t", "5", "list-dbs"]).output()?;
            Ok(listed.status.success().then_some(()))
        })
        .unwrap();
    }

    /// Kills the database server.
    pub fn stop_server(&mut self) {
        self.server.take().unwrap().kill().unwrap();
    }

    /// The program under test.
    pub fn vswitchd(&self) -> Command {
        let program = binary("ovs-vswitchd", "MSWITCH_VSWITCHD_BIN").unwrap();
        self.command(program.to_str().unwrap())
    }

    /// Starts the daemon in the foreground, and waits until it has applied the configuration.
    pub fn start(&self) -> Running {
        let mut command = self.vswitchd();
        let daemon = Running::start(command.args(["--pidfile", "--log-file", "-vconsole:off"])).unwrap();
        until("an answer of the daemon", LIMIT, || {
            Ok((!self.get("Open_vSwitch", ".", "ovs_version").contains("[]")).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {}", self.log()));
        daemon
    }

    /// Starts Open vSwitch's own daemon, without the kernel's part; [`Host::vsctl`] waits for it.
    pub fn start_open_vswitch(&self) -> Running {
        let mut command = self.command(OPEN_VSWITCH);
        command.args(["--disable-system", "--pidfile", "--log-file", "-vconsole:off"]);
        Running::start(&mut command).unwrap()
    }

    /// The log of the daemon.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("ovs-vswitchd.log")).unwrap_or_default()
    }

    /// Exit code, standard output and standard error of a tool.
    pub fn tool(&self, program: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(program).args(arguments).output();
        let output = output.expect("Open vSwitch's tools are installed (openvswitch-switch)");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Runs `ovs-vsctl`, which waits for the daemon; nothing is said on standard error.
    pub fn vsctl(&self, arguments: &[&str]) -> String {
        let (code, output, error) = self.tool("ovs-vsctl", &[&["-t", "20"], arguments].concat());
        assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}: {}", self.log());
        output
    }

    /// Runs `ovs-appctl` for the daemon.
    pub fn appctl(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.tool("ovs-appctl", &[&["-T", "20", "-t", "ovs-vswitchd"], arguments].concat())
    }

    /// A column of a row.
    pub fn get(&self, table: &str, row: &str, column: &str) -> String {
        self.vsctl(&["--no-wait", "get", table, row, column]).trim().trim_matches('"').into()
    }

    /// Waits until a column of an interface has a value.
    pub fn until_is(&self, row: &str, column: &str, wanted: &str) {
        until(&format!("{row}.{column} = {wanted}"), LIMIT, || {
            Ok((self.get("Interface", row, column) == wanted).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}; it is {}", self.get("Interface", row, column)));
    }

    /// A guest with an address, whose interface has its other end `name` in the host.
    pub fn guest(&self, name: &str, address: &str) -> Netns {
        let guest = Netns::new().unwrap();
        let (here, there) = (self.netns.name(), guest.name());
        crate::output(
            "ip",
            &["link", "add", name, "netns", here, "type", "veth", "peer", "name", "eth0", "netns", there],
        )
        .unwrap();
        self.netns.run(&["ip", "link", "set", name, "up"]).unwrap();
        guest.run(&["ip", "address", "add", address, "dev", "eth0"]).unwrap();
        guest.run(&["ip", "link", "set", "eth0", "up"]).unwrap();
        guest
    }

    /// Connects the host with another one: their interfaces `name` are the ends of a cable.
    pub fn connect(&self, name: &str, other: &Host) {
        let (here, there) = (self.netns.name(), other.netns.name());
        let peer = ["type", "veth", "peer", "name", name, "netns", there];
        crate::output("ip", &[&["link", "add", name, "netns", here][..], &peer].concat()).unwrap();
        for netns in [&self.netns, &other.netns] {
            netns.run(&["ip", "link", "set", name, "up"]).unwrap();
        }
    }

    /// The process id of the daemon.
    pub fn pid(&self) -> i32 {
        std::fs::read_to_string(self.path("ovs-vswitchd.pid")).unwrap().trim().parse().unwrap()
    }

    /// Runs `mswitch` for the daemon.
    pub fn mswitch(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let program = binary("mswitch", "MSWITCH_BIN").unwrap();
        let socket = self.path("mswitch.sock");
        let all = [&["--socket", socket.to_str().unwrap()], arguments].concat();
        self.tool(program.to_str().unwrap(), &all)
    }

    /// Runs `ovs-ofctl`; nothing is said on standard error.
    pub fn ofctl(&self, arguments: &[&str]) -> String {
        let (code, output, error) = self.tool("ovs-ofctl", &[&["-t", "20"], arguments].concat());
        assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}: {}", self.log());
        output
    }

    /// Waits until the state of the controller of br0 is this.
    pub fn until_connected(&self, wanted: &str) {
        until(&format!("is_connected = {wanted}"), LIMIT, || {
            Ok((self.get("Controller", "br0", "is_connected") == wanted).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {}", self.get("Controller", "br0", "status")));
    }

    /// A learning controller at `target`, which is passive.
    pub fn controller(&self, target: &str) -> Running {
        let mut command = self.command("ovs-testcontroller");
        Running::start(command.args(["-vconsole:off", "--unixctl=none", target])).unwrap()
    }

    /// The pid of the daemon; 0 without a pidfile.
    pub fn present_pid(&self) -> i32 {
        std::fs::read_to_string(self.path("ovs-vswitchd.pid"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or_default()
    }
}
