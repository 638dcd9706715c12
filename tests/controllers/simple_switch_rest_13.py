#!/usr/bin/env python3
"""Ryu's simple_switch_rest_13: its table of addresses as the switch's packets made it, and as a client changes it."""

import installed
from network import Host, Network, check, run

TABLE = "/simpleswitch/mactable/0000000000000001"


def scenario(lab, target):
    hosts = [Host(f"h{number}", f"10.0.0.{number}/24") for number in (1, 2, 3)]
    one, two, three = hosts
    network = Network(lab, target, hosts)
    network.start("ryu", installed.ryu("ryu.app.simple_switch_rest_13"))
    network.reaches("h1", two.ip)
    wanted = {one.mac: 1, two.mac: 2}
    check("the controller knows both hosts and their ports", network.rest("GET", TABLE) == wanted)

    before = len(network.flows())
    network.rest("PUT", TABLE, {"mac": three.mac, "port": 3})
    network.wait("flows join the new address to both known ones", lambda: len(network.flows()) == before + 4)
    leading = [flow for flow in network.flows() if f"dl_dst={three.mac}" in flow]
    check("two of them lead to it", len(leading) == 2, leading)
    network.reaches("h1", three.ip)


run(scenario)
