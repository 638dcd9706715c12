/*
 * Internet checksums (RFC 1071) for modules for mswitch, and incremental updates when bytes are replaced (RFC 1624).
 */
#ifndef MSWITCH_CHECKSUM_H
#define MSWITCH_CHECKSUM_H

#include "mswitch.h"

/* Adds bytes to a sum; all ranges but the last have an even length. */
static inline uint32_t msw_sum(uint32_t sum, const void *bytes, size_t len) {
    const uint8_t *at = (const uint8_t *)bytes;
    for (; len > 1; at += 2, len -= 2) {
        sum += msw_be16(at);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return len ? sum + at[0] * 256u : sum;
}

/* Folds a sum to 16 bits. */
static inline uint16_t msw_fold(uint32_t sum) {
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* Computes the checksum of bytes whose checksum field is zero. For bytes with a correct checksum the result is 0. */
static inline uint16_t msw_checksum(const void *bytes, size_t len) { return (uint16_t)~msw_fold(msw_sum(0, bytes, len)); }

/* Updates a checksum after a 16-bit word changed (RFC 1624, equation 3). */
static inline uint16_t msw_checksum_update(uint16_t checksum, uint16_t from, uint16_t to) {
    return (uint16_t)~msw_fold((uint16_t)~checksum + (uint32_t)(uint16_t)~from + to);
}

/* Returns the folded sum of the new bytes minus that of the old bytes. */
static inline uint16_t msw_difference(const uint8_t *from, const uint8_t *to, uint32_t len) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < len; i += 2) sum += (uint32_t)(uint16_t)~msw_be16(from + i) + msw_be16(to + i);
    return msw_fold(sum);
}

/* Replaces bytes of an IPv4 header and updates its checksum. Offset and length are even. */
static inline void msw_ipv4_replace(uint8_t *ip, uint32_t offset, const void *bytes, uint32_t len) {
    uint16_t difference = msw_difference(ip + offset, (const uint8_t *)bytes, len);
    msw_move(ip + offset, bytes, len);
    msw_put_be16(ip + 10, (uint16_t)~msw_fold((uint32_t)(uint16_t)~msw_be16(ip + 10) + difference));
}

/* Kinds of changes to a TCP or UDP packet. */
#define MSW_PSEUDO 1 /* The bytes are addresses, which are part of the pseudo-header. */
#define MSW_UDP 2    /* The checksum is UDP's, where 0 means no checksum. */

/* Updates a TCP or UDP checksum for replaced bytes: an even number, at an even offset. A checksum that is completed
 * where the packet leaves (MSW_CHECKSUM) holds the sum of the pseudo-header until then. */
static inline void msw_l4_update(const struct msw_packet *packet, uint8_t *checksum, const void *from, const void *to, uint32_t len,
                                 uint32_t kind) {
    uint16_t before = msw_be16(checksum), difference = msw_difference((const uint8_t *)from, (const uint8_t *)to, len);
    if (packet->flags & MSW_CHECKSUM) {
        if (kind & MSW_PSEUDO) msw_put_be16(checksum, msw_fold((uint32_t)before + difference));
        return;
    }
    if (kind & MSW_UDP && before == 0) return;
    uint16_t after = (uint16_t)~msw_fold((uint32_t)(uint16_t)~before + difference);
    msw_put_be16(checksum, kind & MSW_UDP && after == 0 ? 0xffff : after);
}

#endif
