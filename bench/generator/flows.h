// SPDX-License-Identifier: Apache-2.0
//
// flows.h: the order in which a direction's flows send.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum order { ORDER_ROUND_ROBIN, ORDER_UNIFORM, ORDER_ZIPF };

// One column of an alias table: flow `own` if a 32-bit random number is below `share`, else flow `other`.
struct alias {
    uint32_t share, other;
};

// A source of flow numbers below `count`.
struct draw {
    enum order order;
    uint32_t count, next;
    uint64_t random;
    struct alias *alias;
};

// Returns false if there is no memory. `exponent` is that of Zipf's law: flow n is drawn with a probability
// proportional to 1 / (n + 1)^exponent.
bool draw_init(struct draw *draw, enum order order, double exponent, uint32_t count, uint64_t seed);
void draw_free(struct draw *draw);

// splitmix64 (Steele, Lea, Flood 2014).
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

// A number below `count`, uniform to within count / 2^32.
static inline uint32_t random_below(uint32_t random, uint32_t count) {
    return (uint32_t)((uint64_t)random * count >> 32);
}

static inline uint32_t draw_next(struct draw *draw) {
    if (draw->order == ORDER_ROUND_ROBIN) {
        uint32_t flow = draw->next;
        draw->next = flow + 1 == draw->count ? 0 : flow + 1;
        return flow;
    }
    uint64_t random = random_next(&draw->random);
    uint32_t flow = random_below((uint32_t)random, draw->count);
    if (draw->order == ORDER_ZIPF && random >> 32 >= draw->alias[flow].share)
        return draw->alias[flow].other;
    return flow;
}
