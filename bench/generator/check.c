// SPDX-License-Identifier: Apache-2.0
//
// check.c: tests of everything that needs no device: `make generator-check`.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "capture.h"
#include "flight.h"
#include "flows.h"
#include "histogram.h"
#include "pace.h"
#include "packet.h"
#include "rules.h"
#include "sink.h"
#include "sizes.h"

static unsigned failures, checks;

// Tests go on after a failure, and the program fails at the end.
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        checks++;                                                                                                      \
        if (!(condition)) {                                                                                            \
            failures++;                                                                                                \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
        }                                                                                                              \
    } while (0)

enum { DRAWN = 1000000 };

// Draws a million flows; `counts` has room for all of them.
static void draw_many(enum order order, double exponent, uint32_t flows, uint64_t seed, double *counts) {
    struct draw draw;
    memset(counts, 0, flows * sizeof *counts);
    CHECK(draw_init(&draw, order, exponent, flows, seed), "no memory");
    for (unsigned index = 0; index < DRAWN; index++)
        counts[draw_next(&draw)]++;
    draw_free(&draw);
}

// Pearson's test: the sum for `flows` classes exceeds flows + 5 * sqrt(2 * flows) in less than one of a million cases.
static void check_distribution(const double *counts, const double *expected, uint32_t flows, const char *what) {
    double sum = 0;
    for (uint32_t flow = 0; flow < flows; flow++)
        sum += (counts[flow] - expected[flow]) * (counts[flow] - expected[flow]) / expected[flow];
    CHECK(sum < flows + 5 * sqrt(2.0 * flows), "%s: chi square %.0f of %u classes", what, sum, flows);
}

static void flows_are_drawn_as_asked(void) {
    enum { FLOWS = 1000 };
    static double counts[FLOWS], expected[FLOWS], other[FLOWS];
    draw_many(ORDER_ROUND_ROBIN, 0, FLOWS, 1, counts);
    for (uint32_t flow = 0; flow < FLOWS; flow++)
        CHECK(counts[flow] == DRAWN / FLOWS, "flow %u: %.0f", flow, counts[flow]);
    for (uint32_t flow = 0; flow < FLOWS; flow++)
        expected[flow] = (double)DRAWN / FLOWS;
    draw_many(ORDER_UNIFORM, 0, FLOWS, 1, counts);
    check_distribution(counts, expected, FLOWS, "uniform");
    const double exponents[] = {0, 0.5, 1, 1.5};
    for (unsigned index = 0; index < 4; index++) {
        double sum = 0;
        for (uint32_t flow = 0; flow < FLOWS; flow++)
            sum += expected[flow] = pow(flow + 1, -exponents[index]);
        for (uint32_t flow = 0; flow < FLOWS; flow++)
            expected[flow] *= DRAWN / sum;
        draw_many(ORDER_ZIPF, exponents[index], FLOWS, index, counts);
        check_distribution(counts, expected, FLOWS, "zipf");
    }
    draw_many(ORDER_UNIFORM, 0, FLOWS, 1, counts);
    draw_many(ORDER_UNIFORM, 0, FLOWS, 1, other);
    CHECK(!memcmp(counts, other, sizeof counts), "one seed gives one order");
    draw_many(ORDER_UNIFORM, 0, FLOWS, 2, other);
    CHECK(memcmp(counts, other, sizeof counts), "another seed gives another order");
}

