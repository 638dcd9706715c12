// SPDX-License-Identifier: Apache-2.0
//
// ports.h: DPDK's environment and devices, opened for one thread.
#pragma once

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "options.h"

struct ports {
    unsigned count, queues;
    // DPDK's numbers, and the names of the command line.
    uint16_t id[MAX_PORTS];
    const char *name[MAX_PORTS];
    // Buffers for received packets, and buffers for packets to send, which hold the text of fixed fillings.
    struct rte_mempool *receive, *send;
    // Whether the port's driver does not reliably send packets in several buffers.
    bool unchained[MAX_PORTS];
};

// Starts DPDK, makes and configures the ports. `longest` is the longest packet to send or
// forward. Returns false after a message
// on standard error.
bool ports_open(struct ports *ports, const struct options *options, unsigned longest);

// Waits until all ports are connected; returns false after a message, or if `stop` is set.
bool ports_connect(const struct ports *ports, double seconds, const volatile bool *stop);

// The number of a port that is not connected (any more); -1 if all are.
int ports_down(const struct ports *ports);

// Removes the devices. The program ends afterwards.
void ports_close(struct ports *ports);
