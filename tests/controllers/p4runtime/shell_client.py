"""p4runtime-shell: program, entries, packets. Usage: shell_client.py ADDRESS PROGRAM.p4 P4INFO"""

import sys

import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeWriteException

ADDRESS, PROGRAM, P4INFO = sys.argv[1:4]
CPU_PORT = 510
FRAME = bytes.fromhex("02000000000202000000000188b5") + bytes(46)


def check(what, holds, otherwise=""):
    if not holds:
        sh.teardown()
        sys.exit(f"not so: p4runtime-shell: {what} {otherwise}")
    print(f"  p4runtime-shell: {what}")


def tables():
    entry = sh.TableEntry("Route.routes")(action="Route.send")
    entry.match["hdr.ipv4.destination"] = "10.1.0.0/16"
    entry.action["port"] = "3"
    entry.insert()
    read = list(sh.TableEntry("Route.routes").read())
    check("a route is read back", len(read) == 1 and read[0].action["port"] is not None, read)
    entry.action["port"] = "4"
    entry.modify()
    entry.counter_data.packet_count = 7
    entry.modify()
    read = next(entry.read())
    check("it is changed", read.action["port"].value == b"\x04", read)
    check("its counter is read", read.counter_data.packet_count == 7, read)
    try:
        entry.insert()
    except P4RuntimeWriteException as error:
        check("a second insertion fails", "ALREADY_EXISTS" in str(error), error)
    else:
        check("a second insertion fails", False)
    entry.delete()
    check("it is deleted", list(sh.TableEntry("Route.routes").read()) == [])
    access = sh.TableEntry("Route.access")(action="NoAction")
    access.match["hdr.ipv4.protocol"] = "6&&&0xff"
    access.priority = 10
    access.insert()
    check("a ternary entry is read back", [read.priority for read in sh.TableEntry("Route.access").read()] == [10])


def objects():
    member = sh.ActionProfileMember("Route.next_hops")(member_id=1, action="Route.set_next_hop")
    member.action["address"] = "02:00:00:00:00:09"
    member.action["port"] = "2"
    member.insert()
    check("a member is read back", [read.member_id for read in sh.ActionProfileMember("Route.next_hops").read()] == [1])
    group = sh.MulticastGroupEntry(1)
    group.add(1, 1).add(2, 1)
    group.insert()
    check("a multicast group is read back", len(next(sh.MulticastGroupEntry(1).read()).replicas) == 2)
    session = sh.CloneSessionEntry(5)
    session.add(CPU_PORT, 1)
    session.insert()
    check("a clone session is read back", next(sh.CloneSessionEntry(5).read()).session_id == 5)
    counters = list(sh.CounterEntry("Route.received").read())
    check("a counter of 512 cells is read", len(counters) == 512, len(counters))


def packets():
    received = sh.PacketIn()
    packet = sh.PacketOut(FRAME, egress_port=str(CPU_PORT), padding="0")
    packet.send()
    read = []
    received.sniff(read.append, timeout=3)
    check("a packet comes back", [message.packet.payload for message in read] == [FRAME], read)


# Above the election ids of other clients: the switch remembers the highest one.
sh.setup(device_id=0, grpc_addr=ADDRESS, election_id=(1, 0), config=sh.FwdPipeConfig(P4INFO, PROGRAM), verbose=False)
check("the switch speaks 1.5.0", sh.APIVersion() == "1.5.0", sh.APIVersion())
tables()
objects()
packets()
sh.teardown()
