// SPDX-License-Identifier: Apache-2.0
//
// main.c: DPDK's own pipeline for P4 programs (SWX, librte_pipeline) between memif ports, for comparisons.
//
//     mswitch-swx codegen SPEC CODE.c
//     mswitch-swx run --library CODE.so --port SOCKET --port SOCKET [--queues N] [--cpu N] [--main-cpu N]
//                     [--table NAME=FILE]...
//
// `codegen` writes the C code of a program, which the Makefile compiles; `run` runs it on one thread. Packets are
// received from the first port only, since SWX polls ports in turn, one packet each, and an idle one would cost it. For
// each line on standard input, `run` prints its totals so far as one JSON object; it ends with standard input.
//
// Invariant: only the thread of the pipeline uses the pipeline while it runs; totals are copied out for others.

#include <getopt.h>
#include <inttypes.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_swx_ctl.h>
#include <rte_swx_pipeline.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_PORTS = 8,
    MAX_QUEUES = 16,
    MAX_TABLES = 16,
    RING = 2048,
    BURST = 32,
    BUFFERS = 32767,
    // Steps between two looks at the clock; what DPDK's own application has.
    STEPS = 1000,
};

struct options {
    const char *library;
    const char *ports[MAX_PORTS];
    const char *tables[MAX_TABLES];
    unsigned port_count, table_count, queues, cpu, main_cpu;
};

// Totals of the pipeline's thread, which alone writes them.
struct totals {
    _Atomic uint64_t packets, empty, sent, dropped, busy_cycles, elapsed_cycles;
};

static struct totals totals;
static atomic_bool stop;

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs("mswitch-swx: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(1);
}

static void usage(void) {
    fputs("usage: mswitch-swx codegen SPEC CODE.c\n"
          "       mswitch-swx run --library CODE.so --port SOCKET --port SOCKET [--queues N] [--cpu N] [--main-cpu N]\n"
          "                       [--table NAME=FILE]...\n",
          stderr);
    exit(2);
}

static FILE *open_file(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (!file)
        fail("%s: %s", path, strerror(errno));
    return file;
}

static void codegen(const char *spec, const char *code) {
    FILE *from = open_file(spec, "r"), *to = open_file(code, "w");
    uint32_t line = 0;
    const char *message = "no reason given";
    if (rte_swx_pipeline_codegen(from, to, &line, &message) != 0)
        fail("%s, line %" PRIu32 ": %s", spec, line, message);
    fclose(from);
    if (fclose(to) != 0)
        fail("%s: %s", code, strerror(errno));
}

static unsigned whole(const char *name, const char *text, unsigned least, unsigned most) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < least || value > most)
        fail("--%s %s: expected a whole number from %u to %u", name, text, least, most);
    return (unsigned)value;
}

static void read_options(struct options *options, int argc, char **argv) {
    static const struct option known[] = {
        {"library", required_argument, NULL, 'l'},
        {"port", required_argument, NULL, 'p'},
        {"queues", required_argument, NULL, 'q'},
        {"cpu", required_argument, NULL, 'c'},
        {"main-cpu", required_argument, NULL, 'm'},
        {"table", required_argument, NULL, 't'},
        {NULL, 0, NULL, 0},
    };
    *options = (struct options){.queues = 1, .main_cpu = 1};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'l':
            options->library = optarg;
            break;
        case 'p':
            if (options->port_count == MAX_PORTS)
                fail("--port %s: more than %d ports", optarg, MAX_PORTS);
            options->ports[options->port_count++] = optarg;
            break;
        case 'q':
            // SWX requires a power of two of inputs.
            options->queues = whole("queues", optarg, 1, MAX_QUEUES);
            if (options->queues & (options->queues - 1))
                fail("--queues %s: expected a power of two", optarg);
            break;
        case 'c':
            options->cpu = whole("cpu", optarg, 0, 1023);
            break;
        case 'm':
            options->main_cpu = whole("main-cpu", optarg, 0, 1023);
            break;
        case 't':
            if (options->table_count == MAX_TABLES)
                fail("--table %s: more than %d tables", optarg, MAX_TABLES);
            options->tables[options->table_count++] = optarg;
            break;
        default:
            usage();
        }
    }
    if (optind != argc || !options->library || options->port_count == 0)
        usage();
}

