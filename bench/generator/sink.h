// SPDX-License-Identifier: Apache-2.0
//
// sink.h: accounts for received packets: arrivals by flow, loss, duplicates, order, corruption, time in flight.
//
// Invariants:
// - Each packet of the run is counted once: in order, reordered, duplicated, stale, corrupted or misdelivered.
// - A flow's state is what was *not* received: packets in order touch one word of it.
#pragma once

#include "histogram.h"
#include "packet.h"

enum { MAX_PORTS = 32, MAX_DIRECTIONS = 64, MAX_QUEUES = 16 };

// Arrivals of one flow. Bit n % window of `missing` says that number n, one of the last `window` below `next`, has not
// arrived; `holes` is the number of such bits.
struct tracker {
    uint64_t next;
    uint64_t *missing;
    uint32_t holes;
    uint8_t direction;
};

// Arrivals of one direction.
struct arrivals {
    uint8_t from, to;
    uint64_t received, reordered, duplicated, stale, corrupted, misdelivered, bytes;
    // Packets of this process's runs before.
    uint64_t earlier;
    struct histogram *times;
};

// Packets of a direction for the rate of reception: distinct and intact ones of this run, and those that a run before
// left in flight.
static inline uint64_t arrivals_distinct(const struct arrivals *arrivals) {
    return arrivals->earlier + arrivals->received;
}

// Packets of this run that are not in flight any more. Copies do not count.
static inline uint64_t arrivals_landed(const struct arrivals *arrivals) {
    return arrivals->received + arrivals->stale + arrivals->corrupted;
}

// Arrivals of one port: intact packets that belong there, by queue; and packets that belong to no flow.
struct port_arrivals {
    uint64_t corrupted, foreign, announcements;
    uint64_t by_queue[MAX_QUEUES];
};

// What has been heard from the stations of a port, by announcements; NULL before and after.
struct heard {
    uint64_t *bits;
    uint32_t stations, missing;
};

struct sink {
    uint16_t run;
    // Whether the first packet received decides the run, and a sender's next run is followed.
    bool any_run, run_known;
    // Number of runs followed so far.
    unsigned followed;
    // Whether the stamp is at the end of packets, as it is with templates from a capture file.
    bool at_end;
    // Window of the trackers, a power of two of at least 64.
    uint32_t window;
    uint32_t streams;
    struct tracker *trackers;
    struct arrivals directions[MAX_DIRECTIONS];
    unsigned direction_count;
    struct port_arrivals ports[MAX_PORTS];
    // By receiver, then sender.
    struct heard heard[MAX_PORTS][MAX_PORTS];
    // With content checks: room for a packet, and the templates by flow; NULL if other senders' packets are expected,
    // whose addresses are unknown.
    uint8_t *scratch;
    const struct template *const *expected;
};

// Prepares to track flows: of each direction `per_direction`, in order. Returns false if there is no memory.
bool sink_init(struct sink *sink, uint32_t per_direction);
void sink_free(struct sink *sink);

// Forgets all arrivals and begins a run.
void sink_begin(struct sink *sink, uint16_t run);

// Whether everything in a packet but its time is as it was sent.
bool sink_verify(struct sink *sink, const struct stamp *stamp, const uint8_t *packet, uint32_t length);

// Takes a stamp of another run. Returns true if that has become the run to receive.
bool sink_follow(struct sink *sink, unsigned port, const struct stamp *stamp);

// Takes a packet without a valid stamp.
void sink_other(struct sink *sink, unsigned port, const uint8_t *packet, uint32_t length);

// Records an arrival out of order, or in order while there are holes. Returns whether the packet is new.
bool tracker_irregular(struct tracker *tracker, struct arrivals *arrivals, uint32_t window, uint64_t sequence);

// Records an arrival. Returns whether the packet is new: neither a duplicate nor too late to tell.
static inline bool tracker_arrived(struct tracker *tracker, struct arrivals *arrivals, uint32_t window,
                                   uint64_t sequence) {
    if (__builtin_expect(sequence != tracker->next || tracker->holes > 0, 0))
        return tracker_irregular(tracker, arrivals, window, sequence);
    tracker->next++;
    arrivals->received++;
    return true;
}

// Takes a received packet. `packet` has the first `contiguous` of its `length` bytes; `now` matters for probes only.
// Returns whether the packet is an intact one of this run at the port it was sent to.
static inline bool sink_take(struct sink *sink, unsigned port, const uint8_t *packet, uint32_t contiguous,
                             uint32_t length, uint64_t now) {
    struct stamp stamp;
    unsigned at;
    if (__builtin_expect(contiguous < MIN_LEN, 0)) {
        sink_other(sink, port, packet, contiguous);
        return false;
    }
    at = sink->at_end ? contiguous - STAMP_LEN : stamp_offset(packet);
    if (__builtin_expect(at == 0 || at + STAMP_LEN > contiguous || !stamp_read(packet + at, &stamp), 0)) {
        sink_other(sink, port, packet, contiguous);
        return false;
    }
    if (__builtin_expect(stamp.run != sink->run || stamp.flow >= sink->streams || !sink->run_known, 0) &&
        !sink_follow(sink, port, &stamp))
        return false;
    struct tracker *tracker = &sink->trackers[stamp.flow];
    struct arrivals *arrivals = &sink->directions[tracker->direction];
    if (__builtin_expect(stamp.length != length || (sink->scratch && !sink_verify(sink, &stamp, packet, length)), 0)) {
        arrivals->corrupted++;
        return false;
    }
    if (__builtin_expect(arrivals->to != port, 0)) {
        arrivals->misdelivered++;
        return false;
    }
    if (__builtin_expect(!tracker_arrived(tracker, arrivals, sink->window, stamp.sequence), 0))
        return true;
    arrivals->bytes += length;
    if (stamp.probe && arrivals->times && at + STAMP_LEN + TIME_LEN <= contiguous + (sink->at_end ? TIME_LEN : 0)) {
        const uint8_t *time = sink->at_end ? packet + at - TIME_LEN : packet + at + STAMP_LEN;
        histogram_record(arrivals->times, (now - get48(time)) & TIME_MASK);
    }
    return true;
}
