/*
 * Packets in modules for mswitch: outputs one by one, headers that grow and shrink, and the places of an Ethernet
 * frame's headers.
 */
#ifndef MSWITCH_PACKET_H
#define MSWITCH_PACKET_H

#include "mswitch.h"

/* EtherTypes. */
#define MSW_ETHER_IPV4 0x0800
#define MSW_ETHER_ARP 0x0806
#define MSW_ETHER_VLAN 0x8100  /* 802.1Q */
#define MSW_ETHER_IPV6 0x86dd
#define MSW_ETHER_QINQ 0x88a8 /* 802.1ad */

/* Protocols over IP. */
#define MSW_IP_ICMP 1
#define MSW_IP_TCP 6
#define MSW_IP_UDP 17

/* Outputs being written: `struct msw_list out = msw_list(batch); ... return out.count;`. Outputs beyond the batch's
 * room are left out. */
struct msw_list {
    struct msw_output *outputs;
    uint32_t count, room;
};

static inline struct msw_list msw_list(struct msw_batch *batch) {
    return (struct msw_list){msw_outputs(batch), 0, batch->output_room};
}

static inline void msw_put(struct msw_list *out, uint32_t packet, uint32_t port, uint16_t verb) {
    if (out->count == out->room) return;
    out->outputs[out->count++] = (struct msw_output){.packet = (uint16_t)packet, .port = (uint16_t)port, .verb = verb};
}

/* Sends a packet to a port. */
static inline void msw_send(struct msw_list *out, uint32_t packet, uint32_t port) { msw_put(out, packet, port, MSW_SEND); }
/* Sends a packet to the ports of a set. */
static inline void msw_send_set(struct msw_list *out, uint32_t packet, uint32_t set) { msw_put(out, packet, set, MSW_SEND_SET); }
/* Sends a packet to every port of its VLAN except the ingress port. */
static inline void msw_flood(struct msw_list *out, uint32_t packet) { msw_put(out, packet, 0, MSW_FLOOD); }
/* The same for an unknown station, within the ingress port's storm control. */
static inline void msw_flood_unknown(struct msw_list *out, uint32_t packet) { msw_put(out, packet, 0, MSW_FLOOD_UNKNOWN); }
/* Sends a packet back to the ingress port. */
static inline void msw_reflect(struct msw_list *out, uint32_t packet) { msw_put(out, packet, 0, MSW_REFLECT); }
/* Drops a packet; counted as `logic`. */
static inline void msw_drop(struct msw_list *out, uint32_t packet) { msw_put(out, packet, 0, MSW_DROP); }
/* Ends a packet without loss: its content continues in other packets. */
static inline void msw_consume(struct msw_list *out, uint32_t packet) { msw_put(out, packet, 0, MSW_CONSUME); }

/* Prepends bytes to a packet, 64 at most in total; returns its new first byte. The fresh bytes are zero. */
static inline uint8_t *msw_grow(struct msw_batch *batch, struct msw_packet *packet, uint32_t bytes) {
    packet->header -= bytes, packet->header_len = (uint16_t)(packet->header_len + bytes), packet->len += bytes;
    __builtin_memset(msw_header(batch, packet), 0, bytes);
    return msw_header(batch, packet);
}

/* Removes visible bytes from a packet's front; returns its new first byte. At least 14 bytes must remain visible. */
static inline uint8_t *msw_shrink(struct msw_batch *batch, struct msw_packet *packet, uint32_t bytes) {
    packet->header += bytes, packet->header_len = (uint16_t)(packet->header_len - bytes), packet->len -= bytes;
    return msw_header(batch, packet);
}

/* The headers of a frame. Offsets count from its first byte; 0 stands for a header that is absent, incomplete or not
 * visible. */
struct msw_headers {
    uint16_t ether_type; /* Behind up to two tags; 0 if the frame is too short. */
    uint16_t vlan;       /* VLAN of the first tag; 0 without one. */
    uint32_t l3;         /* Offset of the header behind the EtherType. */
    uint32_t l4;         /* Offset of a TCP, UDP or ICMP header over IPv4; 0 in all fragments but the first. */
    uint8_t protocol;    /* Protocol of a valid IPv4 header; 0 without one. */
};

/* Parses the first `len` bytes of a frame. Lengths are checked, checksums are not. Behind `l4` lie 20 bytes for TCP, and
 * 8 for UDP and ICMP. */
static inline struct msw_headers msw_parse_headers(const uint8_t *frame, uint32_t len) {
    struct msw_headers found = {0};
    uint32_t at = 12;
    for (uint32_t tags = 0;; tags++, at += 4) {
        if (len < at + 2) return (struct msw_headers){0};
        uint16_t type = msw_be16(frame + at);
        if (tags == 2 || (type != MSW_ETHER_VLAN && type != MSW_ETHER_QINQ)) {
            found.ether_type = type;
            break;
        }
        if (len < at + 4) return (struct msw_headers){0};
        if (tags == 0) found.vlan = msw_be16(frame + at + 2) & 0xfff;
    }
    uint32_t l3 = at + 2;
    if (len > l3) found.l3 = l3;
    if (found.ether_type != MSW_ETHER_IPV4 || len < l3 + 20 || frame[l3] >> 4 != 4) return found;
    uint32_t own = (frame[l3] & 15u) * 4, total = msw_be16(frame + l3 + 2);
    if (own < 20 || total < own || len < l3 + own) return found;
    found.protocol = frame[l3 + 9];
    uint32_t needed = found.protocol == MSW_IP_TCP ? 20 : found.protocol == MSW_IP_UDP || found.protocol == MSW_IP_ICMP ? 8 : 0;
    int is_first = (msw_be16(frame + l3 + 6) & 0x1fff) == 0;
    if (needed && is_first && total >= own + needed && len >= l3 + own + needed) found.l4 = l3 + own;
    return found;
}

/* The headers of a packet, as far as it is visible: msw_pull makes more visible. */
static inline struct msw_headers msw_headers(struct msw_batch *batch, const struct msw_packet *packet) {
    return msw_parse_headers(msw_header(batch, packet), packet->header_len);
}

#endif
