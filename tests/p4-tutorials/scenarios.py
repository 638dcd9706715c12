"""What the exercises' READMEs let one do, and what one should see then."""

import re

from tutorial import text

MESSAGE = "P4 is cool"


def basic(exercise):
    exercise.program_switches()
    everyone_reaches_everyone(exercise)
    for host, ttl in (("h2", 63), ("h3", 61)):
        received = exercise.receive(host)
        exercise.script("h1", "send.py", exercise.addresses[host], MESSAGE)
        exercise.wait(f"{host} receives the message", lambda: MESSAGE in text(received), received)
        exercise.check(f"the message to {host} has a TTL of {ttl}", fields(received, "ttl") == [ttl], text(received))


def basic_tunnel(exercise):
    exercise.program_switches()
    received = exercise.receive("h2")
    exercise.script("h1", "send.py", exercise.addresses["h2"], MESSAGE)
    exercise.wait("h2 receives the message", lambda: MESSAGE in text(received), received)
    exercise.check("a message without tunnel arrives", "MyTunnel" not in text(received), text(received))
    for number, (destination, what) in enumerate((("h2", "its"), ("h3", "another's")), 1):
        exercise.script("h1", "send.py", exercise.addresses[destination], MESSAGE, "--dst_id", "2")
        exercise.wait("h2 receives a tunnel", lambda: fields(received, "dst_id") == [2] * number, received)
        exercise.check(f"a tunnel to h2 arrives, with {what} address", True)


def p4runtime(exercise):
    exercise.check("without a controller h1 does not reach h2", not exercise.ping("h1", "h2"))
    controller = exercise.start(None, exercise.python, "mycontroller.py", name="mycontroller")
    exercise.wait("the controller reads counters", lambda: "Reading tunnel counters" in text(controller), controller)
    exercise.check("h1 reaches h2", exercise.ping("h1", "h2"), controller.tail())
    rules = re.findall(r"^MyIngress\.\w+: .*-> MyIngress\.\w+ .*$", text(controller), re.MULTILINE)
    exercise.check("the controller reads the six entries that it wrote", len(rules) == 6, text(controller))
    for switch, counter, tunnel in (("s1", "ingress", 100), ("s2", "egress", 100), ("s2", "ingress", 200),
                                    ("s1", "egress", 200)):
        counted = f"{switch} MyIngress.{counter}TunnelCounter {tunnel}: 3 packets"
        exercise.wait(f"the controller reads: {counted}", lambda: counted in text(controller), controller)
        exercise.check(f"the controller reads: {counted}", True)


def ecn(exercise):
    exercise.program_switches()
    received = exercise.receive("h2")
    values = congested(exercise, received, lambda: fields(received, "tos"))
    exercise.check("`tos` is 1 before iperf sends", values[:3] == [1, 1, 1], values)
    exercise.check("`tos` becomes 3 while the queue is long", 3 in values, values)
    exercise.check("`tos` is 1 again when the queue is short", values[-1] == 1, values)


