#include <v1model.p4>
header h_t { bit<8> a; }
struct hs { h_t h; }
struct ms { }
parser P(packet_in b, out hs h, inout ms m, inout standard_metadata_t s) {
    state start { b.extract(h.h); transition accept; }
}
control V(inout hs h, inout ms m) { apply { } }
control I(inout hs h, inout ms m, inout standard_metadata_t s) {
    action to(bit<9> port) { s.egress_spec = port; }
    table t { key = { h.h.a: exact; } actions = { to; NoAction; } size = 4; }
    apply { t.apply(); }
}
control E(inout hs h, inout ms m, inout standard_metadata_t s) { apply { } }
control D(packet_out b, in hs h) { apply { b.emit(h); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
