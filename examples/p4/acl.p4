// A packet filter between ports: rules over addresses, protocol and ports, each with a counter.
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

control Filter(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // A direct counter has a cell for each entry of its table, which counts by itself whenever the entry is hit.
    direct_counter(CounterType.packets_and_bytes) hits;

    action permit() {}
    action deny() {
        mark_to_drop(std);
        exit;
    }

    // The rule of the highest priority decides; a key that a rule leaves out matches anything.
    table rules {
        key = {
            hdr.ipv4.src: ternary;         // a value and a mask
            hdr.ipv4.dst: ternary;
            hdr.ipv4.protocol: optional;   // one value, or any
            hdr.ports.isValid(): optional;
            hdr.ports.dst: range;          // from and to
        }
        actions = { permit; deny; }
        default_action = deny();
        counters = hits;
        size = 4096;
    }

    action to(bit<9> port) {
        std.egress_spec = port;
    }
    action nowhere() {
        mark_to_drop(std);
    }

    // Pairs of ports, as if they were connected by a wire.
    table wires {
        key = { std.ingress_port: exact; }
        actions = { to; nowhere; }
        default_action = nowhere();
    }

    apply {
        // Everything but IPv4, for instance ARP, passes.
        if (hdr.ipv4.isValid()) {
            rules.apply();
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

V1Switch(Packets(), Verify(), Filter(), Depart(), Update(), Deparse()) main;
