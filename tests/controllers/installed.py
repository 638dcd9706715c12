"""Controllers from PyPI, each in a virtual environment of its own in target/controllers.

The versions of all packages are those of tests/lab/versions.txt.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSIONS = HERE.parent / "lab/versions.txt"
FOLDER = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parents[1] / "target") / "controllers"


def environment(name, *installs):
    """Returns the environment's folder; each of `installs` holds the arguments of one `pip install`."""
    folder = FOLDER / name
    done = folder / "complete"
    if not done.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        # Without the variable, Faucet's setup writes to /etc.
        variables = {**os.environ, "DEBINSTALL": "1"}
        for install in installs:
            words = [folder / "bin/pip", "install", "--quiet", "--constraint", VERSIONS, *install]
            subprocess.run(words, check=True, env=variables)
        done.touch()
    return folder


def ryu(*apps):
    """Command line of Ryu with apps. Its setup needs an old setuptools; ryu_manager.py starts it."""
    folder = environment("ryu", ["setuptools==58.0.0", "wheel", "pbr"], ["--no-build-isolation", "ryu"])
    return [folder / "bin/python", "-W", "ignore", HERE / "ryu_manager.py", "--ofp-tcp-listen-port", "6653",
            "--wsapi-host", "127.0.0.1", *apps]


def faucet(**files):
    """Command line of Faucet and its environment, which names its files; Faucet looks for os-ken on the PATH."""
    programs = environment("faucet", ["faucet"]) / "bin"
    variables = {f"FAUCET_{name.upper()}": str(path) for name, path in files.items()}
    return [programs / "faucet"], {"PATH": f"{programs}:{os.environ['PATH']}", **variables}


def finsy():
    """Python with finsy."""
    return environment("finsy", ["finsy", "protobuf==6.33.6"]) / "bin/python"


def p4runtime_shell():
    """Python with p4runtime-shell, which needs an old protobuf."""
    return environment("p4runtime-shell", ["p4runtime-shell", "protobuf==3.20.3"]) / "bin/python"
