// SPDX-License-Identifier: Apache-2.0
//
// capture.h: packets of a capture file as templates.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_CAPTURED = 65535 };

// Packets whose last `room` bytes may be overwritten: they are payload, or follow the packet as an Ethernet trailer.
struct capture {
    uint8_t **packets;
    uint16_t *lengths;
    uint32_t count;
    uint16_t longest;
};

// Reads a pcap or pcapng file of Ethernet packets. Returns false with the reason in `error`.
bool capture_read(struct capture *capture, const char *path, unsigned room, unsigned longest, char *error,
                  size_t error_size);
void capture_free(struct capture *capture);

// The length of a packet's Ethernet, VLAN, IP, TCP and UDP headers.
unsigned headers_length(const uint8_t *packet, unsigned length);
