// SPDX-License-Identifier: Apache-2.0
//
// histogram.c: what is asked of a histogram after a run.

#include "histogram.h"

#include <math.h>
#include <string.h>

void histogram_clear(struct histogram *histogram) {
    memset(histogram, 0, sizeof *histogram);
}

// The middle of a bucket's values.
static double middle(unsigned bucket) {
    if (bucket < 2u << SUB_BITS)
        return bucket;
    unsigned shift = (bucket >> SUB_BITS) - 1;
    uint64_t first = (uint64_t)(bucket - (shift << SUB_BITS)) << shift;
    return (double)first + ((double)(UINT64_C(1) << shift) - 1) / 2;
}

double histogram_quantile(const struct histogram *histogram, double share) {
    uint64_t rank = (uint64_t)ceil(share * (double)histogram->count), passed = 0;
    if (histogram->count == 0)
        return 0;
    if (rank >= histogram->count)
        return (double)histogram->most;
    for (unsigned bucket = 0; bucket < BUCKETS - 1; bucket++) {
        passed += histogram->buckets[bucket];
        if (passed >= rank && passed > 0)
            return fmin(fmax(middle(bucket), (double)histogram->least), (double)histogram->most);
    }
    return (double)histogram->most;
}

double histogram_mean(const struct histogram *histogram) {
    return histogram->count ? histogram->sum / (double)histogram->count : 0;
}

double histogram_deviation(const struct histogram *histogram) {
    double mean = histogram_mean(histogram);
    return histogram->count ? sqrt(fmax(histogram->squares / (double)histogram->count - mean * mean, 0)) : 0;
}
