// Actions and functions: copies of arguments, results, early returns, exit.
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

struct metadata {}

#include "common.p4"

bit<8> twice(in bit<8> x) {
    return x + x;
}

bit<8> take(inout bit<8> x) {
    x = x + 1;
    return x;
}

bit<8> sign(in bit<8> x) {
    if (x == 0) {
        return 0;
    }
    if (x > 127) {
        return 0xff;
    }
    return 1;
}

void pair(out bit<8> x, out bit<8> y) {
    x = 1;
    y = 2;
}

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.h);
        transition accept;
    }
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    action add_to(inout bit<8> x, in bit<8> y) {
        x = x + y;
        if (x == 0x10) {
            return;
        }
        x = x ^ 0x80;
    }
    action leave() {
        hdr.h.r = 4;
        exit;
    }
    action late(inout bit<8> x, in bit<8> y) {
        // The argument is a copy until the action ends.
        hdr.h.a = 0x77;
        hdr.h.r = x;
        x = y;
    }
    action add_n(inout bit<8> x, bit<8> n) {
        x = x + n;
    }
    table t {
        key = { hdr.h.b: exact; }
        actions = { add_n(hdr.h.a); leave; }
        default_action = add_n(hdr.h.a, 0x40);
    }
    table u {
        key = { hdr.h.a: exact; }
        actions = { add_n(hdr.h.b); NoAction; }
    }

    apply {
        std.egress_spec = 1;
        if (hdr.h.op == 1) {
            add_to(hdr.h.a, hdr.h.b);
        } else if (hdr.h.op == 2) {
            // Operands are evaluated from left to right.
            hdr.h.r = twice(hdr.h.a) + take(hdr.h.a) + hdr.h.a;
        } else if (hdr.h.op == 3) {
            hdr.h.r = sign(hdr.h.a);
        } else if (hdr.h.op == 4) {
            leave();
            hdr.h.r = 0xff;
        } else if (hdr.h.op == 5) {
            // Results are copied from left to right: the last one stays.
            pair(hdr.h.r, hdr.h.r);
            pair(y = hdr.h.a, x = hdr.h.b);
        } else if (hdr.h.op == 6) {
            late(hdr.h.a, hdr.h.b);
        } else if (hdr.h.op == 7) {
            t.apply();
            u.apply();
            hdr.h.r = 7;
        } else if (hdr.h.op == 8) {
            // The second operand is evaluated only where it decides.
            if (hdr.h.a == 0 || take(hdr.h.b) == 1) {
                hdr.h.r = 1;
            }
            if (hdr.h.a == 0 && take(hdr.h.b) == 1) {
                hdr.h.r = hdr.h.r + 2;
            }
        } else if (hdr.h.op == 9) {
            if (hdr.h.a == 1) {
                return;
            }
            hdr.h.r = 9;
        }
        if (hdr.h.op != 9) {
            return;
        }
        hdr.h.b = 9;
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
