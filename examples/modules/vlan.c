/* Joins two VLANs: moves packets from one to the other and back, and floods them in their new VLAN. */
#include "mswitch.h"

const char *msw_describe(void) {
    return "{\"name\": \"vlan\", \"summary\": \"joins two VLANs\","
           " \"params\": [{\"name\": \"a\", \"type\": \"number\", \"max\": 4094, \"help\": \"one VLAN; 0: untagged packets\"},"
           "               {\"name\": \"b\", \"type\": \"number\", \"max\": 4094, \"help\": \"the other\"}]}";
}

uint32_t msw_forward(struct msw_batch *batch) {
    uint16_t a = (uint16_t)msw_values(batch)[0].number, b = (uint16_t)msw_values(batch)[1].number;
    struct msw_packet *packets = msw_packets(batch);
    struct msw_output *out = msw_outputs(batch);
    for (uint32_t i = 0; i < batch->packets; i++) {
        uint16_t vlan = packets[i].vlan;
        packets[i].vlan = vlan == a ? b : vlan == b ? a : vlan;
        out[i] = (struct msw_output){.packet = (uint16_t)i, .verb = MSW_FLOOD};
    }
    return batch->packets;
}
