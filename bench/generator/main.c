// SPDX-License-Identifier: Apache-2.0
//
// main.c: mswitch-generator. See `mswitch-generator --help` and docs/benchmarks.md.

#include <rte_cycles.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "forward.h"
#include "options.h"
#include "report.h"
#include "traffic.h"

// Bytes of a ceiling's folder, its socket's path (that of struct sockaddr_un) and the names of its ports.
enum { PATH = 108, FOLDER = PATH - sizeof "/./socket", NAME = PATH + 32 };

static volatile bool stop;

static void on_signal(int signal) {
    (void)signal;
    stop = true;
}

static void handle_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    // A closed standard error does not end a run.
    signal(SIGPIPE, SIG_IGN);
}

// Joins two ports of this process by a socket in a new folder of TMPDIR, or of /tmp. They name it in two ways, because
// DPDK refuses one name for both ends.
static bool ceiling_ports(struct options *options, char folder[FOLDER], char socket[PATH], char ports[2][NAME]) {
    const char *parent = getenv("TMPDIR");
    int length = snprintf(folder, FOLDER, "%s/mswitch-generator-XXXXXX", parent && *parent ? parent : "/tmp");
    if (length < 0 || length >= FOLDER) {
        fprintf(stderr, "mswitch-generator: TMPDIR: the path is too long for a socket\n");
        return false;
    }
    if (!mkdtemp(folder)) {
        perror("mswitch-generator: no temporary folder");
        return false;
    }
    snprintf(socket, PATH, "%s/socket", folder);
    snprintf(ports[0], NAME, "memif:%s/socket,role=server", folder);
    snprintf(ports[1], NAME, "memif:%s/./socket", folder);
    for (unsigned port = 0; port < 2; port++)
        options->ports[port] = ports[port];
    options->announce = false;
    return true;
}

// A run that a signal ends before there is traffic has failed: there is nothing to report.
static bool stopped_early(void) {
    fprintf(stderr, "mswitch-generator: stopped before there was traffic\n");
    return false;
}

static bool measure(struct traffic *traffic, struct ports *ports, const struct options *options) {
    if (!traffic_attach(traffic, ports))
        return false;
    bool addressed = !options->to_mac && (!options->capture || options->macs_given);
    bool good = !options->announce || !addressed || options->mode != MODE_SEND || traffic_announce(traffic);
    if (!good)
        return false;
    if (stop)
        return stopped_early();
    good = traffic_run(traffic);
    report_traffic(traffic, !good);
    return good;
}

int main(int argc, char **argv) {
    static struct options options;
    static struct traffic traffic;
    static struct ports ports;
    static struct forwarding forwarding;
    char folder[FOLDER], socket[PATH], ceiling[2][NAME];
    options_parse(&options, argc, argv);
    handle_signals();
    text_prepare();
    bool ends = options.mode == MODE_REFLECT || options.mode == MODE_VNF;
    bool good = ends || traffic_prepare(&traffic, &options, &stop);
    if (good && options.mode == MODE_CEILING)
        good = ceiling_ports(&options, folder, socket, ceiling);
    good = good && ports_open(&ports, &options, ends ? options.sizes.most : traffic_longest(&traffic)) &&
           (ports_connect(&ports, options.connect_limit, &stop) || stop);
    if (good && stop) {
        good = stopped_early();
    } else if (good && ends) {
        good = forward(&forwarding, &options, &ports, &stop);
        report_forwarding(&forwarding, &options, &ports);
    } else if (good) {
        good = measure(&traffic, &ports, &options);
    }
    if (fflush(stdout) || ferror(stdout)) {
        perror("mswitch-generator: the report cannot be written");
        good = false;
    }
    ports_close(&ports);
    if (options.mode == MODE_CEILING && options.ports[0]) {
        unlink(socket);
        rmdir(folder);
    }
    traffic_free(&traffic);
    return good ? 0 : 1;
}
