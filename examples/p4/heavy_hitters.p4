// Heavy hitters: the controller hears of each flow once it has sent many packets, however many flows there are.
#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> TCP = 6;
const bit<8> UDP = 17;

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

// The front that TCP and UDP have in common.
header ports_t {
    bit<16> src;
    bit<16> dst;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    ports_t ports;
}

// A flow that has become large.
struct flow_t {
    bit<32> src;
    bit<32> dst;
    bit<8> protocol;
    bit<16> src_port;
    bit<16> dst_port;
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
        // Only first fragments have port numbers; behind options, this program does not look for them.
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (5, 0, TCP): ports;
            (5, 0, UDP): ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Count(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // A count-min sketch: every row counts each packet in one cell, which a hash of its own picks. Flows that share a
    // cell make its count too large, never too small; so the smallest count is the best.
    register<bit<32>>(4096) row0;
    register<bit<32>>(4096) row1;

    action limit(bit<32> packets) {
        bit<32> index0;
        bit<32> index1;
        bit<32> count0;
        bit<32> count1;
        hash(index0, HashAlgorithm.crc32, 32w0,
            { hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4.protocol, hdr.ports.src, hdr.ports.dst }, 32w4096);
        hash(index1, HashAlgorithm.crc16, 32w0,
            { hdr.ports.dst, hdr.ports.src, hdr.ipv4.protocol, hdr.ipv4.dst, hdr.ipv4.src }, 32w4096);
        // Nothing else reads or writes in between, though packets are processed on several cores.
        @atomic {
            row0.read(count0, index0);
            count0 = count0 |+| 1;
            row0.write(index0, count0);
            row1.read(count1, index1);
            count1 = count1 |+| 1;
            row1.write(index1, count1);
        }
        bit<32> count = count0 < count1 ? count0 : count1;
        // Once a flow: when its count reaches the limit. The controller starts a new interval by resetting the rows.
        if (count == packets) {
            digest<flow_t>(1, { hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4.protocol, hdr.ports.src, hdr.ports.dst });
        }
    }

    // Packets that make a flow large, by the network that sends it.
    table limits {
        key = { hdr.ipv4.src: lpm; }
        actions = { limit; NoAction; }
        default_action = limit(10000);
    }

    action to(bit<9> port) {
        std.egress_spec = port;
    }
    action nowhere() {
        mark_to_drop(std);
    }
    table wires {
        key = { std.ingress_port: exact; }
        actions = { to; nowhere; }
        default_action = nowhere();
    }

    apply {
        if (hdr.ipv4.isValid()) {
            limits.apply();
        }
        wires.apply();
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

V1Switch(Packets(), Verify(), Count(), Depart(), Update(), Deparse()) main;
