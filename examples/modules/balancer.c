/* A round-robin load balancer: packets from one port go to the others in turn, and their answers go back to it. */
#include "mswitch.h"

#define PORTS 64

const char *msw_describe(void) {
    return "{\"name\": \"balancer\", \"summary\": \"spreads packets from one port over the others, round robin\","
           " \"params\": [{\"name\": \"from\", \"type\": \"port\", \"help\": \"the port of the clients\"}],"
           " \"counters\": [{\"name\": \"spread\", \"help\": \"packets sent to one of the other ports\"},"
           "                {\"name\": \"undeliverable\", \"help\": \"packets dropped because no other port was up\"}],"
           " \"state\": 8}";
}

/* Returns the next port in turn that is up. */
static uint32_t next(struct msw_batch *batch, uint32_t *turn, uint32_t from) {
    for (uint32_t tries = 0; tries < PORTS; tries++) {
        uint32_t port = *turn;
        *turn = (port + 1) % PORTS;
        if (port != from && msw_is_up(batch, port)) return port;
    }
    return PORTS;
}

uint32_t msw_forward(struct msw_batch *batch) {
    struct msw_output *out = msw_outputs(batch);
    uint64_t from = msw_values(batch)[0].number;
    uint64_t *counters = msw_counters(batch);
    for (uint32_t i = 0; i < batch->packets; i++) {
        out[i] = (struct msw_output){.packet = (uint16_t)i, .verb = MSW_DROP};
        if (from == MSW_NOTHING) continue;
        uint32_t port = batch->ingress == from ? next(batch, msw_state(batch), (uint32_t)from) : (uint32_t)from;
        if (port < PORTS || port == from) {
            out[i].verb = MSW_SEND;
            out[i].port = (uint16_t)port;
        }
        if (batch->ingress == from) counters[out[i].verb == MSW_DROP]++;
    }
    return batch->packets;
}
