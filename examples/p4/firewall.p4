// A stateful firewall: hosts outside can send only what belongs to connections that were opened from the inside.
#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> TCP = 6;
// A flag of TCP: the sender opens a connection.
const bit<8> SYN = 2;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> dscp_ecn;
    bit<16> length;
    bit<16> id;
    bit<3> flags;
    bit<13> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header tcp_t {
    bit<16> src;
    bit<16> dst;
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<4> offset;
    bit<4> reserved;
    bit<8> flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    tcp_t tcp;
}

struct metadata_t {}

parser Packets(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (5, 0, TCP): tcp;
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Guard(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // A Bloom filter: a connection sets one bit in each row, and is known if all of them are set. It never forgets a
    // connection, and rarely takes one for known that is not. The controller resets the rows from time to time.
    register<bit<1>>(65536) row0;
    register<bit<1>>(65536) row1;

    action drop() {
        mark_to_drop(std);
        exit;
    }
    action to_outside(bit<9> port) {
        std.egress_spec = port;
    }
    action to_inside(bit<9> port) {
        std.egress_spec = port;
    }

    table sides {
        key = { std.ingress_port: exact; }
        actions = { to_outside; to_inside; drop; }
        const default_action = drop();
    }

    // Where a connection's bits are: the same for both directions if the end inside comes first.
    action find(out bit<32> index0, out bit<32> index1, in bit<32> inside, in bit<16> inside_port, in bit<32> outside,
            in bit<16> outside_port) {
        hash(index0, HashAlgorithm.crc32, 32w0, { inside, inside_port, outside, outside_port }, 32w65536);
        hash(index1, HashAlgorithm.crc16, 32w0, { inside, inside_port, outside, outside_port }, 32w65536);
    }

    apply {
        bit<32> index0;
        bit<32> index1;
        switch (sides.apply().action_run) {
            to_outside: {
                if (hdr.tcp.isValid() && hdr.tcp.flags & SYN != 0) {
                    find(index0, index1, hdr.ipv4.src, hdr.tcp.src, hdr.ipv4.dst, hdr.tcp.dst);
                    row0.write(index0, 1);
                    row1.write(index1, 1);
                }
            }
            to_inside: {
                if (hdr.tcp.isValid()) {
                    bit<1> bit0;
                    bit<1> bit1;
                    find(index0, index1, hdr.ipv4.dst, hdr.tcp.dst, hdr.ipv4.src, hdr.tcp.src);
                    row0.read(bit0, index0);
                    row1.read(bit1, index1);
                    if (bit0 & bit1 == 0) {
                        drop();
                    }
                } else if (hdr.ipv4.isValid()) {
                    // Neither UDP, nor fragments, nor anything else that has no connection.
                    drop();
                }
            }
        }
    }
}

control Depart(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {}
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Packets(), Verify(), Guard(), Depart(), Update(), Deparse()) main;
