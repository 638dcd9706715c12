// A router of few constant routes: the longest prefix names the port, TTL and checksum change. 10.1.0.0/16 goes back to
// where it came from, 10.3.0.0/16 to a port that does not exist, 10.9.0.0/16 to the controllers.
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> len;
    bit<16> id;
    bit<3>  flags;
    bit<13> offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

struct headers {
    ethernet_t eth;
    ipv4_t ip;
}

struct metadata {}

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.eth);
        transition select(hdr.eth.type) {
            0x800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        b.extract(hdr.ip);
        transition select(hdr.ip.ihl) {
            5: accept;
            default: reject;
        }
    }
}

control MyVerify(inout headers hdr, inout metadata meta) {
    apply {}
}

control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }
    action route(bit<9> port, bit<48> next) {
        std.egress_spec = port;
        hdr.eth.src = hdr.eth.dst;
        hdr.eth.dst = next;
        hdr.ip.ttl = hdr.ip.ttl - 1;
    }
    action back() {
        std.egress_spec = std.ingress_port;
    }
    table routes {
        key = { hdr.ip.dst: lpm; }
        actions = { route; back; drop; }
        default_action = drop();
        const entries = {
            0x0a000000 &&& 0xffffff00: route(2, 0x020000000002);
            0x0a000080 &&& 0xffffff80: route(3, 0x020000000003);
            0x0a010000 &&& 0xffff0000: back();
            0x0a030000 &&& 0xffff0000: route(77, 0x02000000004d);
            0x0a090000 &&& 0xffff0000: route(510, 0x0200000000fe);
        }
    }
    apply {
        if (hdr.ip.isValid() && hdr.ip.ttl > 1) {
            routes.apply();
        } else {
            drop();
        }
    }
}

control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {}
}

control MyCompute(inout headers hdr, inout metadata meta) {
    apply {
        update_checksum(hdr.ip.isValid(),
            { hdr.ip.version, hdr.ip.ihl, hdr.ip.tos, hdr.ip.len, hdr.ip.id, hdr.ip.flags, hdr.ip.offset, hdr.ip.ttl,
              hdr.ip.protocol, hdr.ip.src, hdr.ip.dst },
            hdr.ip.checksum, HashAlgorithm.csum16);
    }
}

control MyDeparser(packet_out b, in headers hdr) {
    apply {
        b.emit(hdr);
    }
}

V1Switch(P(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