static void sizes_have_their_shares(void) {
    static struct sizes sizes;
    unsigned counts[1519] = {0};
    CHECK(sizes_parse(&sizes, "imix", 60, 65000), "imix");
    for (unsigned at = 0; at < SIZES; at++)
        counts[sizes.cycle[at]]++;
    CHECK(abs((int)counts[64] - SIZES * 7 / 12) <= 1, "%u", counts[64]);
    CHECK(abs((int)counts[594] - SIZES * 4 / 12) <= 1, "%u", counts[594]);
    CHECK(counts[64] + counts[594] + counts[1518] == SIZES, "%u", counts[1518]);
    CHECK(fabs(sizes.mean - (7 * 64 + 4 * 594 + 1518) / 12.0) < 1, "%f", sizes.mean);
    CHECK(sizes.least == 64 && sizes.most == 1518, "%u %u", sizes.least, sizes.most);
    CHECK(sizes_parse(&sizes, "100-102*3,60", 60, 65000), "ranges");
    bool seen[103] = {false};
    for (unsigned at = 0; at < SIZES; at++)
        if (sizes.cycle[at] < 103)
            seen[sizes.cycle[at]] = true;
    CHECK(seen[60] && seen[100] && seen[101] && seen[102] && sizes.most == 102 && sizes.least == 60, "all are drawn");
    const char *const wrong[] = {"",    "59",   "65001", "100-90", "a",   "64,,65",
                                 "-64", "64*0", "64*a",  "64,",    "64-", "64;65"};
    for (unsigned index = 0; index < sizeof wrong / sizeof *wrong; index++)
        CHECK(!sizes_parse(&sizes, wrong[index], 60, 65000), "`%s` is refused", wrong[index]);
}

static void paces_keep_the_rate_and_catch_up_a_little(void) {
    struct pacer pacer;
    unsigned sent = 0;
    // 1,000 packets a second at 1 MHz, asked every millisecond for half a second.
    pacer_start(&pacer, 1000, 1e6, 0, 1, 32, 1024, false);
    for (uint64_t now = 0; now <= 500000; now += 1000) {
        unsigned due = pacer_due(&pacer, now, 32);
        pacer_sent(&pacer, due);
        sent += due;
    }
    CHECK(sent == 499 || sent == 500, "%u", sent);
    CHECK(pacer_due(&pacer, 60000000, 1000) == 32, "a burst is made up for after a pause");
    CHECK(pacer.skipped > 59000 && pacer.skipped < 60000, "%f", pacer.skipped);
    // 3 Mpps at 2.3 GHz, asked at uneven times.
    uint64_t random = 1, now = 0;
    sent = 0;
    pacer_start(&pacer, 3e6, 2.3e9, 0, 1, 32, 1024, false);
    while (now < 2300000000) {
        now += random_below((uint32_t)random_next(&random), 20000);
        unsigned due = pacer_due(&pacer, now, 32);
        pacer_sent(&pacer, due);
        sent += due;
    }
    CHECK(abs((int)sent - 3000000) < 100, "%u", sent);
    pacer_start(&pacer, 1000, 1e6, 0, 8, 32, 1024, false);
    CHECK(pacer_due(&pacer, 7900, 32) == 0, "a train waits for its last packet");
    CHECK(pacer_due(&pacer, 8100, 32) == 8, "then all are due");
    // Packets per second, train, burst, ring, and the most that falls due after a pause.
    static const unsigned LIMITS[][5] = {{1000, 1, 1, 1024, 2},       {1000, 32, 32, 1024, 64},
                                         {2000000, 1, 32, 1024, 200}, {20000000, 1, 32, 1024, 512},
                                         {1000, 1, 32, 32, 16},       {1000, 32, 32, 32, 32}};
    for (unsigned index = 0; index < sizeof LIMITS / sizeof *LIMITS; index++) {
        const unsigned *limit = LIMITS[index];
        pacer_start(&pacer, limit[0], 1e6, 0, limit[1], limit[2], limit[3], false);
        unsigned due = pacer_due(&pacer, 60000000, 1000);
        CHECK(due == limit[4], "%u, not %u", due, limit[4]);
    }
    pacer_start(&pacer, 200000, 1e6, 0, 1, 32, 1024, true);
    CHECK(pacer_due(&pacer, 60000000, 1000) == 400, "a sleeper makes up for 2 ms");
    pacer_start(&pacer, 0, 1e6, 0, 1, 32, 1024, false);
    CHECK(pacer_due(&pacer, 0, 32) == 32 && pacer_due(&pacer, 0, 32) == 32, "no limit");
}

