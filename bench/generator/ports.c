// SPDX-License-Identifier: Apache-2.0
//
// ports.c: starts DPDK with the arguments that this program needs, and makes a device for each port.

#include "ports.h"

#include <errno.h>
#include <rte_bus.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_log.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    // Memory in MiB for all but packets: with huge pages, and without them.
    HUGE_BASE = 156,
    COMMON_BASE = 200,
    MAX_ARGUMENTS = 2 * MAX_PORTS + 16,
    // A list of all CPUs, as ranges.
    CPU_LIST_SIZE = 12 + 5 * CPU_SETSIZE,
    // Buffers that the driver of AF_XDP keeps of each queue, besides those in its two rings.
    AF_XDP_HELD = 2048,
    DEVICE_SIZE = 512,
    CACHE = 256,
    BUFFER = 2048,
};

static void complain(const char *name, const char *what, int error) {
    fprintf(stderr, "mswitch-generator: --port %s: %s%s%s\n", name, what, error ? ": " : "",
            error ? rte_strerror(error < 0 ? -error : error) : "");
}

// Bytes of a buffer behind DPDK's fields.
static unsigned buffer_room(unsigned longest) {
    // memif's drivers copy fastest where their buffers are as long as DPDK's.
    return RTE_PKTMBUF_HEADROOM + (longest > BUFFER ? longest : BUFFER);
}

// Buffers of each pool: those in flight here, and those that drivers keep, of received packets as well as of packets
// that are sent.
static unsigned buffer_count(const struct options *options) {
    unsigned count = MAX_BURST * (1 + options->direction_count) + 2 * CACHE + 2048;
    for (unsigned port = 0; port < options->port_count; port++) {
        const char *name = options->ports[port];
        bool af_xdp = name && (!strncmp(name, "af_xdp:", 7) || !strncmp(name, "net_af_xdp", 10));
        count += options->queues * (2 * options->ring + (af_xdp ? AF_XDP_HELD : 0));
    }
    return count;
}

// Memory in MiB for the packets of both pools, in pages of this size: no buffer that fits into one lies in two.
static long pools_size(const struct options *options, unsigned longest, uint64_t page) {
    uint64_t buffer = buffer_room(longest) + sizeof(struct rte_mbuf) + 3 * RTE_CACHE_LINE_SIZE;
    uint64_t of_page = page / buffer, count = 2 * buffer_count(options);
    uint64_t pages = of_page ? (count + of_page - 1) / of_page : count * ((buffer + page - 1) / page);
    return (long)((pages * page >> 20) + 1);
}

static long free_huge_pages(void) {
    long free_pages = 0;
    FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
    if (file) {
        if (fscanf(file, "%ld", &free_pages) != 1)
            free_pages = 0;
        fclose(file);
    }
    return free_pages;
}

// Appends to device arguments; returns their length, and DEVICE_SIZE or more if they do not fit.
static int add(char *out, int length, const char *format, unsigned value) {
    if (length < 0 || length >= DEVICE_SIZE)
        return DEVICE_SIZE;
    return length + snprintf(out + length, (size_t)(DEVICE_SIZE - length), format, value);
}

// Writes the device arguments of DPDK for a port's text; returns false if there is no such kind of port.
static bool device(const struct options *options, unsigned port, unsigned longest, char *out) {
    const char *text = options->ports[port], *colon = strchr(text, ':');
    const char *rest = strchr(text, ',') ? strchr(text, ',') : "";
    int kind = colon ? (int)(colon - text) : 0, name = colon ? (int)(strcspn(colon + 1, ",")) : 0;
    int length = -1;
    if (!strncmp(text, "net_", 4)) {
        length = snprintf(out, DEVICE_SIZE, "%s", text);
    } else if (colon && !strncmp(text, "memif:", 6)) {
        length = snprintf(out, DEVICE_SIZE, "net_memif%u,socket=%.*s,socket-abstract=no%s%s", port, name, colon + 1,
                          strstr(rest, ",role=") ? "" : ",role=client", rest);
        if (!strstr(rest, ",rsize="))
            length = add(out, length, ",rsize=%u", (unsigned)__builtin_ctz(options->ring));
        // The driver does not chain buffers reliably.
        if (longest > BUFFER && !strstr(rest, ",bsize="))
            length = add(out, length, ",bsize=%u", longest);
    } else if (colon && !strncmp(text, "virtio-user:", 12)) {
        length = snprintf(out, DEVICE_SIZE, "net_virtio_user%u,path=%.*s,queues=%u,queue_size=%u%s", port, name,
                          colon + 1, options->queues, options->ring, rest);
    } else if (colon && (!strncmp(text, "af_xdp:", 7) || !strncmp(text, "af_packet:", 10))) {
        length = snprintf(out, DEVICE_SIZE, "net_%.*s%u,iface=%.*s%s", kind, text, port, name, colon + 1, rest);
    } else if (colon && !strncmp(text, "tap:", 4)) {
        length = snprintf(out, DEVICE_SIZE, "net_tap%u,iface=%.*s%s", port, name, colon + 1, rest);
    } else if (colon && !strncmp(text, "pci:", 4)) {
        length = snprintf(out, DEVICE_SIZE, "%s", colon + 1);
    }
    return length > 0 && length < DEVICE_SIZE;
}

