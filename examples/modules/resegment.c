/* Joins consecutive TCP segments of a batch and cuts them into segments of "mss" bytes: fewer and larger packets for
 * the receiver. IPv4 without options; all other packets pass unchanged. Packets are flooded. */
#include "mswitch_checksum.h"

#define ETH 14 /* Length of an Ethernet header. */
#define IP 20  /* Length of an IPv4 header. */

/* The segments being joined; each worker has its own. */
struct run {
    uint32_t packets, last, next, header_len, bytes; /* next: the expected sequence number. */
    uint16_t vlan;
    uint8_t header[ETH + IP + 60], payload[65536], made[ETH + 1514];
};

const char *msw_describe(void) {
    return "{\"name\": \"resegment\", \"summary\": \"joins TCP segments and cuts them to another size\", \"state\": 70000,"
           " \"params\": [{\"name\": \"mss\", \"type\": \"number\", \"min\": 64, \"max\": 1448, \"unit\": \"bytes\", \"default\": 1448,"
           "               \"help\": \"payload of a segment\"}],"
           " \"counters\": [{\"name\": \"joined\", \"help\": \"received segments that were joined\"},"
           "                {\"name\": \"made\", \"help\": \"segments made of the joined ones\"}]}";
}

/* Returns the length of the payload if the packet can be joined, else 0; sets the length of the headers. */
static uint32_t payload_of(const struct msw_packet *packet, const uint8_t *h, uint32_t *header_len) {
    if (packet->header_len < ETH + IP + 20 || packet->flags & MSW_SEGMENTS) return 0;
    if (msw_be16(h + 12) != 0x0800 || h[14] != 0x45 || h[23] != 6 || msw_be16(h + 20) & 0x3fff) return 0;
    uint32_t total = msw_be16(h + 16);
    *header_len = ETH + IP + (h[46] >> 4) * 4u;
    /* Only ACK, with or without PSH. */
    if ((h[47] & ~8) != 0x10 || *header_len < ETH + IP + 20 || *header_len > packet->header_len) return 0;
    return ETH + total > *header_len && ETH + total <= packet->len ? ETH + total - *header_len : 0;
}

/* Whether a segment continues the run: the next sequence number, and the same addresses, ports, acknowledgement and
 * options. */
static int follows(const struct run *run, const uint8_t *h, uint32_t header_len, uint32_t bytes, uint16_t vlan) {
    return run->packets && run->vlan == vlan && run->header_len == header_len && run->bytes + bytes <= sizeof run->payload &&
           msw_be32(h + 38) == run->next && msw_same(h, run->header, ETH) && msw_same(h + 26, run->header + 26, 12) &&
           msw_same(h + 42, run->header + 42, 5) && msw_same(h + 54, run->header + 54, header_len - 54);
}

/* Makes a segment of the run's payload. */
static int32_t make(struct msw_batch *batch, struct run *run, uint32_t from, uint32_t bytes) {
    uint8_t *h = run->made, *tcp = h + ETH + IP;
    uint32_t tcp_len = run->header_len - ETH - IP + bytes;
    __builtin_memcpy(h, run->header, run->header_len);
    __builtin_memcpy(h + run->header_len, run->payload + from, bytes);
    msw_put_be16(h + 16, (uint16_t)(IP + tcp_len));
    msw_put_be16(h + 24, 0);
    msw_put_be16(h + 24, msw_checksum(h + ETH, IP));
    msw_put_be32(tcp + 4, msw_be32(run->header + 38) + from);
    if (from + bytes < run->bytes) tcp[13] &= (uint8_t)~8; /* Only the last segment has PSH. */
    msw_put_be16(tcp + 16, 0);
    msw_put_be16(tcp + 16, (uint16_t)~msw_fold(msw_sum(msw_sum(6 + tcp_len, h + 26, 8), tcp, tcp_len)));
    int32_t packet = msw_new(batch, h, run->header_len + bytes);
    if (packet >= 0) msw_packets(batch)[packet].vlan = run->vlan;
    return packet;
}

/* Sends the joined segments; a single segment is sent unchanged. Returns the number of outputs so far. */
static uint32_t flush(struct msw_batch *batch, struct run *run, struct msw_output *out, uint32_t n) {
    uint32_t mss = (uint32_t)msw_values(batch)[0].number, packets = run->packets;
    run->packets = 0;
    if (packets == 1) out[n++] = (struct msw_output){.packet = (uint16_t)run->last, .verb = MSW_FLOOD};
    for (uint32_t from = 0; packets > 1 && from < run->bytes; from += mss) {
        int32_t made = make(batch, run, from, run->bytes - from < mss ? run->bytes - from : mss);
        if (made < 0) break; /* No room: TCP sends the rest again. */
        out[n++] = (struct msw_output){.packet = (uint16_t)made, .verb = MSW_FLOOD};
        msw_counters(batch)[1]++;
    }
    if (packets > 1) msw_counters(batch)[0] += packets;
    return n;
}

uint32_t msw_forward(struct msw_batch *batch) {
    struct run *run = msw_state(batch);
    struct msw_output *out = msw_outputs(batch);
    uint32_t n = 0, consumed = 0, received = batch->packets;
    struct { uint16_t packet; } joined[256];
    run->packets = 0;
    for (uint32_t i = 0; i < received; i++) {
        const struct msw_packet *packet = &msw_packets(batch)[i];
        uint8_t *h = msw_header(batch, packet);
        uint32_t header_len, bytes = payload_of(packet, h, &header_len);
        if (bytes && follows(run, h, header_len, bytes, packet->vlan)) {
            if (run->packets == 1) joined[consumed++].packet = (uint16_t)run->last;
            joined[consumed++].packet = (uint16_t)i;
            run->header[47] |= h[47] & 8;
        } else {
            n = flush(batch, run, out, n);
            if (!bytes) {
                out[n++] = (struct msw_output){.packet = (uint16_t)i, .verb = MSW_FLOOD};
                continue;
            }
            __builtin_memcpy(run->header, h, header_len);
            run->header_len = header_len, run->bytes = 0, run->vlan = packet->vlan;
        }
        run->next = msw_be32(h + 38) + bytes;
        run->bytes += msw_read(batch, i, header_len, run->payload + run->bytes, bytes);
        run->last = i, run->packets++;
    }
    n = flush(batch, run, out, n);
    for (uint32_t i = 0; i < consumed; i++) out[n++] = (struct msw_output){.packet = joined[i].packet, .verb = MSW_CONSUME};
    return n;
}
