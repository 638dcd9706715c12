"""An exercise of the P4 tutorials: its network, with a bridge of one mswitch in the place of each BMv2.

A copy of the exercise, with its solution in the place of the skeleton, is worked in; the checkout stays as it is.
Hosts are namespaces with TAP ports. Switches are joined by patch ports, or, where the topology limits a link, by a veth
pair with that rate.
"""

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "lab"))
sys.path.append(str(HERE.parent / "controllers"))

import installed
from lab import LabError, command, wait_for
from switches import TARGET

FIRST_SERVER = 50051  # where the tutorials' controllers find the first switch; the others follow
PACKAGES = ["p4runtime-shell", "protobuf==3.20.3", "scapy"]
BURST = "burst 2000 limit 4000000"  # the switch's queue has to fill, not the link's


def python():
    """Python with the packages that the tutorials' scripts import."""
    folder = installed.environment("p4-tutorials", PACKAGES)
    [packages] = folder.glob("lib/python3*/site-packages")
    (packages / "p4/tmp").mkdir(exist_ok=True)
    shutil.copy(HERE / "p4config_pb2.py", packages / "p4/tmp")
    return str(folder / "bin/python")


@dataclass
class Port:
    switch: str
    number: int
    keys: dict

    @property
    def name(self):
        return f"p{self.number}"