static void packets_in_flight_are_limited(void) {
    struct flight flight;
    flight_start(&flight, 0);
    CHECK(flight_room(&flight, 100, 8, 0, 0, 0, 10) == 100, "all");
    CHECK(flight_room(&flight, 100, 8, 96, 0, 1, 10) == 4, "less than a train");
    CHECK(flight_room(&flight, 100, 8, 96, 0, 11, 10) == 4, "not lost yet");
    CHECK(flight_room(&flight, 100, 8, 96, 0, 12, 10) == 100, "lost, though the limit was not reached");
    CHECK(flight_room(&flight, 100, 8, 192, 0, 13, 10) == 4, "others are in flight");
    CHECK(flight_room(&flight, 100, 8, 192, 192, 14, 10) == 100 && flight.given_up == 0, "the lost ones were late");
    CHECK(flight_room(&flight, 100, 8, 288, 192, 15, 10) == 4, "late ones do not raise the limit");
    CHECK(flight_room(&flight, 100, 8, 288, 400, 16, 10) == 100, "more than were sent");
    CHECK(flight_room(&flight, 100, 1, 500, 400, 1000, 10) == 0, "packets just sent are not lost");
}

static int by_value(const void *a, const void *b) {
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;
    return (first > second) - (first < second);
}

static void histograms_agree_with_sorted_values(void) {
    enum { COUNT = 100000 };
    static uint64_t values[COUNT];
    static struct histogram histogram;
    uint64_t random = 1;
    double sum = 0, squares = 0;
    for (unsigned index = 0; index < COUNT; index++) {
        // Seven orders of magnitude, evenly on a logarithmic scale.
        values[index] = (uint64_t)pow(10, (double)(random_next(&random) >> 11) / (double)(UINT64_C(1) << 53) * 7);
        histogram_record(&histogram, values[index]);
        sum += (double)values[index];
    }
    for (unsigned index = 0; index < COUNT; index++)
        squares += pow((double)values[index] - sum / COUNT, 2);
    qsort(values, COUNT, sizeof *values, by_value);
    const double shares[] = {0.001, 0.1, 0.5, 0.9, 0.99, 0.999};
    for (unsigned index = 0; index < sizeof shares / sizeof *shares; index++) {
        double exact = (double)values[(unsigned)ceil(shares[index] * COUNT) - 1];
        double got = histogram_quantile(&histogram, shares[index]);
        CHECK(fabs(got - exact) <= exact * 0.004, "quantile %g: %g, not %g", shares[index], got, exact);
    }
    CHECK(histogram.least == values[0] && histogram.most == values[COUNT - 1], "extremes are exact");
    CHECK(histogram_quantile(&histogram, 1) == (double)values[COUNT - 1], "the last one is the most");
    CHECK(fabs(histogram_mean(&histogram) - sum / COUNT) < 1e-6 * sum / COUNT, "mean");
    CHECK(fabs(histogram_deviation(&histogram) / sqrt(squares / COUNT) - 1) < 1e-6, "deviation");
    histogram_clear(&histogram);
    CHECK(histogram_quantile(&histogram, 0.5) == 0 && histogram_mean(&histogram) == 0, "empty");
    histogram_record(&histogram, UINT64_MAX);
    CHECK(histogram_quantile(&histogram, 0.5) == (double)UINT64_MAX, "no value is too large");
}

// The counts of a sink of one flow with this window after these numbers: received, reordered, duplicated, stale.
static void check_arrivals(const uint64_t *sequences, unsigned count, const uint64_t expected[4]) {
    struct sink sink = {.direction_count = 1};
    CHECK(sink_init(&sink, 1), "no memory");
    sink_begin(&sink, 7);
    for (unsigned index = 0; index < count; index++)
        tracker_arrived(&sink.trackers[0], &sink.directions[0], sink.window, sequences[index]);
    const struct arrivals *got = &sink.directions[0];
    CHECK(got->received == expected[0] && got->reordered == expected[1] && got->duplicated == expected[2] &&
              got->stale == expected[3],
          "got %lu, %lu, %lu, %lu", got->received, got->reordered, got->duplicated, got->stale);
    sink_free(&sink);
}

#define ARRIVALS(sequences, ...)                                                                                       \
    check_arrivals((const uint64_t[])sequences, sizeof((const uint64_t[])sequences) / 8,                               \
                   (const uint64_t[]){__VA_ARGS__})