def mri(exercise):
    exercise.program_switches()
    received = exercise.receive("h2")
    depths = congested(exercise, received, lambda: fields(received, "qdepth"))
    exercise.check("each message has two hops", set(fields(received, "count")) == {2}, text(received))
    hops = fields(received, "swid")
    exercise.check("these are s2 and s1, the last one first", hops == [2, 1] * (len(hops) // 2), hops)
    of_s1 = depths[1::2]
    exercise.check("s1's queue is empty before iperf sends", of_s1[:3] == [0, 0, 0], of_s1)
    exercise.check("s1's queue is long while iperf sends", max(of_s1) > 10, of_s1)


def congested(exercise, received, values):
    """Sends a message a second from h1 to h2, and for six seconds more than the link carries from h11 to h22."""
    exercise.serve("h22", "-u")
    sender = exercise.start("h1", exercise.python, "send.py", exercise.addresses["h2"], MESSAGE, "28", name="sender")
    exercise.wait("h2 receives three messages", lambda: text(received).count(MESSAGE) >= 3, received)
    exercise.run("h11", "iperf", "-c", exercise.addresses["h22"], "-t", "6", "-u")
    exercise.wait("the sender ends", lambda: not sender.is_running(), received)
    return values()


def source_routing(exercise):
    exercise.program_switches()
    for ports, ttl in (("2 3 2 2 1", 59), ("2 1", 62)):
        received = exercise.receive("h2")
        exercise.answers("h1", f"send.py {exercise.addresses['h2']}", ports, "q")
        exercise.wait("h2 receives the message", lambda: fields(received, "ttl"), received)
        found = fields(received, "ttl")
        exercise.check(f"a message by ports {ports} has a TTL of {ttl}", found == [ttl], text(received))
        exercise.lab.stop(received)
        received.log.unlink()


def calc(exercise):
    exercise.program_switches()
    sums = {"1+1": 2, "10-3": 7, "3-4": 0xffffffff, "12&10": 8, "12|3": 15, "5^1": 4}
    said = exercise.answers("h1", "calc.py", *sums, "quit")
    for question, answer in sums.items():
        exercise.check(f"{question} is {answer}", f"> {question}\n{answer}\n" in said, said)


def load_balance(exercise):
    exercise.program_switches()
    servers = {host: exercise.receive(host) for host in ("h2", "h3")}
    sent = 0
    while sent < 6 or (sent < 20 and not all(MESSAGE in text(server) for server in servers.values())):
        exercise.script("h1", "send.py", "10.0.0.1", MESSAGE)
        sent += 1
    count = lambda: [text(server).count(MESSAGE) for server in servers.values()]
    exercise.wait(f"{sent} messages arrive, not {count()}", lambda: sum(count()) == sent, *servers.values())
    exercise.check(f"of {sent} messages h2 and h3 receive some each", all(count()), count())


def firewall(exercise):
    exercise.program_switches()
    for client, server in (("h1", "h2"), ("h1", "h3"), ("h2", "h4"), ("h4", "h3")):
        exercise.check(f"a connection from {client} to {server} passes", connects(exercise, client, server))
    for client, server in (("h3", "h1"), ("h4", "h2")):
        exercise.check(f"a connection from {client} to {server} does not", not connects(exercise, client, server))


def connects(exercise, client, server):
    process = exercise.serve(server)
    # iperf that waits for a connection outlives other signals.
    words = ["timeout", "-s", "KILL", "6", "iperf", "-c", exercise.addresses[server], "-t", "1"]
    said = exercise.run(client, *words)
    exercise.lab.stop(process)
    return "bits/sec" in said


def link_monitor(exercise):
    exercise.program_switches()
    received = exercise.receive("h1")
    probes = lambda: re.findall(r"Switch (\d) - Port (\d): (\S+) Mbps", text(received))
    sender = exercise.start("h1", exercise.python, "send.py", name="send")
    exercise.wait("probes come back", lambda: len(probes()) >= 18, received)
    # The way of the probe, the last hop first.
    way = [(1, 1), (4, 2), (2, 3), (3, 2), (1, 3), (3, 1), (2, 4), (4, 1), (1, 4)]
    found = [(int(switch), int(port)) for switch, port, _ in probes()[:9]]
    exercise.check("a probe tells of its nine hops", found == way, found)
    exercise.serve("h4")
    before = len(probes())
    # At a rate that BMv2 reaches, too: `receive.py` looks at each packet of h1, and misses probes among too many.
    said = exercise.run("h1", "iperf", "-c", exercise.addresses["h4"], "-t", "8", "-b", "10M", "-f", "m")
    rate = float(re.findall(r"(\S+) Mbits/sec", said)[-1])
    during = probes()[before:]
    exercise.check("probes come back while iperf sends", during, f"{said}\n{sender.tail()}")
    for hop in ((1, 4), (4, 1)):
        rates = sorted(float(value) for switch, port, value in during if (int(switch), int(port)) == hop)
        median = rates[len(rates) // 2]
        what = f"port {hop[1]} of s{hop[0]} carries {median:.0f} Mbit/s, iperf says {rate:.0f}"
        exercise.check(what, 0.8 * rate < median < 1.25 * rate, rates)


def multicast(exercise):
    exercise.program_switches()
    inside = ("h1", "h2", "h3")
    for host in inside:
        for other in inside:
            if host != other:
                exercise.check(f"{host} reaches {other}", exercise.ping(host, other))
    exercise.check("h1 does not reach h4, which is not in the group", not exercise.ping("h1", "h4"))
    # The solution's group has all four.
    (exercise.folder / "s1-runtime.json").replace(exercise.folder / "sig-topo/s1-runtime.json")
    exercise.program_switches()
    everyone_reaches_everyone(exercise)


def qos(exercise):
    exercise.program_switches()
    received = exercise.receive("h2")
    for protocol, tos in (("UDP", 0xb9), ("TCP", 0xb1)):
        to = exercise.addresses["h2"]
        exercise.script("h1", "send.py", f"--p={protocol}", f"--des={to}", f"--m={MESSAGE}", "--dur=1")
        exercise.wait(f"h2 receives {protocol}", lambda: tos in fields(received, "tos"), received)
        exercise.check(f"`tos` of {protocol} is {tos:#x}", True)


def flowcache(exercise):
    controller = exercise.start(None, exercise.python, "mycontroller.py", name="mycontroller")
    installed = "Installed P4 Program using SetForwardingPipelineConfig on s3"
    exercise.wait("the controller installs the program", lambda: installed in text(controller), controller)
    exercise.wait("h1 reaches h2", lambda: exercise.ping("h1", "h2"), controller)
    exercise.check("h1 reaches h2", True)
    told = lambda pattern: re.search(pattern, text(controller))
    for switch in ("s1", "s2"):
        flow = rf"For switch {switch} flow \(SA=10.0.1.1, DA=10.0.2.2, proto=1\) added"
        exercise.check(f"{switch}'s unknown flow came to the controller", told(flow), text(controller))
    counted = r"s1 MyEgress.egressPktInCounter 2: [1-9]"
    exercise.check("the program counts packets to the controller", told(counted), text(controller))
    for switch in ("s1", "s2"):
        deleted = rf"Deleted flow_cache entry on {switch}. \(SA=10.0.1.1, DA=10.0.2.2, proto=1\)"
        exercise.wait(f"{switch}'s entry is idle", lambda: told(deleted), controller)
        exercise.check(f"{switch}'s idle entry was deleted", True)
    exercise.wait("h1 reaches h2 again", lambda: exercise.ping("h1", "h2"), controller)
    exercise.check("h1 reaches h2 again", True)
    exercise.check("the controller met no error", "rror" not in text(controller), text(controller))


def everyone_reaches_everyone(exercise):
    for host in exercise.hosts:
        for other in exercise.hosts:
            if host != other:
                exercise.check(f"{host} reaches {other}", exercise.ping(host, other))


def fields(process, name):
    """The values of a header's field, in the order in which packets came."""
    return [int(value, 0) for value in re.findall(rf"\b{name}\s*= ([0-9a-fx]+)", text(process))]
