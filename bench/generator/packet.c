// SPDX-License-Identifier: Apache-2.0
//
// packet.c: what is done to packets before a run, or seldom: text, templates, whole packets to compare with.

#include "packet.h"

enum {
    // Number of possible starts of a filling that depends on flow and sequence number; a power of two.
    STARTS = 1 << 18,
    TEXT_WORDS = (STARTS + MAX_LEN + 1) / 8,
};

static uint8_t text[TEXT_WORDS * 8];

void text_prepare(void) {
    for (uint64_t word = 0; word < TEXT_WORDS; word++) {
        uint64_t value = mix(word, UINT64_C(0x6d73776974636821));
        for (unsigned byte = 0; byte < 8; byte++)
            text[word * 8 + byte] = (uint8_t)(value >> (8 * byte));
    }
}

const uint8_t *text_fixed(void) {
    return text;
}

void template_make(struct template *template, uint64_t source_mac, uint64_t destination_mac,
                   const struct five_tuple *tuple, uint16_t stream) {
    *template = (struct template){.stream = stream, .stamp_at = ETHERNET_LEN, .ip = tuple};
    uint8_t *head = template->head;
    memcpy(head, text, HEAD_LEN);
    put48(head, destination_mac);
    put48(head + 6, source_mac);
    if (!tuple) {
        put16(head + 12, 0x88b5);
        return;
    }
    template->stamp_at = tuple->protocol == PROTOCOL_TCP ? TCP_STAMP_AT : UDP_STAMP_AT;
    put16(head + 12, 0x0800);
    memset(head + ETHERNET_LEN, 0, template->stamp_at - ETHERNET_LEN);
    head[14] = 0x45;
    put16(head + 20, 0x4000); // Don't fragment.
    head[22] = 64;
    head[23] = tuple->protocol;
    put32(head + 26, tuple->source);
    put32(head + 30, tuple->destination);
    if (tuple->protocol == PROTOCOL_ICMP) {
        head[34] = 8; // Echo request.
    } else {
        put16(head + 34, tuple->source_port);
        put16(head + 36, tuple->destination_port);
    }
    if (tuple->protocol == PROTOCOL_TCP) {
        head[46] = 0x50; // Header length.
        head[47] = 0x10; // ACK.
        put16(head + 48, 0xffff);
    }
    for (unsigned at = 14; at < 34; at += 2)
        template->sum += get16(head + at);
}

struct five_tuple default_tuple(uint16_t stream, uint16_t repeat) {
    return (struct five_tuple){
        .source = 198u << 24 | 18u << 16 | stream,
        .destination = 198u << 24 | 19u << 16 | stream,
        .source_port = (uint16_t)(20000 + stream % 20000 + repeat),
        .destination_port = 9,
        .protocol = PROTOCOL_UDP,
    };
}

unsigned template_least(const struct template *template, bool probe) {
    unsigned least = template->stamp_at + STAMP_LEN + (probe ? TIME_LEN : 0u);
    return least > MIN_LEN ? least : MIN_LEN;
}

void packet_expected(const struct template *template, const struct stamp *stamp, uint8_t *out) {
    uint64_t numbered = stamp->sequence | (stamp->fixed ? FLAG_FIXED : 0) | (stamp->probe ? FLAG_PROBE : 0);
    unsigned filling_at = template->stamp_at + STAMP_LEN;
    packet_write(template, out, numbered, stamp->run, stamp->length);
    const uint8_t *filling = text + filling_at;
    if (!stamp->fixed)
        filling = text + mix(stamp->sequence, stamp->flow) % STARTS;
    memcpy(out + filling_at, filling, stamp->length - filling_at);
    if (stamp->probe)
        memset(out + filling_at, 0, TIME_LEN);
}

void announcement_write(uint8_t *out, uint64_t source) {
    memset(out, 0, MIN_LEN);
    put48(out, BROADCAST);
    put48(out + 6, source);
    put16(out + 12, 0x88b6);
}
