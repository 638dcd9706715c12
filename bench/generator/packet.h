// SPDX-License-Identifier: Apache-2.0
//
// packet.h: the packet format, shared with the verifying client (bench/src/packet.rs defines it).
//
//     Ethernet | IPv4, UDP or TCP (optional) | stamp (16 bytes) | time (6 bytes, probes only) | filling
//
// The stamp is `check:u32 run:u16 flow:u16 flags:u2 sequence:u46 length:u16`, big-endian; `check` protects the rest.
// The filling is a piece of a fixed pseudo-random text. Packets of this generator carry FLAG_FIXED: the byte at
// position p of the packet is byte p of the text, so that buffers are filled once, not once a packet.
//
// Invariant: template, sequence number and length determine every byte but the time.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    MIN_LEN = 60,
    MAX_LEN = 65535,
    ETHERNET_LEN = 14,
    STAMP_LEN = 16,
    TIME_LEN = 6,
    // The part of a packet that a template holds: all headers and the stamp.
    HEAD_LEN = 80,
    UDP_STAMP_AT = ETHERNET_LEN + 28,
    TCP_STAMP_AT = ETHERNET_LEN + 40,
    // Most flows that the stamp can name.
    MAX_STREAMS = 65535,
};

enum { PROTOCOL_ICMP = 1, PROTOCOL_TCP = 6, PROTOCOL_UDP = 17 };

#define FLAG_FIXED (UINT64_C(1) << 47)
#define FLAG_PROBE (UINT64_C(1) << 46)
#define SEQUENCE_MASK (FLAG_PROBE - 1)
#define TIME_MASK ((UINT64_C(1) << 48) - 1)
#define BROADCAST UINT64_C(0xffffffffffff)

// What distinguishes flows for switches.
struct five_tuple {
    uint32_t source, destination;
    uint16_t source_port, destination_port;
    uint8_t protocol;
};

// The head of a flow's packets, complete but for length, identification, checksum and stamp.
struct template {
    uint8_t head[HEAD_LEN];
    // Sum of the 16-bit words of the IPv4 header without length, identification and checksum.
    uint32_t sum;
    // The flow of the stamp.
    uint16_t stream;
    uint8_t stamp_at;
    bool ip;
};

// A received stamp. `sequence` is without flags.
struct stamp {
    uint64_t sequence;
    uint16_t run, flow, length;
    bool fixed, probe;
};

static inline uint16_t get16(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, 2);
    return __builtin_bswap16(value);
}

static inline uint64_t get64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return __builtin_bswap64(value);
}

static inline void put16(uint8_t *at, uint16_t value) {
    value = __builtin_bswap16(value);
    memcpy(at, &value, 2);
}

static inline void put32(uint8_t *at, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
}

static inline void put64(uint8_t *at, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(at, &value, 8);
}

static inline uint64_t get48(const uint8_t *at) {
    return (uint64_t)get16(at) << 32 | (get64(at) << 16 >> 32);
}

static inline void put48(uint8_t *at, uint64_t value) {
    put16(at, (uint16_t)(value >> 32));
    put32(at + 2, (uint32_t)value);
}

// Mixes two words into one whose every bit depends on all of theirs.
static inline uint64_t mix(uint64_t a, uint64_t b) {
    unsigned __int128 product =
        (unsigned __int128)(a ^ UINT64_C(0x9e3779b97f4a7c15)) * (b ^ UINT64_C(0xd1b54a32d192ed03));
    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

// `numbered` is the sequence number with flags.
static inline uint32_t stamp_check(uint64_t numbered, uint16_t run, uint16_t flow, uint16_t length) {
    return (uint32_t)mix(numbered, (uint64_t)run << 32 | (uint64_t)flow << 16 | length);
}

static inline void stamp_write(uint8_t *at, uint64_t numbered, uint16_t run, uint16_t flow, uint16_t length) {
    put64(at, (uint64_t)stamp_check(numbered, run, flow, length) << 32 | (uint64_t)run << 16 | flow);
    put64(at + 8, numbered << 16 | length);
}

// Returns false if the check is wrong.
static inline bool stamp_read(const uint8_t *at, struct stamp *stamp) {
    uint64_t first = get64(at), second = get64(at + 8);
    uint64_t numbered = second >> 16;
    stamp->run = (uint16_t)(first >> 16);
    stamp->flow = (uint16_t)first;
    stamp->length = (uint16_t)second;
    stamp->sequence = numbered & SEQUENCE_MASK;
    stamp->fixed = numbered & FLAG_FIXED;
    stamp->probe = numbered & FLAG_PROBE;
    return stamp_check(numbered, stamp->run, stamp->flow, stamp->length) == first >> 32;
}

// Offset of the stamp in a packet of HEAD_LEN bytes or, if it is shorter, of MIN_LEN; 0 for other protocols.
static inline unsigned stamp_offset(const uint8_t *packet) {
    uint16_t type = get16(packet + 12);
    if (type == 0x0800 && packet[14] == 0x45)
        return packet[23] == PROTOCOL_TCP ? TCP_STAMP_AT : UDP_STAMP_AT;
    return type == 0x88b5 ? ETHERNET_LEN : 0;
}

// Writes the head of a packet; the rest of `out` already holds the filling. `numbered` is the sequence number with
// flags; `out` has room for HEAD_LEN bytes, whatever the length.
static inline void packet_write(const struct template *template, uint8_t *out, uint64_t numbered, uint16_t run,
                                uint16_t length) {
    memcpy(out, template->head, HEAD_LEN);
    if (template->ip) {
        uint16_t total = (uint16_t)(length - ETHERNET_LEN), id = (uint16_t)numbered;
        uint32_t sum = template->sum + total + id;
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        put16(out + 16, total);
        put16(out + 18, id);
        put16(out + 24, (uint16_t)~sum);
        if (out[23] == PROTOCOL_UDP)
            put16(out + 38, total - 20);
    }
    stamp_write(out + template->stamp_at, numbered, run, template->stream, length);
}

// Prepares the text that fillings are pieces of. Call before anything else.
void text_prepare(void);

// The first MAX_LEN bytes of the text: what a buffer is filled with for packets with FLAG_FIXED.
const uint8_t *text_fixed(void);

// Makes a template. `tuple` is NULL for packets without IP.
void template_make(struct template *template, uint64_t source_mac, uint64_t destination_mac,
                   const struct five_tuple *tuple, uint16_t stream);

// The 5-tuple of a flow where no other was asked for: addresses for benchmarks (RFC 2544). Streams name the first
// flows; `repeat` distinguishes further ones of the same stream.
struct five_tuple default_tuple(uint16_t stream, uint16_t repeat);

// Shortest packet of a template, with or without time.
unsigned template_least(const struct template *template, bool probe);

// Writes the whole packet that a stamp says was sent, as bytes of `template`; the time is left zero.
void packet_expected(const struct template *template, const struct stamp *stamp, uint8_t *out);

// Makes a broadcast of MIN_LEN bytes from which switches learn the location of `source`.
void announcement_write(uint8_t *out, uint64_t source);

// Whether a packet is an announcement; then `source` is its source address.
static inline bool announcement_read(const uint8_t *packet, uint64_t *source) {
    *source = get48(packet + 6);
    return get16(packet + 12) == 0x88b6;
}

// Address of station number `station` of port number `port`; station 0 has the verifying client's address of the port.
static inline uint64_t station_mac(unsigned port, uint32_t station) {
    return UINT64_C(0x020000000001) + port + ((uint64_t)station << 8);
}
