// What the clients of P4Runtime in this folder write: tables of each kind of key, an action profile, counters, groups.
// A packet from the controller leaves at the port that its header names, and one for the CPU port goes back.
#include <core.p4>
#include <v1model.p4>

#define CPU_PORT 510

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> padding;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> padding;
}

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> length;
    bit<16> identification;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port) {
            CPU_PORT: from_controller;
            default: ethernet;
        }
    }

    state from_controller {
        packet.extract(hdr.packet_out);
        transition ethernet;
    }

    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x800: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Route(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(512, CounterType.packets_and_bytes) received;
    direct_counter(CounterType.packets) routed;
    action_profile(16) next_hops;

    action drop() {
        mark_to_drop(std);
    }

    action send(bit<9> port) {
        std.egress_spec = port;
    }

    action multicast(bit<16> group) {
        std.mcast_grp = group;
    }

    action set_next_hop(bit<48> address, bit<9> port) {
        hdr.ethernet.destination = address;
        std.egress_spec = port;
    }

    table stations {
        key = { hdr.ethernet.destination: exact; }
        actions = { send; multicast; drop; }
        default_action = drop;
        size = 1024;
    }

    table routes {
        key = { hdr.ipv4.destination: lpm; }
        actions = { send; drop; }
        default_action = drop;
        counters = routed;
        size = 20000;
    }

    table access {
        key = {
            hdr.ipv4.source: ternary;
            hdr.ipv4.protocol: ternary;
        }
        actions = { drop; NoAction; }
        default_action = NoAction;
        size = 256;
    }

    table hops {
        key = { hdr.ipv4.tos: exact; }
        actions = { set_next_hop; NoAction; }
        implementation = next_hops;
        size = 64;
    }

    apply {
        received.count((bit<32>) std.ingress_port);
        if (hdr.packet_out.isValid()) {
            std.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
            exit;
        }
        if (hdr.ipv4.isValid()) {
            routes.apply();
            hops.apply();
            access.apply();
        } else {
            stations.apply();
        }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (std.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(Parse(), Verify(), Route(), Leave(), Compute(), Deparse()) main;
