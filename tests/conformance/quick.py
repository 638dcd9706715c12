"""The cases of single packets against the switch without a daemon (crates/ofswitch/examples/serve.rs): seconds.

    cargo build -p mswitch-ofswitch --example serve
    target/conformance/venv/bin/python tests/conformance/quick.py SERVE CASES [PART OF A FILE'S NAME]

It takes os-ken's reading and comparing of cases, but neither its controller nor a second switch. Rates are left out.
"""

import logging
import socket
import struct
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import manager  # corrects os-ken's SCTP checksum
import os_ken.base.app_manager
from os_ken import cfg
from os_ken.ofproto import ofproto_parser, ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser
from os_ken.tests.switch import tester

LOG = logging.getLogger("quick")


class Failure(Exception):
    pass


class Switch:
    """A connection to `serve`, and its standard streams for packets."""

    def __init__(self, program, folder):
        path = str(Path(folder) / "serve.sock")
        self.child = subprocess.Popen([program, path, "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.child.stdout.readline()
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(path)
        self.stream.settimeout(5)
        self.xid = 1
        self.dp = ofproto_protocol.ProtocolDesc(ofp.OFP_VERSION)
        self.dp.id = 1
        self.send(parser.OFPHello(self.dp))
        self.receive()
        # Such connections get packets when they have asked.
        self.request(parser.OFPSetConfig(self.dp, 0, ofp.OFPCML_NO_BUFFER))

    def send(self, message):
        self.xid += 1
        message.xid = None
        message.set_xid(self.xid)
        message.serialize()
        self.stream.sendall(message.buf)
        return self.xid

    def receive(self):
        head = self.read(8)
        version, kind, length, xid = struct.unpack("!BBHI", head)
        return ofproto_parser.msg(self.dp, version, kind, length, xid, head + self.read(length - 8))

    def read(self, length):
        data = b""
        while len(data) < length:
            more = self.stream.recv(length - len(data))
            if not more:
                raise Failure("the switch has closed the connection")
            data += more
        return data

    def request(self, message):
        """Sends a message; returns what comes before the barrier's reply."""
        self.send(message)
        barrier, replies = self.send(parser.OFPBarrierRequest(self.dp)), []
        while True:
            reply = self.receive()
            if reply.xid == barrier:
                return replies
            if isinstance(reply, parser.OFPErrorMsg):
                raise Failure(f"error type {reply.type} code {reply.code}")
            replies.append(reply)

    def packet(self, data):
        """Sends a packet to port 1; returns those that leave through port 2."""
        print("1", data.hex(), file=self.child.stdin, flush=True)
        lines = iter(lambda: self.child.stdout.readline().split(), ["done"])
        return [bytes.fromhex(words[-1]) for words in lines if words[:2] == ["output", "2"]]


def clear(switch):
    dp = switch.dp
    switch.request(parser.OFPMeterMod(dp, command=ofp.OFPMC_DELETE, meter_id=ofp.OFPM_ALL))
    switch.request(parser.OFPGroupMod(dp, command=ofp.OFPGC_DELETE, group_id=ofp.OFPG_ALL))
    switch.request(parser.OFPFlowMod(dp, table_id=ofp.OFPTT_ALL, command=ofp.OFPFC_DELETE,
                                     out_port=ofp.OFPP_ANY, out_group=ofp.OFPG_ANY))


def install(switch, message):
    """Adds a flow, group or meter, and looks whether it is there as it was sent."""
    class This:  # what the tester's comparison asks of it
        target_sw = switch

    dp = switch.dp
    ways = {
        parser.OFPFlowMod: (parser.OFPFlowStatsRequest(dp), lambda *both: tester.OfTester._compare_flow(This, *both)),
        parser.OFPGroupMod: (parser.OFPGroupDescStatsRequest(dp), tester.OfTester._compare_group),
        parser.OFPMeterMod: (parser.OFPMeterConfigStatsRequest(dp), tester.OfTester._compare_meter),
    }
    request, compare = ways[type(message)]
    switch.request(message)
    there = [compare(stats, message) for reply in switch.request(request) for stats in reply.body]
    if not any(same for same, _ in there):
        raise Failure(f"not as it was sent: {[why for _, why in there]}")


def counts(switch):
    """Lookups and matches of each table."""
    replies = switch.request(parser.OFPTableStatsRequest(switch.dp, 0))
    return {stats.table_id: (stats.lookup_count, stats.matched_count) for reply in replies for stats in reply.body}


def check(switch, test):
    """Sends the packet of a test."""
    before = counts(switch)
    left = switch.packet(test[tester.KEY_INGRESS])
    replies = switch.request(parser.OFPBarrierRequest(switch.dp))
    entered = [reply.data for reply in replies if isinstance(reply, parser.OFPPacketIn)]
    if tester.KEY_TBL_MISS in test:
        after = counts(switch)
        looked = [table for table in test[tester.KEY_TBL_MISS] if after[table][0] > before[table][0]]
        if not looked or any(after[table][1] > before[table][1] for table in looked):
            raise Failure(f"a miss was expected; tables with lookups: {looked}")
        return
    expected, found = test.get(tester.KEY_EGRESS), left
    if expected is None:
        expected, found = test[tester.KEY_PKT_IN], entered
    if found != [expected]:
        ingress = test[tester.KEY_INGRESS].hex()
        raise Failure(f"received {ingress}\n      expected {expected.hex()}\n      found {[f.hex() for f in found]}")


def run(switch, case):
    clear(switch)
    for message in case.prerequisite:
        message.datapath = switch.dp
        install(switch, message)
    for test in case.tests:
        check(switch, test)


def main():
    program, folder, *part = sys.argv[1:]
    cfg.CONF(args=[], project="quick")
    tester.OfTester.target_ver = tester.OfTester.tester_ver = ofp.OFP_VERSION
    passed = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        switch = Switch(program, scratch)
        for path in sorted(Path(folder).rglob("*.json")):
            if part and part[0] not in str(path):
                continue
            for case in tester.TestFile(path, LOG).tests:
                if any(tester.KEY_PACKETS in test for test in case.tests):
                    continue
                try:
                    run(switch, case)
                    passed += 1
                except Failure as failure:
                    failed += 1
                    print(f"{path.relative_to(folder).with_suffix('')}: {case.description}\n      {failure}")
        switch.child.terminate()
    print(f"{passed} of {passed + failed} cases")
    sys.exit(failed > 0)


main()
