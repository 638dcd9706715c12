// Variable fields: extracted with a length, too long ones, copies.
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> bytes;
    varbit<64> data;
    bit<8> behind;
}

header tail_t {
    bit<8> code;
}

struct headers {
    h_t h;
    h_t copy;
    tail_t tail;
}

struct metadata {}

#include "common.p4"

header front_t {
    bit<8> op;
    bit<8> bytes;
}

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        front_t front = b.lookahead<front_t>();
        b.extract(hdr.h, (bit<32>) front.bytes * 8);
        transition accept;
    }
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (std.parser_error == error.HeaderTooShort) {
            hdr.tail.setValid();
            hdr.tail.code = 0xee;
        }
        if (hdr.h.op == 1) {
            hdr.copy = hdr.h;
            hdr.copy.op = 0xcc;
        } else if (hdr.h.op == 2) {
            hdr.h.setInvalid();
        }
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
