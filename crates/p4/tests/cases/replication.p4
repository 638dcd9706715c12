// Copies of packets and further rounds: multicast, clones, resubmit, recirculate, and the metadata that they keep.
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> instance;
    bit<8> replica;
    bit<8> mark;
}

struct headers {
    h_t h;
}

const bit<8> SECOND = 2;

struct metadata {
    @field_list(1, SECOND)
    bit<8> kept;
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
    apply {
        std.egress_spec = 1;
        if (std.instance_type == 6) {
            hdr.h.mark = meta.kept + meta.lost;
            std.egress_spec = 3;
            return;
        }
        if (std.instance_type == 4) {
            hdr.h.mark = hdr.h.mark + meta.kept + meta.lost;
            hdr.h.op = 0;
            std.egress_spec = 4;
            return;
        }
        meta.kept = 0x5a;
        meta.lost = 0xa0;
        if (hdr.h.op == 1) {
            std.mcast_grp = 7;
        } else if (hdr.h.op == 2) {
            clone_preserving_field_list(CloneType.I2E, 5, 1);
            hdr.h.mark = 0x22;
        } else if (hdr.h.op == 4) {
            hdr.h.mark = 0x44;
            resubmit_preserving_field_list(1);
        } else if (hdr.h.op == 6) {
            clone_preserving_field_list(CloneType.I2E, 5, SECOND);
            mark_to_drop(std);
        } else if (hdr.h.op == 7) {
            std.mcast_grp = 7;
            mark_to_drop(std);
        } else if (hdr.h.op == 8) {
            clone(CloneType.I2E, 5);
        } else if (hdr.h.op == 9) {
            mark_to_drop(std);
            std.egress_spec = 2;
        } else if (hdr.h.op == 10) {
            std.mcast_grp = 99;
        }
    }
}

control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        hdr.h.replica = (bit<8>) std.egress_rid;
        if (std.instance_type == 1 || std.instance_type == 2) {
            hdr.h.instance = (bit<8>) std.instance_type;
            hdr.h.mark = meta.kept + meta.lost;
        } else if (std.instance_type == 5) {
            hdr.h.instance = 5;
        } else if (hdr.h.op == 3) {
            hdr.h.mark = 0x33;
            clone_preserving_field_list(CloneType.E2E, 6, 1);
        } else if (hdr.h.op == 5) {
            hdr.h.mark = 1;
            recirculate_preserving_field_list(1);
        } else if (hdr.h.op == 11) {
            mark_to_drop(std);
        } else if (hdr.h.op == 12) {
            hdr.h.mark = (bit<8>) std.egress_port;
        }
    }
}

V1Switch(P(), NoVerify(), MyIngress(), MyEgress(), NoCompute(), EmitAll()) main;
