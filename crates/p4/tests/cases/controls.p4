// Controls and parsers within others: parameters of constructors, copies of arguments, state of their own, exit.
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> a;
    bit<8> b;
    bit<8> r;
}

struct headers {
    h_t h;
}

struct metadata {
    bit<8> from_parser;
}

#include "common.p4"

parser Fields(packet_in b, out h_t h, inout bit<8> seen)(bit<8> added) {
    state start {
        b.extract(h);
        seen = seen + added;
        transition select(h.op) {
            0xff: reject;
            default: accept;
        }
    }
}

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    Fields(3) fields;
    state start {
        meta.from_parser = 1;
        fields.apply(b, hdr.h, meta.from_parser);
        transition accept;
    }
}

control Adder(inout bit<8> x, in bit<8> y)(bit<8> n) {
    action add(bit<8> more) {
        x = x + more;
    }
    table t {
        key = { y: exact @name("y"); }
        actions = { add; NoAction; }
    }
    apply {
        x = x + n;
        t.apply();
    }
}

control Counting(out bit<8> before) {
    register<bit<8>, bit<1>>(1) count;
    apply {
        count.read(before, 0);
        count.write(0, before + 1);
    }
}

control Leaving(inout h_t h, in bool leaves) {
    apply {
        h.r = 0x11;
        if (leaves) {
            exit;
        }
        h.r = 0x22;
    }
}

control Returning(inout h_t h) {
    apply {
        if (h.a == 0) {
            return;
        }
        h.r = 0x33;
    }
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    Adder(1) one;
    Adder(0x10) sixteen;
    Counting() first;
    Counting() second;
    Leaving() leaving;
    Returning() returning;

    apply {
        std.egress_spec = 1;
        if (hdr.h.op == 1) {
            one.apply(hdr.h.a, hdr.h.b);
            sixteen.apply(hdr.h.a, hdr.h.b);
        } else if (hdr.h.op == 2) {
            // Each instance has state of its own; the same instance may be applied twice.
            first.apply(hdr.h.a);
            first.apply(hdr.h.a);
            second.apply(hdr.h.b);
        } else if (hdr.h.op == 3) {
            leaving.apply(hdr.h, hdr.h.a == 1);
            hdr.h.b = 0x44;
        } else if (hdr.h.op == 4) {
            returning.apply(hdr.h);
            hdr.h.b = 0x55;
        } else if (hdr.h.op == 5) {
            hdr.h.r = meta.from_parser;
        }
    }
}

control E(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        // Exit ends ingress only.
        if (hdr.h.op == 3) {
            hdr.h.op = 0x33;
        }
    }
}

V1Switch(P(), NoVerify(), C(), E(), NoCompute(), EmitAll()) main;
