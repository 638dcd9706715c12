// What the architecture does for programs: hashes, random numbers, digests, the log, the packet's length and times.
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<64> data;
    bit<32> r;
}

struct headers {
    h_t h;
}

struct metadata {}

struct news_t {
    bit<8> low;
    bit<16> word;
    bool always;
}

#include "common.p4"

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.h);
        transition accept;
    }
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    register<bit<48>, bit<1>>(1) before;

    apply {
        std.egress_spec = 1;
        bit<16> word;
        if (hdr.h.op == 1) {
            hash(hdr.h.r, HashAlgorithm.crc32, 32w0, { hdr.h.data }, 64w0x100000000);
        } else if (hdr.h.op == 2) {
            hash(word, HashAlgorithm.crc16, 16w0, { hdr.h.data[63:32], hdr.h.data[31:0] }, 32w0x10000);
            hdr.h.r = 16w0 ++ word;
        } else if (hdr.h.op == 3) {
            hash(word, HashAlgorithm.csum16, 16w0, { hdr.h.data }, 32w0x10000);
            hdr.h.r = 16w0 ++ word;
        } else if (hdr.h.op == 4) {
            hash(word, HashAlgorithm.xor16, 16w0, { hdr.h.data }, 32w0x10000);
            hdr.h.r = 16w0 ++ word;
        } else if (hdr.h.op == 5) {
            hash(hdr.h.r, HashAlgorithm.identity, 32w0, { hdr.h.data[31:0] }, 64w0x100000000);
        } else if (hdr.h.op == 6) {
            hash(word, HashAlgorithm.crc16, 16w1000, { hdr.h.data }, 16w10);
            hdr.h.r = 16w0 ++ word;
        } else if (hdr.h.op == 7) {
            hash(word, HashAlgorithm.crc16, 16w77, { hdr.h.data }, 16w0);
            hdr.h.r = 16w0 ++ word;
        } else if (hdr.h.op == 8) {
            random(hdr.h.r, 5, 5);
        } else if (hdr.h.op == 9) {
            bit<8> x;
            random(x, 10, 20);
            hdr.h.r = x >= 10 && x <= 20 ? 32w1 : 0;
        } else if (hdr.h.op == 10) {
            truncate(10);
        } else if (hdr.h.op == 11) {
            truncate(100);
        } else if (hdr.h.op == 12) {
            digest<news_t>(1, { hdr.h.data[7:0], hdr.h.r[15:0], true });
        } else if (hdr.h.op == 13) {
            log_msg("a packet");
            log_msg("values {} and {}", { hdr.h.data, hdr.h.r });
            assert(hdr.h.op == 13);
            assume(hdr.h.isValid());
        } else if (hdr.h.op == 14) {
            hdr.h.r = std.packet_length << 16 | (bit<32>) (bit<16>) std.ingress_port;
        } else if (hdr.h.op == 16) {
            hash(hdr.h.r, HashAlgorithm.crc32_custom, 32w0, { hdr.h.data }, 64w0x100000000);
        } else if (hdr.h.op == 17) {
            hash(word, HashAlgorithm.crc16_custom, 16w0, { hdr.h.data }, 32w0x10000);
            hdr.h.r = 16w0 ++ word;
        }
        bit<48> last;
        before.read(last, 0);
        if (hdr.h.op == 15) {
            hdr.h.r = std.ingress_global_timestamp > last ? 32w1 : 0;
        }
        before.write(0, std.ingress_global_timestamp);
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
