// SPDX-License-Identifier: Apache-2.0
//
// flight.h: a limit of a direction's packets in flight.
//
// Invariant: packets count as given up while they have neither arrived nor been expected for a while, so that lost ones
// do not stop the sender for good.
#pragma once

#include <stdint.h>

struct flight {
    uint64_t given_up;
    // Counts at the last change, and its time.
    uint64_t sent, arrived, changed_at;
};

static inline void flight_start(struct flight *flight, uint64_t now) {
    *flight = (struct flight){.changed_at = now};
}

// Returns the number of packets that may be sent, after this many were sent and arrived: less than a `train` while
// there is no room. After `quiet` ticks in which nothing was sent or arrived, packets in flight are lost.
static inline uint64_t flight_room(struct flight *flight, uint64_t limit, unsigned train, uint64_t sent,
                                   uint64_t arrived, uint64_t now, double quiet) {
    uint64_t absent = sent > arrived ? sent - arrived : 0;
    if (sent != flight->sent || arrived != flight->arrived) {
        flight->sent = sent;
        flight->arrived = arrived;
        flight->changed_at = now;
    }
    // Packets may arrive after they were given up.
    if (flight->given_up > absent)
        flight->given_up = absent;
    uint64_t flying = absent - flight->given_up;
    if (flying + train > limit && (double)(now - flight->changed_at) > quiet) {
        flight->given_up = absent;
        flying = 0;
    }
    return flying < limit ? limit - flying : 0;
}