// Writes DPDK's argument for a thread on these CPUs.
static void cpu_list(const cpu_set_t *cpus, char out[CPU_LIST_SIZE]) {
    int length = snprintf(out, CPU_LIST_SIZE, "(0)@(");
    for (unsigned first = 0, last; first < CPU_SETSIZE; first = last + 1) {
        last = first;
        if (!CPU_ISSET(first, cpus))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
            last++;
        length += snprintf(out + length, (size_t)(CPU_LIST_SIZE - length), "%u-%u,", first, last);
    }
    // In place of the last comma.
    out[length - 1] = ')';
}

static bool start(const struct options *options, unsigned longest) {
    static char cpus[CPU_LIST_SIZE];
    char prefix[64], memory[16], *arguments[MAX_ARGUMENTS];
    int count = 0;
    bool pci = false, huge = options->huge == HUGE_YES;
    if (options->huge == HUGE_AUTO)
        huge = 2 * free_huge_pages() >= HUGE_BASE + pools_size(options, longest, RTE_PGSIZE_2M);
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        perror("mswitch-generator: no list of CPUs");
        return false;
    }
    if (options->cpu >= 0)
        snprintf(cpus, sizeof cpus, "0@%d", options->cpu);
    else
        cpu_list(&allowed, cpus);
    snprintf(memory, sizeof memory, "%ld", COMMON_BASE + pools_size(options, longest, RTE_PGSIZE_4K));
    snprintf(prefix, sizeof prefix, "mswitch-generator-%d", getpid());
    arguments[count++] = "mswitch-generator";
    arguments[count++] = "--lcores";
    arguments[count++] = cpus;
    arguments[count++] = "--log-level=4";
    arguments[count++] = "--no-telemetry";
    arguments[count++] = "--file-prefix";
    arguments[count++] = prefix;
    for (unsigned port = 0; port < options->port_count; port++) {
        if (!strncmp(options->ports[port], "pci:", 4)) {
            pci = true;
            arguments[count++] = "-a";
            arguments[count++] = (char *)(uintptr_t)(options->ports[port] + 4);
        }
    }
    if (!pci)
        arguments[count++] = "--no-pci";
    if (huge) {
        arguments[count++] = "--in-memory";
        arguments[count++] = "--single-file-segments";
    } else {
        arguments[count++] = "--no-huge";
        arguments[count++] = "--no-shconf";
        arguments[count++] = "-m";
        arguments[count++] = memory;
    }
    arguments[count] = NULL;
    if (rte_eal_init(count, arguments) >= 0)
        return true;
    fprintf(stderr, "mswitch-generator: DPDK does not start: %s\n", rte_strerror(rte_errno));
    return false;
}

static void fill(struct rte_mempool *pool, void *argument, void *object, unsigned index) {
    struct rte_mbuf *buffer = object;
    (void)argument;
    (void)index;
    memcpy((uint8_t *)buffer->buf_addr + RTE_PKTMBUF_HEADROOM, text_fixed(),
           rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM);
}

static bool pools(struct ports *ports, const struct options *options, unsigned longest) {
    unsigned room = buffer_room(longest), count = buffer_count(options);
    ports->receive = rte_pktmbuf_pool_create("receive", count, CACHE, 0, (uint16_t)room, SOCKET_ID_ANY);
    ports->send = rte_pktmbuf_pool_create("send", count, CACHE, 0, (uint16_t)room, SOCKET_ID_ANY);
    if (!ports->receive || !ports->send) {
        fprintf(stderr, "mswitch-generator: no memory for packets: %s; see --huge\n", rte_strerror(rte_errno));
        return false;
    }
    rte_mempool_obj_iter(ports->send, fill, NULL);
    return true;
}

