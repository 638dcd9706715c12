// Errors as values: `verify` with an error that the packet chooses; an integer without a width as a parameter.
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> r;
}

struct headers {
    h_t h;
}

struct metadata {}

#include "common.p4"

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.h);
        error e = hdr.h.op == 2 ? error.NoMatch : error.StackOutOfBounds;
        verify(hdr.h.op == 1, e);
        hdr.h.r = 9;
        transition accept;
    }
}

control is_one(in bit<8> value, int one, out bool result) {
    apply {
        result = value == one;
    }
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    is_one() check;
    apply {
        bool one;
        check.apply(hdr.h.op, 1, one);
        if (std.parser_error == error.NoMatch) {
            hdr.h.r = 0x22;
        } else if (std.parser_error == error.StackOutOfBounds) {
            hdr.h.r = 0x33;
        } else if (one) {
            hdr.h.r = hdr.h.r + 1;
        }
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
