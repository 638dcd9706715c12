// One of everything that a controller can address.
#include <core.p4>
#include <v1model.p4>

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<1> is_clone;
    bit<6> pad;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    @padding bit<7> pad;
}

header data_t {
    bit<8> a;
    bit<32> b;
    bit<48> mac;
    bit<16> c;
    bit<128> wide;
    bit<8> unused;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    data_t data;
}

struct metadata_t {
    bit<16> hash_input;
    bit<2> color;
}

struct learn_t {
    bit<48> mac;
    bit<9> port;
}

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name("wanted") value_set<bit<8>>(4) wanted;
    state start {
        packet.extract(hdr.data);
        transition select(hdr.data.a) {
            wanted: accept;
            default: accept;
        }
    }
}

control check(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(8, CounterType.packets_and_bytes) seen;
    counter(4, CounterType.packets) never_seen;
    meter(4, MeterType.bytes) police;
    register<bit<20>>(4) answer;
    register<int<8>>(2) offset;
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<2>>(MeterType.packets) rate;
    action_profile(4) hops;
    @max_group_size(8)
    action_selector(HashAlgorithm.crc16, 16, 16) ways;

    action drop() {
        mark_to_drop(standard);
    }
    action forward(bit<9> port) {
        standard.egress_spec = port;
    }
    action set(bit<48> mac, int<8> delta) {
        hdr.data.mac = mac;
        hdr.data.a = (bit<8>)delta;
    }
    action learn() {
        digest<learn_t>(1, {hdr.data.mac, standard.ingress_port});
    }
    action count() {
        seen.count((bit<32>)hdr.data.a);
        police.execute_meter((bit<32>)hdr.data.a, meta.color);
        answer.write(0, 1);
        offset.write(0, 1);
    }

    table exact_t {
        key = {
            hdr.data.a: exact;
            hdr.data.wide: exact;
        }
        actions = { forward; set; count; @tableonly learn; @defaultonly drop; }
        default_action = drop();
        size = 4;
        counters = hits;
        support_timeout = true;
    }
    table lpm_t {
        key = { hdr.data.b: lpm; }
        actions = { forward; drop; NoAction; }
        size = 64;
        const default_action = NoAction();
    }
    table ternary_t {
        key = {
            hdr.data.b: ternary @name("src_addr");
            hdr.data.c: range @name("l4_port");
            hdr.data.a: optional @name("kind");
        }
        actions = { forward; drop; NoAction; }
        meters = rate;
        size = 64;
    }
    table const_t {
        key = { hdr.data.a: exact; }
        actions = { forward; NoAction; }
        const entries = {
            1: forward(1);
            2: forward(2);
        }
    }
    table initial_t {
        key = { hdr.data.a: exact; }
        actions = { forward; NoAction; }
        entries = {
            7: forward(7);
        }
    }
    table member_t {
        key = { hdr.data.a: exact; }
        actions = { forward; drop; }
        implementation = hops;
        size = 8;
    }
    table group_t {
        key = {
            hdr.data.a: exact;
            hdr.data.c: selector;
        }
        actions = { forward; drop; }
        implementation = ways;
        size = 8;
    }
    table keyless_t {
        actions = { forward; NoAction; }
        default_action = NoAction();
    }
    apply {
        exact_t.apply();
        lpm_t.apply();
        ternary_t.apply();
        rate.read(meta.color);
        const_t.apply();
        initial_t.apply();
        member_t.apply();
        group_t.apply();
        keyless_t.apply();
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.data);
    }
}

V1Switch(parse(), check(), ingress(), egress(), check(), deparse()) main;
