"""A network to control: one switch with bridges, hosts on their ports, and a controller on the switch's loopback."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab"))

from lab import Lab, LabError, command, wait_for
from switches import SWITCHES, Bridge

CONTROLLER = "tcp:127.0.0.1:6653"
REST = "http://127.0.0.1:8080"
STARTS = 60  # seconds that a controller may take to start and to set the switch up


@dataclass
class Host:
    name: str
    address: str  # with its prefix length
    gateway: str = ""

    def __post_init__(self):
        self.ip = self.address.partition("/")[0]
        self.mac = "02:00:" + ":".join(f"{int(part):02x}" for part in self.ip.split("."))


class Network:
    """`bridges` are lists of hosts, on ports from 1 up; further bridges are joined to the first by their last ports."""

    def __init__(self, lab, target, *bridges):
        self.lab, self.here, self.hosts = lab, lab.namespace("switch"), {}
        ports = [{} for _ in bridges]
        for index, hosts in enumerate(bridges):
            for number, host in enumerate(hosts, 1):
                ports[index][number] = self.attach(host)
            if index > 0:
                one, other = f"trunk0-{index}", f"trunk{index}-0"
                lab.link(self.here, one, self.here, other)
                ports[0][len(ports[0]) + 1], ports[index][len(hosts) + 1] = one, other
        self.bridges = [Bridge(f"br{index}", index + 1, numbers, [CONTROLLER]) for index, numbers in enumerate(ports)]
        self.switch = SWITCHES[target](lab, self.here, "switch")
        for bridge in self.bridges:
            self.switch.add_bridge(bridge)

    def attach(self, host):
        """Gives the host a namespace and a link; returns the name of the link's other end."""
        namespace = self.lab.namespace(host.name)
        self.lab.link(self.here, host.name, namespace, "eth0")
        namespace.up("eth0", host.address, host.mac)
        if host.gateway:
            namespace.run("ip", "route", "add", "default", "via", host.gateway)
        self.hosts[host.name] = namespace
        return host.name

    def start(self, name, words, env=None):
        """Starts a controller."""
        self.controller = self.lab.start(name, words, self.here, env)

    def ofctl(self, request, *words, bridge="br0"):
        return command("ovs-ofctl", "-O", "OpenFlow13", request, self.switch.management(bridge), *words)

    def flows(self, bridge="br0"):
        return [line.strip() for line in self.ofctl("dump-flows", bridge=bridge).splitlines() if "actions=" in line]

    def ping(self, host, address, *options, count=3):
        """Sends echo requests; returns what ping says."""
        words = ("ping", "-n", "-c", str(count), "-i", "0.2", "-W", "1", *options, address)
        return self.hosts[host].run(*words, check=False)

    def reaches(self, host, address):
        """Waits until no echo request is lost: controllers learn from the first packets."""
        self.wait(f"{host} reaches {address}", lambda: " 0% packet loss" in self.ping(host, address))

    def misses(self, host, address):
        """Checks that every echo request is lost."""
        said = self.ping(host, address, count=5)
        check(f"{host} does not reach {address}", " 100% packet loss" in said, said)

    def wait(self, what, condition, seconds=STARTS):
        """Waits for a condition; a controller that has ended, or is not ready in time, is reported with its output."""
        def holds():
            if not self.controller.is_running():
                raise LabError(f"the controller has ended: {self.controller.tail()}")
            try:
                return condition()
            except OSError:
                return None
        try:
            value = wait_for(what, holds, seconds)
        except LabError as error:
            flows = "\n".join(self.flows())
            raise LabError(f"{error}\ncontroller:\n{self.controller.tail()}\nflows:\n{flows}") from error
        print(f"  {what}")
        return value

    def rest(self, method, path, body=None):
        """Asks the controller's REST interface, from inside the namespace; returns the decoded answer."""
        words = ["curl", "-sS", "--fail-with-body", "-X", method, REST + path]
        if body is not None:
            words += ["-d", json.dumps(body)]
        said = self.here.run(*words)
        return json.loads(said) if said.strip() else None


def check(what, holds, otherwise=""):
    if not holds:
        raise LabError(f"not so: {what}\n{otherwise}")
    print(f"  {what}")


def run(scenario):
    """Runs a scenario against the switch that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1] not in SWITCHES:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(SWITCHES)}")
    print(f"{Path(sys.argv[0]).stem} with {sys.argv[1]}:")
    try:
        with Lab("ctl") as lab:
            scenario(lab, sys.argv[1])
    except LabError as error:
        sys.exit(f"FAILED: {error}")
