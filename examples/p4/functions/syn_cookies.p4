// A guard against floods of SYNs: connections are answered with cookies, without memory, and only who has got a cookie
// reaches the server. The cookie is a keyed hash, which the native module siphash.c computes.
#include <core.p4>
#include <v1model.p4>

extern bit<64> siphash(in bit<128> key, in bit<104> data);

const bit<9> CLIENTS = 1;
const bit<9> SERVER = 2;

const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> SYN = 0x02;
const bit<8> ACK = 0x10;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> length;
    bit<16> id;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header tcp_t {
    bit<16> src;
    bit<16> dst;
    bit<32> sequence;
    bit<32> acknowledgment;
    bit<4> offset;
    bit<4> reserved;
    bit<8> flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    tcp_t tcp;
}

struct metadata_t {
    bool answers;
    bit<128> key;
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
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragment & 0x3fff, hdr.ipv4.protocol) {
            (5, 0, PROTOCOL_TCP): tcp;
            default: accept;
        }
    }
    state tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Guard(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    // A new key makes all cookies invalid that were given so far.
    action use(bit<128> key) {
        meta.key = key;
    }
    table secret {
        actions = { use; }
        default_action = use(0);
    }

    // The cookie of a connection: for each of the client's sequence numbers another.
    action cookie(in bit<32> sequence, out bit<32> number) {
        bit<104> data = hdr.ipv4.src ++ hdr.tcp.src ++ hdr.tcp.dst ++ sequence ++ hdr.ipv4.dst[7:0];
        number = siphash(meta.key, data)[31:0];
    }

    action answer(bit<32> number) {
        bit<48> host = hdr.ethernet.src;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = host;
        bit<32> address = hdr.ipv4.src;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.dst = address;
        bit<16> port = hdr.tcp.src;
        hdr.tcp.src = hdr.tcp.dst;
        hdr.tcp.dst = port;

        hdr.tcp.acknowledgment = hdr.tcp.sequence + 1;
        hdr.tcp.sequence = number;
        hdr.tcp.flags = SYN | ACK;
        hdr.tcp.offset = 5;
        hdr.tcp.urgent = 0;
        hdr.ipv4.length = 40;
        hdr.ipv4.ttl = 64;
        truncate(54);
        meta.answers = true;
        std.egress_spec = CLIENTS;
    }

    apply {
        if (std.ingress_port == SERVER) {
            std.egress_spec = CLIENTS;
            return;
        }
        std.egress_spec = SERVER;
        if (!hdr.tcp.isValid()) {
            return;
        }
        secret.apply();
        bit<32> number;
        if (hdr.tcp.flags & (SYN | ACK) == SYN) {
            cookie(hdr.tcp.sequence, number);
            answer(number);
        } else {
            // The first segment after the answer acknowledges the cookie.
            cookie(hdr.tcp.sequence - 1, number);
            if (hdr.tcp.acknowledgment != number + 1) {
                mark_to_drop(std);
            }
        }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {}
}

control Checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.answers,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.fragment,
              hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(meta.answers,
            { hdr.ipv4.src, hdr.ipv4.dst, 8w0, hdr.ipv4.protocol, 16w20,
              hdr.tcp.src, hdr.tcp.dst, hdr.tcp.sequence, hdr.tcp.acknowledgment, hdr.tcp.offset,
              hdr.tcp.reserved, hdr.tcp.flags, hdr.tcp.window, hdr.tcp.urgent },
            hdr.tcp.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Packets(), Verify(), Guard(), Leave(), Checksums(), Deparse()) main;
