// SPDX-License-Identifier: Apache-2.0
//
// options.h: the command line.
#pragma once

#include "flows.h"
#include "packet.h"
#include "sink.h"
#include "sizes.h"

enum {
    MAX_BURST = 256,
    // The longest packet that fits into one buffer of DPDK, whose size is a 16-bit number, behind its headroom.
    MAX_PACKET = 65000,
    MAX_MACS = 1 << 20,
    MAX_FLOWS = 1 << 20,
};

enum mode { MODE_SEND, MODE_RECEIVE, MODE_REFLECT, MODE_VNF, MODE_CEILING };
enum rate { RATE_MAX, RATE_PPS, RATE_SHARE };
enum huge { HUGE_AUTO, HUGE_YES, HUGE_NO };

struct options {
    enum mode mode;
    const char *mode_name;
    const char *ports[MAX_PORTS];
    unsigned port_count;
    // Sender and receiver of each direction.
    uint8_t directions[MAX_DIRECTIONS][2];
    unsigned direction_count;
    bool one_way;
    int cpu;
    enum huge huge;
    unsigned queues, ring;
    struct sizes sizes;
    const char *size;
    uint32_t flows, macs;
    bool macs_given;
    enum order order;
    double exponent;
    const char *rules, *capture;
    bool ip;
    // Destination of all packets; 0 for the receiving port's stations.
    uint64_t to_mac;
    enum rate rate;
    // Packets per second of each direction, or the share of its maximum.
    double rate_value;
    // Packets per second of each direction at saturation; 0 to measure them.
    double maximum;
    double seconds, warm_up, trial, connect_limit;
    unsigned burst, train;
    // Most packets of a direction in flight; 0 for no limit.
    unsigned in_flight;
    // Microseconds to sleep when there is nothing to do; 0 to poll.
    unsigned sleep;
    bool rtt;
    double probes;
    bool verify, announce, swap, quiet;
    // The run of the measured packets; any if negative.
    int run;
    uint64_t seed;
};

// Reads and checks the command line. Ends the program: with 0 after --help, with 2 after an error.
void options_parse(struct options *options, int argc, char **argv);
