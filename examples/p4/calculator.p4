// A calculator in the network: the switch answers a request with its result, at once and by itself.
#include <core.p4>
#include <v1model.p4>

// One of the two EtherTypes for experiments (IEEE 802).
const bit<16> TYPE_CALCULATE = 0x88b5;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

// A request has the operator as a character, and a result of 0.
header calculation_t {
    bit<8> operator;
    bit<32> left;
    bit<32> right;
    bit<32> result;
}

struct headers_t {
    ethernet_t ethernet;
    calculation_t calculation;
}

struct metadata_t {}

parser Packets(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_CALCULATE: calculation;
            default: accept;
        }
    }
    state calculation {
        packet.extract(hdr.calculation);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Calculate(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action add() {
        hdr.calculation.result = hdr.calculation.left + hdr.calculation.right;
    }
    action subtract() {
        hdr.calculation.result = hdr.calculation.left - hdr.calculation.right;
    }
    action multiply() {
        hdr.calculation.result = hdr.calculation.left * hdr.calculation.right;
    }
    action add_up_to_all_ones() {
        // `|+|` saturates: the largest number where the sum does not fit.
        hdr.calculation.result = hdr.calculation.left |+| hdr.calculation.right;
    }
    action is_less() {
        hdr.calculation.result = hdr.calculation.left < hdr.calculation.right ? 32w1 : 0;
    }
    action drop() {
        mark_to_drop(std);
        // Nothing that follows in this control is done.
        exit;
    }

    // The entries are part of the program; a controller cannot change them.
    table operators {
        key = { hdr.calculation.operator: exact; }
        actions = { add; subtract; multiply; add_up_to_all_ones; is_less; drop; }
        const entries = {
            0x2b: add();                 // +
            0x2d: subtract();            // -
            0x2a: multiply();            // *
            0x7c: add_up_to_all_ones();  // |
            0x3c: is_less();             // <
        }
        const default_action = drop();
    }

    apply {
        if (!hdr.calculation.isValid()) {
            drop();
        }
        operators.apply();
        // Back to where the request came from.
        bit<48> asker = hdr.ethernet.src;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = asker;
        std.egress_spec = std.ingress_port;
    }
}

control Depart(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {}
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Packets(), Verify(), Calculate(), Depart(), Update(), Deparse()) main;
