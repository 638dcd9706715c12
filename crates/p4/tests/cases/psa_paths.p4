// Ways of packets through the Portable Switch Architecture: unicast, multicast, clones from ingress and egress, resubmit,
// recirculate, and the metadata that goes along.
#include <psa.p4>

header h_t {
    bit<8> op;
    bit<8> path;
    bit<8> copy;
    bit<8> mark;
}

struct headers {
    h_t h;
}

struct metadata {
    bit<8> mark;
}

struct carried_t {
    bit<8> mark;
}

parser InParser(
        packet_in b, out headers hdr, inout metadata meta, in psa_ingress_parser_input_metadata_t istd,
        in carried_t resubmitted, in carried_t recirculated) {
    state start {
        b.extract(hdr.h);
        transition select(istd.packet_path) {
            PSA_PacketPath_t.RESUBMIT: resubmit;
            PSA_PacketPath_t.RECIRCULATE: recirculate;
            default: accept;
        }
    }
    state resubmit {
        meta.mark = resubmitted.mark;
        transition accept;
    }
    state recirculate {
        meta.mark = recirculated.mark;
        transition accept;
    }
}

control MyIngress(
        inout headers hdr, inout metadata meta, in psa_ingress_input_metadata_t istd,
        inout psa_ingress_output_metadata_t ostd) {
    apply {
        if (istd.packet_path == PSA_PacketPath_t.RESUBMIT || istd.packet_path == PSA_PacketPath_t.RECIRCULATE) {
            send_to_port(ostd, (PortId_t) 3);
            hdr.h.path = istd.packet_path == PSA_PacketPath_t.RESUBMIT ? 8w0x50 : 0x60;
            hdr.h.mark = meta.mark;
            // Neither a loop, nor another clone.
            hdr.h.op = 0;
            return;
        }
        meta.mark = 0x0a;
        if (hdr.h.op == 1) {
            send_to_port(ostd, (PortId_t) 1);
        } else if (hdr.h.op == 2) {
            multicast(ostd, (MulticastGroup_t) 7);
        } else if (hdr.h.op == 3) {
            send_to_port(ostd, (PortId_t) 1);
            ostd.clone = true;
            ostd.clone_session_id = (CloneSessionId_t) 5;
            // The clone is the received packet.
            hdr.h.copy = 0xee;
        } else if (hdr.h.op == 4) {
            // Dropped, and cloned all the same.
            ostd.clone = true;
            ostd.clone_session_id = (CloneSessionId_t) 5;
        } else if (hdr.h.op == 5) {
            ostd.drop = false;
            ostd.resubmit = true;
            hdr.h.copy = 0xee;
        } else if (hdr.h.op == 6) {
            send_to_port(ostd, PSA_PORT_RECIRCULATE);
            hdr.h.copy = 0xee;
        } else if (hdr.h.op == 7 || hdr.h.op == 8) {
            send_to_port(ostd, (PortId_t) 1);
        } else if (hdr.h.op == 9) {
            multicast(ostd, (MulticastGroup_t) 7);
            ingress_drop(ostd);
        }
        // Everything else is dropped, as it is by default.
    }
}

control InDeparser(
        packet_out b, out carried_t cloned, out carried_t resubmitted, out carried_t normal, inout headers hdr,
        in metadata meta, in psa_ingress_output_metadata_t istd) {
    apply {
        if (psa_clone_i2e(istd)) {
            cloned.mark = meta.mark + 1;
        }
        if (psa_resubmit(istd)) {
            resubmitted.mark = meta.mark + 2;
        }
        if (psa_normal(istd)) {
            normal.mark = meta.mark + 3;
        }
        b.emit(hdr.h);
    }
}

parser OutParser(
        packet_in b, out headers hdr, inout metadata meta, in psa_egress_parser_input_metadata_t istd,
        in carried_t normal, in carried_t cloned_in, in carried_t cloned_out) {
    state start {
        b.extract(hdr.h);
        transition select(istd.packet_path) {
            PSA_PacketPath_t.CLONE_I2E: from_ingress;
            PSA_PacketPath_t.CLONE_E2E: from_egress;
            default: otherwise;
        }
    }
    state from_ingress {
        meta.mark = cloned_in.mark;
        transition accept;
    }
    state from_egress {
        meta.mark = cloned_out.mark;
        transition accept;
    }
    state otherwise {
        meta.mark = normal.mark;
        transition accept;
    }
}

control MyEgress(
        inout headers hdr, inout metadata meta, in psa_egress_input_metadata_t istd,
        inout psa_egress_output_metadata_t ostd) {
    apply {
        if (hdr.h.op == 0) {
            return;
        }
        hdr.h.mark = meta.mark;
        if (istd.packet_path == PSA_PacketPath_t.NORMAL_UNICAST) {
            hdr.h.path = 0x10;
        } else if (istd.packet_path == PSA_PacketPath_t.NORMAL_MULTICAST) {
            hdr.h.path = 0x20;
            hdr.h.copy = (bit<8>) (EgressInstanceUint_t) istd.instance;
        } else if (istd.packet_path == PSA_PacketPath_t.CLONE_I2E) {
            hdr.h.path = 0x30;
        } else if (istd.packet_path == PSA_PacketPath_t.CLONE_E2E) {
            hdr.h.path = hdr.h.path + 0x40;
            return;
        }
        if (hdr.h.op == 7) {
            ostd.clone = true;
            ostd.clone_session_id = (CloneSessionId_t) 6;
        } else if (hdr.h.op == 8) {
            egress_drop(ostd);
        }
    }
}

control OutDeparser(
        packet_out b, out carried_t cloned, out carried_t recirculated, inout headers hdr, in metadata meta,
        in psa_egress_output_metadata_t istd, in psa_egress_deparser_input_metadata_t edstd) {
    apply {
        if (psa_clone_e2e(istd)) {
            cloned.mark = meta.mark + 4;
        }
        if (psa_recirculate(istd, edstd)) {
            recirculated.mark = meta.mark + 5;
        }
        b.emit(hdr.h);
    }
}

PSA_Switch(
    IngressPipeline(InParser(), MyIngress(), InDeparser()),
    PacketReplicationEngine(),
    EgressPipeline(OutParser(), MyEgress(), OutDeparser()),
    BufferingQueueingEngine()) main;
