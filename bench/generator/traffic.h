// SPDX-License-Identifier: Apache-2.0
//
// traffic.h: a run: senders and the sink on one thread.
#pragma once

#include "capture.h"
#include "flight.h"
#include "pace.h"
#include "ports.h"
#include "sink.h"

enum { RECEIVE_BURST = 32 };

// Packets of one direction for one queue that are written, and not accepted by the port yet.
struct pending {
    struct rte_mbuf *packets[MAX_BURST];
    uint16_t next, count;
    // The place of the last probe's time, and the packet's index; written when the packet is handed over.
    uint8_t *time;
    uint16_t probe;
};

// The sending end of a direction.
struct sender {
    unsigned from;
    struct template *templates;
    struct draw draw;
    // Next sequence numbers of the direction's streams, the first of which is `first_stream`.
    uint64_t *sequences;
    uint16_t first_stream;
    unsigned size_at;
    struct pacer pacer;
    struct pending pending[MAX_QUEUES];
    unsigned pending_count;
    uint64_t probe_interval, next_probe;
    // Packets that the port accepted, and bursts for which there was no buffer.
    uint64_t sent, no_buffer;
    struct flight flight;
};

// Cycles of the time stamp counter, and polls that found packets.
struct effort {
    uint64_t total, idle, polls, received;
};

struct traffic {
    const struct options *options;
    struct ports *ports;
    const volatile bool *stop;
    struct capture capture;
    struct sender senders[MAX_DIRECTIONS];
    unsigned sender_count;
    struct sink sink;
    // Templates by stream, for content checks.
    const struct template **expected;
    uint8_t *linear;
    uint16_t run;
    // Several flows share a stream, and may overtake each other.
    bool shared_streams;
    // Mean length of the packets sent.
    double mean_size;
    // DPDK's fields of a buffer for one packet that nobody else uses.
    uint64_t fresh_buffer;
    double hz;
    // Packets per second of each direction at saturation, where a rate is a share of it.
    double maximum[MAX_DIRECTIONS];
    double offered[MAX_DIRECTIONS];
    // Of the measured time: seconds, packets received, effort, and packets per second of each tenth of a second.
    double seconds;
    // When the measured time began: nanoseconds of CLOCK_MONOTONIC.
    uint64_t began_ns;
    // The run was stopped before its time was over.
    bool interrupted;
    uint64_t received[MAX_DIRECTIONS];
    uint64_t sent[MAX_DIRECTIONS];
    struct effort effort;
    float *samples[MAX_DIRECTIONS];
    unsigned sample_count, sample_room;
    // The port that lost its connection; -1 if none did.
    int down;
};

// Makes templates and trackers, before DPDK starts. Returns false after a message.
bool traffic_prepare(struct traffic *traffic, const struct options *options, const volatile bool *stop);

// Uses these ports, once DPDK has started. Returns false after a message.
bool traffic_attach(struct traffic *traffic, struct ports *ports);

// The longest packet that is sent.
unsigned traffic_longest(const struct traffic *traffic);

// Broadcasts from all stations until each direction's ends have heard each other. Returns false after a message.
bool traffic_announce(struct traffic *traffic);

// Measures: the maximum where that is needed, then warm-up, measured time and what is still in flight. Returns false
// after a message; counts are valid even then.
bool traffic_run(struct traffic *traffic);

void traffic_free(struct traffic *traffic);

// Receives at most a few bursts at a port; returns the number of packets.
unsigned traffic_receive(struct traffic *traffic, unsigned port);
