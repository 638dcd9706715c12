// The router of bench/p4.sh: examples/p4/router.p4 as far as OpenFlow's tables and DPDK's pipeline have the same. The
// checksum is not verified, and is adjusted for the new time to live instead of being computed anew.
#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_VLAN = 0x8100;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header vlan_t {
    bit<3> priority;
    bit<1> drop_eligible;
    bit<12> id;
    bit<16> type;
}

header ipv4_t {
    bit<8> version_ihl;
    bit<8> dscp_ecn;
    bit<16> length;
    bit<16> id;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

struct headers_t {
    ethernet_t ethernet;
    vlan_t vlan;
    ipv4_t ipv4;
}

struct metadata_t {
    bit<16> next_hop;
}

parser Packets(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_VLAN: vlan;
            TYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.type) {
            TYPE_IPV4: ipv4;
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
    action drop() {
        mark_to_drop(std);
    }

    action via(bit<16> next_hop) {
        meta.next_hop = next_hop;
    }

    table routes {
        key = { hdr.ipv4.dst: lpm; }
        actions = { via; drop; }
        default_action = drop();
        size = 1048576;
    }

    action forward_tagged(bit<9> port, bit<12> vlan, bit<48> src, bit<48> dst) {
        std.egress_spec = port;
        hdr.ethernet.src = src;
        hdr.ethernet.dst = dst;
        hdr.ethernet.type = TYPE_VLAN;
        hdr.vlan.setValid();
        hdr.vlan = { 0, 0, vlan, TYPE_IPV4 };
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        // In one's complement: a carry comes back at the other end.
        hdr.ipv4.checksum = hdr.ipv4.checksum + (hdr.ipv4.checksum >= 0xfeff ? 16w0x101 : 16w0x100);
    }

    table next_hops {
        key = { meta.next_hop: exact; }
        actions = { forward_tagged; drop; }
        default_action = drop();
    }

    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.version_ihl != 0x45 || hdr.ipv4.ttl <= 1) {
            drop();
        } else if (routes.apply().hit) {
            next_hops.apply();
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

V1Switch(Packets(), Verify(), Route(), Depart(), Update(), Deparse()) main;
