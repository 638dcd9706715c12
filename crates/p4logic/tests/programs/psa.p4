// For PSA: what comes from the CPU port goes to port 2, packets to station 0 to the CPU port, others back.
#include <psa.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

struct headers {
    ethernet_t eth;
}

struct metadata {}
struct empty {}

parser IngressParser_(packet_in b, out headers hdr, inout metadata meta, in psa_ingress_parser_input_metadata_t istd,
                      in empty resubmitted, in empty recirculated) {
    state start {
        b.extract(hdr.eth);
        transition accept;
    }
}

control Ingress_(inout headers hdr, inout metadata meta, in psa_ingress_input_metadata_t istd,
                 inout psa_ingress_output_metadata_t ostd) {
    apply {
        PortId_t port = istd.ingress_port;
        if (port == PSA_PORT_CPU) {
            port = (PortId_t)2;
        } else if (hdr.eth.dst == 0) {
            port = PSA_PORT_CPU;
        }
        send_to_port(ostd, port);
    }
}

control IngressDeparser_(packet_out b, out empty clone_i2e, out empty resubmitted, out empty normal,
                         inout headers hdr, in metadata meta, in psa_ingress_output_metadata_t istd) {
    apply {
        b.emit(hdr);
    }
}

parser EgressParser_(packet_in b, out headers hdr, inout metadata meta, in psa_egress_parser_input_metadata_t istd,
                     in empty normal, in empty clone_i2e, in empty clone_e2e) {
    state start {
        b.extract(hdr.eth);
        transition accept;
    }
}

control Egress_(inout headers hdr, inout metadata meta, in psa_egress_input_metadata_t istd,
                inout psa_egress_output_metadata_t ostd) {
    apply {
        hdr.eth.src = (bit<48>)(bit<32>)istd.egress_port;
    }
}

control EgressDeparser_(packet_out b, out empty clone_e2e, out empty recirculated, inout headers hdr, in metadata meta,
                        in psa_egress_output_metadata_t istd, in psa_egress_deparser_input_metadata_t edstd) {
    apply {
        b.emit(hdr);
    }
}

IngressPipeline(IngressParser_(), Ingress_(), IngressDeparser_()) ip;
EgressPipeline(EgressParser_(), Egress_(), EgressDeparser_()) ep;
PSA_Switch(ip, PacketReplicationEngine(), ep, BufferingQueueingEngine()) main;
