// What programs ask of the switch: counters, registers, hashes, clones, copies, digests, stacks, and branches in actions.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header op_t {
    bit<8> code;
    bit<8> arg;
    bit<16> value;
}

header label_t {
    bit<8> value;
    bit<8> more;
}

struct headers_t {
    ethernet_t ethernet;
    op_t op;
    label_t[3] labels;
}

struct metadata_t {
    @field_list(1)
    bit<8> mark;
    @field_list(2)
    bit<8> rounds;
    bit<16> bucket;
    bool special;
}

struct learned_t {
    bit<48> station;
    bit<9> port;
}

parser Packets(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    value_set<bit<8>>(4) specials;

    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x9000: op;
            default: accept;
        }
    }
    state op {
        packet.extract(hdr.op);
        transition select(hdr.op.code) {
            specials: special;
            0x80 &&& 0x80: labels;
            default: accept;
        }
    }
    state special {
        meta.special = true;
        transition accept;
    }
    state labels {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.more) {
            0: accept;
            default: labels;
        }
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control In(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(16, CounterType.packets) cells;
    register<bit<16>>(8) sums;

    action count_it(bit<8> cell) {
        cells.count((bit<32>)cell);
        std.egress_spec = 2;
    }
    action add_up(bit<32> cell) {
        bit<16> sum;
        sums.read(sum, cell);
        sum = sum + hdr.op.value;
        sums.write(cell, sum);
        hdr.op.value = sum;
        std.egress_spec = 2;
    }
    action hash_it() {
        hash(meta.bucket, HashAlgorithm.crc16, 16w10, { hdr.op.arg, hdr.op.value }, 16w100);
        hdr.op.value = meta.bucket;
        std.egress_spec = 2;
    }
    action clone_it(bit<32> session) {
        meta.mark = 7;
        clone_preserving_field_list(CloneType.I2E, session, 1);
        std.egress_spec = 2;
    }
    action again() {
        meta.rounds = meta.rounds + 1;
        resubmit_preserving_field_list(2);
    }
    action learn() {
        digest<learned_t>(1, { hdr.ethernet.src, std.ingress_port });
        std.egress_spec = 2;
    }
    action copies(bit<16> id) {
        std.mcast_grp = id;
    }
    action clamp(bit<16> limit) {
        if (hdr.op.value > limit) {
            hdr.op.value = limit;
            hdr.op.arg = 1;
        } else {
            hdr.op.arg = 2;
        }
        std.egress_spec = 2;
    }
    action push() {
        hdr.labels.push_front(1);
        hdr.labels[0].setValid();
        hdr.labels[0].value = hdr.op.arg;
        hdr.labels[0].more = 1;
    }
    action pop() {
        hdr.labels.pop_front(1);
    }
    action to(bit<9> port) {
        std.egress_spec = port;
    }
    action drop() {
        mark_to_drop(std);
    }

    table services {
        key = {
            hdr.op.code: exact;
            meta.rounds: exact;
            hdr.op.arg: ternary;
        }
        actions = { count_it; add_up; hash_it; clone_it; again; learn; copies; clamp; push; pop; NoAction; }
    }
    table ports {
        key = {
            hdr.op.value: range;
            hdr.ethernet.src: optional;
        }
        actions = { to; drop; }
        default_action = drop();
    }

    apply {
        if (!hdr.op.isValid()) {
            drop();
        } else {
            switch (services.apply().action_run) {
                push:
                pop: { ports.apply(); }
                NoAction: { std.egress_spec = meta.special ? 9w3 : 9w4; }
            }
        }
    }
}

control Out(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (std.instance_type == 1) {
            hdr.op.arg = meta.mark;
        } else if (std.instance_type == 5) {
            hdr.op.value = std.egress_rid;
        } else if (hdr.op.value == 0xbeef) {
            hdr.op.value = 0;
            recirculate_preserving_field_list(3);
        }
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Packets(), Verify(), In(), Out(), Update(), Deparse()) main;
