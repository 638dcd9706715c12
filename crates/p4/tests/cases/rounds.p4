// The parser sees which round of a packet it is.
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> seen;
}

struct headers {
    h_t h;
}

struct metadata {
    bit<8> round;
}

#include "common.p4"

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        transition select(std.instance_type) {
            4: again;
            6: once_more;
            default: first;
        }
    }
    state first {
        meta.round = 1;
        transition content;
    }
    state again {
        meta.round = 2;
        transition content;
    }
    state once_more {
        meta.round = 3;
        transition content;
    }
    state content {
        b.extract(hdr.h);
        transition accept;
    }
}

control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        if (hdr.h.op == 6 && meta.round == 1) {
            resubmit_preserving_field_list(0);
        }
        hdr.h.seen = hdr.h.seen << 4 | meta.round;
    }
}

control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        if (hdr.h.op == 4 && meta.round == 1) {
            recirculate_preserving_field_list(0);
        }
    }
}

V1Switch(P(), NoVerify(), MyIngress(), MyEgress(), NoCompute(), EmitAll()) main;
