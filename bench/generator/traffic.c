// SPDX-License-Identifier: Apache-2.0
//
// traffic.c: the loop of a run. One thread sends what is due in each direction, and takes what has arrived at each
// port.
//
// Invariants:
// - A packet counts as sent once its port has accepted it. A packet that is not accepted is kept and offered again, so
//   that sequence numbers have no gaps but those that the switch makes.
// - Packets of one flow use one queue, in the order of their numbers.

#include "traffic.h"

#include <rte_cycles.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

// Rounds of polling one queue before the others have their turn.
enum { ROUNDS = 4 };

#define SAMPLE_SECONDS 0.1
// What happens later has no share in the median.
#define MOST_SAMPLED_SECONDS 1e5
// Time without arrivals after which packets in flight count as lost; time to wait for duplicates of the last ones.
#define QUIET_SECONDS 0.5
#define DUPLICATES_SECONDS 0.02
#define DRAIN_SECONDS 5.0

unsigned traffic_receive(struct traffic *traffic, unsigned port) {
    struct rte_mbuf *packets[RECEIVE_BURST];
    struct sink *sink = &traffic->sink;
    const struct ports *ports = traffic->ports;
    unsigned total = 0;
    for (unsigned queue = 0; queue < ports->queues; queue++) {
        unsigned count = RECEIVE_BURST;
        for (unsigned round = 0; round < ROUNDS && count == RECEIVE_BURST; round++) {
            count = rte_eth_rx_burst(ports->id[port], (uint16_t)queue, packets, RECEIVE_BURST);
            if (count == 0)
                break;
            uint64_t now = traffic->options->rtt ? rte_rdtsc() : 0;
            for (unsigned index = 0; index < count; index++) {
                struct rte_mbuf *packet = packets[index];
                const uint8_t *bytes = rte_pktmbuf_mtod(packet, const uint8_t *);
                uint32_t contiguous = packet->data_len, length = packet->pkt_len;
                if (index + 4 < count)
                    rte_prefetch0(rte_pktmbuf_mtod(packets[index + 4], const uint8_t *));
                if (unlikely(contiguous < length && (sink->scratch || sink->at_end) && length <= MAX_LEN)) {
                    bytes = rte_pktmbuf_read(packet, 0, length, traffic->linear);
                    contiguous = length;
                }
                if (likely(sink_take(sink, port, bytes, contiguous, length, now)))
                    sink->ports[port].by_queue[queue]++;
            }
            rte_pktmbuf_free_bulk(packets, count);
            total += count;
            traffic->effort.polls++;
        }
    }
    traffic->effort.received += total;
    return total;
}

// Makes a buffer from the pool ready for a packet. What is set here is what drivers may have changed in it.
static inline void prepare_buffer(struct rte_mbuf *packet, uint64_t fresh, uint16_t length) {
    memcpy((uint8_t *)packet + offsetof(struct rte_mbuf, rearm_data), &fresh, sizeof fresh);
    packet->ol_flags = 0;
    packet->data_len = length;
    packet->pkt_len = length;
}

// Writes packets from templates into buffers, whose filling is there already.
static void write_packets(struct traffic *traffic, struct sender *sender, const uint32_t *flows,
                          struct rte_mbuf *const *packets, unsigned count) {
    const struct template *templates = sender->templates;
    const uint16_t *sizes = traffic->options->sizes.cycle;
    uint64_t *sequences = sender->sequences, fresh = traffic->fresh_buffer;
    uint16_t run = traffic->run, first_stream = sender->first_stream;
    unsigned size_at = sender->size_at;
    for (unsigned index = 0; index < count; index++) {
        const struct template *template = &templates[flows[index]];
        struct rte_mbuf *packet = packets[index];
        uint16_t length = sizes[size_at++ % SIZES];
        uint64_t sequence = sequences[template->stream - first_stream]++;
        prepare_buffer(packet, fresh, length);
        packet_write(template, (uint8_t *)packet->buf_addr + RTE_PKTMBUF_HEADROOM, sequence | FLAG_FIXED, run, length);
    }
    sender->size_at = size_at;
}

