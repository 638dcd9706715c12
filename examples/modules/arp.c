/* Answers ARP requests for one address (RFC 826) on behalf of a station; all other packets are flooded. */
#include "mswitch.h"

const char *msw_describe(void) {
    return "{\"name\": \"arp\", \"summary\": \"answers ARP requests for an address\","
           " \"params\": [{\"name\": \"address\", \"type\": \"ip\", \"help\": \"the IPv4 address\"},"
           "               {\"name\": \"station\", \"type\": \"mac\", \"help\": \"its MAC address\"}],"
           " \"counters\": [{\"name\": \"answered\", \"help\": \"requests answered\"}]}";
}

/* Whether a packet is an ARP request for the address `wanted`. */
static int asks_for(const struct msw_packet *packet, const uint8_t *frame, const uint8_t *wanted) {
    return packet->header_len >= 42 && msw_be16(frame + 12) == 0x0806 && msw_be32(frame + 14) == 0x00010800 &&
           msw_be32(frame + 18) == 0x06040001 && msw_be32(frame + 38) == msw_be32(wanted);
}

/* Turns a request into its answer. */
static void answer(uint8_t *frame, const uint8_t *station) {
    uint8_t asked[4];
    __builtin_memcpy(asked, frame + 38, 4);
    __builtin_memcpy(frame + 32, frame + 22, 10); /* The sender becomes the target. */
    __builtin_memcpy(frame, frame + 6, 6);
    __builtin_memcpy(frame + 6, station, 6);
    frame[21] = 2; /* A reply. */
    __builtin_memcpy(frame + 22, station, 6);
    __builtin_memcpy(frame + 28, asked, 4);
}

uint32_t msw_forward(struct msw_batch *batch) {
    const struct msw_value *values = msw_values(batch);
    const uint8_t *address = (const uint8_t *)&values[0].number, *station = (const uint8_t *)&values[1].number;
    struct msw_packet *packets = msw_packets(batch);
    struct msw_output *out = msw_outputs(batch);
    for (uint32_t i = 0; i < batch->packets; i++) {
        uint8_t *frame = msw_header(batch, &packets[i]);
        int mine = asks_for(&packets[i], frame, address);
        if (mine) {
            answer(frame, station);
            msw_counters(batch)[0]++;
        }
        out[i] = (struct msw_output){.packet = (uint16_t)i, .verb = mine ? MSW_REFLECT : MSW_FLOOD};
    }
    return batch->packets;
}
