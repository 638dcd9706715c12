"""The conformance cases: where they come from, and the environment that runs them.

os-ken's wheel has the tester but not its cases, which are in the source distribution: both are downloaded once. The
packages that os-ken needs have the versions of tests/lab/versions.txt.
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "conformance"
VENV = FOLDER / "venv"
VERSIONS = ROOT / "tests/lab/versions.txt"
OS_KEN = "os-ken==3.1.0"  # the last release with osken-manager
CASES = "os_ken/tests/switch/of13"


def prepare():
    """Installs os-ken into a virtual environment and unpacks the cases, unless both are there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not (VENV / "bin/osken-manager").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin/pip", "install", "--quiet", "--constraint", VERSIONS, OS_KEN], check=True)
    if cases_folder().is_dir():
        return
    if "OSKEN_CASES" in os.environ:
        sys.exit(f"OSKEN_CASES: {cases_folder()} is no folder (expected: os_ken/tests/switch/of13 of a checkout)")
    download = [VENV / "bin/pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", FOLDER, OS_KEN]
    subprocess.run(download, check=True)
    archive = next(FOLDER.glob("os[-_]ken-*.tar.gz"))
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            _, _, path = member.name.partition("/")
            if path.startswith(CASES) and path.endswith(".json") and member.isfile():
                target = FOLDER / "cases" / Path(path).relative_to(CASES)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(tar.extractfile(member).read())


def cases_folder():
    return Path(os.environ.get("OSKEN_CASES") or FOLDER / "cases")


class CaseFile:
    """A file of cases: `name` is its path below the folder, `title` the tester's name for it."""

    def __init__(self, path):
        self.path = path
        self.name = str(path.relative_to(cases_folder()).with_suffix(""))
        self.folder = str(Path(self.name).parent)
        content = json.loads(path.read_text())
        self.title = next(part for part in content if isinstance(part, str))
        parts = [part for part in content if not isinstance(part, str)]
        self.cases = [part["description"] for part in parts]
        # Cases that send for a while say for how long.
        self.longest = max((duration(test) for part in parts for test in part["tests"]), default=0)


def duration(test):
    ingress = test["ingress"]
    return ingress["packets"].get("duration_time", 30) if isinstance(ingress, dict) else 0


def case_files(only=()):
    """The files, in the tester's order; `only` names folders or files."""
    files = [CaseFile(path) for path in cases_folder().rglob("*.json")]
    wanted = [file for file in files if not only or any(file.folder == o or file.name == o for o in only)]
    return sorted(wanted, key=lambda file: file.title)
