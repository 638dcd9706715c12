#!/usr/bin/env python3
"""Ryu's rest_router: three networks, a static route behind a host, expired TTLs, and addresses taken away again."""

import installed
from network import Host, Network, check, run

ROUTER = "/router/0000000000000001"


def scenario(lab, target):
    hosts = [Host(f"h{number}", f"172.16.{number}0.10/24", f"172.16.{number}0.1") for number in (1, 2, 3)]
    network = Network(lab, target, hosts)
    network.hosts["h3"].run("ip", "address", "add", "10.9.0.1/32", "dev", "lo")
    network.start("ryu", installed.ryu("ryu.app.rest_router"))
    network.wait("the switch joins", lambda: ready(network))
    for host in hosts:
        said = network.rest("POST", ROUTER, {"address": f"{host.gateway}/24"})
        check(f"{host.gateway} is the router's", "success" in str(said), said)
    for host in hosts:
        network.reaches(host.name, host.gateway)
    for host in hosts:
        for other in hosts:
            if host is not other:
                network.reaches(host.name, other.ip)

    said = network.ping("h1", hosts[1].ip, "-t", "1")
    check("the router reports an expired TTL", "From 172.16.10.1" in said and "Time to live exceeded" in said, said)
    said = network.ping("h1", hosts[1].ip, "-t", "2")
    check("it takes one from the TTL", " 0% packet loss" in said and "ttl=63" in said, said)

    network.misses("h1", "10.9.0.1")
    network.rest("POST", ROUTER, {"destination": "10.9.0.0/24", "gateway": hosts[2].ip})
    network.reaches("h1", "10.9.0.1")

    data = network.rest("GET", ROUTER)[0]["internal_network"][0]
    identity = next(row["address_id"] for row in data["address"] if row["address"].startswith("172.16.20.1"))
    network.rest("DELETE", ROUTER, {"address_id": identity})
    network.misses("h1", hosts[1].ip)
    network.reaches("h1", hosts[2].ip)


def ready(network):
    try:
        return network.rest("GET", ROUTER)[0].get("internal_network")
    except Exception:  # the server is not up, or does not know the switch yet
        return None


run(scenario)
