//! Open vSwitch: `ovsdb-server` and `ovs-vswitchd` of its own in a temporary folder, with the userspace datapath and
//! ports in memory.
//!
//! Packets enter through the command `netdev-dummy/receive`; those that leave are in a capture file for each port,
//! which is complete when the marker behind a packet has come to the controller: one thread does both.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use openflow::Message;
use openflow::message::Body;
use serde_json::{Value, json};

use crate::case::{Burst, PORTS};
use crate::subject::{Observed, Result, Subject, greeting, hex, is_marker, marker, packet_in};

/// Bytes of a capture file's header, and of the header of a packet.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// Name in reports.
pub const NAME: &str = "Open vSwitch";

/// A process that ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Frames that left through a port.
struct Capture {
    file: File,
    bytes: Vec<u8>,
}

impl Capture {
    /// The frames since the last call.
    fn frames(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.file.read_to_end(&mut self.bytes)?;
        let mut frames = vec![];
        let mut at = 0;
        while let Some(length) = self.bytes.get(at + 8..at + 12) {
            let length = u32::from_ne_bytes([length[0], length[1], length[2], length[3]]) as usize;
            let Some(frame) = self.bytes.get(at + RECORD_HEADER..at + RECORD_HEADER + length) else { break };
            frames.push(frame.to_vec());
            at += RECORD_HEADER + length;
        }
        self.bytes.drain(..at);
        Ok(frames)
    }
}

/// Open vSwitch with a bridge of its own.
pub struct Ovs {
    controller: UnixStream,
    commands: UnixStream,
    captures: Vec<Capture>,
    command: u64,
    /// The processes end before their folder goes.
    _processes: [Process; 2],
    _folder: tempfile::TempDir,
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("{command:?}: {text}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Ovs {
    /// Version of the installed Open vSwitch.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn version() -> io::Result<String> {
        let text = run(Command::new("/usr/sbin/ovs-vswitchd").arg("--version"))?;
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }

