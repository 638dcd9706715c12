// SPDX-License-Identifier: Apache-2.0
//
// pace.h: the time at which packets are due, in ticks of the time stamp counter.
//
// Invariant: after a pause of the thread, at most `limit` packets are due at once, so that a pause of this program does
// not overflow a switch's rings. Packets beyond count as skipped.
//
// The limit is what falls due in 100 us, but one burst or two trains at least: a round of the loop may take longer than
// the time of one packet. A sender that sleeps may wake late, by as long as it sleeps and by a turn of another thread:
// its limit is what falls due in 2 ms. It never exceeds half of a ring, unless a single train does.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pacer {
    // Packets per tick; 0 for no limit.
    double per_tick;
    double due, limit, skipped;
    uint64_t last;
    // Packets are sent when this many are due.
    unsigned train;
};

static inline void pacer_start(struct pacer *pacer, double pps, double hz, uint64_t now, unsigned train, unsigned burst,
                               unsigned ring, bool sleeps) {
    unsigned least = burst > 2 * train ? burst : 2 * train;
    double span = sleeps ? 2e-3 : 100e-6;
    *pacer = (struct pacer){.per_tick = pps / hz, .last = now, .train = train};
    pacer->limit = pps * span > least ? pps * span : least;
    if (pacer->limit > ring / 2)
        pacer->limit = ring / 2;
    if (pacer->limit < train)
        pacer->limit = train;
}

// Returns the number of packets that may be sent now, at most `most`: a number of whole trains.
static inline unsigned pacer_due(struct pacer *pacer, uint64_t now, unsigned most) {
    if (pacer->per_tick == 0)
        return most;
    pacer->due += (double)(now - pacer->last) * pacer->per_tick;
    pacer->last = now;
    if (pacer->due > pacer->limit) {
        pacer->skipped += pacer->due - pacer->limit;
        pacer->due = pacer->limit;
    }
    unsigned due = pacer->due < most ? (unsigned)pacer->due : most;
    return due - due % pacer->train;
}

static inline void pacer_sent(struct pacer *pacer, unsigned count) {
    if (pacer->per_tick != 0)
        pacer->due -= count;
}
