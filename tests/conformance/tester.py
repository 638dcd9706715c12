"""Runs os-ken's switch tester on a list of case files, and reads its verdicts from its output.

The tester ends without a word if an assertion of its own fails, and waits for ever for a switch that has gone. Then
the case in hand is an error, its file's remaining cases are not run, and the tester starts again with the next file.
"""

import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from cases import VENV

HERE = Path(__file__).resolve().parent
START_SECONDS = 60
CASE_SECONDS = 40  # besides the time that a case sends
VERDICT = re.compile(r"^    (\S.*?)\s+(OK|ERROR)$")
END = re.compile(r"^---  Test end  ---$")


@dataclass
class Result:
    file: str
    case: str
    ok: bool
    reason: str = ""


class Output:
    """What the tester has said so far: verdicts of the files that it was given."""

    def __init__(self, files):
        self.files = {file.title: file for file in files}
        self.current, self.done, self.results, self.ended = None, [], [], False

    def line(self, line):
        verdict = VERDICT.match(line)
        if END.match(line):
            self.finish()
            self.ended = True
        elif self.ended:
            pass
        elif line in self.files:
            self.finish()
            self.current = self.files[line]
        elif verdict and self.current:
            self.results.append(Result(self.current.name, verdict[1], verdict[2] == "OK"))
        elif line.startswith("        ") and self.results and not self.results[-1].ok:
            self.results[-1].reason = line.strip()

    def finish(self):
        if self.current:
            self.done.append(self.current)
        self.current = None


def run(lab, namespace, port, files, say):
    """Runs all cases of `files`; returns their results."""
    results, pending = [], list(files)
    while pending:
        output = run_once(lab, namespace, port, pending, say)
        results += output.results
        for file in output.done:
            pending.remove(file)
        if not output.ended and not output.current and not output.done:
            raise RuntimeError(f"the tester did not start a case: {lab.folder}")
        if output.current:
            have = {result.case for result in output.results if result.file == output.current.name}
            missing = [case for case in output.current.cases if case not in have]
            for case in missing:
                results.append(Result(output.current.name, case, False, "the tester stopped in this file"))
            pending.remove(output.current)
    return results


def run_once(lab, namespace, port, files, say):
    folder = lab.folder / "cases"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, file in enumerate(files):
        (folder / f"{number}.json").symlink_to(file.path)
    words = [VENV / "bin/python", "-W", "ignore", HERE / "manager.py", "--ofp-tcp-listen-port", port,
             "--test-switch-dir", folder, "os_ken.tests.switch.tester"]
    log = lab.folder / "tester.log"
    log.unlink(missing_ok=True)
    output = Output(files)
    process = lab.start("tester", words, namespace, env={"PYTHONUNBUFFERED": "1"})
    with open(log, encoding="utf-8", errors="replace") as lines:
        last, rest = time.monotonic(), ""
        while True:
            running = process.is_running()
            chunk = lines.read()
            if chunk:
                last = time.monotonic()
                *whole, rest = (rest + chunk).split("\n")
                before = len(output.done)
                for line in whole:
                    # Cases that send for a while print dots meanwhile.
                    output.line(line.rstrip("\r").lstrip("."))
                for file in output.done[before:]:
                    say(file, output.results)
            elif not running:
                break
            patience = START_SECONDS if not output.current else CASE_SECONDS + output.current.longest
            if output.ended or time.monotonic() - last > patience:
                break
            time.sleep(0.1)
    lab.stop(process)
    return output
