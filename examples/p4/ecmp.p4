// Routes over several paths: each flow takes one of a group's next hops, and the same one always.
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

control Route(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // Members are next hops; groups are lists of members, and a hash of the keys of the kind `selector` picks one. A
    // group that loses a member moves the flows of all entries that use it, by one write of the controller.
    action_selector(HashAlgorithm.crc32, 1024, 32) next_hops;

    action drop() {
        mark_to_drop(std);
    }
    action via(bit<9> port, bit<48> src, bit<48> dst) {
        std.egress_spec = port;
        hdr.ethernet.src = src;
        hdr.ethernet.dst = dst;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    table routes {
        key = {
            hdr.ipv4.dst: lpm;
            hdr.ipv4.src: selector;
            hdr.ipv4.dst: selector;
            hdr.ipv4.protocol: selector;
            hdr.ports.src: selector;
            hdr.ports.dst: selector;
        }
        actions = { via; drop; }
        implementation = next_hops;
        size = 16384;
    }

    apply {
        // Where nothing sends the packet on, it is dropped.
        drop();
        if (hdr.ipv4.isValid() && hdr.ipv4.ttl > 1) {
            routes.apply();
        }
    }
}

control Depart(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {}
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp_ecn, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.flags,
              hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Packets(), Verify(), Route(), Depart(), Update(), Deparse()) main;
