/* A hub that takes 50 us for each packet, on any CPU. */
#include <time.h>

#include "mswitch.h"

#define COST 50000

const char *msw_describe(void) { return "{\"name\": \"costly\", \"summary\": \"for tests\"}"; }

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

uint32_t msw_forward(struct msw_batch *batch) {
    struct msw_output *out = msw_outputs(batch);
    for (uint32_t i = 0; i < batch->packets; i++) {
        for (int64_t end = now() + COST; now() < end;) {}
        out[i] = (struct msw_output){.packet = (uint16_t)i, .verb = MSW_FLOOD};
    }
    return batch->packets;
}
