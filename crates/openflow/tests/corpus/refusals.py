#!/usr/bin/env python3
"""Records what Open vSwitch refuses, and with which error.

Usage: refusals.py DIRECTORY

Changes bytes of the requests in DIRECTORY/openflow1N.hex (see record.py), sends them to an Open vSwitch with dummy
devices, and writes DIRECTORY/refusals.txt: a line for each request, in hexadecimal, with the error's type, code and experimenter, or
"accepted". The choice of changes is pseudo-random and the same in every run.
"""

import os
import random
import socket
import subprocess
import sys
import tempfile
import time

# Types of requests to change, by version: flow-mod, group-mod, packet-out, meter-mod, extensions, multipart.
KINDS = {1: {14, 13, 4}, **{version: {14, 13, 15, 29, 4, 18} for version in range(2, 7)}}
KINDS[1] |= {16}
CHANGES = 5


def receive(stream):
    header = b""
    while len(header) < 8:
        header += stream.recv(8 - len(header))
    rest = b""
    while len(rest) < int.from_bytes(header[2:4], "big") - 8:
        rest += stream.recv(int.from_bytes(header[2:4], "big") - 8 - len(rest))
    return header + rest


def connect(path, version):
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(5)
    stream.connect(path)
    stream.sendall(bytes([version, 0, 0, 8, 0, 0, 0, 1]))
    receive(stream)
    return stream


def ask(stream, version, request):
    """Returns the error in reply to a request, or None. A barrier ends the wait."""
    barrier = 18 if version == 1 else 20
    stream.sendall(request + bytes([version, barrier, 0, 8, 0, 0, 0xBA, 0xBA]))
    error = None
    while True:
        reply = receive(stream)
        if reply[4:8] == b"\0\0\xba\xba":
            return error
        if reply[1] == 1 and reply[4:8] == request[4:8]:
            error = reply


def changed(generator, request):
    """A request with one or two bytes changed, behind its header."""
    request = bytearray(request)
    for _ in range(generator.choice((1, 1, 2))):
        at = generator.randrange(8, len(request))
        request[at] = generator.choice((0, 1, request[at] ^ 1 << generator.randrange(8), generator.randrange(256), 0xFF))
    return bytes(request)


def summary(error):
    """Type, code and experimenter of an error message."""
    kind, code = error[8:10].hex(), error[10:12].hex()
    if kind == "b0c2":
        return error[8:20].hex()
    return kind + code + (error[12:16].hex() if kind == "ffff" else "")


def main(directory):
    scratch = tempfile.mkdtemp(prefix="refusals-")
    environment = dict(os.environ, OVS_RUNDIR=scratch, OVS_LOGDIR=scratch, OVS_DBDIR=scratch, OVS_SYSCONFDIR=scratch)
    subprocess.run(
        ["ovsdb-tool", "create", scratch + "/conf.db", "/usr/share/openvswitch/vswitch.ovsschema"],
        env=environment, check=True,
    )
    remote = "unix:" + scratch + "/db.sock"
    daemons = [
        subprocess.Popen(
            ["ovsdb-server", "--remote=p" + remote, scratch + "/conf.db"], env=environment, stderr=subprocess.DEVNULL
        )
    ]
    while not os.path.exists(scratch + "/db.sock"):
        time.sleep(0.05)
    daemons.append(
        subprocess.Popen(
            ["ovs-vswitchd", "--enable-dummy=override", "--disable-system", remote],
            env=environment, stderr=subprocess.DEVNULL,
        )
    )
    generator = random.Random(1)
    lines = []
    try:
        ports = [word for n in (1, 2, 3) for word in ("--", "add-port", "b", "p%d" % n)]
        protocols = "protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"
        subprocess.run(
            ["ovs-vsctl", "--db=" + remote, "add-br", "b", "--", "set", "bridge", "b", "datapath_type=dummy", protocols,
             "fail_mode=secure", *ports],
            env=environment, timeout=30, check=True,
        )
        for minor in range(6):
            with open("%s/openflow1%d.hex" % (directory, minor)) as file:
                requests = [bytes.fromhex(line) for line in file]
            for request in requests:
                version = request[0]
                if version != minor + 1 or request[1] not in KINDS[version] or len(request) > 400:
                    continue
                stream = connect(scratch + "/b.mgmt", version)
                for change in range(CHANGES):
                    other = changed(generator, request) if change else request
                    try:
                        error = ask(stream, version, other)
                    except (OSError, IndexError):
                        stream = connect(scratch + "/b.mgmt", version)
                        continue
                    lines.append("%s %s" % (other.hex(), summary(error) if error else "accepted"))
                stream.close()
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.wait()
    with open(directory + "/refusals.txt", "w") as file:
        file.write("\n".join(dict.fromkeys(lines)) + "\n")
    print("%d requests, %d accepted" % (len(lines), sum(line.endswith("accepted") for line in lines)))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
