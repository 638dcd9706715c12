// Tables: kinds of keys, defaults, entries of the program, and what the program learns of a lookup.
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

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.h);
        transition accept;
    }
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    action set(bit<8> r) {
        hdr.h.r = r;
    }
    action drop() {
        mark_to_drop(std);
    }

    table exact_keys {
        key = {
            hdr.h.a: exact;
            hdr.h.b: exact @name("second");
        }
        actions = { set; drop; }
        const default_action = drop();
        size = 16;
    }
    table prefixes {
        key = { hdr.h.a: lpm; }
        actions = { set; drop; }
        default_action = set(0xee);
    }
    table masks {
        key = { hdr.h.a: ternary; hdr.h.b: ternary; }
        actions = { set; NoAction; }
    }
    table bounds {
        key = { hdr.h.a: range; }
        actions = { set; @defaultonly NoAction; }
    }
    table optionals {
        key = { hdr.h.a: optional; hdr.h.b: optional; }
        actions = { set; drop; }
        default_action = drop;
    }
    table fixed {
        key = { hdr.h.a: ternary; hdr.h.b: exact; }
        actions = { set; drop; }
        const entries = {
            (0x10 &&& 0xf0, 1): set(1);
            (_, 1): set(2);
            (0x20, 2): set(3);
            (0x21, 2): drop();
        }
        default_action = set(9);
    }
    table initial {
        key = { hdr.h.a: ternary; }
        actions = { set; drop; }
        entries = {
            priority = 20: 0x10 &&& 0xf0: set(1);
            priority = 10: 0x11: set(2);
        }
    }
    table expressions {
        key = { hdr.h.a + hdr.h.b: exact @name("sum"); hdr.h.a[3:0]: exact @name("low"); }
        actions = { set; drop; NoAction; }
    }

    apply {
        std.egress_spec = 1;
        if (hdr.h.op == 1) {
            if (exact_keys.apply().hit) {
                hdr.h.b = 0xaa;
            }
        } else if (hdr.h.op == 2) {
            if (prefixes.apply().miss) {
                hdr.h.b = 0xbb;
            }
        } else if (hdr.h.op == 3) {
            switch (masks.apply().action_run) {
                set: {
                    hdr.h.a = 0xcc;
                }
                NoAction: {
                    hdr.h.a = 0xdd;
                }
            }
        } else if (hdr.h.op == 4) {
            bounds.apply();
        } else if (hdr.h.op == 5) {
            optionals.apply();
        } else if (hdr.h.op == 6) {
            fixed.apply();
        } else if (hdr.h.op == 7) {
            initial.apply();
        } else if (hdr.h.op == 8) {
            switch (expressions.apply().action_run) {
                drop:
                set: {
                    hdr.h.b = 0x11;
                }
                default: {
                    hdr.h.b = 0x22;
                }
            }
        }
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