#define LIST(...)                                                                                                      \
    { __VA_ARGS__ }

static void late_packets_are_distinguished_from_duplicates(void) {
    const uint64_t window = 1 << 17;
    ARRIVALS(LIST(0, 1, 2, 3), 4, 0, 0, 0);
    ARRIVALS(LIST(0, 1, 5, 6), 4, 0, 0, 0);
    ARRIVALS(LIST(0, 2, 1, 3), 4, 1, 0, 0);
    ARRIVALS(LIST(0, 1, 1, 2, 0), 3, 0, 2, 0);
    ARRIVALS(LIST(7, 3, 3), 2, 1, 1, 0);
    ARRIVALS(LIST(0, window, 0, 1), 3, 1, 0, 1);
    ARRIVALS(LIST(5, 10 * window, 10 * window - 1, 9 * window + 1), 4, 2, 0, 0);
}

// The same random losses, repetitions and delays for a tracker and for a list of all that arrived.
static void trackers_agree_with_a_list(void) {
    enum { NUMBERS = 300000 };
    static uint8_t seen[NUMBERS];
    struct sink sink = {.direction_count = 1};
    struct arrivals expected = {0};
    uint64_t random = 3, next = 0;
    CHECK(sink_init(&sink, 1), "no memory");
    sink_begin(&sink, 7);
    for (uint64_t number = 0; number < NUMBERS; number++) {
        uint64_t chance = random_next(&random) % 100, sequence = number;
        if (chance < 3)
            continue;
        if (chance < 6 && number > 1000)
            sequence = number - random_next(&random) % 1000;
        tracker_arrived(&sink.trackers[0], &sink.directions[0], sink.window, sequence);
        if (seen[sequence])
            expected.duplicated++;
        else if (sequence < next)
            expected.reordered++;
        expected.received += !seen[sequence];
        seen[sequence] = 1;
        next = sequence + 1 > next ? sequence + 1 : next;
    }
    const struct arrivals *got = &sink.directions[0];
    CHECK(got->received == expected.received && got->reordered == expected.reordered &&
              got->duplicated == expected.duplicated && got->stale == 0,
          "got %lu, %lu, %lu, %lu, not %lu, %lu, %lu", got->received, got->reordered, got->duplicated, got->stale,
          expected.received, expected.reordered, expected.duplicated);
    CHECK(expected.reordered > 100 && expected.duplicated > 1000, "both happen");
    sink_free(&sink);
}

