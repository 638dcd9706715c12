// What outlives packets: registers, counters, meters, of their own and of entries.
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

header h_t {
    bit<8> op;
    bit<8> key;
    bit<16> value;
}

struct headers {
    h_t h;
}

struct metadata {
    bit<2> color;
}

#include "common.p4"

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        b.extract(hdr.h);
        transition accept;
    }
}

control C(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    register<bit<16>, bit<8>>(8) words;
    register<bit<1>, bit<32>>(4) flags;
    counter<bit<8>>(8, CounterType.packets_and_bytes) by_key;
    meter<bit<8>>(8, MeterType.packets) rates;
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<2>>(MeterType.packets) entry_rates;

    action value(bit<16> v) {
        hits.count();
        hdr.h.value = v;
    }
    action colored() {
        entry_rates.read(meta.color);
        hdr.h.value = (bit<16>) meta.color;
    }
    table counted {
        key = { hdr.h.key: exact; }
        actions = { value; NoAction; }
        counters = hits;
    }
    table metered {
        key = { hdr.h.key: exact; }
        actions = { colored; NoAction; }
        meters = entry_rates;
    }

    apply {
        std.egress_spec = 1;
        bit<16> old;
        if (hdr.h.op == 1) {
            @atomic {
                words.read(old, hdr.h.key);
                words.write(hdr.h.key, old + hdr.h.value);
            }
            hdr.h.value = old;
        } else if (hdr.h.op == 2) {
            bit<1> flag;
            flags.read(flag, (bit<32>) hdr.h.key);
            flags.write((bit<32>) hdr.h.key, ~flag);
            hdr.h.value = 15w0 ++ flag;
        } else if (hdr.h.op == 3) {
            by_key.count(hdr.h.key);
        } else if (hdr.h.op == 4) {
            rates.execute_meter<bit<2>>(hdr.h.key, meta.color);
            hdr.h.value = 14w0 ++ meta.color;
        } else if (hdr.h.op == 5) {
            counted.apply();
        } else if (hdr.h.op == 6) {
            metered.apply();
        }
    }
}

V1Switch(P(), NoVerify(), C(), NoEgress(), NoCompute(), EmitAll()) main;
