// Header unions: at most one member is valid.
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> type;
    bit<8> seen;
}

header one_t {
    bit<8> a;
}

header two_t {
    bit<16> b;
}

header_union either_t {
    one_t one;
    two_t two;
}

struct headers {
    h_t h;
    either_t first;
    either_t second;
    either_t third;
}

struct metadata {}

#include "common.p4"

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.h);
        transition select(hdr.h.type) {
            1: one;
            2: two;
            3: more;
            default: accept;
        }
    }
    state one {
        b.extract(hdr.first.one);
        transition accept;
    }
    state two {
        b.extract(hdr.first.two);
        transition accept;
    }
    state more {
        b.extract(hdr.second.one);
        b.extract(hdr.third.two);
        transition accept;
    }
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        bit<1> valid = hdr.first.isValid() ? 1w1 : 0;
        bit<1> one = hdr.first.one.isValid() ? 1w1 : 0;
        bit<1> two = hdr.first.two.isValid() ? 1w1 : 0;
        hdr.h.seen = 5w0 ++ valid ++ one ++ two;
        if (hdr.h.op == 1) {
            hdr.first.two.setValid();
            hdr.first.two.b = 0xbbbb;
        } else if (hdr.h.op == 2) {
            hdr.first.one = { 0xaa };
        } else if (hdr.h.op == 3) {
            hdr.first.one.setInvalid();
        } else if (hdr.h.op == 4) {
            hdr.first = hdr.third;
            hdr.third.two.setInvalid();
        } else if (hdr.h.op == 5) {
            hdr.first.two.setInvalid();
            hdr.first.one.setValid();
            hdr.first.one.a = 5;
        }
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
