// Parts that do nothing, and a deparser of all headers, for programs whose types are `headers` and `metadata`.
control NoVerify(inout headers hdr, inout metadata meta) {
    apply {}
}

control NoEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {}
}

control NoCompute(inout headers hdr, inout metadata meta) {
    apply {}
}

control EmitAll(packet_out b, in headers hdr) {
    apply {
        b.emit(hdr);
    }
}
