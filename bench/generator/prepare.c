// SPDX-License-Identifier: Apache-2.0
//
// prepare.c: makes what a run needs before it starts: templates, orders of flows, trackers.

#include <math.h>
#include <rte_cycles.h>
#include <stdio.h>
#include <stdlib.h>

#include "rules.h"
#include "traffic.h"

// Streams name the flows of a direction; if there are more flows than names, several share one.
static uint32_t streams_per_direction(const struct options *options, uint32_t flows) {
    if (options->mode == MODE_RECEIVE)
        return MAX_STREAMS;
    uint32_t most = MAX_STREAMS / options->direction_count;
    return flows < most ? flows : most;
}

static bool no_memory(void) {
    fprintf(stderr, "mswitch-generator: out of memory\n");
    return false;
}

// Reads the file of --rules or --pcap, if there is one. Sets the number of flows of each direction.
static bool read_files(struct traffic *traffic, struct five_tuple **tuples, uint32_t *flows) {
    const struct options *options = traffic->options;
    char error[512];
    long count = options->flows;
    if (options->rules) {
        count = rules_read(options->rules, options->seed, tuples, error, sizeof error);
    } else if (options->capture) {
        unsigned room = STAMP_LEN + (options->rtt ? TIME_LEN : 0u);
        bool good = capture_read(&traffic->capture, options->capture, room, MAX_PACKET, error, sizeof error);
        count = good ? (long)traffic->capture.count : -1;
    }
    if (count < 0) {
        fprintf(stderr, "mswitch-generator: --%s %s\n", options->rules ? "rules" : "pcap", error);
        return false;
    }
    *flows = (uint32_t)count;
    return true;
}

static bool make_sender(struct traffic *traffic, unsigned index, uint32_t flows, uint32_t streams,
                        const struct five_tuple *tuples) {
    const struct options *options = traffic->options;
    struct sender *sender = &traffic->senders[index];
    unsigned from = options->directions[index][0], to = options->directions[index][1];
    sender->from = from;
    sender->first_stream = (uint16_t)(index * streams);
    sender->templates = calloc(flows, sizeof *sender->templates);
    sender->sequences = calloc(streams, sizeof *sender->sequences);
    // Each direction draws numbers of its own.
    uint64_t seed = options->seed + ((uint64_t)index << 32);
    if (!sender->templates || !sender->sequences ||
        !draw_init(&sender->draw, options->order, options->exponent, flows, seed))
        return no_memory();
    for (uint32_t flow = 0; flow < flows; flow++) {
        uint32_t station = flow % options->macs;
        uint16_t stream = (uint16_t)(sender->first_stream + flow % streams);
        struct five_tuple tuple = tuples ? tuples[flow] : default_tuple(stream, (uint16_t)(flow / streams));
        uint64_t destination = options->to_mac ? options->to_mac : station_mac(to, station);
        struct template *template = &sender->templates[flow];
        template_make(template, station_mac(from, station), destination, options->ip ? &tuple : NULL, stream);
        if (!options->capture && options->sizes.least < template_least(template, options->rtt)) {
            fprintf(stderr, "mswitch-generator: --size: packets of rule %u have at least %u bytes\n", flow + 1,
                    template_least(template, options->rtt));
            return false;
        }
        if (traffic->expected)
            traffic->expected[stream] = template;
    }
    return true;
}

// Mean length of the packets of a capture file, weighted by how often the order draws them.
static double capture_mean(const struct capture *capture, const struct options *options) {
    double sum = 0, weights = 0;
    for (uint32_t flow = 0; flow < capture->count; flow++) {
        double weight = options->order == ORDER_ZIPF ? pow(flow + 1.0, -options->exponent) : 1;
        sum += weight * capture->lengths[flow];
        weights += weight;
    }
    return sum / weights;
}

bool traffic_prepare(struct traffic *traffic, const struct options *options, const volatile bool *stop) {
    struct five_tuple *tuples = NULL;
    uint32_t flows = 0;
    *traffic = (struct traffic){.options = options, .stop = stop, .run = (uint16_t)options->run, .down = -1};
    traffic->sender_count = options->mode == MODE_RECEIVE ? 0 : options->direction_count;
    if (!read_files(traffic, &tuples, &flows))
        return false;
    uint32_t streams = streams_per_direction(options, flows);
    traffic->shared_streams = flows > streams;
    if (options->verify && flows > streams) {
        fprintf(stderr, "mswitch-generator: --verify: at most %u flows of each direction can be checked\n", streams);
        free(tuples);
        return false;
    }
    struct sink *sink = &traffic->sink;
    sink->direction_count = options->direction_count;
    sink->any_run = options->run < 0;
    sink->at_end = options->capture;
    bool good = sink_init(sink, streams) || no_memory();
    if (good && options->verify) {
        sink->scratch = malloc(MAX_LEN + HEAD_LEN);
        if (traffic->sender_count) {
            traffic->expected = calloc(sink->streams, sizeof *traffic->expected);
            sink->expected = traffic->expected;
        }
        good = (sink->scratch && (!traffic->sender_count || traffic->expected)) || no_memory();
    }
    traffic->linear = malloc(MAX_LEN);
    good = good && (traffic->linear || no_memory());
    for (unsigned index = 0; good && index < traffic->sender_count; index++)
        good = make_sender(traffic, index, flows, streams, tuples);
    for (unsigned index = 0; good && index < options->direction_count; index++) {
        struct arrivals *arrivals = &sink->directions[index];
        arrivals->from = options->directions[index][0];
        arrivals->to = options->directions[index][1];
        if (options->rtt && traffic->sender_count)
            good = (arrivals->times = calloc(1, sizeof *arrivals->times)) || no_memory();
    }
    traffic->mean_size = options->capture ? capture_mean(&traffic->capture, options) : options->sizes.mean;
    free(tuples);
    return good;
}

bool traffic_attach(struct traffic *traffic, struct ports *ports) {
    traffic->ports = ports;
    traffic->hz = (double)rte_get_tsc_hz();
    for (unsigned index = 0; traffic->options->rtt && index < traffic->sender_count; index++)
        traffic->senders[index].probe_interval = (uint64_t)(traffic->hz / traffic->options->probes);
    struct rte_mbuf *buffer = rte_pktmbuf_alloc(ports->send);
    if (!buffer)
        return no_memory();
    memcpy(&traffic->fresh_buffer, (uint8_t *)buffer + offsetof(struct rte_mbuf, rearm_data), 8);
    rte_pktmbuf_free(buffer);
    return true;
}

unsigned traffic_longest(const struct traffic *traffic) {
    return traffic->options->capture ? traffic->capture.longest : traffic->options->sizes.most;
}

void traffic_free(struct traffic *traffic) {
    for (unsigned index = 0; index < traffic->sender_count; index++) {
        free(traffic->senders[index].templates);
        free(traffic->senders[index].sequences);
        draw_free(&traffic->senders[index].draw);
    }
    for (unsigned index = 0; index < MAX_DIRECTIONS; index++) {
        free(traffic->samples[index]);
        free(traffic->sink.directions[index].times);
    }
    capture_free(&traffic->capture);
    free(traffic->sink.scratch);
    free(traffic->expected);
    free(traffic->linear);
    sink_free(&traffic->sink);
}