// Copies packets of the capture file, and stamps their ends.
static void copy_packets(struct traffic *traffic, struct sender *sender, const uint32_t *flows,
                         struct rte_mbuf *const *packets, unsigned count) {
    const struct capture *capture = &traffic->capture;
    const struct options *options = traffic->options;
    // Where addresses are asked for, the capture's packets get them.
    size_t addresses = options->macs_given ? 12 : options->to_mac ? 6 : 0;
    for (unsigned index = 0; index < count; index++) {
        uint16_t length = capture->lengths[flows[index]], stream = sender->templates[flows[index]].stream;
        prepare_buffer(packets[index], traffic->fresh_buffer, length);
        uint8_t *out = rte_pktmbuf_mtod(packets[index], uint8_t *);
        memcpy(out, capture->packets[flows[index]], length);
        memcpy(out, sender->templates[flows[index]].head, addresses);
        stamp_write(out + length - STAMP_LEN, sender->sequences[stream - sender->first_stream]++, traffic->run, stream,
                    length);
    }
}

// Turns a packet into a probe; returns the place of its time.
static uint8_t *make_probe(const struct traffic *traffic, struct rte_mbuf *packet) {
    uint8_t *bytes = rte_pktmbuf_mtod(packet, uint8_t *);
    unsigned at = traffic->sink.at_end ? packet->data_len - (unsigned)STAMP_LEN : stamp_offset(bytes);
    struct stamp stamp;
    stamp_read(bytes + at, &stamp);
    uint64_t numbered = stamp.sequence | FLAG_PROBE | (stamp.fixed ? FLAG_FIXED : 0);
    stamp_write(bytes + at, numbered, stamp.run, stamp.flow, stamp.length);
    return traffic->sink.at_end ? bytes + at - TIME_LEN : bytes + at + STAMP_LEN;
}

// The queue of a flow. Flows that share a stream share its queue.
static inline unsigned queue_of(const struct traffic *traffic, const struct sender *sender, uint32_t flow) {
    return (uint16_t)(sender->templates[flow].stream - sender->first_stream) % traffic->ports->queues;
}

// Spreads packets over the queues by flow.
static void spread(const struct traffic *traffic, struct sender *sender, const uint32_t *flows,
                   struct rte_mbuf *const *packets, unsigned count) {
    for (unsigned index = 0; index < count; index++) {
        struct pending *pending = &sender->pending[queue_of(traffic, sender, flows[index])];
        pending->packets[pending->count++] = packets[index];
    }
}

// Writes the next packets of a direction.
static void build(struct traffic *traffic, struct sender *sender, unsigned count, uint64_t now) {
    struct rte_mbuf *several[MAX_BURST];
    uint32_t flows[MAX_BURST];
    unsigned queues = traffic->ports->queues;
    struct rte_mbuf **packets = queues == 1 ? sender->pending[0].packets : several;
    if (unlikely(rte_mempool_get_bulk(traffic->ports->send, (void **)packets, count) != 0)) {
        sender->no_buffer++;
        return;
    }
    for (unsigned index = 0; index < count; index++) {
        flows[index] = draw_next(&sender->draw);
        // A template may lie in two cache lines.
        rte_prefetch0(&sender->templates[flows[index]]);
        rte_prefetch0(&sender->templates[flows[index]].stream);
    }
    if (traffic->capture.count > 0)
        copy_packets(traffic, sender, flows, packets, count);
    else
        write_packets(traffic, sender, flows, packets, count);
    if (queues == 1)
        sender->pending[0].count = (uint16_t)count;
    else
        spread(traffic, sender, flows, packets, count);
    if (sender->probe_interval && now >= sender->next_probe) {
        // The last packet of the burst: the time that the others take to be handed over is not its own.
        struct pending *pending = &sender->pending[queues == 1 ? 0 : queue_of(traffic, sender, flows[count - 1])];
        sender->next_probe = now + sender->probe_interval;
        pending->probe = pending->count - 1;
        pending->time = make_probe(traffic, packets[count - 1]);
    }
    sender->pending_count = count;
}

