// A learning switch: it tells the controller about stations that it does not know, and floods what is for such.
#include <core.p4>
#include <v1model.p4>

// Multicast group of all ports. The controller fills it.
const bit<16> ALL_PORTS = 1;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

struct headers_t {
    ethernet_t ethernet;
}

// What the controller learns of a station.
struct station_t {
    bit<48> address;
    bit<9> port;
}

struct metadata_t {}

parser Packets(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Switch(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action learn() {
        // A digest: values that reach the controller in batches, without the packet.
        digest<station_t>(1, { hdr.ethernet.src, std.ingress_port });
    }

    // Stations at their ports; one that is seen elsewhere is learnt anew. The controller hears of entries that are not
    // hit for some time.
    table stations {
        key = {
            hdr.ethernet.src: exact;
            std.ingress_port: exact;
        }
        actions = { NoAction; learn; }
        const default_action = learn();
        size = 65536;
        support_timeout = true;
    }

    action forward(bit<9> port) {
        std.egress_spec = port;
    }
    action flood() {
        std.mcast_grp = ALL_PORTS;
    }

    table destinations {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; flood; }
        const default_action = flood();
        size = 65536;
    }

    apply {
        // Group addresses, whose first byte is odd, have no station.
        if (hdr.ethernet.src[40:40] == 0) {
            stations.apply();
        }
        destinations.apply();
    }
}

control Prune(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        // No packet leaves from the port that it came from.
        if (std.egress_port == std.ingress_port) {
            mark_to_drop(std);
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

V1Switch(Packets(), Verify(), Switch(), Prune(), Update(), Deparse()) main;
