#!/usr/bin/env python3
"""Summarises the log of a run of Open vSwitch's tests: results by group, and the cases that failed.

usage: summary.py LOG GROUPS PASSED
LOG is the output of the test suite, GROUPS has a line "NUMBER GROUP" for each case. The numbers of the cases that
passed are written to PASSED. The exit status is 1 if a case failed or there was none.
"""

import re
import sys
from collections import defaultdict

RESULT = re.compile(r"^ *(\d+): (.*?) +(ok|skipped|FAILED|expected failure|UNEXPECTED PASS)\b *(\(.*\))?$")


def main(log, groups, passed):
    with open(groups) as lines:
        group_of = dict(line.split() for line in lines)
    results = defaultdict(lambda: {"ok": 0, "skipped": 0, "failed": 0})
    failures, ok = [], []
    with open(log, errors="replace") as lines:
        for line in lines:
            found = RESULT.match(line.rstrip())
            if not found:
                continue
            number, name, result, detail = found.groups()
            kind = result if result in ("ok", "skipped") else "failed"
            results[group_of.get(number, "?")][kind] += 1
            if kind == "ok":
                ok.append(number)
            elif kind == "failed":
                failures.append(f"{number}: {name} {detail or ''}".rstrip())
    for failure in failures:
        print(failure)
    for group, counts in sorted(results.items()):
        total = sum(counts.values())
        print(f"{group}: {counts['ok']} of {total} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    with open(passed, "w") as file:
        file.write("".join(number + "\n" for number in ok))
    if failures or not results:
        if not results:
            print(f"no case ran; {log} says why", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