// Offers what is written to the port; returns the number of accepted packets.
static unsigned hand_over(struct traffic *traffic, struct sender *sender) {
    unsigned total = 0;
    for (unsigned queue = 0; queue < traffic->ports->queues; queue++) {
        struct pending *pending = &sender->pending[queue];
        unsigned left = pending->count - pending->next;
        if (left == 0)
            continue;
        if (pending->time)
            put48(pending->time, rte_rdtsc() & TIME_MASK);
        uint16_t sent = rte_eth_tx_burst(traffic->ports->id[sender->from], (uint16_t)queue,
                                         pending->packets + pending->next, (uint16_t)left);
        pending->next += sent;
        total += sent;
        if (pending->time && pending->next > pending->probe)
            pending->time = NULL;
        if (pending->next == pending->count)
            pending->next = pending->count = 0;
    }
    sender->pending_count -= total;
    sender->sent += total;
    return total;
}

// Returns how many packets may be sent without exceeding the limit in flight.
static unsigned room_in_flight(struct traffic *traffic, struct sender *sender, uint64_t now) {
    const struct arrivals *arrivals = &traffic->sink.directions[sender - traffic->senders];
    const struct options *options = traffic->options;
    if (options->in_flight == 0)
        return MAX_BURST;
    uint64_t room = flight_room(&sender->flight, options->in_flight, options->train, sender->sent,
                                arrivals_landed(arrivals), now, QUIET_SECONDS * traffic->hz);
    return (unsigned)RTE_MIN(room, (uint64_t)MAX_BURST);
}

static unsigned send_due(struct traffic *traffic, struct sender *sender, uint64_t now) {
    if (sender->pending_count == 0) {
        unsigned room = room_in_flight(traffic, sender, now);
        unsigned due = pacer_due(&sender->pacer, now, RTE_MIN(room, traffic->options->burst));
        if (due == 0)
            return 0;
        build(traffic, sender, due, now);
        pacer_sent(&sender->pacer, sender->pending_count);
    }
    return hand_over(traffic, sender);
}

// Frees what no port has accepted.
static void discard_pending(struct sender *sender) {
    for (unsigned queue = 0; queue < MAX_QUEUES; queue++) {
        struct pending *pending = &sender->pending[queue];
        if (pending->count > pending->next)
            rte_pktmbuf_free_bulk(pending->packets + pending->next, pending->count - pending->next);
        *pending = (struct pending){0};
    }
    sender->pending_count = 0;
}

static void begin(struct traffic *traffic, uint16_t run) {
    traffic->run = run;
    sink_begin(&traffic->sink, run);
    for (unsigned index = 0; index < traffic->sender_count; index++) {
        struct sender *sender = &traffic->senders[index];
        uint64_t streams = traffic->sink.streams / traffic->sender_count;
        memset(sender->sequences, 0, streams * sizeof *sender->sequences);
        sender->sent = sender->no_buffer = 0;
        flight_start(&sender->flight, rte_rdtsc());
    }
    traffic->effort = (struct effort){0};
    traffic->sample_count = 0;
}

// What is sampled while a run lasts: counts at the last sample, and at the last line on standard error.
struct progress {
    uint64_t sampled[MAX_DIRECTIONS], told_received[MAX_DIRECTIONS], told_sent[MAX_DIRECTIONS];
    uint64_t sampled_at, told_at, told_idle;
};

static void sample(struct traffic *traffic, struct progress *progress, uint64_t now) {
    double seconds = (double)(now - progress->sampled_at) / traffic->hz;
    if (seconds < SAMPLE_SECONDS || traffic->sample_count == traffic->sample_room)
        return;
    for (unsigned index = 0; index < traffic->sink.direction_count; index++) {
        uint64_t received = arrivals_distinct(&traffic->sink.directions[index]);
        traffic->samples[index][traffic->sample_count] =
            (float)((double)(received - progress->sampled[index]) / seconds);
        progress->sampled[index] = received;
    }
    traffic->sample_count++;
    progress->sampled_at = now;
}

