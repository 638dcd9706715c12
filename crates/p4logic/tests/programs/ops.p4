// Does what the packet says: behind an Ethernet header of type 0x88b5 follow an operation and its argument.
#include <v1model.p4>

#ifndef CPU
#define CPU 510
#endif

@controller_header("packet_in")
header packet_in_t {
    bit<9> port;
    bit<7> pad;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> port;
    bit<7> pad;
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header op_t {
    bit<8> op;
    bit<8> arg;
    bit<8> mark;
}

// A tunnel of its own kind, in front of everything.
header tunnel_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
    bit<32> id;
}

header bulk_t {
    bit<2048> data;
}

struct headers {
    packet_in_t to_cpu;
    packet_out_t from_cpu;
    tunnel_t tunnel;
    ethernet_t eth;
    op_t op;
    bulk_t bulk;
}

struct metadata {
    bit<8> copies;
}

struct seen_t {
    bit<48> src;
    bit<9> port;
}

parser P(packet_in b, out headers hdr, inout metadata meta, inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port) {
            CPU: cpu;
            default: ethernet;
        }
    }
    state cpu {
        b.extract(hdr.from_cpu);
        transition ethernet;
    }
    state ethernet {
        b.extract(hdr.eth);
        transition select(hdr.eth.type) {
            0x88b5: op;
            default: accept;
        }
    }
    state op {
        b.extract(hdr.op);
        transition select(hdr.op.op) {
            10: bulk;
            default: accept;
        }
    }
    // Far beyond what the fabric has at hand.
    state bulk {
        b.extract(hdr.bulk);
        transition accept;
    }
}

control MyVerify(inout headers hdr, inout metadata meta) {
    apply {}
}

control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    register<bit<32>>(4) counts;
    action forward(bit<9> port) {
        std.egress_spec = port;
    }
    action drop() {
        mark_to_drop(std);
    }
    // By station, for packets without an operation.
    table stations {
        key = { hdr.eth.dst: exact; }
        actions = { forward; drop; }
        default_action = drop();
        size = 1024;
    }
    apply {
        if (hdr.from_cpu.isValid()) {
            std.egress_spec = hdr.from_cpu.port;
            hdr.from_cpu.setInvalid();
        } else if (!hdr.op.isValid()) {
            stations.apply();
        } else {
            bit<9> port = (bit<9>)hdr.op.arg;
            std.egress_spec = port;
            if (hdr.op.op == 1) {
                std.egress_spec = std.ingress_port;
            } else if (hdr.op.op == 2) {
                drop();
            } else if (hdr.op.op == 3) {
                std.mcast_grp = (bit<16>)hdr.op.arg;
            } else if (hdr.op.op == 4) {
                clone(CloneType.I2E, 9);
                hdr.op.mark = 0x44;
            } else if (hdr.op.op == 5) {
                std.egress_spec = CPU;
            } else if (hdr.op.op == 6) {
                digest<seen_t>(1, { hdr.eth.src, std.ingress_port });
            } else if (hdr.op.op == 7) {
                hdr.tunnel.setValid();
                hdr.tunnel.dst = hdr.eth.dst;
                hdr.tunnel.src = hdr.eth.src;
                hdr.tunnel.type = 0x1212;
                hdr.tunnel.id = 0x01020304;
            } else if (hdr.op.op == 8) {
                bit<32> n;
                @atomic {
                    counts.read(n, 0);
                    counts.write(0, n + 1);
                }
                hdr.op.mark = (bit<8>)n;
            } else if (hdr.op.op == 9) {
                truncate(32w20);
            } else if (hdr.op.op == 10) {
                hdr.op.mark = hdr.bulk.data[7:0];
            } else if (hdr.op.op == 11) {
                // Less than the fabric forwards.
                hdr.eth.setInvalid();
                truncate(32w8);
            }
        }
    }
}

control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t std) {
    apply {
        if (std.egress_port == CPU) {
            hdr.to_cpu.setValid();
            hdr.to_cpu.port = std.ingress_port;
            hdr.to_cpu.pad = 0;
        }
        if (std.instance_type == 5) {
            hdr.op.mark = (bit<8>)std.egress_rid;
        }
    }
}

control MyCompute(inout headers hdr, inout metadata meta) {
    apply {}
}

control MyDeparser(packet_out b, in headers hdr) {
    apply {
        b.emit(hdr);
    }
}

V1Switch(P(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
