// Arithmetic: of unsigned and signed numbers of several widths, and conversions between them.
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> a;
    bit<8> b;
    bit<16> r;
}

header wide_t {
    bit<128> x;
    bit<128> y;
}

struct headers {
    h_t h;
    wide_t wide;
}

struct metadata {}

#include "common.p4"

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.h);
        transition select(hdr.h.op[7:7]) {
            1: wide;
            default: accept;
        }
    }
    state wide {
        b.extract(hdr.wide);
        transition accept;
    }
}

const bit<16> CONSTANT = (bit<16>) (17 / 3 * 100 % 64 << 2) + 1;

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 1;
        bit<8> a = hdr.h.a;
        bit<8> b = hdr.h.b;
        int<8> s = (int<8>) a;
        int<8> t = (int<8>) b;
        bit<16> r = 0;
        if (hdr.h.op == 0x01) {
            r = a ++ b;
        } else if (hdr.h.op == 0x02) {
            r = (a + b) ++ (a - b);
        } else if (hdr.h.op == 0x03) {
            r = (a |+| b) ++ (a |-| b);
        } else if (hdr.h.op == 0x04) {
            r = (bit<8>) (s |+| t) ++ (bit<8>) (s |-| t);
        } else if (hdr.h.op == 0x05) {
            r = (bit<16>) a * (bit<16>) b;
        } else if (hdr.h.op == 0x06) {
            r = (a << b) ++ (a >> b);
        } else if (hdr.h.op == 0x07) {
            r = (bit<8>) (s << 1) ++ (bit<8>) (s >> b);
        } else if (hdr.h.op == 0x08) {
            r = (a & b) ++ (a | b);
        } else if (hdr.h.op == 0x09) {
            r = (a ^ b) ++ ~a;
        } else if (hdr.h.op == 0x0a) {
            r = (bit<16>) (int<16>) s;
        } else if (hdr.h.op == 0x0b) {
            r = (bit<16>) a;
        } else if (hdr.h.op == 0x0c) {
            r[15:12] = s < t ? 4w1 : 0;
            r[11:8] = a < b ? 4w1 : 0;
            r[7:4] = s >= t ? 4w1 : 0;
            r[3:0] = a != b ? 4w1 : 0;
        } else if (hdr.h.op == 0x0d) {
            r = (bit<8>) -s ++ -a;
        } else if (hdr.h.op == 0x0e) {
            r = CONSTANT;
        } else if (hdr.h.op == 0x0f) {
            r = a[3:0] ++ a[7:4] ++ b[6:1] ++ b[7:7] ++ b[0:0];
        } else if (hdr.h.op == 0x10) {
            r[11:4] = a;
            r[3+:1] = b[0+:1];
        } else if (hdr.h.op == 0x11) {
            r = (bit<16>) (a + b - a * b) |-| 0x10;
            r = r + (bit<16>) (bit<1>) (a == b);
        } else if (hdr.h.op == 0x12) {
            r = 1;
            r += 0x0ff;
            r <<= 4;
            r |= 0xf;
            r ^= 1;
            r -= (bit<16>) a;
            r |+|= 0xf000;
        } else if (hdr.h.op == 0x81) {
            hdr.wide.x = hdr.wide.x + hdr.wide.y;
        } else if (hdr.h.op == 0x82) {
            hdr.wide.x = hdr.wide.x - hdr.wide.y;
        } else if (hdr.h.op == 0x83) {
            hdr.wide.x = hdr.wide.x << a;
            hdr.wide.y = hdr.wide.y >> a;
        } else if (hdr.h.op == 0x84) {
            hdr.wide.x = hdr.wide.x * 3;
            hdr.wide.y = hdr.wide.y & hdr.wide.x | 1;
        } else if (hdr.h.op == 0x85) {
            r = hdr.wide.x[71:56];
            hdr.wide.x[127:64] = hdr.wide.y[63:0];
        } else if (hdr.h.op == 0x86) {
            r = hdr.wide.x > hdr.wide.y ? 16w1 : 0;
            int<128> x = (int<128>) hdr.wide.x;
            r = r + (x > (int<128>) hdr.wide.y ? 16w2 : 0);
            hdr.wide.x = (bit<128>) (x >> 4);
        }
        hdr.h.r = r;
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
