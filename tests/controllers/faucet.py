#!/usr/bin/env python3
"""Faucet: VLANs over two switches and a trunk, routes between VLANs, and access lists."""

import installed
from network import Host, Network, check, run

CONFIG = """
vlans:
  office: {vid: 100, faucet_mac: "0e:00:00:00:01:00", faucet_vips: ["10.0.100.254/24"]}
  guest: {vid: 200, faucet_mac: "0e:00:00:00:02:00", faucet_vips: ["10.0.200.254/24"]}
  closed: {vid: 300}
routers:
  between: {vlans: [office, guest]}
acls:
  from-guest:
    - rule: {dl_type: 0x800, ip_proto: 1, ipv4_dst: 10.0.100.1, actions: {allow: 0}}
    - rule: {dl_type: 0x800, ip_proto: 6, tcp_dst: 23, actions: {allow: 0}}
    - rule: {actions: {allow: 1}}
dps:
  one:
    dp_id: 1
    hardware: "Open vSwitch"
    stack: {priority: 1}
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: guest, acls_in: [from-guest]}
      3: {native_vlan: closed}
      4: {stack: {dp: two, port: 4}}
  two:
    dp_id: 2
    hardware: "Open vSwitch"
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: guest}
      3: {native_vlan: closed}
      4: {stack: {dp: one, port: 4}}
"""


def scenario(lab, target):
    def hosts(number):
        return [Host(f"office{number}", f"10.0.100.{number}/24", "10.0.100.254"),
                Host(f"guest{number}", f"10.0.200.{number}/24", "10.0.200.254"),
                Host(f"closed{number}", f"10.0.30.{number}/24", "10.0.30.254")]

    network = Network(lab, target, hosts(1), hosts(2))
    config = lab.folder / "faucet.yaml"
    config.write_text(CONFIG)
    log, exceptions = lab.folder / "faucet.log", lab.folder / "exceptions.log"
    network.start("controller", *installed.faucet(config=config, log=log, exception_log=exceptions))

    # Within VLANs, over the trunk.
    network.reaches("office1", "10.0.100.2")
    network.reaches("guest1", "10.0.200.2")
    network.reaches("closed1", "10.0.30.2")
    # Between VLANs, through Faucet's own addresses.
    for host, gateway in (("office1", "10.0.100.254"), ("guest2", "10.0.200.254")):
        network.reaches(host, gateway)
    network.reaches("office1", "10.0.200.2")
    network.reaches("guest2", "10.0.100.1")
    network.reaches("office2", "10.0.100.1")
    # A VLAN without a router stays alone.
    network.misses("closed1", "10.0.100.1")
    # Access lists: one host by ICMP, one port of TCP.
    network.misses("guest1", "10.0.100.1")
    network.reaches("guest1", "10.0.100.2")
    check("TCP to port 80 passes", connects(network, "guest1", "office1", "10.0.100.1", 80))
    check("TCP to port 23 does not", not connects(network, "guest1", "office1", "10.0.100.1", 23))
    said = exceptions.read_text() if exceptions.exists() else ""
    check("Faucet met no exception", not said.strip(), said)


def connects(network, client, server, address, port):
    """Whether a TCP connection comes about."""
    listen = f"import socket; s = socket.create_server(('', {port})); print('up', flush=True); s.accept()"
    listening = network.lab.start(f"server{port}", ["python3", "-c", listen], network.hosts[server])
    network.wait(f"{server} listens at port {port}", lambda: "up" in listening.tail())
    connect = f"import socket; socket.create_connection(('{address}', {port}), 5)"
    said = network.hosts[client].run("python3", "-c", f"{connect}; print('connected')", check=False)
    network.lab.stop(listening)
    return "connected" in said


run(scenario)
