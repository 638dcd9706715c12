// Types: names for types, enumerations, tuples, generic structs and functions, structs as values.
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

typedef bit<8> byte_t;
type bit<16> Id_t;
type PortId_t Out_t;

enum Color { Red, Green, Blue }

enum bit<8> Op {
    Colors = 1,
    Enums = 2,
    Tuples = 3,
    Generic = 4,
    Structs = 5,
    NewTypes = 6,
    Booleans = 7,
    Unknown = 0xf0
}

header h_t {
    Op op;
    byte_t a;
    Id_t id;
    byte_t r;
}

struct pair_t<T, U> {
    T first;
    U second;
}

struct point_t {
    byte_t x;
    byte_t y;
}

struct headers {
    h_t h;
}

struct metadata {
    Color color;
    bool flag;
    point_t point;
    pair_t<byte_t, bit<16>> pair;
}

#include "common.p4"

T pick<T>(in T a, in T b, in bool first) {
    if (first) {
        return a;
    }
    return b;
}

byte_t sum(in point_t p) {
    return p.x + p.y;
}

Color next(in Color c) {
    if (c == Color.Red) {
        return Color.Green;
    } else if (c == Color.Green) {
        return Color.Blue;
    }
    return Color.Red;
}

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        meta.color = Color.Blue;
        meta.point = { 1, 2 };
        b.extract(hdr.h);
        transition select(hdr.h.op) {
            Op.Colors: colors;
            Op.Unknown: reject;
            default: accept;
        }
    }
    state colors {
        meta.color = next(meta.color);
        transition accept;
    }
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    action send(Out_t port, Id_t id) {
        std.egress_spec = (PortId_t) port;
        hdr.h.id = id;
    }
    table ids {
        key = { hdr.h.id: exact; hdr.h.op: exact; meta.flag: exact; }
        actions = { send; NoAction; }
    }

    apply {
        std.egress_spec = 1;
        if (hdr.h.op == Op.Colors) {
            hdr.h.r = meta.color == Color.Red ? 8w1 : 0;
            switch (next(meta.color)) {
                Color.Red: {
                    hdr.h.a = 0xa1;
                }
                Color.Green: {
                    hdr.h.a = 0xa2;
                }
                default: {
                    hdr.h.a = 0xa3;
                }
            }
        } else if (hdr.h.op == Op.Enums) {
            hdr.h.r = (bit<8>) Op.Tuples;
            hdr.h.op = (Op) 8w0x77;
        } else if (hdr.h.op == Op.Tuples) {
            tuple<bit<8>, bit<16>, bool> t = { hdr.h.a, 0x1234, true };
            if (t[2] && t == { 8w5, 16w0x1234, true }) {
                hdr.h.r = t[0] + t[1][7:0];
            }
        } else if (hdr.h.op == Op.Generic) {
            pair_t<bit<8>, bit<16>> p = { first = pick(hdr.h.a, 8w0x10, hdr.h.a > 0x10), second = 0x22 };
            meta.pair = p;
            p.first = 0;
            hdr.h.r = meta.pair.first + pick<bit<16>>(p.second, 3, true)[7:0];
        } else if (hdr.h.op == Op.Structs) {
            point_t p = meta.point;
            p.x = hdr.h.a;
            if (p != meta.point) {
                hdr.h.r = sum(p) + sum({ x = 0x10, y = 0x20 });
            }
        } else if (hdr.h.op == Op.NewTypes) {
            meta.flag = hdr.h.a == 1;
            ids.apply();
        } else if (hdr.h.op == Op.Booleans) {
            bool x = hdr.h.a[0:0] == 1;
            bool y = (bool) hdr.h.a[1:1];
            hdr.h.r = 4w0 ++ (bit<1>) (x && y) ++ (bit<1>) (x || y) ++ (bit<1>) !x ++ (bit<1>) (x != y);
        }
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
