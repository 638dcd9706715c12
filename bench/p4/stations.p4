// A switch of two stations, 02:00:00:00:00:01 at port 1 and 02:00:00:00:00:02 at port 2: for bench/interfaces.sh.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

struct headers_t {
    ethernet_t ethernet;
}

struct metadata_t {}

parser Packets(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Switch(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action forward(bit<9> port) {
        std.egress_spec = port;
    }
    action nowhere() {
        mark_to_drop(std);
    }
    table stations {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; nowhere; }
        const default_action = nowhere();
        const entries = {
            0x020000000001: forward(1);
            0x020000000002: forward(2);
        }
    }
    apply {
        stations.apply();
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

V1Switch(Packets(), Verify(), Switch(), Depart(), Update(), Deparse()) main;
