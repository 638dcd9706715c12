// SPDX-License-Identifier: Apache-2.0
//
// histogram.h: a log-linear histogram of times, as HdrHistogram's: 128 buckets for each power of two.
//
// Invariant: a quantile differs from the exact one by less than 0.4 %; the extremes are exact.
#pragma once

#include <stdint.h>

enum {
    SUB_BITS = 7,
    // Times of 2^40 ticks (minutes) and more share the last bucket.
    TIME_BITS = 40,
    BUCKETS = (TIME_BITS - SUB_BITS + 1) << SUB_BITS,
};

struct histogram {
    uint64_t count, least, most;
    double sum, squares;
    uint64_t buckets[BUCKETS];
};

static inline unsigned histogram_bucket(uint64_t value) {
    if (value >> TIME_BITS)
        return BUCKETS - 1;
    unsigned width = 64 - (unsigned)__builtin_clzll(value | 1);
    unsigned shift = width > SUB_BITS + 1 ? width - SUB_BITS - 1 : 0;
    return (shift << SUB_BITS) + (unsigned)(value >> shift);
}

static inline void histogram_record(struct histogram *histogram, uint64_t value) {
    if (histogram->count++ == 0 || value < histogram->least)
        histogram->least = value;
    if (value > histogram->most)
        histogram->most = value;
    histogram->sum += (double)value;
    histogram->squares += (double)value * (double)value;
    histogram->buckets[histogram_bucket(value)]++;
}

void histogram_clear(struct histogram *histogram);

// The value that this share of all values (0 to 1) does not exceed; 0 without values.
double histogram_quantile(const struct histogram *histogram, double share);
double histogram_mean(const struct histogram *histogram);
double histogram_deviation(const struct histogram *histogram);
