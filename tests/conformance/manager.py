"""Starts os-ken with a right checksum for SCTP, and with a sender that keeps the rates of the cases.

Everything else is as published.
"""

import time

from os_ken.lib.packet import sctp


def checksum(_, data):
    """CRC-32C, least significant byte first (RFC 9260, appendix A), as the number that `sctp` writes.

    os-ken 3.1 and 4.2 compute it over the text of a `bytearray`, as Python 2 did over a string: on Python 3 the cases
    would expect checksums that no switch computes.
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return int.from_bytes((crc ^ 0xFFFFFFFF).to_bytes(4, "little"), "big")


def pace(tester):
    """Lets the sender send the packets that are due by the clock.

    As published it sends those of 10 ms, sleeps for 10 ms and begins anew: it loses the time that sending takes. A case
    for 100 packets a second beyond a meter's 100 then gets 80, whatever the switch does.
    """
    published = tester.OfTester._send_packet_thread

    def send(self, arg):
        now = time.monotonic()
        rate = arg.setdefault("rate", arg["packet_counter_inc"] / tester.CONTINUOUS_THREAD_INTVL)
        arg["packet_counter_inc"] = rate * (now - arg.get("last", now))
        arg["last"] = now
        published(self, arg)

    tester.OfTester._send_packet_thread = send


sctp.sctp._checksum = checksum

if __name__ == "__main__":
    # It prepares Python's libraries for what the tester imports.
    from os_ken.cmd.manager import main
    from os_ken.tests.switch import tester

    pace(tester)
    main()
