// SPDX-License-Identifier: Apache-2.0
//
// sizes.h: lengths of packets, in bytes without the frame check sequence.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    // Lengths drawn in advance; a power of two.
    SIZES = 4096,
    MAX_RANGES = 32,
};

// A cycle of lengths whose shares are those asked for, in random order.
struct sizes {
    uint16_t cycle[SIZES];
    uint16_t least, most;
    double mean;
};

// Reads `imix` (7 x 64, 4 x 594, 1 x 1518) or a list of LENGTH, LOW-HIGH, each with an optional weight, `64*7`. Lengths
// lie within `least` and `most`. Returns false for any other text.
bool sizes_parse(struct sizes *sizes, const char *text, unsigned least, unsigned most);
