// SPDX-License-Identifier: Apache-2.0
//
// capture.c: reads capture files with libpcap.

#include "capture.h"

#include <errno.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>

#include "packet.h"

unsigned headers_length(const uint8_t *packet, unsigned length) {
    unsigned at = ETHERNET_LEN, protocol = 0;
    if (length < at)
        return length;
    uint16_t type = get16(packet + 12);
    while ((type == 0x8100 || type == 0x88a8) && at + 4 <= length) {
        type = get16(packet + at + 2);
        at += 4;
    }
    if (type == 0x0800 && at + 20 <= length) {
        protocol = packet[at + 9];
        at += (packet[at] & 15u) * 4;
    } else if (type == 0x86dd && at + 40 <= length) {
        protocol = packet[at + 6];
        at += 40;
    }
    if (protocol == PROTOCOL_UDP)
        at += 8;
    else if (protocol == PROTOCOL_TCP && at + 20 <= length)
        at += (packet[at + 12] >> 4) * 4u;
    return at < length ? at : length;
}

// Adds a packet, of whose `length` bytes the file holds the first ones; zeros stand in for the others. Returns NULL, or
// what is wrong.
static const char *add(struct capture *capture, const uint8_t *bytes, unsigned captured, unsigned length, unsigned room,
                       unsigned longest) {
    if (capture->count == MAX_CAPTURED)
        return "more than 65535 packets";
    length = length > captured ? length : captured;
    unsigned least = headers_length(bytes, captured) + room;
    unsigned full = length > least ? length : least;
    if (full < MIN_LEN)
        full = MIN_LEN;
    if (captured < ETHERNET_LEN || full > longest)
        return "packet too short or too long";
    uint8_t *packet = calloc(1, full);
    if (!packet)
        return "out of memory";
    memcpy(packet, bytes, captured);
    capture->packets[capture->count] = packet;
    capture->lengths[capture->count++] = (uint16_t)full;
    if (full > capture->longest)
        capture->longest = (uint16_t)full;
    return NULL;
}

bool capture_read(struct capture *capture, const char *path, unsigned room, unsigned longest, char *error,
                  size_t error_size) {
    char reason[PCAP_ERRBUF_SIZE];
    FILE *stream = fopen(path, "rb");
    pcap_t *file = stream ? pcap_fopen_offline(stream, reason) : NULL;
    if (!file) {
        snprintf(error, error_size, "%s: %s", path, stream ? reason : strerror(errno));
        if (stream)
            fclose(stream);
        return false;
    }
    const char *wrong = NULL;
    struct pcap_pkthdr *header;
    const uint8_t *bytes;
    int got = 1;
    *capture = (struct capture){
        .packets = calloc(MAX_CAPTURED, sizeof *capture->packets),
        .lengths = calloc(MAX_CAPTURED, sizeof *capture->lengths),
    };
    if (!capture->packets || !capture->lengths)
        wrong = "out of memory";
    else if (pcap_datalink(file) != DLT_EN10MB)
        wrong = "not a capture of Ethernet packets";
    while (!wrong && (got = pcap_next_ex(file, &header, &bytes)) == 1)
        wrong = add(capture, bytes, header->caplen, header->len, room, longest);
    if (!wrong && got == PCAP_ERROR)
        wrong = pcap_geterr(file);
    if (!wrong && capture->count == 0)
        wrong = "no packets";
    if (wrong)
        snprintf(error, error_size, "%s, after %u packets: %s", path, capture->count, wrong);
    pcap_close(file);
    if (wrong)
        capture_free(capture);
    return !wrong;
}

void capture_free(struct capture *capture) {
    for (uint32_t index = 0; index < capture->count; index++)
        free(capture->packets[index]);
    free(capture->packets);
    free(capture->lengths);
    *capture = (struct capture){0};
}
