#!/usr/bin/env python3
"""Ryu's simple_switch_13: hosts reach each other, by flows for addresses that the controller has learned."""

import installed
from network import Host, Network, check, run


def scenario(lab, target):
    hosts = [Host(f"h{number}", f"10.0.0.{number}/24") for number in (1, 2, 3)]
    network = Network(lab, target, hosts)
    network.start("ryu", installed.ryu("ryu.app.simple_switch_13"))
    for host in hosts:
        for other in hosts:
            if host is not other:
                network.reaches(host.name, other.ip)
    flows = network.flows()
    for number, host in enumerate(hosts, 1):
        towards = [flow for flow in flows if f"dl_dst={host.mac} " in flow and f"output:{number}" in flow]
        check(f"two flows lead to {host.name}", len(towards) == 2, "\n".join(flows))
        check(f"they carry the packets for {host.name}", all("n_packets=0," not in flow for flow in towards))


run(scenario)
