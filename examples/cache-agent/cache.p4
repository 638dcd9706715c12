// Rules for flows, and a cache of their decisions. The rules stay with the CPU; the cache, which an agent fills, has
// exact keys and runs in the kernel.
#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> TCP = 6;
const bit<8> UDP = 17;
// The port number of v1model that drops.
const bit<9> DROP = 511;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> dscp_ecn;
    bit<16> length;
    bit<16> id;
    bit<3> flags;
    bit<13> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

// The front that TCP and UDP have in common.
header ports_t {
    bit<16> src;
    bit<16> dst;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    ports_t ports;
}

struct metadata_t {
    bit<16> sport;
    bit<16> dport;
    // The decision, the generation in which it was made, and the current generation.
    bit<9> port;
    bit<32> decided;
    bit<32> generation;
}

// What the agent learns of a packet that the rules have decided.
struct decision_t {
    bit<32> src;
    bit<32> dst;
    bit<8> protocol;
    bit<16> sport;
    bit<16> dport;
    bit<9> port;
    bit<32> generation;
}

parser Packets(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        // Only first fragments have port numbers; behind options, this program does not look for them.
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (5, 0, TCP): ports;
            (5, 0, UDP): ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        meta.sport = hdr.ports.src;
        meta.dport = hdr.ports.dst;
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Cache(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) hits;

    action set_generation(bit<32> number) {
        meta.generation = number;
    }
    // A new number makes all decisions in the cache void at once.
    table current {
        actions = { set_generation; }
        default_action = set_generation(1);
    }

    action cached(bit<9> port, bit<32> generation) {
        meta.port = port;
        meta.decided = generation;
    }
    table cache {
        key = {
            hdr.ipv4.src: exact @name("src");
            hdr.ipv4.dst: exact @name("dst");
            hdr.ipv4.protocol: exact @name("protocol");
            meta.sport: exact @name("sport");
            meta.dport: exact @name("dport");
        }
        actions = { cached; NoAction; }
        const default_action = NoAction();
        counters = hits;
        size = 65536;
    }

    action tell(bit<9> port) {
        meta.port = port;
        digest<decision_t>(1, {
            hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4.protocol, meta.sport, meta.dport, port, meta.generation
        });
    }
    action forward(bit<9> port) {
        tell(port);
    }
    action deny() {
        tell(DROP);
    }
    // Without a digest: packets of no rule do not fill the cache.
    action refuse() {
        meta.port = DROP;
    }
    @cpu
    table rules {
        key = {
            hdr.ipv4.src: ternary @name("src");
            hdr.ipv4.dst: ternary @name("dst");
            hdr.ipv4.protocol: optional @name("protocol");
            meta.sport: range @name("sport");
            meta.dport: range @name("dport");
        }
        actions = { forward; deny; refuse; }
        default_action = refuse();
        size = 65536;
    }

    action to(bit<9> port) {
        meta.port = port;
    }
    // What is not IPv4, for instance ARP, passes between pairs of ports.
    table others {
        key = { std.ingress_port: exact @name("port"); }
        actions = { to; refuse; }
        default_action = refuse();
    }

    apply {
        if (hdr.ipv4.isValid()) {
            current.apply();
            bool is_cached = cache.apply().hit;
            if (!is_cached || meta.decided != meta.generation) {
                rules.apply();
            }
        } else {
            others.apply();
        }
        std.egress_spec = meta.port;
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

V1Switch(Packets(), Verify(), Cache(), Depart(), Update(), Deparse()) main;
