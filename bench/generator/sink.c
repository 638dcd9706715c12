// SPDX-License-Identifier: Apache-2.0
//
// sink.c: the seldom paths of accounting for received packets.

#include "sink.h"

#include <stdlib.h>

// Bits that all trackers share, and limits of a tracker's window: more than all rings on a path hold where there are
// few flows, enough for neighbours to change places where there are many.
enum { ALL_BITS = 1 << 27, MOST_BITS = 1 << 17, LEAST_BITS = 1 << 11 };

bool sink_init(struct sink *sink, uint32_t per_direction) {
    sink->streams = per_direction * sink->direction_count;
    sink->window = MOST_BITS;
    while (sink->window > LEAST_BITS && (uint64_t)sink->window * sink->streams > ALL_BITS)
        sink->window /= 2;
    size_t words = sink->window / 64;
    sink->trackers = calloc(sink->streams, sizeof *sink->trackers);
    uint64_t *bits = calloc(sink->streams, words * 8);
    if (!sink->trackers || !bits) {
        free(bits);
        return false;
    }
    for (uint32_t stream = 0; stream < sink->streams; stream++) {
        sink->trackers[stream].missing = bits + stream * words;
        sink->trackers[stream].direction = (uint8_t)(stream / per_direction);
    }
    return true;
}

void sink_free(struct sink *sink) {
    if (sink->trackers)
        free(sink->trackers[0].missing);
    free(sink->trackers);
    sink->trackers = NULL;
    for (unsigned to = 0; to < MAX_PORTS; to++)
        for (unsigned from = 0; from < MAX_PORTS; from++)
            free(sink->heard[to][from].bits);
}

void sink_begin(struct sink *sink, uint16_t run) {
    sink->run = run;
    sink->run_known = !sink->any_run;
    for (uint32_t stream = 0; stream < sink->streams; stream++) {
        struct tracker *tracker = &sink->trackers[stream];
        if (tracker->holes > 0)
            memset(tracker->missing, 0, sink->window / 8);
        tracker->next = 0;
        tracker->holes = 0;
    }
    for (unsigned index = 0; index < sink->direction_count; index++) {
        struct arrivals *arrivals = &sink->directions[index];
        if (arrivals->times)
            histogram_clear(arrivals->times);
        *arrivals = (struct arrivals){.from = arrivals->from, .to = arrivals->to, .times = arrivals->times};
    }
    memset(sink->ports, 0, sizeof sink->ports);
}

bool sink_follow(struct sink *sink, unsigned port, const struct stamp *stamp) {
    // A sender has up to three runs before the one that it measures: two to find the maximum, and one to warm up.
    uint16_t back = (uint16_t)(sink->run - stamp->run), ahead = (uint16_t)(stamp->run - sink->run);
    if (stamp->flow >= sink->streams) {
        sink->ports[port].foreign++;
    } else if (sink->any_run && (!sink->run_known || (ahead > 0 && ahead <= 3))) {
        sink_begin(sink, stamp->run);
        sink->run_known = true;
        sink->followed++;
        return true;
    } else if (sink->run_known && back <= 3) {
        sink->directions[sink->trackers[stamp->flow].direction].earlier++;
    } else {
        sink->ports[port].foreign++;
    }
    return false;
}

static bool is_missing(const struct tracker *tracker, uint32_t window, uint64_t sequence) {
    return tracker->missing[sequence % window / 64] >> (sequence % 64) & 1;
}

static void set_missing(struct tracker *tracker, uint32_t window, uint64_t sequence, bool missing) {
    if (is_missing(tracker, window, sequence) == missing)
        return;
    tracker->missing[sequence % window / 64] ^= UINT64_C(1) << (sequence % 64);
    tracker->holes += missing ? 1 : UINT32_MAX;
}

bool tracker_irregular(struct tracker *tracker, struct arrivals *arrivals, uint32_t window, uint64_t sequence) {
    if (sequence >= tracker->next) {
        // Numbers further back than the window are forgotten.
        uint64_t first = sequence - tracker->next < window ? tracker->next : sequence - window + 1;
        for (uint64_t skipped = first; skipped < sequence; skipped++)
            set_missing(tracker, window, skipped, true);
        set_missing(tracker, window, sequence, false);
        tracker->next = sequence + 1;
        arrivals->received++;
        return true;
    }
    if (tracker->next - sequence > window) {
        arrivals->stale++;
        return false;
    }
    if (is_missing(tracker, window, sequence)) {
        set_missing(tracker, window, sequence, false);
        arrivals->received++;
        arrivals->reordered++;
        return true;
    }
    arrivals->duplicated++;
    return false;
}

bool sink_verify(struct sink *sink, const struct stamp *stamp, const uint8_t *packet, uint32_t length) {
    struct template any;
    const struct template *expected = sink->expected ? sink->expected[stamp->flow] : NULL;
    if (!expected) {
        struct five_tuple tuple = default_tuple(stamp->flow, 0);
        template_make(&any, get48(packet + 6), get48(packet), get16(packet + 12) == 0x0800 ? &tuple : NULL,
                      stamp->flow);
        expected = &any;
    }
    if (length < template_least(expected, stamp->probe))
        return false;
    packet_expected(expected, stamp, sink->scratch);
    if (stamp->probe)
        memcpy(sink->scratch + expected->stamp_at + STAMP_LEN, packet + expected->stamp_at + STAMP_LEN, TIME_LEN);
    uint64_t to = get48(packet), from = get48(packet + 6);
    uint64_t sent_to = get48(sink->scratch), sent_from = get48(sink->scratch + 6);
    bool addresses = (to == sent_to && from == sent_from) || (to == sent_from && from == sent_to);
    return addresses && !memcmp(sink->scratch + 12, packet + 12, length - 12);
}

void sink_other(struct sink *sink, unsigned port, const uint8_t *packet, uint32_t length) {
    struct port_arrivals *arrivals = &sink->ports[port];
    uint64_t source;
    if (length < ETHERNET_LEN) {
        arrivals->foreign++;
        return;
    }
    if (announcement_read(packet, &source)) {
        arrivals->announcements++;
        uint64_t number = source - station_mac(0, 0);
        unsigned from = number & 0xff;
        uint64_t station = number >> 8;
        struct heard *heard = from < MAX_PORTS ? &sink->heard[port][from] : NULL;
        if (heard && heard->bits && station < heard->stations) {
            uint64_t bit = UINT64_C(1) << (station % 64);
            heard->missing -= !(heard->bits[station / 64] & bit);
            heard->bits[station / 64] |= bit;
        }
        return;
    }
    // Packets of this format by default: addresses for benchmarks, and the destination port "discard".
    bool udp = length >= UDP_STAMP_AT && get16(packet + 12) == 0x0800 && packet[14] == 0x45 &&
               packet[23] == PROTOCOL_UDP && get16(packet + 26) == (198 << 8 | 18) && get16(packet + 34) >= 20000 &&
               get16(packet + 36) == 9;
    if (!sink->at_end && (udp || get16(packet + 12) == 0x88b5))
        arrivals->corrupted++;
    else
        arrivals->foreign++;
}