static uint16_t checksum(const uint8_t *bytes, unsigned length) {
    uint32_t sum = 0;
    for (unsigned at = 0; at < length; at += 2)
        sum += get16(bytes + at);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

static void packets_are_written_and_read(void) {
    static uint8_t packet[MAX_LEN + HEAD_LEN], expected[MAX_LEN + HEAD_LEN];
    const struct five_tuple tcp = {0x0a000001, 0x0a000002, 1000, 80, PROTOCOL_TCP}, udp = default_tuple(3, 0);
    const struct five_tuple *const tuples[] = {&udp, &tcp, NULL};
    for (unsigned kind = 0; kind < 3; kind++) {
        struct template template;
        template_make(&template, station_mac(0, 0), station_mac(1, 5), tuples[kind], 3);
        const unsigned lengths[] = {template_least(&template, false), 100, 1518, MAX_LEN};
        for (unsigned index = 0; index < 4; index++) {
            uint16_t length = (uint16_t)lengths[index];
            struct stamp stamp = {0};
            memcpy(packet, text_fixed(), MAX_LEN);
            packet_write(&template, packet, UINT64_C(0x123456789abc) | FLAG_FIXED, 9, length);
            unsigned at = stamp_offset(packet);
            CHECK(at == template.stamp_at && stamp_read(packet + at, &stamp), "stamp of kind %u", kind);
            CHECK(stamp.run == 9 && stamp.flow == 3 && stamp.length == length && stamp.fixed && !stamp.probe &&
                      stamp.sequence == UINT64_C(0x123456789abc),
                  "fields of kind %u", kind);
            if (tuples[kind]) {
                CHECK(checksum(packet + 14, 20) == 0xffff, "checksum of kind %u, length %u", kind, length);
                CHECK(get16(packet + 16) == length - 14, "total length");
            }
            packet_expected(&template, &stamp, expected);
            CHECK(!memcmp(packet, expected, length), "kind %u, length %u", kind, length);
            packet[at + 9] ^= 1;
            CHECK(!stamp_read(packet + at, &stamp), "a changed stamp is recognised");
        }
    }
    CHECK(template_least(&(struct template){.stamp_at = UDP_STAMP_AT}, true) == 64, "probes fit into 64 bytes");
}

// The same packets as in the test of this name in bench/src/packet.rs.
static void the_format_is_that_of_the_other_program(void) {
    static const char *const PACKETS[] = {
        "020000000001020000000002080045000034000540004011ae8cc6120001c61300014e21000900200000"
        "5eb10812000700010000000000050042820ac351437a668d",
        "020000000001020000000002080045000034000540004011ae8cc6120001c61300014e21000900200000"
        "e19410dc000700018000000000050042703a7987965d2628",
        // Probes, whose time is zero.
        "020000000001020000000002080045000034000540004011ae8cc6120001c61300014e21000900200000"
        "e943b38d000700014000000000050042000000000000668d",
        "020000000001020000000002080045000034000540004011ae8cc6120001c61300014e21000900200000"
        "8c269c7700070001c0000000000500420000000000002628",
    };
    static uint8_t packet[MAX_LEN + HEAD_LEN];
    struct template template;
    struct five_tuple tuple = default_tuple(1, 0);
    template_make(&template, station_mac(1, 0), station_mac(0, 0), &tuple, 1);
    for (unsigned index = 0; index < 4; index++) {
        struct stamp stamp = {.sequence = 5, .run = 7, .flow = 1, .length = 66, .fixed = index & 1, .probe = index & 2};
        char hex[2 * 66 + 1];
        packet_expected(&template, &stamp, packet);
        for (unsigned at = 0; at < 66; at++)
            snprintf(hex + 2 * at, 3, "%02x", packet[at]);
        CHECK(!strcmp(hex, PACKETS[index]), "%s", hex);
    }
}

static void sinks_classify_packets(void) {
    static uint8_t packet[2048];
    struct template template;
    struct five_tuple tuple = default_tuple(1, 0);
    struct sink sink = {.direction_count = 2, .directions = {{.from = 0, .to = 1}, {.from = 1, .to = 0}}};
    const struct template *expected[2] = {NULL, &template};
    static struct histogram times;
    CHECK(sink_init(&sink, 1), "no memory");
    sink.directions[1].times = &times;
    sink.scratch = malloc(MAX_LEN + HEAD_LEN);
    sink.expected = expected;
    sink_begin(&sink, 7);
    template_make(&template, station_mac(1, 0), station_mac(0, 0), &tuple, 1);
    memcpy(packet, text_fixed(), sizeof packet);
    packet_write(&template, packet, FLAG_FIXED, 7, 100);
    struct arrivals *arrivals = &sink.directions[1];
    sink_take(&sink, 0, packet, 100, 100, 0);
    CHECK(arrivals->received == 1 && arrivals->bytes == 100, "a good packet");
    sink_take(&sink, 1, packet, 100, 100, 0);
    CHECK(arrivals->misdelivered == 1, "the same at the other port");
    sink_take(&sink, 0, packet, 99, 99, 0);
    CHECK(arrivals->corrupted == 1, "cut");
    packet[80] ^= 1;
    sink_take(&sink, 0, packet, 100, 100, 0);
    packet[80] ^= 1;
    packet[0] ^= 2;
    sink_take(&sink, 0, packet, 100, 100, 0);
    packet[0] ^= 2;
    CHECK(arrivals->corrupted == 3, "changed in filling and address");
    packet_write(&template, packet, 1 | FLAG_FIXED, 7, 100);
    uint8_t first[6];
    memcpy(first, packet, 6);
    memcpy(packet, packet + 6, 6);
    memcpy(packet + 6, first, 6);
    sink_take(&sink, 0, packet, 100, 100, 0);
    CHECK(arrivals->received == 2 && arrivals->corrupted == 3, "swapped addresses are no corruption");
    packet_write(&template, packet, 2 | FLAG_FIXED | FLAG_PROBE, 7, 100);
    put48(packet + UDP_STAMP_AT + STAMP_LEN, TIME_MASK - 9);
    sink_take(&sink, 0, packet, 100, 100, 90);
    CHECK(arrivals->received == 3 && times.count == 1 && times.least == 100, "a probe, with a time that overflows");
    CHECK(sink_take(&sink, 0, packet, 100, 100, 190) && arrivals->duplicated == 1, "a probe twice");
    CHECK(arrivals->received == 3 && arrivals->bytes == 300 && times.count == 1, "duplicates have no bytes and time");
    packet[UDP_STAMP_AT] ^= 1;
    CHECK(!sink_take(&sink, 0, packet, 100, 100, 0), "no intact packet");
    CHECK(sink.ports[0].corrupted == 1, "a changed stamp");
    packet_write(&template, packet, FLAG_FIXED, 6, 100);
    sink_take(&sink, 0, packet, 100, 100, 0);
    packet_write(&template, packet, FLAG_FIXED, 8, 100);
    sink_take(&sink, 0, packet, 100, 100, 0);
    CHECK(arrivals->earlier == 1 && sink.ports[0].foreign == 1, "an earlier run, and another one");
    memset(packet, 0, 60);
    sink_take(&sink, 0, packet, 60, 60, 0);
    sink_take(&sink, 0, packet, 5, 5, 0);
    CHECK(sink.ports[0].foreign == 3, "others");
    announcement_write(packet, station_mac(1, 2));
    sink_take(&sink, 0, packet, 60, 60, 0);
    CHECK(sink.ports[0].announcements == 1, "%lu", sink.ports[0].announcements);
    CHECK(arrivals_distinct(arrivals) == 4 && arrivals_landed(arrivals) == 6, "%lu %lu", arrivals_distinct(arrivals),
          arrivals_landed(arrivals));
    sink.any_run = true;
    sink_begin(&sink, 0);
    for (uint16_t run = 65534; run != 1; run++) {
        packet_write(&template, packet, FLAG_FIXED, run, 100);
        memcpy(packet + HEAD_LEN, text_fixed() + HEAD_LEN, 20);
        sink_take(&sink, 0, packet, 100, 100, 0);
    }
    CHECK(sink.run == 0 && arrivals->received == 1 && sink.followed == 3, "the newest run of a sender is followed");
    free(sink.scratch);
    sink_free(&sink);
}

// Writes a file for a test; returns its path.
static const char *file_with(const void *bytes, size_t length) {
    static char path[] = "/tmp/generator-check-XXXXXX";
    static bool made;
    FILE *file = made ? fopen(path, "w") : fdopen(mkstemp(path), "w");
    made = true;
    if (!file || fwrite(bytes, 1, length, file) != length || fclose(file)) {
        perror(path);
        exit(1);
    }
    return path;
}

static void rules_become_tuples(void) {
    static const char RULES[] = "# Two rules.\n\n"
                                "@198.18.0.0/16 10.1.2.3/32 0 : 65535 80 : 80 0x06/0xFF 0x0000/0x0200\n"
                                "@0.0.0.0/0 10.0.0.0/8 1024 : 2047 53 : 54 0x00/0x00\n";
    struct five_tuple *tuples, *again;
    char error[256];
    const char *path = file_with(RULES, sizeof RULES - 1);
    CHECK(rules_read(path, 5, &tuples, error, sizeof error) == 2, "%s", error);
    CHECK(tuples[0].source >> 16 == (198 << 8 | 18) && tuples[0].destination == 0x0a010203 &&
              tuples[0].destination_port == 80 && tuples[0].protocol == PROTOCOL_TCP,
          "first rule");
    CHECK(tuples[1].destination >> 24 == 10 && tuples[1].source_port >= 1024 && tuples[1].source_port < 2048 &&
              (tuples[1].destination_port == 53 || tuples[1].destination_port == 54) &&
              tuples[1].protocol == PROTOCOL_UDP,
          "second rule");
    CHECK(rules_read(path, 5, &again, error, sizeof error) == 2, "%s", error);
    CHECK(again[0].source == tuples[0].source && again[1].source == tuples[1].source, "one seed gives one choice");
    free(tuples);
    free(again);
    const char *const wrong[] = {
        "",
        "198.18.0.0/16 10.0.0.0/8 0 : 1 0 : 1 0x06/0xFF\n",
        "@198.18.0.0/33 10.0.0.0/8 0 : 1 0 : 1 0x06/0xFF\n",
        "@198.18.0.0/16 10.0.256.0/8 0 : 1 0 : 1 0x06/0xFF\n",
        "@198.18.0.0/16 10.0.0.0/8 2 : 1 0 : 1 0x06/0xFF\n",
        "@198.18.0.0/16 10.0.0.0/8 0 : 65536 0 : 1 0x06/0xFF\n",
        "@198.18.0.0/16 10.0.0.0/8 0 : 1 0 : 1 0x06/0x0F\n",
    };
    for (unsigned index = 0; index < sizeof wrong / sizeof *wrong; index++) {
        path = file_with(wrong[index], strlen(wrong[index]));
        CHECK(rules_read(path, 5, &tuples, error, sizeof error) == -1 && strstr(error, path), "`%s`", wrong[index]);
    }
    CHECK(rules_read("/nonexistent", 5, &tuples, error, sizeof error) == -1, "no file");
    unlink(path);
}

static void captures_become_templates(void) {
    // A pcap file of two packets: 42 bytes of headers of UDP alone, and 100 bytes of another protocol.
    static uint8_t bytes[24 + 16 + 42 + 16 + 100] = {0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0};
    bytes[17] = 0xff;
    bytes[20] = 1;
    uint8_t *first = bytes + 24, *second = first + 16 + 42;
    first[8] = first[12] = 42;
    // The file holds the first 100 bytes of 120.
    second[8] = 100;
    second[12] = 120;
    struct template template;
    struct five_tuple tuple = default_tuple(0, 0);
    template_make(&template, 1, 2, &tuple, 0);
    memcpy(first + 16, template.head, 42);
    struct capture capture;
    char error[512];
    const char *path = file_with(bytes, sizeof bytes);
    CHECK(capture_read(&capture, path, 22, 9000, error, sizeof error), "%s", error);
    CHECK(capture.count == 2 && capture.lengths[0] == 64 && capture.lengths[1] == 120 && capture.longest == 120,
          "%u packets, %u and %u bytes", capture.count, capture.lengths[0], capture.lengths[1]);
    CHECK(!memcmp(capture.packets[0], template.head, 42), "headers are unchanged");
    capture_free(&capture);
    CHECK(!capture_read(&capture, path, 22, 80, error, sizeof error) && strstr(error, path), "too long");
    path = file_with(bytes, sizeof bytes - 10);
    CHECK(!capture_read(&capture, path, 22, 9000, error, sizeof error), "cut file");
    path = file_with(bytes, 24);
    CHECK(!capture_read(&capture, path, 22, 9000, error, sizeof error), "empty file");
    bytes[20] = 113;
    path = file_with(bytes, sizeof bytes);
    CHECK(!capture_read(&capture, path, 22, 9000, error, sizeof error), "no Ethernet");
    unlink(path);
}

int main(void) {
    text_prepare();
    flows_are_drawn_as_asked();
    sizes_have_their_shares();
    paces_keep_the_rate_and_catch_up_a_little();
    packets_in_flight_are_limited();
    histograms_agree_with_sorted_values();
    late_packets_are_distinguished_from_duplicates();
    trackers_agree_with_a_list();
    packets_are_written_and_read();
    the_format_is_that_of_the_other_program();
    sinks_classify_packets();
    rules_become_tuples();
    captures_become_templates();
    printf("%u checks, %u failed\n", checks, failures);
    return failures ? 1 : 0;
}
