// In-band telemetry: packets collect on their way what each switch saw of them: its number, times, its queue.
#include <core.p4>
#include <v1model.p4>

// One of the two EtherTypes for experiments (IEEE 802).
const bit<16> TYPE_TELEMETRY = 0x88b6;
// Records that a packet has room for.
const bit<8> MOST_HOPS = 8;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

// A shim between Ethernet and what follows it.
header shim_t {
    bit<16> type;   // EtherType of what follows the records
    bit<8> hops;    // records
    bit<8> lost;    // switches that had no room for theirs
}

header hop_t {
    bit<16> switch_id;
    bit<16> port;           // that the packet left from
    bit<48> arrival;        // microseconds
    bit<32> queued;         // microseconds in the queue
    bit<32> queue_depth;    // packets in front of it
}

struct headers_t {
    ethernet_t ethernet;
    shim_t shim;
    hop_t[8] hops;          // the last switch's first
}

struct metadata_t {
    bit<8> left;            // records that the parser has not read yet
}

parser Packets(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_TELEMETRY: shim;
            default: accept;
        }
    }
    state shim {
        packet.extract(hdr.shim);
        // A packet that claims more is wrong; its records stay where they are.
        verify(hdr.shim.hops <= MOST_HOPS, error.StackOutOfBounds);
        meta.left = hdr.shim.hops;
        transition records;
    }
    // A loop: each round consumes a record.
    state records {
        transition select(meta.left) {
            0: accept;
            default: record;
        }
    }
    state record {
        packet.extract(hdr.hops.next);
        meta.left = meta.left - 1;
        transition records;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action to(bit<9> port) {
        std.egress_spec = port;
    }
    action drop() {
        mark_to_drop(std);
    }
    table stations {
        key = { hdr.ethernet.dst: exact; }
        actions = { to; drop; }
        default_action = drop();
    }

    action begin() {
        hdr.shim.setValid();
        hdr.shim = { hdr.ethernet.type, 0, 0 };
        hdr.ethernet.type = TYPE_TELEMETRY;
    }
    // Ports at which packets begin to collect.
    table sources {
        key = { std.ingress_port: exact; }
        actions = { begin; NoAction; }
    }

    apply {
        if (std.parser_error != error.NoError) {
            drop();
        } else {
            stations.apply();
            if (!hdr.shim.isValid()) {
                sources.apply();
            }
        }
    }
}

// Behind the queue, of which only this part knows.
control Collect(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action add(bit<16> switch_id) {
        if (hdr.shim.hops < MOST_HOPS) {
            // Makes room in front.
            hdr.hops.push_front(1);
            hdr.hops[0].setValid();
            hdr.hops[0] = {
                switch_id,
                (bit<16>) std.egress_port,
                std.ingress_global_timestamp,
                std.deq_timedelta,
                (bit<32>) std.enq_qdepth
            };
            hdr.shim.hops = hdr.shim.hops + 1;
        } else {
            hdr.shim.lost = hdr.shim.lost |+| 1;
        }
    }
    // One default action: the switch's number. Without it, packets pass as they are.
    table self {
        actions = { add; NoAction; }
        default_action = NoAction();
    }

    action strip() {
        hdr.ethernet.type = hdr.shim.type;
        hdr.shim.setInvalid();
        hdr.hops.pop_front(8);
    }
    // Ports of stations that want packets without records; the others are collectors, or other switches.
    table sinks {
        key = { std.egress_port: exact; }
        actions = { strip; NoAction; }
    }

    apply {
        if (hdr.shim.isValid()) {
            if (!sinks.apply().hit) {
                self.apply();
            }
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

V1Switch(Packets(), Verify(), Forward(), Collect(), Update(), Deparse()) main;
