#!/usr/bin/env python3
"""The exercises of the P4 tutorials, with mswitch in the place of BMv2. TUTORIALS names a checkout of the tutorials."""

import os
import subprocess
import sys
from pathlib import Path

import scenarios
import tutorial
from lab import Lab, LabError

EXERCISES = ["basic", "basic_tunnel", "p4runtime", "flowcache", "ecn", "mri", "source_routing", "calc", "load_balance",
             "qos", "multicast", "firewall", "link_monitor"]


def main(names):
    tutorials = os.environ.get("TUTORIALS")
    if not tutorials:
        sys.exit("TUTORIALS is not set: name a checkout of the P4 tutorials (github.com/p4lang/tutorials)")
    unknown = [name for name in names if name not in EXERCISES]
    if unknown:
        sys.exit(f"unknown exercise {unknown[0]} (expected one of: {', '.join(EXERCISES)})")
    results = {}
    for name in names or EXERCISES:
        print(f"{name}:")
        try:
            with Lab("tut") as lab:
                getattr(scenarios, name)(tutorial.Exercise(lab, Path(tutorials).resolve(), name))
            results[name] = "holds"
        except (LabError, subprocess.TimeoutExpired) as error:
            print(f"  {error}")
            results[name] = f"differs: {str(error).splitlines()[0]}"
    for name, result in results.items():
        print(f"{name}: {result}")
    sys.exit(any(result != "holds" for result in results.values()))


main(sys.argv[1:])