static bool configure(struct ports *ports, const struct options *options, unsigned port, unsigned longest) {
    uint16_t id = ports->id[port];
    const char *name = ports->name[port];
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf = {0};
    int error = rte_eth_dev_info_get(id, &info);
    if (error == 0 && (options->queues > info.max_rx_queues || options->queues > info.max_tx_queues)) {
        fprintf(stderr, "mswitch-generator: --queues %u: port %s has at most %u\n", options->queues, name,
                RTE_MIN(info.max_rx_queues, info.max_tx_queues));
        return false;
    }
    // No fast release of buffers: announcements and packets come from two pools.
    conf.txmode.offloads = RTE_ETH_TX_OFFLOAD_MULTI_SEGS & info.tx_offload_capa;
    ports->unchained[port] = error == 0 && info.driver_name && strstr(info.driver_name, "memif");
    // Drivers that state a smaller limit have none, or refuse the packets when they are sent.
    if (longest > 1514 && info.max_mtu >= longest - ETHERNET_LEN && info.max_rx_pktlen >= longest + RTE_ETHER_CRC_LEN)
        conf.rxmode.mtu = longest - ETHERNET_LEN;
    if (error == 0)
        error = rte_eth_dev_configure(id, (uint16_t)options->queues, (uint16_t)options->queues, &conf);
    uint16_t receive_ring = (uint16_t)options->ring, send_ring = receive_ring;
    if (error == 0)
        error = rte_eth_dev_adjust_nb_rx_tx_desc(id, &receive_ring, &send_ring);
    for (uint16_t queue = 0; error == 0 && queue < options->queues; queue++) {
        error = rte_eth_rx_queue_setup(id, queue, receive_ring, SOCKET_ID_ANY, NULL, ports->receive);
        if (error == 0)
            error = rte_eth_tx_queue_setup(id, queue, send_ring, SOCKET_ID_ANY, NULL);
    }
    if (error == 0)
        error = rte_eth_dev_start(id);
    // Not every driver can, and those that cannot receive everything anyway.
    rte_eth_promiscuous_enable(id);
    if (error != 0)
        complain(name, "cannot be configured", error);
    return error == 0;
}

// Makes the port's device; returns false after a message.
static bool make(struct ports *ports, const struct options *options, unsigned port, unsigned longest) {
    char arguments[DEVICE_SIZE];
    if (!device(options, port, longest, arguments)) {
        complain(options->ports[port],
                 "expected memif:, virtio-user:, af_xdp:, af_packet:, tap:, pci: or a device of DPDK, net_...", 0);
        return false;
    }
    ports->name[port] = options->ports[port];
    // Physical devices exist since the start.
    int error = strncmp(options->ports[port], "pci:", 4) ? rte_dev_probe(arguments) : 0;
    arguments[strcspn(arguments, ",")] = 0;
    if (error == 0)
        error = rte_eth_dev_get_port_by_name(arguments, &ports->id[port]);
    if (error != 0)
        complain(options->ports[port], "no such device", error);
    else
        ports->count = port + 1;
    return error == 0;
}

bool ports_open(struct ports *ports, const struct options *options, unsigned longest) {
    ports->queues = options->queues;
    if (!start(options, longest) || !pools(ports, options, longest))
        return false;
    for (unsigned port = 0; port < options->port_count; port++)
        if (!make(ports, options, port, longest) || !configure(ports, options, port, longest))
            return false;
    return true;
}

int ports_down(const struct ports *ports) {
    for (unsigned port = 0; port < ports->count; port++) {
        struct rte_eth_link link = {0};
        // Some clients try to connect when they are asked.
        if (rte_eth_link_get_nowait(ports->id[port], &link) == 0 && link.link_status != RTE_ETH_LINK_UP)
            return (int)port;
    }
    return -1;
}

bool ports_connect(const struct ports *ports, double seconds, const volatile bool *stop) {
    double tries = seconds * 100;
    int down;
    while ((down = ports_down(ports)) >= 0 && !*stop && tries-- > 0)
        usleep(10000);
    if (down >= 0 && !*stop)
        fprintf(stderr, "mswitch-generator: --port %s: not connected after %g s\n", ports->name[down], seconds);
    return down < 0;
}

void ports_close(struct ports *ports) {
    // The memif driver reports errors when both ends of a connection in this process close.
    rte_log_set_global_level(RTE_LOG_EMERG);
    for (unsigned port = 0; port < ports->count; port++) {
        rte_eth_dev_stop(ports->id[port]);
        rte_eth_dev_close(ports->id[port]);
    }
    const char *folder = rte_eal_get_runtime_dir();
    // No rte_eal_cleanup(): it unmaps memory that DPDK's thread for interrupts still reads after a memif port is
    // closed. DPDK shares nothing with other processes here, and leaves this folder empty.
    if (folder[0])
        rmdir(folder);
}
