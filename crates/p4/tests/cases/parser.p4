// Parsers: selects, lookahead, advance, verify, value sets, sub-parsers, and what ingress sees of errors.
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

error { Forbidden }

header kind_t {
    bit<8> kind;
    bit<8> seen;
}

header item_t {
    bit<4> type;
    bit<4> value;
}

header tail_t {
    bit<16> a;
}

struct headers {
    kind_t kind;
    item_t[3] items;
    tail_t tail;
}

struct metadata {
    bit<8> path;
}

#include "common.p4"

parser Tail(packet_in b, out tail_t tail, in bit<8> skipped) {
    state start {
        b.advance((bit<32>) skipped * 8);
        b.extract(tail);
        transition accept;
    }
}

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    Tail() tail;
    value_set<bit<8>>(4) known;

    state start {
        b.extract(hdr.kind);
        transition select(hdr.kind.kind) {
            0x10: items;
            0x20 &&& 0xf0: masked;
            0x30 .. 0x37: ranged;
            0x40: ahead;
            known: in_set;
            0x50: checked;
            0x60: pair;
            0x80: skip;
        }
    }
    state items {
        b.extract(hdr.items.next);
        transition select(hdr.items.last.type) {
            0: accept;
            default: items;
        }
    }
    state masked {
        meta.path = 2;
        transition accept;
    }
    state ranged {
        meta.path = 3;
        transition accept;
    }
    state ahead {
        meta.path = b.lookahead<bit<8>>();
        transition accept;
    }
    state in_set {
        meta.path = 5;
        transition accept;
    }
    state checked {
        verify(b.lookahead<bit<8>>() != 0, error.Forbidden);
        meta.path = 6;
        transition accept;
    }
    state pair {
        transition select(b.lookahead<bit<16>>()[15:8], hdr.kind.seen) {
            (1, _): one;
            (_, 2): two;
            (3 &&& 3, 0x30 .. 0x3f): three;
            default: accept;
        }
    }
    state one {
        meta.path = 0x71;
        transition accept;
    }
    state two {
        meta.path = 0x72;
        transition accept;
    }
    state three {
        meta.path = 0x73;
        transition accept;
    }
    state skip {
        meta.path = 8;
        tail.apply(b, hdr.tail, 2);
        transition accept;
    }
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        hdr.kind.seen = meta.path;
        if (std.parser_error == error.PacketTooShort) {
            hdr.kind.seen = 0xe1;
        } else if (std.parser_error == error.NoMatch) {
            hdr.kind.seen = 0xe2;
        } else if (std.parser_error == error.StackOutOfBounds) {
            hdr.kind.seen = 0xe3;
        } else if (std.parser_error == error.Forbidden) {
            hdr.kind.seen = 0xef;
        } else if (std.parser_error != error.NoError) {
            hdr.kind.seen = 0xff;
        }
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
