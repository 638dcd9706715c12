"""The switches that the lab knows: stock Open vSwitch (userspace datapath) and mswitch, by its file and in the place of
Open vSwitch's daemon, each with OpenFlow bridges.

Both take the same `Bridge` and start in a namespace whose links they take as ports.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from lab import LabError, command, wait_for

TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or Path(__file__).resolve().parents[2] / "target")
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
CLIENT_SECONDS = "20"


@dataclass
class Bridge:
    name: str
    datapath_id: int
    ports: dict = field(default_factory=dict)  # number: name of an interface in the switch's namespace
    controllers: list = field(default_factory=list)
    versions: list = field(default_factory=lambda: ["1.3"])


class OpenVSwitch:
    """Debian's ovsdb-server and ovs-vswitchd with a database and sockets of their own.

    Open vSwitch answers a barrier before its flow cache follows a change: the next packets may meet the flows of
    before. `cached=False` keeps flows out of the cache, so that each packet meets the tables as they are.
    """

    def __init__(self, lab, namespace, name, cached=True, program="ovs-vswitchd"):
        self.lab, self.folder = lab, lab.folder / name
        self.folder.mkdir()
        self.env = {key: str(self.folder) for key in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR")}
        database, self.socket = self.folder / "conf.db", self.folder / "db.sock"
        command("ovsdb-tool", "create", str(database), SCHEMA)
        lab.start(f"{name}-ovsdb", ["ovsdb-server", database, f"--remote=punix:{self.socket}"], env=self.env)
        wait_for("ovsdb-server's socket", self.socket.exists)
        self.vsctl("--no-wait", "init")
        if not cached:
            self.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-limit=0")
        daemon = [program, f"unix:{self.socket}", f"--unixctl={self.folder}/vswitchd.ctl"]
        self.process = lab.start(f"{name}-vswitchd", daemon, namespace, env=self.env)

    def vsctl(self, *words):
        return command("ovs-vsctl", f"--timeout={CLIENT_SECONDS}", f"--db=unix:{self.socket}", *words)

    def add_bridge(self, bridge):
        protocols = ",".join(f"OpenFlow{version.replace('.', '')}" for version in bridge.versions)
        words = ["add-br", bridge.name, "--", "set", "Bridge", bridge.name, "datapath_type=netdev", "fail_mode=secure",
                 f"protocols={protocols}", f"other_config:datapath-id={bridge.datapath_id:016x}"]
        for number, link in bridge.ports.items():
            words += ["--", "add-port", bridge.name, link, "--", "set", "Interface", link, f"ofport_request={number}"]
        if bridge.controllers:
            words += ["--", "set-controller", bridge.name, *bridge.controllers]
        self.vsctl(*words)
        if bridge.controllers:
            self.vsctl("set", "Controller", bridge.name, "max_backoff=1000", "inactivity_probe=30000")
        for number, link in bridge.ports.items():
            actual = self.vsctl("get", "Interface", link, "ofport").strip()
            if actual != str(number):
                raise LabError(f"{link} is port {actual}, not {number}: {self.process.tail(5)}")

    def management(self, bridge):
        """Where ovs-ofctl reaches the bridge."""
        return f"unix:{self.folder}/{bridge}.mgmt"


class Mswitch:
    """The daemon, with a configuration file that lists all bridges; MSWITCH_BIN names the program."""

    def __init__(self, lab, namespace, name):
        self.lab, self.namespace, self.name = lab, namespace, name
        self.folder = lab.folder / name
        self.folder.mkdir()
        self.program = os.environ.get("MSWITCH_BIN") or TARGET / "debug/mswitch"
        self.socket, self.bridges, self.process = self.folder / "mswitch.sock", [], None

    def client(self, *words):
        return command(str(self.program), "--socket", str(self.socket), *words)

    def add_bridge(self, bridge):
        self.bridges.append(bridge)
        if self.process:
            self.lab.stop(self.process)
        file = self.folder / "mswitch.toml"
        file.write_text("\n".join(toml(bridge) for bridge in self.bridges))
        daemon = [self.program, "--socket", self.socket, "daemon", "--config", file]
        self.process = self.lab.start(self.name, daemon, self.namespace)
        wait_for(f"mswitch's socket: {self.process.tail()}", self.is_ready)

    def is_ready(self):
        if not self.process.is_running():
            raise LabError(f"mswitch ended: {self.process.tail()}")
        return self.socket.exists()

    def management(self, bridge):
        """Where ovs-ofctl reaches the bridge."""
        return f"unix:{self.folder}/{bridge}.mgmt"


def toml(bridge):
    """A bridge in mswitch's configuration file."""
    def texts(words):
        return "[" + ", ".join(f'"{word}"' for word in words) + "]"

    lines = ["[[bridge]]", f'name = "{bridge.name}"', 'logic = "openflow"', "[bridge.openflow]",
             f"controllers = {texts(bridge.controllers)}", f"versions = {texts(bridge.versions)}",
             f'datapath-id = "{bridge.datapath_id:016x}"', 'fail-mode = "secure"', "max-backoff = 1", "probe = 30"]
    for number, link in bridge.ports.items():
        lines += ["[[bridge.port]]", f'name = "{link}"', 'type = "netdev"', f"openflow-port = {number}"]
    return "\n".join(lines) + "\n"


def uncached(lab, namespace, name):
    return OpenVSwitch(lab, namespace, name, cached=False)


def in_place(lab, namespace, name):
    """mswitch with Open vSwitch's database; MSWITCH_VSWITCHD_BIN names the program."""
    program = os.environ.get("MSWITCH_VSWITCHD_BIN") or TARGET / "debug/ovs-vswitchd"
    return OpenVSwitch(lab, namespace, name, program=program)


SWITCHES = {"ovs": uncached, "ovs-cached": OpenVSwitch, "mswitch": Mswitch, "mswitch-ovs": in_place}
