/* Drops IPv4 packets above a rate, counted by each worker, and leaves the others to the next stage of a chain. */
#include "mswitch.h"

#define SECOND 1000000000u

const char *msw_describe(void) {
    return "{\"name\": \"limiter\", \"summary\": \"limits IPv4 packets, for tests\", \"state\": 8,"
           " \"params\": [{\"name\": \"rate\", \"type\": \"number\", \"min\": 1, \"max\": 1000000, \"help\": \"packets a second\"},"
           "               {\"name\": \"burst\", \"type\": \"number\", \"min\": 1, \"max\": 1000000, \"help\": \"packets after a pause\"}],"
           " \"counters\": [{\"name\": \"passed\", \"help\": \"IPv4 packets within the rate\"},"
           "                {\"name\": \"refused\", \"help\": \"IPv4 packets beyond the rate\"}]}";
}

uint32_t msw_forward(struct msw_batch *batch) {
    uint64_t per_packet = SECOND / msw_values(batch)[0].number, depth = per_packet * msw_values(batch)[1].number;
    /* Time at which the bucket is full again. */
    uint64_t *full_at = msw_state(batch), *counters = msw_counters(batch);
    struct msw_packet *packets = msw_packets(batch);
    struct msw_output *out = msw_outputs(batch);
    uint32_t outputs = 0;
    for (uint32_t i = 0; i < batch->packets; i++) {
        const uint8_t *frame = msw_header(batch, &packets[i]);
        if (frame[12] != 8 || frame[13] != 0) continue;
        uint64_t from = *full_at > batch->now ? *full_at : batch->now;
        if (from + per_packet <= batch->now + depth) {
            *full_at = from + per_packet;
            counters[0]++;
        } else {
            counters[1]++;
            out[outputs++] = (struct msw_output){.packet = (uint16_t)i, .verb = MSW_DROP};
        }
    }
    return outputs;
}