static void tell(struct traffic *traffic, struct progress *progress, const char *phase, uint64_t now, uint64_t idle) {
    double seconds = (double)(now - progress->told_at) / traffic->hz;
    if (seconds < 1 || traffic->options->quiet)
        return;
    fprintf(stderr, "%s:", phase);
    for (unsigned index = 0; index < traffic->sink.direction_count; index++) {
        const struct arrivals *arrivals = &traffic->sink.directions[index];
        uint64_t sent = index < traffic->sender_count ? traffic->senders[index].sent : 0;
        uint64_t received = arrivals_distinct(arrivals);
        fprintf(stderr, " %u:%u sent %.3f, received %.3f Mpps;", arrivals->from, arrivals->to,
                (double)(sent - progress->told_sent[index]) / seconds * 1e-6,
                (double)(received - progress->told_received[index]) / seconds * 1e-6);
        progress->told_sent[index] = sent;
        progress->told_received[index] = received;
    }
    fprintf(stderr, " idle %.0f %%\n", (double)(idle - progress->told_idle) / (double)(now - progress->told_at) * 100);
    progress->told_at = now;
    progress->told_idle = idle;
}

// Sends and receives for this time, or until the program is stopped or a port loses its connection.
static void load(struct traffic *traffic, const char *phase, double seconds, const double *pps) {
    uint64_t start = rte_rdtsc(), now = start, before = start, idle = 0, check = start;
    uint64_t end = seconds > 0 ? start + (uint64_t)(seconds * traffic->hz) : UINT64_MAX;
    uint64_t interval = (uint64_t)(traffic->hz * SAMPLE_SECONDS / 10), links = start;
    struct progress progress = {.sampled_at = start, .told_at = start};
    unsigned followed = traffic->sink.followed;
    unsigned work = 1;
    const struct options *options = traffic->options;
    // The kernel would end a short sleep 50 us later, together with others.
    if (options->sleep > 0)
        prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    for (unsigned index = 0; index < traffic->sender_count; index++)
        pacer_start(&traffic->senders[index].pacer, pps[index], traffic->hz, start, options->train, options->burst,
                    options->ring, options->sleep > 0);
    for (;;) {
        now = rte_rdtsc();
        if (work == 0)
            idle += now - before;
        before = now;
        if (unlikely(now >= check)) {
            if (now >= end || *traffic->stop)
                break;
            check = RTE_MIN(now + interval, end);
            sample(traffic, &progress, now);
            tell(traffic, &progress, phase, now, idle);
            if (now - links > 10 * interval) {
                links = now;
                traffic->down = ports_down(traffic->ports);
                if (traffic->down >= 0)
                    break;
            }
        }
        if (work == 0 && options->sleep > 0) {
            usleep(options->sleep);
            now = rte_rdtsc();
            idle += now - before;
            before = now;
        }
        work = 0;
        for (unsigned port = 0; port < traffic->ports->count; port++)
            work += traffic_receive(traffic, port);
        for (unsigned index = 0; index < traffic->sender_count; index++)
            work += send_due(traffic, &traffic->senders[index], now);
        if (unlikely(traffic->sink.followed != followed)) {
            // The measurement begins with the run of another sender.
            followed = traffic->sink.followed;
            start = before = now;
            idle = 0;
            traffic->effort = (struct effort){0};
            traffic->sample_count = 0;
            progress = (struct progress){.sampled_at = now, .told_at = now};
        }
    }
    sample(traffic, &progress, now);
    traffic->seconds = (double)(now - start) / traffic->hz;
    traffic->interrupted = now < end && seconds > 0;
    traffic->effort.total = now - start;
    traffic->effort.idle = idle;
    for (unsigned index = 0; index < traffic->sink.direction_count; index++) {
        traffic->received[index] = arrivals_distinct(&traffic->sink.directions[index]);
        traffic->sent[index] = index < traffic->sender_count ? traffic->senders[index].sent : 0;
    }
}

// Whether every packet has arrived unchanged.
static bool all_arrived(const struct traffic *traffic) {
    for (unsigned index = 0; index < traffic->sender_count; index++)
        if (traffic->sink.directions[index].received < traffic->senders[index].sent)
            return false;
    return traffic->sender_count > 0;
}

