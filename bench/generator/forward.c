// SPDX-License-Identifier: Apache-2.0
//
// forward.c: swaps MAC addresses, and sends packets back or to the neighbour port.

#include "forward.h"

#include <rte_cycles.h>
#include <stdio.h>

// Interval between looks at the clock, signals and connections.
#define CHECK_SECONDS 0.1

// Swaps the addresses of a unicast packet. A broadcast's would become an invalid source.
static inline void swap_addresses(uint8_t *packet) {
    uint8_t destination[6];
    if (packet[0] & 1)
        return;
    memcpy(destination, packet, 6);
    memcpy(packet, packet + 6, 6);
    memcpy(packet + 6, destination, 6);
}

// Moves packets in several buffers to the end; returns the number of others.
static uint16_t whole_first(struct rte_mbuf **packets, uint16_t count) {
    uint16_t whole = 0;
    for (uint16_t index = 0; index < count; index++) {
        struct rte_mbuf *packet = packets[index];
        if (packet->nb_segs > 1)
            continue;
        packets[index] = packets[whole];
        packets[whole++] = packet;
    }
    return whole;
}

static unsigned forward_port(struct forwarding *forwarding, const struct options *options, const struct ports *ports,
                             unsigned port) {
    struct rte_mbuf *packets[MAX_BURST];
    unsigned to = options->mode == MODE_VNF ? port ^ 1 : port, total = 0;
    bool swap = options->swap || options->mode == MODE_REFLECT;
    for (uint16_t queue = 0; queue < ports->queues; queue++) {
        uint16_t count = rte_eth_rx_burst(ports->id[port], queue, packets, (uint16_t)options->burst);
        if (count == 0)
            continue;
        for (unsigned index = 0; swap && index < count; index++)
            swap_addresses(rte_pktmbuf_mtod(packets[index], uint8_t *));
        uint16_t offered = ports->unchained[to] ? whole_first(packets, count) : count;
        uint16_t sent = rte_eth_tx_burst(ports->id[to], queue, packets, offered);
        if (sent < count)
            rte_pktmbuf_free_bulk(packets + sent, count - sent);
        forwarding->received[port] += count;
        forwarding->forwarded[port] += sent;
        forwarding->dropped[port] += count - sent;
        forwarding->effort.polls++;
        total += count;
    }
    forwarding->effort.received += total;
    return total;
}

bool forward(struct forwarding *forwarding, const struct options *options, const struct ports *ports,
             const volatile bool *stop) {
    double hz = (double)rte_get_tsc_hz();
    uint64_t start = rte_rdtsc(), now = start, before = start, check = start;
    uint64_t end = options->seconds > 0 ? start + (uint64_t)(options->seconds * hz) : UINT64_MAX;
    unsigned work = 1;
    *forwarding = (struct forwarding){.down = -1};
    for (;;) {
        now = rte_rdtsc();
        if (work == 0)
            forwarding->effort.idle += now - before;
        before = now;
        if (unlikely(now >= check)) {
            check = RTE_MIN(now + (uint64_t)(CHECK_SECONDS * hz), end);
            forwarding->down = ports_down(ports);
            if (now >= end || *stop || forwarding->down >= 0)
                break;
        }
        work = 0;
        for (unsigned port = 0; port < ports->count; port++)
            work += forward_port(forwarding, options, ports, port);
    }
    forwarding->effort.total = now - start;
    forwarding->seconds = (double)(now - start) / hz;
    forwarding->interrupted = now < end && options->seconds > 0;
    if (forwarding->down >= 0)
        fprintf(stderr, "mswitch-generator: --port %s: disconnected\n", ports->name[forwarding->down]);
    return forwarding->down < 0;
}
