// SPDX-License-Identifier: Apache-2.0
//
// forward.h: ports that return or forward packets: the function of a chain.
#pragma once

#include "ports.h"
#include "traffic.h"

struct forwarding {
    double seconds;
    // The program was stopped before the time was over.
    bool interrupted;
    // Packets by receiving port: received, accepted by the port they go to, dropped because that one was full or
    // cannot send packets in several buffers.
    uint64_t received[MAX_PORTS], forwarded[MAX_PORTS], dropped[MAX_PORTS];
    struct effort effort;
    // The port that lost its connection; -1 if none did.
    int down;
};

// Forwards until the time is over, the program is stopped, or a port loses its connection: then it returns false, after
// a message.
bool forward(struct forwarding *forwarding, const struct options *options, const struct ports *ports,
             const volatile bool *stop);
