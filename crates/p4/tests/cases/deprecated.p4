// Functions of v1model that newer programs do not have: copies and rounds whose metadata is given as data, Checksum16.
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> instance;
    bit<16> mark;
}

struct headers {
    h_t h;
}

struct part_t {
    bit<8> a;
    bit<8> b;
}

struct metadata {
    part_t kept;
    bit<8> also;
    bit<8> lost;
}

#include "common.p4"

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.h);
        transition accept;
    }
}

control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    Checksum16() sum;

    action all() {
        hdr.h.instance = (bit<8>) std.instance_type;
        hdr.h.mark = (bit<16>) meta.kept.a + (bit<16>) meta.kept.b + (bit<16>) meta.also + (bit<16>) meta.lost;
    }

    apply {
        std.egress_spec = 1;
        if (std.instance_type != 0) {
            all();
            std.egress_spec = 2;
            return;
        }
        meta = { { 1, 2 }, 4, 8 };
        if (hdr.h.op == 1) {
            clone3(CloneType.I2E, 5, { meta.kept, meta.also });
            // A clone has the values that its fields have when ingress ends.
            meta.kept.a = 0x10;
        } else if (hdr.h.op == 2) {
            resubmit(meta.kept);
        } else if (hdr.h.op == 3) {
            resubmit<tuple<>>({});
        } else if (hdr.h.op == 7) {
            hdr.h.mark = sum.get({ hdr.h.op, hdr.h.instance, 16w0xf00f });
        }
    }
}

control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        if (std.instance_type == 1 || std.instance_type == 2) {
            hdr.h.instance = (bit<8>) std.instance_type;
            hdr.h.mark = (bit<16>) meta.kept.a + (bit<16>) meta.kept.b + (bit<16>) meta.also + (bit<16>) meta.lost;
        } else if (std.instance_type != 0) {
            return;
        } else if (hdr.h.op == 4) {
            clone3(CloneType.E2E, 5, meta);
        } else if (hdr.h.op == 5) {
            hdr.h.op = 0x55;
            recirculate({ meta.also, meta.lost });
        } else if (hdr.h.op == 6) {
            // The last request holds.
            recirculate({ meta.also, meta.lost });
            recirculate(meta.lost);
        }
    }
}

V1Switch(P(), NoVerify(), MyIngress(), MyEgress(), NoCompute(), EmitAll()) main;
