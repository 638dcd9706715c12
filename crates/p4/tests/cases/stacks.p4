// Header stacks: pushed and popped, indexed at run time, copied.
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> n;
    bit<8> i;
    bit<8> v;
}

header item_t {
    bit<8> v;
}

struct headers {
    h_t h;
    item_t[4] items;
}

struct metadata {
    bit<8> left;
}

#include "common.p4"

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.h);
        meta.left = hdr.h.n;
        transition next;
    }
    state next {
        transition select(meta.left) {
            0: accept;
            default: item;
        }
    }
    state item {
        b.extract(hdr.items.next);
        meta.left = meta.left - 1;
        hdr.h.n = (bit<8>) hdr.items.lastIndex;
        transition next;
    }
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (hdr.h.op == 1) {
            hdr.items.push_front(1);
            hdr.items[0].setValid();
            hdr.items[0].v = 0xaa;
        } else if (hdr.h.op == 2) {
            hdr.items.pop_front(1);
        } else if (hdr.h.op == 3) {
            hdr.items[hdr.h.i].v = 0xbb;
        } else if (hdr.h.op == 4) {
            hdr.h.v = hdr.items[hdr.h.i].v;
        } else if (hdr.h.op == 5) {
            hdr.items.push_front(2);
        } else if (hdr.h.op == 6) {
            hdr.h.v = (bit<8>) hdr.items.size;
        } else if (hdr.h.op == 7) {
            hdr.items[0] = hdr.items[1];
            hdr.items[3] = hdr.items[2];
        } else if (hdr.h.op == 8) {
            hdr.items[1].setInvalid();
        } else if (hdr.h.op == 9) {
            item_t[4] copy = hdr.items;
            hdr.items[0].v = 1;
            if (copy[0].v != hdr.items[0].v && copy[1] == hdr.items[1]) {
                hdr.h.v = 9;
            }
        } else if (hdr.h.op == 10) {
            hdr.items[hdr.h.i].setInvalid();
            if (!hdr.items[hdr.h.i].isValid()) {
                hdr.h.v = 10;
            }
        }
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