// Receives what is in flight.
static void drain(struct traffic *traffic, double quiet) {
    struct effort effort = traffic->effort;
    uint64_t begun = rte_rdtsc(), last = begun, end = begun + (uint64_t)(DRAIN_SECONDS * traffic->hz);
    double wait = quiet * traffic->hz;
    bool complete = false, over = false;
    while (!over && begun < end) {
        unsigned found = 0;
        begun = rte_rdtsc();
        for (unsigned port = 0; port < traffic->ports->count; port++)
            found += traffic_receive(traffic, port);
        // This program may be paused: only a round that begins after the deadline shows that nothing was left.
        over = found == 0 && begun > last && (double)(begun - last) > wait;
        if (found > 0 && !complete)
            last = rte_rdtsc();
        if (!complete && all_arrived(traffic)) {
            complete = true;
            wait = DUPLICATES_SECONDS * traffic->hz;
            last = rte_rdtsc();
        }
    }
    traffic->effort = effort;
}

static void discard_all(struct traffic *traffic) {
    for (unsigned index = 0; index < traffic->sender_count; index++)
        discard_pending(&traffic->senders[index]);
}

// Finds the packets per second of each direction at saturation, as the rate of those received.
static bool measure_maximum(struct traffic *traffic) {
    static const double UNLIMITED[MAX_DIRECTIONS];
    const struct options *options = traffic->options;
    begin(traffic, (uint16_t)(options->run - 3));
    load(traffic, "warm-up", RTE_MAX(options->warm_up, 0.01), UNLIMITED);
    discard_all(traffic);
    begin(traffic, (uint16_t)(options->run - 2));
    load(traffic, "maximum", options->trial, UNLIMITED);
    for (unsigned index = 0; index < traffic->sender_count; index++) {
        traffic->maximum[index] = (double)traffic->received[index] / traffic->seconds;
        if (traffic->maximum[index] < 1 && !*traffic->stop) {
            fprintf(stderr, "mswitch-generator: nothing arrives in the direction %u:%u at full speed\n",
                    options->directions[index][0], options->directions[index][1]);
            return false;
        }
    }
    discard_all(traffic);
    drain(traffic, QUIET_SECONDS / 5);
    return true;
}

static bool find_rates(struct traffic *traffic) {
    const struct options *options = traffic->options;
    for (unsigned index = 0; index < traffic->sender_count; index++)
        traffic->maximum[index] = options->maximum;
    if (options->rate == RATE_SHARE && options->maximum == 0 && !measure_maximum(traffic))
        return false;
    for (unsigned index = 0; index < traffic->sender_count; index++) {
        double pps = options->rate == RATE_SHARE ? options->rate_value * traffic->maximum[index] : options->rate_value;
        traffic->offered[index] = options->rate == RATE_MAX ? 0 : pps;
    }
    return true;
}

bool traffic_run(struct traffic *traffic) {
    const struct options *options = traffic->options;
    if (!find_rates(traffic))
        return false;
    bool sends = traffic->sender_count > 0;
    if (sends && options->warm_up > 0 && traffic->down < 0) {
        begin(traffic, (uint16_t)(options->run - 1));
        load(traffic, "warm-up", options->warm_up, traffic->offered);
        discard_all(traffic);
        // Else the traffic just goes on.
        if (options->in_flight)
            drain(traffic, QUIET_SECONDS);
    }
    double longest = options->seconds > 0 ? RTE_MIN(options->seconds, MOST_SAMPLED_SECONDS) : MOST_SAMPLED_SECONDS;
    traffic->sample_room = (unsigned)(longest / SAMPLE_SECONDS) + 1;
    for (unsigned index = 0; index < traffic->sink.direction_count; index++) {
        traffic->samples[index] = calloc(traffic->sample_room, sizeof **traffic->samples);
        if (!traffic->samples[index]) {
            fprintf(stderr, "mswitch-generator: out of memory\n");
            return false;
        }
    }
    begin(traffic, (uint16_t)options->run);
    struct timespec began;
    clock_gettime(CLOCK_MONOTONIC, &began);
    traffic->began_ns = (uint64_t)began.tv_sec * 1000000000 + (uint64_t)began.tv_nsec;
    if (traffic->down < 0)
        load(traffic, sends ? "sending" : "receiving", options->seconds, traffic->offered);
    discard_all(traffic);
    if (traffic->down < 0)
        drain(traffic, sends ? QUIET_SECONDS : DUPLICATES_SECONDS);
    if (traffic->down >= 0)
        fprintf(stderr, "mswitch-generator: --port %s: disconnected\n", traffic->ports->name[traffic->down]);
    return traffic->down < 0;
}
