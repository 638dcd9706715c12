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
#define MSW_IP_ICMPV6 58

/* Flags of TCP. */
#define MSW_TCP_FIN 1
#define MSW_TCP_SYN 2
#define MSW_TCP_RST 4
#define MSW_TCP_PSH 8
#define MSW_TCP_ACK 16
#define MSW_TCP_URG 32
#define MSW_TCP_ECE 64
#define MSW_TCP_CWR 128

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
    uint16_t ether_type;       /* Behind up to two tags; 0 if the frame is too short. */
    uint16_t vlan;             /* VLAN of the first tag; 0 without one. */
    uint32_t l3;               /* Offset of the header behind the EtherType. */
    uint32_t l4;               /* Offset of a valid TCP, UDP, ICMP or ICMPv6 header; 0 in all fragments but the first. */
    uint8_t protocol;          /* Protocol of a valid IP header, in IPv6 behind the extension headers; 0 without one. */
    uint8_t version;           /* 4 or 6 for a valid IP header, else 0. */
    uint8_t invalid;           /* An IP or transport header contradicts itself, is incomplete or is not visible. */
    uint8_t hop_limit;         /* IPv4: time to live. */
    uint16_t inner_vlan;       /* VLAN of the second tag; 0 without one. */
    uint16_t fragment;         /* Offset in a fragmented packet, bytes; */
    uint8_t is_fragment;       /* whether the packet is a fragment, */
    uint8_t more;              /* and whether others follow. */
    uint8_t tcp_flags;         /* MSW_TCP_SYN and so on. */
    uint8_t type, code;        /* Of ICMP and ICMPv6. */
    uint16_t source_port, destination_port; /* Of TCP and UDP. */
    uint32_t source;           /* Offset of the source address: 4 bytes, or 16 where version is 6; */
    uint32_t destination;      /* and of the destination address. */
    uint32_t header_len;       /* Length of a TCP header with its options, bytes. */
    uint32_t end;              /* Offset of the IP packet's end, as its header announces it. */
};

/* Skips IPv6 extension headers from `at` on that are visible and end at `end` at the latest, and sets `protocol` and the
 * fragment's fields. Returns the offset behind them, or 0. */
static inline uint32_t msw_skip_extensions(const uint8_t *frame, uint32_t len, uint32_t at, struct msw_headers *found) {
    for (uint32_t i = 0; i < 16; i++) {
        uint8_t kind = found->protocol;
        if (kind != 0 && kind != 43 && kind != 44 && kind != 51 && kind != 60 && kind != 135 && kind != 139 && kind != 140)
            return at;
        if (at + 8 > len) return 0;
        uint32_t own = kind == 44 ? 8 : kind == 51 ? (frame[at + 1] + 2u) * 4 : (frame[at + 1] + 1u) * 8;
        if (at + own > len || at + own > found->end) return 0;
        if (kind == 44) {
            uint16_t place = msw_be16(frame + at + 2);
            found->is_fragment = 1, found->fragment = place & 0xfff8, found->more = place & 1;
        }
        found->protocol = frame[at];
        at += own;
        if (found->fragment) return at;
    }
    return 0;
}

/* Parses the header of TCP, UDP, ICMP or ICMPv6 at `at`. */
static inline void msw_parse_transport(const uint8_t *frame, uint32_t len, uint32_t at, struct msw_headers *found) {
    uint8_t protocol = found->protocol;
    int is_icmp = protocol == (found->version == 4 ? MSW_IP_ICMP : MSW_IP_ICMPV6);
    uint32_t needed = protocol == MSW_IP_TCP ? 20 : protocol == MSW_IP_UDP ? 8 : is_icmp ? (found->version == 4 ? 8 : 4) : 0;
    if (!needed) return;
    found->invalid = 1;
    if (at + needed > len || at + needed > found->end) return;
    if (protocol == MSW_IP_TCP) {
        found->header_len = (frame[at + 12] >> 4) * 4u;
        if (found->header_len < 20 || at + found->header_len > found->end) {
            found->header_len = 0;
            return;
        }
        found->tcp_flags = frame[at + 13];
    }
    if (is_icmp) found->type = frame[at], found->code = frame[at + 1];
    else found->source_port = msw_be16(frame + at), found->destination_port = msw_be16(frame + at + 2);
    found->invalid = 0, found->l4 = at;
}

/* Parses the first `len` bytes of a frame. Lengths are checked, checksums are not. Behind `l4` lie 20 bytes for TCP, 8
 * for UDP and ICMP, and 4 for ICMPv6. */
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
        *(tags == 0 ? &found.vlan : &found.inner_vlan) = msw_be16(frame + at + 2) & 0xfff;
    }
    uint32_t l3 = at + 2;
    if (len > l3) found.l3 = l3;
    if (found.ether_type == MSW_ETHER_IPV4) {
        found.invalid = 1;
        if (len < l3 + 20 || frame[l3] >> 4 != 4) return found;
        uint32_t own = (frame[l3] & 15u) * 4, total = msw_be16(frame + l3 + 2);
        if (own < 20 || total < own || len < l3 + own) return found;
        uint16_t place = msw_be16(frame + l3 + 6);
        found.invalid = 0, found.version = 4, found.protocol = frame[l3 + 9], found.hop_limit = frame[l3 + 8];
        found.source = l3 + 12, found.destination = l3 + 16, found.end = l3 + total;
        found.fragment = (uint16_t)((place & 0x1fff) * 8), found.more = place >> 13 & 1;
        found.is_fragment = found.fragment || found.more;
        at = l3 + own;
    } else if (found.ether_type == MSW_ETHER_IPV6) {
        found.invalid = 1;
        if (len < l3 + 40 || frame[l3] >> 4 != 6) return found;
        found.version = 6, found.protocol = frame[l3 + 6], found.hop_limit = frame[l3 + 7];
        found.source = l3 + 8, found.destination = l3 + 24, found.end = l3 + 40 + msw_be16(frame + l3 + 4);
        at = msw_skip_extensions(frame, len, l3 + 40, &found);
        if (!at) return found;
        found.invalid = 0;
    } else return found;
    if (!found.fragment) msw_parse_transport(frame, len, at, &found);
    return found;
}

/* The headers of a packet. Makes up to 512 bytes visible where the first 128 do not contain all of them, so a pointer
 * from msw_header is taken again afterwards. */
static inline struct msw_headers msw_headers(struct msw_batch *batch, const struct msw_packet *packet) {
    struct msw_headers found = msw_parse_headers(msw_header(batch, packet), packet->header_len);
    if (!found.invalid || packet->header_len >= 512 || packet->header_len >= packet->len) return found;
    msw_pull(batch, (uint32_t)(packet - msw_packets(batch)), 512);
    return msw_parse_headers(msw_header(batch, packet), packet->header_len);
}

#endif
