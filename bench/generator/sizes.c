// SPDX-License-Identifier: Apache-2.0
//
// sizes.c: draws a cycle of packet lengths.

#include "sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flows.h"

struct range {
    unsigned low, high, weight;
};

// Reads one range and its separator; returns what follows, NULL if it is not valid.
static const char *range_parse(struct range *range, const char *text) {
    int used = 0;
    *range = (struct range){.weight = 1};
    if (sscanf(text, "%5u%n", &range->low, &used) != 1)
        return NULL;
    text += used;
    range->high = range->low;
    if (*text == '-') {
        if (sscanf(text, "-%5u%n", &range->high, &used) != 1)
            return NULL;
        text += used;
    }
    if (*text == '*') {
        if (sscanf(text, "*%4u%n", &range->weight, &used) != 1)
            return NULL;
        text += used;
    }
    if (*text == 0)
        return text;
    // Another range follows a comma.
    return text[0] == ',' && text[1] ? text + 1 : NULL;
}

bool sizes_parse(struct sizes *sizes, const char *text, unsigned least, unsigned most) {
    struct range ranges[MAX_RANGES];
    unsigned count = 0, weights = 0, first = 0;
    if (!strcmp(text, "imix"))
        text = "64*7,594*4,1518";
    do {
        if (count == MAX_RANGES || !(text = range_parse(&ranges[count], text)))
            return false;
        struct range *range = &ranges[count++];
        if (range->low < least || range->high < range->low || range->high > most || range->weight == 0)
            return false;
        weights += range->weight;
    } while (*text);
    // Each range gets its share of the cycle, then the cycle is shuffled (Fisher, Yates). The seed is fixed: a run can
    // be repeated.
    uint64_t random = 1;
    unsigned until = 0;
    for (unsigned index = 0; index < count; index++) {
        until += ranges[index].weight;
        unsigned end = (unsigned)((uint64_t)SIZES * until / weights);
        for (; first < end; first++) {
            unsigned span = ranges[index].high - ranges[index].low + 1;
            sizes->cycle[first] = (uint16_t)(ranges[index].low + random_below((uint32_t)random_next(&random), span));
        }
    }
    sizes->least = UINT16_MAX;
    sizes->most = 0;
    sizes->mean = 0;
    for (unsigned at = 0; at < SIZES; at++) {
        unsigned other = at + random_below((uint32_t)random_next(&random), SIZES - at);
        uint16_t length = sizes->cycle[other];
        sizes->cycle[other] = sizes->cycle[at];
        sizes->cycle[at] = length;
        sizes->least = length < sizes->least ? length : sizes->least;
        sizes->most = length > sizes->most ? length : sizes->most;
        sizes->mean += (double)length / SIZES;
    }
    return true;
}
