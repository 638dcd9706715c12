// Objects of the Portable Switch Architecture: hashes, checksums, counters, meters, registers, random numbers, action
// profiles and selectors, digests.
#include <psa.p4>

header h_t {
    bit<8> op;
    bit<8> key;
    bit<32> data;
    bit<32> r;
}

struct headers {
    h_t h;
}

struct metadata {
    bit<1> sends;
}

struct none_t {}

struct news_t {
    bit<8> key;
    bit<32> data;
}

#include "psa_common.p4"

control MyIngress(
        inout headers hdr, inout metadata meta, in psa_ingress_input_metadata_t istd,
        inout psa_ingress_output_metadata_t ostd) {
    Hash<bit<32>>(PSA_HashAlgorithm_t.CRC32) crc32;
    Hash<bit<16>>(PSA_HashAlgorithm_t.CRC16) crc16;
    Hash<bit<16>>(PSA_HashAlgorithm_t.ONES_COMPLEMENT16) ones;
    Hash<bit<32>>(PSA_HashAlgorithm_t.IDENTITY) identity;
    InternetChecksum() internet;
    InternetChecksum() carried;
    Checksum<bit<16>>(PSA_HashAlgorithm_t.ONES_COMPLEMENT16) sum;
    Counter<bit<32>, bit<8>>(4, PSA_CounterType_t.PACKETS_AND_BYTES) cells;
    DirectCounter<bit<32>>(PSA_CounterType_t.PACKETS) hits;
    Meter<bit<8>>(4, PSA_MeterType_t.PACKETS) rates;
    DirectMeter(PSA_MeterType_t.PACKETS) entry_rates;
    Register<bit<32>, bit<8>>(4) words;
    Random<bit<32>>(10, 20) dice;
    ActionProfile(8) shared;
    ActionSelector(PSA_HashAlgorithm_t.CRC32, 8, 32) balanced;

    action set(bit<32> value) {
        hdr.h.r = value;
    }
    action coloured() {
        PSA_MeterColor_t colour = entry_rates.execute();
        hdr.h.r = colour == PSA_MeterColor_t.GREEN ? 32w1 : (colour == PSA_MeterColor_t.RED ? 32w3 : 2);
    }
    table counted {
        key = { hdr.h.key: exact; }
        actions = { set; NoAction; }
        psa_direct_counter = hits;
    }
    table metered {
        key = { hdr.h.key: exact; }
        actions = { coloured; NoAction; }
        psa_direct_meter = entry_rates;
    }
    table members {
        key = { hdr.h.key: ternary; }
        actions = { set; NoAction; }
        psa_implementation = shared;
    }
    table groups {
        key = { hdr.h.key: lpm; hdr.h.data: selector; }
        actions = { set; NoAction; }
        psa_implementation = balanced;
    }

    apply {
        send_to_port(ostd, (PortId_t) 1);
        if (hdr.h.op == 1) {
            hdr.h.r = crc32.get_hash({ hdr.h.key, hdr.h.data });
        } else if (hdr.h.op == 2) {
            hdr.h.r = (bit<32>) crc16.get_hash(16w100, { hdr.h.data }, 16w10);
        } else if (hdr.h.op == 3) {
            hdr.h.r = (bit<32>) ones.get_hash(hdr.h.data);
        } else if (hdr.h.op == 4) {
            hdr.h.r = identity.get_hash({ hdr.h.data[15:0], hdr.h.key, 8w0xff });
        } else if (hdr.h.op == 5) {
            // The checksum of data with its first half replaced, calculated from the old one.
            internet.clear();
            internet.subtract(hdr.h.r[15:0]);
            internet.subtract(hdr.h.data[31:16]);
            internet.add(16w0x1234);
            hdr.h.r = 16w0 ++ internet.get();
        } else if (hdr.h.op == 6) {
            internet.clear();
            internet.add({ hdr.h.data });
            carried.set_state(internet.get_state());
            carried.add(8w1 ++ hdr.h.key);
            hdr.h.r = carried.get() ++ internet.get();
        } else if (hdr.h.op == 7) {
            sum.clear();
            sum.update(hdr.h.data[31:16]);
            sum.update(hdr.h.data[15:0]);
            hdr.h.r = 16w0 ++ sum.get();
        } else if (hdr.h.op == 8) {
            cells.count(hdr.h.key);
        } else if (hdr.h.op == 9) {
            counted.apply();
        } else if (hdr.h.op == 10) {
            PSA_MeterColor_t colour = rates.execute(hdr.h.key);
            hdr.h.r = colour == PSA_MeterColor_t.GREEN ? 32w1 : (colour == PSA_MeterColor_t.RED ? 32w3 : 2);
        } else if (hdr.h.op == 11) {
            metered.apply();
        } else if (hdr.h.op == 12) {
            hdr.h.r = words.read(hdr.h.key);
            words.write(hdr.h.key, hdr.h.r + hdr.h.data);
        } else if (hdr.h.op == 13) {
            bit<32> thrown = dice.read();
            hdr.h.r = thrown >= 10 && thrown <= 20 ? 32w1 : 0;
        } else if (hdr.h.op == 14) {
            members.apply();
        } else if (hdr.h.op == 15) {
            groups.apply();
        } else if (hdr.h.op == 16) {
            meta.sends = 1;
        } else if (hdr.h.op == 17) {
            PSA_MeterColor_t colour = rates.execute(hdr.h.key, PSA_MeterColor_t.RED);
            hdr.h.r = colour == PSA_MeterColor_t.RED ? 32w3 : 0;
        }
    }
}

control NewsDeparser(
        packet_out b, out none_t cloned, out none_t resubmitted, out none_t normal, inout headers hdr,
        in metadata meta, in psa_ingress_output_metadata_t istd) {
    Digest<news_t>() news;

    apply {
        if (meta.sends == 1) {
            news.pack({ hdr.h.key, hdr.h.data });
        }
        b.emit(hdr);
    }
}

PSA_Switch(
    IngressPipeline(InParser(), MyIngress(), NewsDeparser()),
    PacketReplicationEngine(),
    EgressPipeline(OutParser(), NoEgress(), OutDeparser()),
    BufferingQueueingEngine()) main;
