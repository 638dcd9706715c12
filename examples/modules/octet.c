/* Uses the last octet of the IPv4 destination as the port's index (mSwitch, section 5.3). */
#include "mswitch.h"

const char *msw_describe(void) {
    return "{\"name\": \"octet\", \"summary\": \"the last octet of the IPv4 destination is the port's index\"}";
}

uint32_t msw_forward(struct msw_batch *batch) {
    struct msw_packet *packets = msw_packets(batch);
    struct msw_output *out = msw_outputs(batch);
    uint32_t outputs = 0;
    for (uint32_t i = 0; i < batch->packets; i++) {
        const uint8_t *frame = msw_header(batch, &packets[i]);
        /* Ethernet without a tag, then IPv4, whose destination ends at byte 33. */
        if (packets[i].header_len < 34 || msw_be16(frame + 12) != 0x0800) continue;
        out[outputs++] = (struct msw_output){.packet = (uint16_t)i, .port = frame[33], .verb = MSW_SEND};
    }
    return outputs;
}
