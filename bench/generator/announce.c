// SPDX-License-Identifier: Apache-2.0
//
// announce.c: broadcasts before a run, so that learning switches know all stations and flood nothing.

#include <rte_cycles.h>
#include <stdio.h>
#include <stdlib.h>

#include "traffic.h"

enum {
    LIMIT_SECONDS = 10,
    // Announcements of a port that are sent at once, and the pause behind them: 320,000 per second.
    AT_ONCE = 32,
    PAUSE_US = 100,
    // Time between an announcement and its repetition.
    ROUND_MS = 100,
};

// Prepares `to` to hear all stations of `from`.
static bool listen_for(struct sink *sink, unsigned to, unsigned from, uint32_t stations) {
    struct heard *heard = &sink->heard[to][from];
    if (heard->bits || to == from)
        return true;
    *heard = (struct heard){calloc((stations + 63) / 64, 8), stations, stations};
    return heard->bits;
}

static bool unheard(const struct sink *sink, unsigned from, uint32_t station) {
    for (unsigned to = 0; to < MAX_PORTS; to++) {
        const struct heard *heard = &sink->heard[to][from];
        if (heard->bits && !(heard->bits[station / 64] >> (station % 64) & 1))
            return true;
    }
    return false;
}

// Whether all is heard; else a pair of ports for which it is not.
static bool all_heard(const struct sink *sink, unsigned ports, unsigned *to, unsigned *from) {
    for (*to = 0; *to < ports; ++*to)
        for (*from = 0; *from < ports; ++*from)
            if (sink->heard[*to][*from].bits && sink->heard[*to][*from].missing)
                return false;
    return true;
}

// Sends those of the next stations of a port that are unheard, at most a burst; returns where to go on.
static uint32_t announce_some(struct traffic *traffic, unsigned port, uint32_t station, uint32_t stations) {
    struct rte_mbuf *packets[AT_ONCE];
    uint16_t count = 0;
    for (; station < stations && count < AT_ONCE; station++) {
        if (!unheard(&traffic->sink, port, station))
            continue;
        // From the buffers for received packets: those for sending hold their filling.
        packets[count] = rte_pktmbuf_alloc(traffic->ports->receive);
        if (!packets[count])
            break;
        announcement_write((uint8_t *)rte_pktmbuf_append(packets[count], MIN_LEN), station_mac(port, station));
        count++;
    }
    uint16_t sent = count ? rte_eth_tx_burst(traffic->ports->id[port], 0, packets, count) : 0;
    if (sent < count)
        rte_pktmbuf_free_bulk(packets + sent, count - sent);
    return station;
}

static void receive_for(struct traffic *traffic, unsigned microseconds) {
    uint64_t until = rte_rdtsc() + (uint64_t)(traffic->hz * 1e-6 * microseconds);
    do {
        for (unsigned port = 0; port < traffic->ports->count; port++)
            traffic_receive(traffic, port);
    } while (rte_rdtsc() < until);
}

bool traffic_announce(struct traffic *traffic) {
    const struct options *options = traffic->options;
    struct sink *sink = &traffic->sink;
    unsigned ports = traffic->ports->count, to, from;
    for (unsigned index = 0; index < options->direction_count; index++) {
        const uint8_t *ends = options->directions[index];
        if (!listen_for(sink, ends[0], ends[1], options->macs) || !listen_for(sink, ends[1], ends[0], options->macs)) {
            fprintf(stderr, "mswitch-generator: out of memory\n");
            return false;
        }
    }
    uint64_t limit = rte_rdtsc() + (uint64_t)(traffic->hz * LIMIT_SECONDS);
    // No station is announced where there is no buffer; then the limit ends the round, too.
    while (!all_heard(sink, ports, &to, &from) && !*traffic->stop) {
        if (rte_rdtsc() > limit) {
            fprintf(stderr,
                    "mswitch-generator: port %u has not heard %u of %u stations of port %u within %d s; use --announce "
                    "no if the switch passes no broadcasts\n",
                    to, sink->heard[to][from].missing, options->macs, from, LIMIT_SECONDS);
            return false;
        }
        for (uint32_t first = 0, next; first < options->macs && rte_rdtsc() <= limit && !*traffic->stop; first = next) {
            next = first;
            for (unsigned port = 0; port < ports; port++) {
                uint32_t until = announce_some(traffic, port, first, options->macs);
                next = port == 0 || until < next ? until : next;
            }
            receive_for(traffic, PAUSE_US);
        }
        for (unsigned tenth = 0; tenth < 10 && !all_heard(sink, ports, &to, &from); tenth++)
            receive_for(traffic, ROUND_MS * 100);
    }
    return true;
}
