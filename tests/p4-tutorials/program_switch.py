"""Programs a switch as the tutorials' `make run` does. Arguments: UTILS ADDRESS DEVICE-ID RUNTIME-JSON.

It runs in the exercise's folder, which the files in RUNTIME-JSON are relative to.
"""

import os
import sys

utils, address, device_id, runtime_json = sys.argv[1:]
sys.path.insert(0, utils)

from p4runtime_lib.simple_controller import program_switch

with open(runtime_json) as conf:
    log = f"logs/{device_id}-p4runtime-requests.txt"
    program_switch(address, int(device_id), conf, os.getcwd(), log, runtime_json)
