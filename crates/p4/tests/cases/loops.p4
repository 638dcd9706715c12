// Loops: with a counter, over a range and over a stack; break, continue; switches over values.
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> n;
    bit<8> r;
}

header item_t {
    bit<8> v;
}

struct headers {
    h_t h;
    item_t[3] items;
}

struct metadata {}

#include "common.p4"

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.h);
        b.extract(hdr.items.next);
        b.extract(hdr.items.next);
        b.extract(hdr.items.next);
        transition accept;
    }
}

bit<8> first_at_least(in headers hdr, in bit<8> n) {
    for (item_t item in hdr.items) {
        if (item.v >= n) {
            return item.v;
        }
    }
    return 0;
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        bit<8> r = 0;
        if (hdr.h.op == 1) {
            for (bit<8> i = 0; i < 20; i = i + 1) {
                if (i >= hdr.h.n) {
                    break;
                }
                r = r + i;
            }
        } else if (hdr.h.op == 2) {
            for (bit<8> i in 2 .. 5) {
                r = r + i;
            }
        } else if (hdr.h.op == 3) {
            for (item_t item in hdr.items) {
                r = r + item.v;
            }
        } else if (hdr.h.op == 4) {
            for (bit<8> i in 0 .. 9) {
                if (i == 3) {
                    continue;
                }
                if (i > hdr.h.n) {
                    break;
                }
                r = r + i;
            }
        } else if (hdr.h.op == 5) {
            for (bit<8> i in 1 .. 3) {
                for (bit<8> j in 1 .. 3) {
                    if (j > i) {
                        break;
                    }
                    r = r + 1;
                }
            }
        } else if (hdr.h.op == 6) {
            r = first_at_least(hdr, hdr.h.n);
        } else if (hdr.h.op == 7) {
            switch (hdr.h.n) {
                1: {
                    r = 0x11;
                }
                2:
                3: {
                    r = 0x22;
                }
                default: {
                    r = 0x33;
                }
            }
        } else if (hdr.h.op == 8) {
            switch (hdr.h.n) {
                1: {
                    r = 0x11;
                }
            }
        }
        hdr.h.r = r;
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