// Starts DPDK: core 0 waits for commands, core 1 runs the pipeline; a memif server for each socket.
static void start_dpdk(const struct options *options) {
    char cores[64], prefix[64], devices[MAX_PORTS][512];
    char *arguments[16 + MAX_PORTS] = {"mswitch-swx"};
    int count = 1;
    snprintf(cores, sizeof cores, "--lcores=0@%u,1@%u", options->main_cpu, options->cpu);
    snprintf(prefix, sizeof prefix, "--file-prefix=swx%d", (int)getpid());
    arguments[count++] = cores;
    arguments[count++] = "--main-lcore=0";
    arguments[count++] = prefix;
    arguments[count++] = "--no-pci";
    arguments[count++] = "--in-memory";
    arguments[count++] = "--no-telemetry";
    arguments[count++] = "--log-level=lib.eal:warning";
    for (unsigned port = 0; port < options->port_count; port++) {
        snprintf(devices[port], sizeof devices[port],
                 "--vdev=net_memif%u,role=server,id=0,rsize=11,socket=%s,socket-abstract=no", port,
                 options->ports[port]);
        arguments[count++] = devices[port];
    }
    if (rte_eal_init(count, arguments) < 0)
        fail("DPDK does not start: %s", rte_strerror(rte_errno));
}

static void start_port(const char *name, unsigned queues, struct rte_mempool *pool) {
    struct rte_eth_conf conf = {0};
    uint16_t id;
    if (rte_eth_dev_get_port_by_name(name, &id) != 0)
        fail("%s: no such device", name);
    int status = rte_eth_dev_configure(id, (uint16_t)queues, (uint16_t)queues, &conf);
    for (uint16_t queue = 0; status == 0 && queue < queues; queue++) {
        status = rte_eth_rx_queue_setup(id, queue, RING, SOCKET_ID_ANY, NULL, pool);
        if (status == 0)
            status = rte_eth_tx_queue_setup(id, queue, RING, SOCKET_ID_ANY, NULL);
    }
    if (status == 0)
        status = rte_eth_dev_start(id);
    if (status != 0)
        fail("%s does not start: %s", name, rte_strerror(-status));
}

// Builds the pipeline: all queues of the first port are its inputs, the first queue of each port its outputs.
static struct rte_swx_pipeline *build(const struct options *options) {
    char ports[4096];
    size_t used = (size_t)snprintf(ports, sizeof ports, "mirroring slots 4 sessions 64\n");
    for (unsigned queue = 0; queue < options->queues; queue++)
        used += (size_t)snprintf(ports + used, sizeof ports - used, "port in %u ethdev net_memif0 rxq %u bsz %d\n",
                                 queue, queue, BURST);
    for (unsigned port = 0; port < options->port_count; port++)
        used += (size_t)snprintf(ports + used, sizeof ports - used, "port out %u ethdev net_memif%u txq 0 bsz %d\n",
                                 port, port, BURST);
    FILE *file = fmemopen(ports, used, "r");
    struct rte_swx_pipeline *pipeline = NULL;
    int status = file ? rte_swx_pipeline_build_from_lib(&pipeline, "switch", options->library, file, 0) : -errno;
    if (status != 0)
        fail("%s: no pipeline can be built: %s", options->library, strerror(-status));
    fclose(file);
    return pipeline;
}

// Adds the entries of a file, a line each; returns their number.
static uint64_t fill(struct rte_swx_ctl_pipeline *control, const char *argument) {
    char name[RTE_SWX_CTL_NAME_SIZE] = "", line[1024];
    const char *path = strchr(argument, '=');
    if (!path || (size_t)(path - argument) >= sizeof name)
        fail("--table %s: expected NAME=FILE", argument);
    memcpy(name, argument, (size_t)(path - argument));
    FILE *file = open_file(++path, "r");
    uint64_t count = 0;
    while (fgets(line, sizeof line, file)) {
        int is_blank = 0;
        struct rte_swx_table_entry *entry = rte_swx_ctl_pipeline_table_entry_read(control, name, line, &is_blank);
        if (!entry && is_blank)
            continue;
        if (!entry || rte_swx_ctl_pipeline_table_entry_add(control, name, entry) != 0)
            fail("%s: no entry of table %s: %s", path, name, line);
        count++;
    }
    fclose(file);
    return count;
}

