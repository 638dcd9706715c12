#!/usr/bin/env python3
"""Clients of P4Runtime: finsy and p4runtime-shell set a program, write entries, read them back, and send packets.

They call the server at the address that the command line names, HOST:PORT, and replace its program; without one, the
daemon is started with a bridge that has no ports. It is TCP, as gRPC's library for Python names
a Unix socket's path as the host (`:authority`), which servers in Rust refuse; `grpc.default_authority` can be set, but
neither client does so.
"""

import os
import socket
import sys
from pathlib import Path

import installed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab"))

from lab import Lab, LabError, command, wait_for
from switches import TARGET

FOLDER = Path(__file__).resolve().parent / "p4runtime"
PROGRAM = FOLDER / "program.p4"


def start_daemon(lab, mswitch):
    """Starts the daemon with a bridge that waits for a program; returns the address of its server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    file, control = lab.folder / "mswitch.toml", lab.folder / "mswitch.sock"
    file.write_text(f'[[bridge]]\nname = "p4"\nlogic = "p4"\n[bridge.p4]\nlisten = ["tcp:{address}"]\n')
    daemon = lab.start("mswitch", [mswitch, "--socket", control, "daemon", "--config", file])
    wait_for("the daemon is ready", lambda: control.exists() or not daemon.is_running())
    return address


def scenario(lab, address):
    mswitch = os.environ.get("MSWITCH_BIN") or TARGET / "debug/mswitch"
    if not address:
        address = start_daemon(lab, mswitch)
    info = lab.folder / "program.p4info.txtpb"
    info.write_text(command(str(mswitch), "p4", "info", str(PROGRAM)))
    for client, python in (("finsy", installed.finsy()), ("shell", installed.p4runtime_shell())):
        print(command(str(python), str(FOLDER / f"{client}_client.py"), address, str(PROGRAM), str(info)), end="")


if len(sys.argv) > 2:
    sys.exit(f"usage: {sys.argv[0]} [HOST:PORT]")
try:
    with Lab("p4rt") as lab:
        print("p4runtime:")
        scenario(lab, sys.argv[1] if len(sys.argv) == 2 else None)
except LabError as error:
    sys.exit(f"FAILED: {error}")
