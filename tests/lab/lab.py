"""A lab: a scratch folder, network namespaces, and the processes that run in them.

Leaving the `with` block ends the processes in reverse order of their start, deletes the namespaces with all links in
them, and removes the folder (kept if KEEP_LAB is set).
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path


class LabError(Exception):
    """A step of the lab failed: what was tried, and what came of it."""


def wait_for(what, condition, seconds=30.0):
    """Returns the first true value of `condition()`; raises if there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise LabError(f"timed out after {seconds:.0f} s: {what}")
        time.sleep(0.05)


def command(*words, check=True, timeout=60, env=None):
    """Runs a command to its end; returns its standard output."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=env, check=False)
    if check and done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise LabError(f"{' '.join(words)}: exit status {done.returncode}: {said}")
    return done.stdout


class Namespace:
    """A network namespace without IPv6, so that the kernel sends nothing of its own accord."""

    def __init__(self, name):
        self.name = name
        command("ip", "netns", "add", name)
        self.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        self.run("ip", "link", "set", "lo", "up")

    def words(self, *words):
        """The command line that runs `words` in the namespace."""
        return ("ip", "netns", "exec", self.name, *words)

    def run(self, *words, **options):
        return command(*self.words(*words), **options)

    def up(self, link, address=None, mac=None):
        if mac:
            self.run("ip", "link", "set", link, "address", mac)
        if address:
            self.run("ip", "address", "add", address, "dev", link)
        self.run("ip", "link", "set", link, "up")


class Process:
    """A process that runs until it is stopped; its output goes to a file."""

    def __init__(self, name, words, log, env=None):
        self.name, self.log = name, log
        with open(log, "ab") as out:
            self.child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)

    def is_running(self):
        return self.child.poll() is None

    def stop(self):
        if self.is_running():
            self.child.terminate()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
        self.child.wait()

    def tail(self, lines=20):
        return "\n".join(Path(self.log).read_text(errors="replace").splitlines()[-lines:])


class Lab:
    def __init__(self, name):
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self.namespaces, self.processes = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.stop()
        for namespace in self.namespaces:
            command("ip", "netns", "del", namespace.name, check=False)
        if os.environ.get("KEEP_LAB"):
            print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def namespace(self, name):
        """Adds a namespace, whose name begins with this process's number: labs run side by side."""
        namespace = Namespace(f"{self.name}{os.getpid()}-{name}")
        self.namespaces.append(namespace)
        return namespace

    def link(self, one, one_name, other, other_name):
        """Joins two namespaces by a veth pair that leaves no checksum open."""
        command("ip", "link", "add", one_name, "netns", one.name, "type", "veth",
                "peer", "name", other_name, "netns", other.name)
        for namespace, name in ((one, one_name), (other, other_name)):
            namespace.run("ethtool", "-K", name, "tx", "off")
            namespace.up(name)

    def start(self, name, words, namespace=None, env=None):
        """Starts a process of that name; its output goes to NAME.log in the folder."""
        if namespace:
            words = namespace.words(*words)
        environment = {**os.environ, **(env or {})}
        process = Process(name, [str(word) for word in words], self.folder / f"{name}.log", environment)
        self.processes.append(process)
        return process

    def stop(self, process):
        process.stop()
        self.processes.remove(process)