class Exercise:
    def __init__(self, lab, tutorials, name):
        self.lab, self.python, root = lab, python(), lab.folder / "tutorials"
        self.mswitch = os.environ.get("MSWITCH_BIN") or TARGET / "debug/mswitch"
        self.utils, self.folder = root / "utils", root / "exercises" / name
        shutil.copytree(tutorials / "utils", self.utils)
        shutil.copytree(tutorials / "exercises" / name, self.folder)
        if (self.folder / "solution").exists():
            shutil.copytree(self.folder / "solution", self.folder, dirs_exist_ok=True)
        self.compile()
        makefile = (self.folder / "Makefile").read_text()
        topology = re.search(r"^TOPO = (.+)$", makefile, re.MULTILINE)
        self.topology = json.loads((self.folder / (topology[1] if topology else "topology.json")).read_text())
        self.addresses = {name: host["ip"].partition("/")[0] for name, host in self.topology["hosts"].items()}
        self.here = lab.namespace("switch")
        self.hosts = {name: lab.namespace(name) for name in self.topology["hosts"]}
        self.start_switches()
        self.set_up_hosts()

    def compile(self):
        """Writes what `make build` lets p4c write: for each program its P4Info, and what controllers push."""
        for folder in ("build", "logs"):
            (self.folder / folder).mkdir()
        for program in self.folder.glob("*.p4"):
            info = command(str(self.mswitch), "p4", "info", str(program))
            (self.folder / f"build/{program.name}.p4info.txtpb").write_text(info)
            output = self.folder / f"build/{program.stem}.json"
            command(str(self.mswitch), "p4", "compile", str(program), "--output", str(output))

    def start_switches(self):
        folder = self.lab.folder / "mswitch"
        folder.mkdir()
        self.socket = folder / "mswitch.sock"
        file = folder / "mswitch.toml"
        file.write_text(self.configuration())
        daemon = [self.mswitch, "--socket", self.socket, "daemon", "--config", file]
        self.daemon = self.lab.start("mswitch", daemon, self.here)
        for number in range(len(self.topology["switches"])):
            self.wait("the switches start", lambda: listens(self.here, FIRST_SERVER + number))

    def configuration(self):
        ports, sections = list(self.ports()), []
        for number, (name, switch) in enumerate(self.topology["switches"].items()):
            sections.append(("[[bridge]]", {"name": name, "logic": "p4"}))
            if "cpu_port" in switch:
                sections.append(("[bridge.params]", {"cpu-port": int(switch["cpu_port"])}))
            server = f"tcp:127.0.0.1:{FIRST_SERVER + number}"
            # Controllers of the first one use 0, by which all bridges can be reached.
            sections.append(("[bridge.p4]", {"listen": [server], "device-id": max(number, 1)}))
            for port in ports:
                if port.switch == name:
                    keys = {"name": port.name, "p4-port": port.number, **port.keys}
                    sections.append(("[[bridge.port]]", keys))
        # A text, a number or a list of texts is written as in JSON.
        lines = [[head, *(f"{key} = {json.dumps(value)}" for key, value in keys.items())] for head, keys in sections]
        return "\n".join(line for section in lines for line in section) + "\n"

    def ports(self):
        """The ports of all links; makes the links that have a rate."""
        for one, other, *limits in self.topology["links"]:
            ends = sorted((one, other))
            if ends[0] in self.hosts:
                yield self.host_port(*ends)
                continue
            (one, one_port), (other, other_port) = (switch_port(end) for end in ends)
            if len(limits) > 1:
                names = [end.replace("-", "") for end in ends]
                self.lab.link(self.here, names[0], self.here, names[1])
                for name in names:
                    rate = f"{round(limits[1] * 1000)}kbit"
                    self.here.run("tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", rate, *BURST.split())
                keys = [{"type": "netdev", "interface": name, "driver": "af-packet"} for name in names]
            else:
                peers = f"{other}/p{other_port}", f"{one}/p{one_port}"
                keys = [{"type": "patch", "peer": peer} for peer in peers]
            yield Port(one, one_port, keys[0])
            yield Port(other, other_port, keys[1])

    def host_port(self, host, end):
        switch, number = switch_port(end)
        about = self.topology["hosts"][host]
        keys = {"type": "tap", "interface": "eth0", "netns": self.hosts[host].name, "mac": about["mac"],
                "addresses": [about["ip"]]}
        return Port(switch, number, keys)

    def set_up_hosts(self):
        for name, namespace in self.hosts.items():
            self.wait(f"{name} is connected", lambda: "LOWER_UP" in namespace.run("ip", "link", "show", check=False))
            for words in self.topology["hosts"][name].get("commands", []):
                said = namespace.run("sh", "-c", f"{words} 2>&1", check=False)
                # The kernel has the route of a host's own network already.
                if said and "File exists" not in said:
                    raise LabError(f"{name}: {words}: {said}")

    def program_switches(self):
        """Sends each switch its program and entries, by the tutorials' own controller."""
        for number, switch in enumerate(self.topology["switches"].values()):
            address = f"127.0.0.1:{FIRST_SERVER + number}"
            words = [HERE / "program_switch.py", self.utils, address, number, switch["runtime_json"]]
            said = self.here.run(*self.inside(self.python, *words), timeout=60)
            if "ERROR" in said:
                raise LabError(f"simple_controller.py: {said}")

    def inside(self, *words):
        """The command line that runs `words` in the exercise's folder."""
        return ["env", "-C", str(self.folder), "PYTHONUNBUFFERED=1", *(str(word) for word in words)]

    def run(self, host, *words, timeout=60):
        """Runs a command at a host to its end; returns what it says."""
        return self.hosts[host].run(*self.inside(*words), check=False, timeout=timeout)

    def script(self, host, *words):
        """Runs one of the exercise's scripts to its end."""
        return self.hosts[host].run(*self.inside(self.python, *words))

    def answers(self, host, script, *lines):
        """Runs a script that reads lines."""
        text = "\\n".join(lines)
        line = f"printf '{text}\\n' | exec {self.python} {script}"
        return self.hosts[host].run(*self.inside("sh", "-c", line))

    def start(self, host, *words, name=None):
        """Starts a command at a host, or one script beside the switches if there is no host."""
        namespace = self.hosts[host] if host else self.here
        return self.lab.start(name or f"{host}-{words[0]}", self.inside(*words), namespace)

    def receive(self, host):
        """Starts the exercise's `receive.py`; returns once it listens."""
        process = self.start(host, self.python, "receive.py", name=f"{host}-receive")
        # The first line is a heading.
        sockets = lambda: self.hosts[host].run("cat", "/proc/net/packet").splitlines()[1:]
        self.wait(f"{host} listens: {process.tail()}", sockets, process)
        return process

    def serve(self, host, *options):
        """Starts iperf's server; returns once it listens."""
        process = self.start(host, "iperf", "-s", *options)
        self.wait(f"{host}'s iperf listens", lambda: listens(self.hosts[host], 5001), process)
        return process

    def wait(self, what, condition, *processes, seconds=60):
        def holds():
            for process in (self.daemon, *processes):
                if not process.is_running():
                    raise LabError(f"{process.name} has ended: {process.tail()}")
            return condition()
        try:
            return wait_for(what, holds, seconds)
        except LabError as error:
            told = "\n".join(process.tail() for process in processes)
            raise LabError(f"{error}\n{told}".rstrip()) from error

    def ping(self, host, to):
        """Whether a host gets an answer to each of three echo requests."""
        said = self.run(host, "ping", "-n", "-c", "3", "-i", "0.2", "-W", "1", self.addresses[to])
        return " 0% packet loss" in said

    def check(self, what, holds, otherwise=""):
        if not holds:
            logs = command(str(self.mswitch), "--socket", str(self.socket), "logic", "show", "s1", check=False)
            raise LabError(f"not so: {what}\n{otherwise}\n{logs}".rstrip())
        print(f"  {what}")


def switch_port(end):
    """`s1-p2` is port 2 of s1."""
    name, _, port = end.partition("-p")
    return name, int(port)


def listens(namespace, port):
    return f":{port} " in namespace.run("ss", "-tuln")


def text(process):
    return Path(process.log).read_text(errors="replace")
