#!/usr/bin/env python3
"""Ryu's ofctl_rest: every statistic that it can ask for, and flows, groups and meters that packets meet."""

import installed
from network import Host, Network, check, run


def scenario(lab, target):
    network = Network(lab, target, [Host(f"h{number}", f"10.0.0.{number}/24") for number in (1, 2, 3)])
    network.start("ryu", installed.ryu("ryu.app.ofctl_rest"))
    network.wait("the switch joins", lambda: switches(network) == [1])
    network.misses("h1", "10.0.0.2")

    add(network, "meter", {"meter_id": 1, "flags": "PKTPS", "bands": [{"type": "DROP", "rate": 1000}]})
    add(network, "group", {"group_id": 7, "type": "ALL", "buckets": [
        {"actions": [{"type": "OUTPUT", "port": 2}]}, {"actions": [{"type": "OUTPUT", "port": 3}]}]})
    add(network, "flow", {"priority": 9, "match": {"in_port": 1}, "actions": [
        {"type": "METER", "meter_id": 1}, {"type": "GROUP", "group_id": 7}]})
    for port in (2, 3):
        add(network, "flow", {"match": {"in_port": port, "eth_type": 2048}, "actions": [{"type": "OUTPUT", "port": 1}]})
        add(network, "flow", {"match": {"in_port": port, "eth_type": 2054}, "actions": [{"type": "OUTPUT", "port": 1}]})
    network.reaches("h1", "10.0.0.2")
    network.reaches("h1", "10.0.0.3")

    flows = stats(network, "flow")
    first = next(flow for flow in flows if flow["match"].get("in_port") == 1)
    check("the flow is as it was sent", first["priority"] == 9 and "GROUP:7" in str(first["actions"]), first)
    check("it counts packets", first["packet_count"] >= 6, first)
    check("so does the group", stats(network, "group")[0]["packet_count"] >= 6)
    check("and the meter", stats(network, "meter")[0]["packet_in_count"] >= 6)
    check("the group has two buckets", len(stats(network, "groupdesc")[0]["buckets"]) == 2)
    band = stats(network, "meterconfig")[0]["bands"][0]
    check("the meter has a band of 1,000 packets a second", band["rate"] == 1000, band)
    described = {port["name"] for port in stats(network, "portdesc")}
    check("all ports are described", {"h1", "h2", "h3"} <= described, described)
    check("ports count packets", any(port["rx_packets"] >= 6 for port in stats(network, "port")))
    check("tables count lookups", any(table["lookup_count"] > 0 for table in stats(network, "table")))
    for kind in ("desc", "aggregateflow", "groupfeatures", "meterfeatures", "tablefeatures", "queue", "role"):
        check(f"{kind} is answered", stats(network, kind) is not None)

    network.rest("POST", "/stats/flowentry/delete", {"dpid": 1, "match": {"in_port": 1}})
    network.wait("the flow is gone", lambda: len(stats(network, "flow")) == len(flows) - 1)
    network.misses("h1", "10.0.0.2")


def switches(network):
    try:
        return network.rest("GET", "/stats/switches")
    except Exception:  # the server is not up yet
        return None


def add(network, kind, entry):
    network.rest("POST", f"/stats/{kind}entry/add", {"dpid": 1, **entry})


def stats(network, kind):
    return network.rest("GET", f"/stats/{kind}/1")["1"]


run(scenario)
