// Action profiles and selectors: entries share members, and groups choose among them.
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> key;
    bit<16> flow;
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
    action_profile(16) shared;
    action_selector(HashAlgorithm.identity, 16, 16) balanced;

    action set(bit<8> r) {
        hdr.h.r = r;
    }
    action port(bit<9> p) {
        std.egress_spec = p;
    }
    table members {
        key = { hdr.h.key: exact; }
        actions = { set; port; NoAction; }
        implementation = shared;
    }
    table others {
        key = { hdr.h.key: lpm; }
        actions = { set; port; NoAction; }
        implementation = shared;
    }
    table groups {
        key = { hdr.h.key: exact; hdr.h.flow: selector; }
        actions = { set; port; NoAction; }
        implementation = balanced;
    }

    apply {
        std.egress_spec = 1;
        if (hdr.h.op == 1) {
            members.apply();
        } else if (hdr.h.op == 2) {
            others.apply();
        } else if (hdr.h.op == 3) {
            if (!groups.apply().hit) {
                hdr.h.r = 0xff;
            }
        }
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
