/* A hub that takes about 50 us for each packet. */
#include "mswitch.h"

const char *msw_describe(void) { return "{\"name\": \"costly\", \"summary\": \"for tests\"}"; }

uint32_t msw_forward(struct msw_batch *batch) {
    struct msw_output *out = msw_outputs(batch);
    for (uint32_t i = 0; i < batch->packets; i++) {
        for (volatile uint32_t turn = 0; turn < 20000; turn++) {}
        out[i] = (struct msw_output){.packet = (uint16_t)i, .verb = MSW_FLOOD};
    }
    return batch->packets;
}