// Runs the pipeline. Time counts as busy in which packets arrived.
static int loop(void *argument) {
    struct rte_swx_pipeline *pipeline = argument;
    struct rte_swx_ctl_pipeline_info info;
    uint64_t seen = 0, busy = 0, start = rte_rdtsc(), before = start;
    rte_swx_ctl_pipeline_info_get(pipeline, &info);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint64_t packets = 0, empty = 0, sent = 0, dropped = 0;
        rte_swx_pipeline_run(pipeline, STEPS);
        for (uint32_t port = 0; port < info.n_ports_in; port++) {
            struct rte_swx_port_in_stats in;
            rte_swx_ctl_pipeline_port_in_stats_read(pipeline, port, &in);
            packets += in.n_pkts;
            empty += in.n_empty;
        }
        // The last packets before a pause would wait for more.
        if (packets == seen)
            rte_swx_pipeline_flush(pipeline);
        for (uint32_t port = 0; port < info.n_ports_out; port++) {
            struct rte_swx_port_out_stats out;
            rte_swx_ctl_pipeline_port_out_stats_read(pipeline, port, &out);
            sent += out.n_pkts;
            dropped += out.n_pkts_drop;
        }
        uint64_t now = rte_rdtsc();
        busy += packets == seen ? 0 : now - before;
        seen = packets;
        before = now;
        atomic_store_explicit(&totals.packets, packets, memory_order_relaxed);
        atomic_store_explicit(&totals.empty, empty, memory_order_relaxed);
        atomic_store_explicit(&totals.sent, sent, memory_order_relaxed);
        atomic_store_explicit(&totals.dropped, dropped, memory_order_relaxed);
        atomic_store_explicit(&totals.busy_cycles, busy, memory_order_relaxed);
        atomic_store_explicit(&totals.elapsed_cycles, now - start, memory_order_relaxed);
    }
    return 0;
}

static void tell(void) {
    printf("{\"packets\":%" PRIu64 ",\"empty_polls\":%" PRIu64 ",\"sent\":%" PRIu64 ",\"dropped\":%" PRIu64
           ",\"busy_cycles\":%" PRIu64 ",\"elapsed_cycles\":%" PRIu64 ",\"hz\":%" PRIu64 "}\n",
           totals.packets, totals.empty, totals.sent, totals.dropped, totals.busy_cycles, totals.elapsed_cycles,
           rte_get_tsc_hz());
    fflush(stdout);
}

static void run(const struct options *options) {
    start_dpdk(options);
    struct rte_mempool *pool =
        rte_pktmbuf_pool_create("packets", BUFFERS, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    if (!pool)
        fail("no memory for packets: %s", rte_strerror(rte_errno));
    for (unsigned port = 0; port < options->port_count; port++) {
        char name[32];
        snprintf(name, sizeof name, "net_memif%u", port);
        start_port(name, options->queues, pool);
    }
    struct rte_swx_pipeline *pipeline = build(options);
    struct rte_swx_ctl_pipeline *control = rte_swx_ctl_pipeline_create(pipeline);
    if (!control)
        fail("the pipeline's tables cannot be controlled");
    uint64_t entries = 0, begin = rte_rdtsc();
    for (unsigned table = 0; table < options->table_count; table++)
        entries += fill(control, options->tables[table]);
    if (rte_swx_ctl_pipeline_commit(control, 1) != 0)
        fail("the entries cannot be committed");
    fprintf(stderr, "%" PRIu64 " entries in %.3f s\n", entries,
            (double)(rte_rdtsc() - begin) / (double)rte_get_tsc_hz());
    rte_eal_remote_launch(loop, pipeline, 1);
    char line[64];
    while (fgets(line, sizeof line, stdin))
        tell();
    atomic_store(&stop, true);
    rte_eal_wait_lcore(1);
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "codegen")) {
        codegen(argv[2], argv[3]);
        return 0;
    }
    if (argc < 2 || strcmp(argv[1], "run") != 0)
        usage();
    struct options options;
    read_options(&options, argc - 1, argv + 1);
    run(&options);
    return 0;
}
