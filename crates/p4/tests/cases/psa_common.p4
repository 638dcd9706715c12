// A parser, deparsers and an egress that do nothing else, for programs whose types are `headers`, `metadata`, `none_t`.
parser InParser(
        packet_in b, out headers hdr, inout metadata meta, in psa_ingress_parser_input_metadata_t istd,
        in none_t resubmitted, in none_t recirculated) {
    state start {
        b.extract(hdr.h);
        transition accept;
    }
}

control InDeparser(
        packet_out b, out none_t cloned, out none_t resubmitted, out none_t normal, inout headers hdr,
        in metadata meta, in psa_ingress_output_metadata_t istd) {
    apply {
        b.emit(hdr);
    }
}

parser OutParser(
        packet_in b, out headers hdr, inout metadata meta, in psa_egress_parser_input_metadata_t istd,
        in none_t normal, in none_t cloned_in, in none_t cloned_out) {
    state start {
        b.extract(hdr.h);
        transition accept;
    }
}

control NoEgress(
        inout headers hdr, inout metadata meta, in psa_egress_input_metadata_t istd,
        inout psa_egress_output_metadata_t ostd) {
    apply {}
}

control OutDeparser(
        packet_out b, out none_t cloned, out none_t recirculated, inout headers hdr, in metadata meta,
        in psa_egress_output_metadata_t istd, in psa_egress_deparser_input_metadata_t edstd) {
    apply {
        b.emit(hdr);
    }
}