    /// Starts Open vSwitch.
    ///
    /// # Errors
    /// Open vSwitch is not installed, or does not start.
    pub fn start() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let at = folder.path();
        let database = at.join("conf.db");
        let schema = "/usr/share/openvswitch/vswitch.ovsschema";
        run(Command::new("ovsdb-tool").arg("create").arg(&database).arg(schema))?;
        let socket = at.join("db.sock");
        let mut server = Command::new("/usr/sbin/ovsdb-server");
        server
            .arg(&database)
            .arg(format!("--remote=punix:{}", socket.display()))
            .arg(format!("--unixctl={}", at.join("ovsdb.ctl").display()));
        let server = spawn(&mut server, at, "ovsdb-server.log")?;
        let mut switch = Command::new("/usr/sbin/ovs-vswitchd");
        switch
            .arg(format!("unix:{}", socket.display()))
            .args(["--enable-dummy=override", "--disable-system", "--disable-system-route"])
            .arg(format!("--unixctl={}", at.join("switch.ctl").display()));
        let switch = spawn(&mut switch, at, "ovs-vswitchd.log")?;
        let vsctl = || {
            let mut command = Command::new("ovs-vsctl");
            command.args(["--retry", "-t60"]).arg(format!("--db=unix:{}", socket.display()));
            command
        };
        run(vsctl().args(["--no-wait", "init"]))?;
        let mut configure = vsctl();
        configure
            .args(["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail_mode=secure"])
            .arg("protocols=[OpenFlow10,OpenFlow13,OpenFlow14,OpenFlow15]");
        for number in 1..=PORTS {
            let port = format!("p{number}");
            configure
                .args(["--", "add-port", "br0", &port, "--", "set", "interface", &port, "type=dummy"])
                .arg(format!("ofport_request={number}"))
                .arg(format!("options:tx_pcap={}", at.join(&port).display()));
        }
        // Ethernet types behind two tags are matched.
        configure.args(["--", "set", "Open_vSwitch", ".", "other_config:vlan-limit=2"]);
        // Returns when the switch has followed.
        run(&mut configure)?;
        let open = |number| -> io::Result<Capture> {
            let mut file = File::open(at.join(format!("p{number}")))?;
            file.read_exact(&mut [0; FILE_HEADER])?;
            Ok(Capture { file, bytes: vec![] })
        };
        let captures = (1..=PORTS).map(open).collect::<io::Result<_>>()?;
        let mut ovs = Self {
            controller: UnixStream::connect(at.join("br0.mgmt"))?,
            commands: UnixStream::connect(at.join("switch.ctl"))?,
            captures,
            command: 0,
            _processes: [switch, server],
            _folder: folder,
        };
        ovs.talk(&greeting())?;
        // Flows of the datapath match all fields: some that match fewer execute actions of other packets.
        ovs.command("upcall/disable-megaflows", &[])?;
        Ok(ovs)
    }

    /// Runs a command, as `ovs-appctl` does.
    fn command(&mut self, method: &str, params: &[String]) -> io::Result<()> {
        self.command += 1;
        let request = json!({ "id": self.command, "method": method, "params": params });
        self.commands.write_all(request.to_string().as_bytes())?;
        let mut replies = serde_json::Deserializer::from_reader(&self.commands).into_iter::<Value>();
        let reply = replies.next().ok_or(io::ErrorKind::UnexpectedEof)??;
        match reply.get("error") {
            None | Some(Value::Null) => Ok(()),
            Some(error) => Err(io::Error::other(format!("{method}: {error}"))),
        }
    }

    /// The next message of the switch, but for its probes, which are answered.
    fn message(&mut self) -> io::Result<Message> {
        loop {
            let message = self.any_message()?;
            let Body::EchoRequest(data) = message.body else { return Ok(message) };
            let reply = Message::new(message.version, message.xid, Body::EchoReply(data));
            self.controller.write_all(&reply.encode().unwrap_or_default())?;
        }
    }

    fn any_message(&mut self) -> io::Result<Message> {
        let mut bytes = vec![0; 8];
        self.controller.read_exact(&mut bytes)?;
        bytes.resize(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])).max(8), 0);
        self.controller.read_exact(&mut bytes[8..])?;
        Message::decode(&bytes).map_err(|error| io::Error::other(format!("{error}: {}", hex(&bytes))))
    }

    fn talk(&mut self, messages: &[Vec<u8>]) -> io::Result<Vec<Message>> {
        self.controller.write_all(&messages.concat())?;
        let mut replies = vec![];
        loop {
            let message = self.message()?;
            match message.body {
                Body::BarrierReply => return Ok(replies),
                _ => replies.push(message),
            }
        }
    }

    fn send_burst(&mut self, burst: &Burst) -> io::Result<Vec<Observed>> {
        if burst.packets.is_empty() {
            return Ok(vec![]);
        }
        let mut params = vec![format!("p{}", burst.port)];
        for (number, packet) in burst.packets.iter().enumerate() {
            params.extend([hex(packet), hex(&marker(number))]);
        }
        self.command("netdev-dummy/receive", &params)?;
        let mut observed = vec![Observed::default(); burst.packets.len()];
        let mut done = 0;
        while let Some(current) = observed.get_mut(done) {
            let message = self.message()?;
            match packet_in(&message) {
                Some((_, bytes)) if is_marker(&bytes) => done += 1,
                Some((words, _)) => current.packet_ins.push(words),
                None => {}
            }
        }
        for (port, capture) in (1..).zip(&mut self.captures) {
            let mut done = 0;
            for frame in capture.frames()? {
                match observed.get_mut(done) {
                    _ if is_marker(&frame) => done += 1,
                    Some(current) => current.outputs.push((port, frame)),
                    None => return Err(io::Error::other("a frame behind the last marker")),
                }
            }
        }
        Ok(observed)
    }
}

fn spawn(command: &mut Command, at: &Path, log: &str) -> io::Result<Process> {
    let log = File::create(at.join(log))?;
    let command = command.env("OVS_RUNDIR", at).env("OVS_LOGDIR", at).env("OVS_DBDIR", at);
    Ok(Process(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?))
}

impl Subject for Ovs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn exchange(&mut self, messages: &[Vec<u8>]) -> Result<Vec<Message>> {
        Ok(self.talk(messages)?)
    }

    fn send(&mut self, burst: &Burst) -> Result<Vec<Observed>> {
        Ok(self.send_burst(burst)?)
    }

    /// Flows of the datapath are made from those of the tables when packets come, and hold their counters.
    fn settle(&mut self) -> Result<()> {
        Ok(self.command("revalidator/purge", &[])?)
    }
}
