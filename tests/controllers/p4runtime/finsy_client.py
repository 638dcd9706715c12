"""finsy: two controllers, program, entries, packets. Usage: finsy_client.py ADDRESS PROGRAM.p4 P4INFO"""

import asyncio
import logging
import sys
from pathlib import Path

import finsy as fy

ADDRESS, PROGRAM, P4INFO = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
CPU_PORT = 510
ROUTES = 5000
FRAME = bytes.fromhex("02000000000202000000000188b5") + bytes(46)


def check(what, holds, otherwise=""):
    if not holds:
        sys.exit(f"not so: finsy: {what} {otherwise}")
    print(f"  finsy: {what}")


def route(number, port):
    address = f"10.{number >> 8}.{number & 255}.0/24"
    return fy.P4TableEntry("routes", match=fy.Match(destination=address), action=fy.Action("send", port=port))


async def entries(switch, of):
    return [entry async for entry in switch.read(of)]


async def tables(switch):
    """Writes tables of each kind and reads them back."""
    station = fy.P4TableEntry(
        "stations", match=fy.Match(destination="02:00:00:00:00:01"), action=fy.Action("send", port=1)
    )
    access = [
        fy.P4TableEntry(
            "access", match=fy.Match(source="10.0.0.0/&255.0.0.0"), priority=priority, action=fy.Action("drop")
        )
        for priority in (1, 2)
    ]
    default = fy.P4TableEntry("stations", is_default_action=True, action=fy.Action("multicast", group=1))
    await switch.write([+station, *(+entry for entry in access), ~default])
    read = await entries(switch, fy.P4TableEntry("stations"))
    check("an exact entry is read back", [entry["destination"] for entry in read] == [0x020000000001], read)
    read = await entries(switch, fy.P4TableEntry("access"))
    check("ternary entries are read back", sorted(entry.priority for entry in read) == [1, 2], read)
    read = await entries(switch, fy.P4TableEntry("stations", is_default_action=True))
    check("a default entry is read back", [entry.action for entry in read] == [default.action], read)

    await switch.insert([route(number, number % 512) for number in range(ROUTES)])
    read = await entries(switch, fy.P4TableEntry("routes"))
    check(f"{ROUTES} routes are read back", len(read) == ROUTES, len(read))
    await switch.modify([route(7, 3)])
    read = await entries(switch, route(7, 3))
    check("a changed route is read by its key", [entry.action.args["port"] for entry in read] == [3], read)
    await switch.delete([route(number, 0) for number in range(1, ROUTES)])
    check("routes are gone", len(await entries(switch, fy.P4TableEntry("routes"))) == 1)


async def objects(switch):
    """Writes what is not a table."""
    member = fy.P4ActionProfileMember(
        "next_hops", member_id=1, action=fy.Action("set_next_hop", address="02:00:00:00:00:09", port=2)
    )
    hop = fy.P4TableEntry("hops", match=fy.Match(tos=4), action=fy.P4IndirectAction(member_id=1))
    group = fy.P4MulticastGroupEntry(1, replicas=[1, 2, (3, 1)])
    session = fy.P4CloneSessionEntry(5, replicas=[CPU_PORT])
    counter = fy.P4CounterEntry("received", index=3, data=fy.P4CounterData(packet_count=10, byte_count=640))
    await switch.write([+member, +group, +session, ~counter])
    await switch.write([+hop])
    read = await entries(switch, fy.P4ActionProfileMember("next_hops"))
    check("a member is read back", [entry.member_id for entry in read] == [1], read)
    read = await entries(switch, fy.P4TableEntry("hops"))
    check("an entry with a member is read back", [entry.action for entry in read] == [hop.action], read)
    read = await entries(switch, fy.P4MulticastGroupEntry())
    check("a multicast group is read back", [len(entry.replicas) for entry in read] == [3], read)
    read = await entries(switch, fy.P4CloneSessionEntry(5))
    check("a clone session is read back", [entry.session_id for entry in read] == [5], read)
    read = await entries(switch, fy.P4CounterEntry("received", index=3))
    check("a counter is read back", [entry.data.packet_count for entry in read] == [10], read)


async def errors(switch):
    """Refused updates have their own results."""
    try:
        await switch.insert([route(0, 1), route(1, 2)])
    except fy.P4ClientError as error:
        check("the update that failed is named", list(error.details) == [0], error)
        check("its code is ALREADY_EXISTS", error.details[0].canonical_code == fy.GRPCStatusCode.ALREADY_EXISTS, error)
    else:
        check("a second insertion fails", False)
    check("the other update was carried out", len(await entries(switch, fy.P4TableEntry("routes"))) == 2)


async def packets(switch):
    """A packet for the CPU port comes back."""
    received = switch.read_packets()
    first = asyncio.ensure_future(anext(received))
    await asyncio.sleep(0)  # The queue is there once the generator has started.
    await switch.write([fy.P4PacketOut(FRAME, egress_port=CPU_PORT, padding=0)])
    packet = await asyncio.wait_for(first, 10)
    check("a packet comes back", packet.payload == FRAME, packet)
    check("with the port where it came from", packet["ingress_port"] == CPU_PORT, packet)


async def main():
    options = fy.SwitchOptions(p4info=P4INFO, p4blob=PROGRAM, device_id=1, fail_fast=True)
    async with fy.Switch("one", ADDRESS, options) as switch:
        check("the controller is primary", switch.is_primary)
        check(f"the switch speaks {switch.p4runtime_version}", str(switch.p4runtime_version).startswith("1.5"))
        await switch.delete_all()
        await tables(switch)
        await objects(switch)
        await errors(switch)
        await packets(switch)
        # The second one starts with the same election id, and goes on with a lower one.
        async with fy.Switch("two", ADDRESS, options) as backup:
            check("another controller is backup", not backup.is_primary, backup.election_id)
            check("it reads", len(await entries(backup, fy.P4TableEntry("routes"))) == 2)
            try:
                await backup.insert([route(9, 9)])
            except fy.P4ClientError as error:
                check("it does not write", error.code == fy.GRPCStatusCode.PERMISSION_DENIED, error)
            else:
                check("it does not write", False)
        await switch.delete_all()
        check("all entries are deleted", await entries(switch, fy.P4TableEntry()) == [])


logging.basicConfig(level=logging.WARNING)
asyncio.run(main())
