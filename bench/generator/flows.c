// SPDX-License-Identifier: Apache-2.0
//
// flows.c: tables for drawing flows by Zipf's law in constant time (Vose's alias method).

#include "flows.h"

#include <math.h>
#include <stdlib.h>

// Fills the alias table: each column keeps at most the mean share itself, and gives the rest to one flow that has more.
static bool alias_make(struct draw *draw, double exponent) {
    uint32_t count = draw->count, small = 0, large = count;
    double *weight = malloc(count * sizeof *weight), sum = 0;
    uint32_t *work = malloc(count * sizeof *work);
    draw->alias = malloc(count * sizeof *draw->alias);
    bool enough = weight && work && draw->alias;
    for (uint32_t flow = 0; enough && flow < count; flow++)
        sum += weight[flow] = pow(flow + 1.0, -exponent);
    // Columns below the mean gather at the front of `work`, the others at its end.
    for (uint32_t flow = 0; enough && flow < count; flow++) {
        weight[flow] *= count / sum;
        draw->alias[flow] = (struct alias){UINT32_MAX, flow};
        work[weight[flow] < 1 ? small++ : --large] = flow;
    }
    while (enough && small > 0 && large < count) {
        uint32_t poor = work[--small], rich = work[large];
        draw->alias[poor] = (struct alias){(uint32_t)(weight[poor] * UINT32_MAX), rich};
        weight[rich] -= 1 - weight[poor];
        if (weight[rich] < 1) {
            large++;
            work[small++] = rich;
        }
    }
    free(weight);
    free(work);
    return enough;
}

bool draw_init(struct draw *draw, enum order order, double exponent, uint32_t count, uint64_t seed) {
    *draw = (struct draw){.order = order, .count = count, .random = seed};
    return order != ORDER_ZIPF || alias_make(draw, exponent);
}

void draw_free(struct draw *draw) {
    free(draw->alias);
    draw->alias = NULL;
}
