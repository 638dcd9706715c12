// Sends packets to the port that they name, or to a group, and tells them how long its queue is.
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

// What is asked, and what is answered.
header depths_t {
    bit<8> group;
    bit<8> port;
    bit<32> enqueue;
    bit<32> dequeue;
    bit<32> delay;
}

struct headers {
    ethernet_t eth;
    depths_t depths;
}

struct metadata {}

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.eth);
        b.extract(hdr.depths);
        transition accept;
    }
}

control MyVerify(inout headers hdr, inout metadata meta) {
    apply {}
}

control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = (bit<9>)hdr.depths.port;
        std.mcast_grp = (bit<16>)hdr.depths.group;
    }
}

control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        hdr.depths.port = (bit<8>)std.egress_port;
        hdr.depths.enqueue = (bit<32>)std.enq_qdepth;
        hdr.depths.dequeue = (bit<32>)std.deq_qdepth;
        hdr.depths.delay = std.deq_timedelta;
    }
}

control MyCompute(inout headers hdr, inout metadata meta) {
    apply {}
}

control MyDeparser(packet_out b, in headers hdr) {
    apply {
        b.emit(hdr);
    }
}

V1Switch(P(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
