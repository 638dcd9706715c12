// SPDX-License-Identifier: Apache-2.0
//
// report.c: writes results as JSON.

#include "report.h"

#include <inttypes.h>
#include <rte_cycles.h>
#include <rte_version.h>
#include <stdio.h>
#include <stdlib.h>

// Version of the report: changes when a field changes its meaning.
enum { VERSION = 1 };

// The generator is near its ceiling if it idles less than this, and finds its queues well filled when it polls them: at
// least so many packets, or half of those that a burst leaves in each queue.
#define CEILING_IDLE 0.05
#define CEILING_BATCH 8.0

static void text(const char *name, const char *value) {
    printf("\"%s\":\"", name);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            putchar('\\');
        if ((unsigned char)*value >= 0x20)
            putchar(*value);
    }
    printf("\",");
}

static double share(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

static void preamble(const struct options *options, double seconds, bool interrupted, const struct effort *effort,
                     double packets) {
    double busy = (double)(effort->total - effort->idle);
    double idle_share = share((double)effort->idle, (double)effort->total);
    double filled = RTE_MIN(CEILING_BATCH, options->burst / (2.0 * options->queues));
    double batch = share((double)effort->received, (double)effort->polls);
    printf("{\"version\":%d,", VERSION);
    text("mode", options->mode_name);
    text("dpdk", rte_version() + (strncmp(rte_version(), "DPDK ", 5) ? 0 : 5));
    printf("\"seconds\":%.6f,\"cpu\":%d,\"tsc_hz\":%" PRIu64 ",\"interrupted\":", seconds, options->cpu,
           rte_get_tsc_hz());
    printf("%s,", interrupted ? "true" : "false");
    printf("\"core\":{\"busy_cycles\":%.0f,\"idle_cycles\":%" PRIu64 ",\"idle_share\":%.4f,\"cycles_per_packet\":%.1f,"
           "\"packets_per_poll\":%.2f,\"near_ceiling\":%s},",
           busy, effort->idle, idle_share, share(busy, packets), batch,
           idle_share < CEILING_IDLE && batch >= filled ? "true" : "false");
}

static int by_value(const void *a, const void *b) {
    float first = *(const float *)a, second = *(const float *)b;
    return (first > second) - (first < second);
}

static double median(float *samples, unsigned count) {
    qsort(samples, count, sizeof *samples, by_value);
    return count ? samples[count / 2] : 0;
}

static void times(const struct histogram *histogram, double hz) {
    double ns = 1e9 / hz;
    printf("\"rtt_ns\":");
    if (!histogram) {
        printf("null");
        return;
    }
    printf("{\"count\":%" PRIu64 ",\"min\":%.0f,\"mean\":%.1f,\"stddev\":%.1f,\"p50\":%.0f,\"p90\":%.0f,\"p99\":%.0f,"
           "\"p999\":%.0f,\"max\":%.0f}",
           histogram->count, (double)histogram->least * ns, histogram_mean(histogram) * ns,
           histogram_deviation(histogram) * ns, histogram_quantile(histogram, 0.5) * ns,
           histogram_quantile(histogram, 0.9) * ns, histogram_quantile(histogram, 0.99) * ns,
           histogram_quantile(histogram, 0.999) * ns, (double)histogram->most * ns);
}

static void direction(const struct traffic *traffic, unsigned index) {
    const struct arrivals *arrivals = &traffic->sink.directions[index];
    bool sends = index < traffic->sender_count;
    uint64_t sent = sends ? traffic->senders[index].sent : 0;
    double seconds = traffic->seconds;
    printf("%s{\"from\":%u,\"to\":%u,\"sent\":%" PRIu64 ",\"received\":%" PRIu64 ",\"lost\":%" PRIu64
           ",\"duplicated\":%" PRIu64 ",\"stale\":%" PRIu64 ",\"corrupted\":%" PRIu64 ",\"misdelivered\":%" PRIu64
           ",\"received_bytes\":%" PRIu64 ",",
           index ? "," : "", arrivals->from, arrivals->to, sent, arrivals->received,
           sent > arrivals->received ? sent - arrivals->received : 0, arrivals->duplicated, arrivals->stale,
           arrivals->corrupted, arrivals->misdelivered, arrivals->bytes);
    if (traffic->shared_streams)
        printf("\"reordered\":null,");
    else
        printf("\"reordered\":%" PRIu64 ",", arrivals->reordered);
    printf("\"sent_pps\":%.1f,\"received_pps\":%.1f,\"median_pps\":%.1f,", share((double)traffic->sent[index], seconds),
           share((double)traffic->received[index], seconds),
           median(traffic->samples[index], traffic->samples[index] ? traffic->sample_count : 0));
    if (sends && traffic->offered[index] > 0)
        printf("\"offered_pps\":%.1f,\"skipped\":%.0f,", traffic->offered[index],
               traffic->senders[index].pacer.skipped);
    else
        printf("\"offered_pps\":null,\"skipped\":0,");
    if (sends && traffic->maximum[index] > 0)
        printf("\"maximum_pps\":%.1f,", traffic->maximum[index]);
    else
        printf("\"maximum_pps\":null,");
    printf("\"no_buffer\":%" PRIu64 ",", sends ? traffic->senders[index].no_buffer : 0);
    times(arrivals->times, traffic->hz);
    printf("}");
}

static void port(const struct traffic *traffic, unsigned index) {
    const struct port_arrivals *arrivals = &traffic->sink.ports[index];
    printf("%s{", index ? "," : "");
    text("port", traffic->ports->name[index]);
    printf("\"received_by_queue\":[");
    for (unsigned queue = 0; queue < traffic->ports->queues; queue++)
        printf("%s%" PRIu64, queue ? "," : "", arrivals->by_queue[queue]);
    printf("],\"corrupted\":%" PRIu64 ",\"foreign\":%" PRIu64 ",\"announcements\":%" PRIu64 "}", arrivals->corrupted,
           arrivals->foreign, arrivals->announcements);
}

void report_traffic(const struct traffic *traffic, bool failed) {
    const struct options *options = traffic->options;
    uint64_t faults = 0, sent = 0, received = 0, bytes = 0, sent_then = 0, received_then = 0;
    double maximum = 0;
    for (unsigned index = 0; index < traffic->sink.direction_count; index++) {
        const struct arrivals *arrivals = &traffic->sink.directions[index];
        faults += arrivals->duplicated + arrivals->stale + arrivals->corrupted + arrivals->misdelivered;
        faults += traffic->shared_streams ? 0 : arrivals->reordered;
        bytes += arrivals->bytes;
        received += arrivals->received;
        sent += index < traffic->sender_count ? traffic->senders[index].sent : 0;
        sent_then += traffic->sent[index];
        received_then += traffic->received[index];
        maximum += traffic->maximum[index];
    }
    for (unsigned index = 0; index < traffic->ports->count; index++)
        faults += traffic->sink.ports[index].corrupted;
    // A packet that is sent and received counts once.
    preamble(options, traffic->seconds, traffic->interrupted, &traffic->effort,
             (double)RTE_MAX(sent_then, received_then));
    bool lossless = traffic->sender_count == 0 || received == sent;
    printf("\"ok\":%s,\"run\":%u,", !failed && faults == 0 && received > 0 && lossless ? "true" : "false",
           traffic->sink.run);
    printf("\"began_ns\":%" PRIu64 ",", traffic->began_ns);
    if (maximum > 0)
        printf("\"capacity_pps\":%.1f,", maximum);
    else
        printf("\"capacity_pps\":null,");
    double mean = traffic->sender_count ? traffic->mean_size : share((double)bytes, (double)received);
    printf("\"mean_size\":%.1f,\"directions\":[", mean);
    for (unsigned index = 0; index < traffic->sink.direction_count; index++)
        direction(traffic, index);
    printf("],\"ports\":[");
    for (unsigned index = 0; index < traffic->ports->count; index++)
        port(traffic, index);
    printf("]}\n");
}

void report_forwarding(const struct forwarding *forwarding, const struct options *options, const struct ports *ports) {
    preamble(options, forwarding->seconds, forwarding->interrupted, &forwarding->effort,
             (double)forwarding->effort.received);
    printf("\"ok\":%s,\"ports\":[", forwarding->down < 0 ? "true" : "false");
    for (unsigned index = 0; index < ports->count; index++) {
        printf("%s{", index ? "," : "");
        text("port", ports->name[index]);
        printf("\"received\":%" PRIu64 ",\"forwarded\":%" PRIu64 ",\"dropped\":%" PRIu64 "}",
               forwarding->received[index], forwarding->forwarded[index], forwarding->dropped[index]);
    }
    printf("]}\n");
}
