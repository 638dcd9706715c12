//! A host with a database of its own and the daemon under test.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::{Netns, Running, binary, until};

pub(crate) const LIMIT: Duration = Duration::from_secs(20);
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A host: a namespace in which the daemon runs, with a database in a folder.
pub(crate) struct Host {
    // Dropped in this order: guests' ends of interfaces go with the host's.
    server: Option<Running>,
    pub(crate) netns: Netns,
    folder: tempfile::TempDir,
}

impl Host {
    pub(crate) fn new() -> Self {
        let host = Host { server: None, netns: Netns::new().unwrap(), folder: tempfile::tempdir().unwrap() };
        let created = host.command("ovsdb-tool").args(["create", "conf.db", SCHEMA]).status();
        assert!(created.expect("ovsdb-tool is installed (openvswitch-common)").success());
        let mut host = host;
        host.start_server();
        host.vsctl(&["--no-wait", "init"]);
        host
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program in the folder and the namespace, with Open vSwitch's directories there.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.netns.command(&[program]);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, self.folder.path());
        }
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn start_server(&mut self) {
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

    pub(crate) fn stop_server(&mut self) {
        self.server.take().unwrap().kill().unwrap();
    }

    /// The program under test.
    pub(crate) fn vswitchd(&self) -> Command {
        let program = binary("ovs-vswitchd", "MSWITCH_VSWITCHD_BIN").unwrap();
        self.command(program.to_str().unwrap())
    }

    /// Starts the daemon in the foreground, and waits until it has applied the configuration.
    pub(crate) fn start(&self) -> Running {
        let mut command = self.vswitchd();
        let daemon = Running::start(command.args(["--pidfile", "--log-file", "-vconsole:off"])).unwrap();
        until("an answer of the daemon", LIMIT, || {
            Ok((!self.get("Open_vSwitch", ".", "ovs_version").contains("[]")).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}: {}", self.log()));
        daemon
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("ovs-vswitchd.log")).unwrap_or_default()
    }

    /// Exit code, standard output and standard error of a tool.
    pub(crate) fn tool(&self, program: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(program).args(arguments).output();
        let output = output.expect("Open vSwitch's tools are installed (openvswitch-switch)");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Runs `ovs-vsctl`, which waits for the daemon; nothing is said on standard error.
    pub(crate) fn vsctl(&self, arguments: &[&str]) -> String {
        let (code, output, error) = self.tool("ovs-vsctl", &[&["-t", "20"], arguments].concat());
        assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}: {}", self.log());
        output
    }

    pub(crate) fn appctl(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.tool("ovs-appctl", &[&["-T", "20", "-t", "ovs-vswitchd"], arguments].concat())
    }

    pub(crate) fn get(&self, table: &str, row: &str, column: &str) -> String {
        self.vsctl(&["--no-wait", "get", table, row, column]).trim().trim_matches('"').into()
    }

    pub(crate) fn until_is(&self, row: &str, column: &str, wanted: &str) {
        until(&format!("{row}.{column} = {wanted}"), LIMIT, || {
            Ok((self.get("Interface", row, column) == wanted).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error}; it is {}", self.get("Interface", row, column)));
    }

    /// A guest with an address, whose interface has its other end `name` in the host.
    pub(crate) fn guest(&self, name: &str, address: &str) -> Netns {
        let guest = Netns::new().unwrap();
        let (here, there) = (self.netns.name(), guest.name());
        e2e::output(
            "ip",
            &["link", "add", name, "netns", here, "type", "veth", "peer", "name", "eth0", "netns", there],
        )
        .unwrap();
        self.netns.run(&["ip", "link", "set", name, "up"]).unwrap();
        guest.run(&["ip", "address", "add", address, "dev", "eth0"]).unwrap();
        guest.run(&["ip", "link", "set", "eth0", "up"]).unwrap();
        guest
    }

    pub(crate) fn pid(&self) -> i32 {
        std::fs::read_to_string(self.path("ovs-vswitchd.pid")).unwrap().trim().parse().unwrap()
    }

    pub(crate) fn mswitch(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let program = binary("mswitch", "MSWITCH_BIN").unwrap();
        let socket = self.path("mswitch.sock");
        let all = [&["--socket", socket.to_str().unwrap()], arguments].concat();
        self.tool(program.to_str().unwrap(), &all)
    }
}
