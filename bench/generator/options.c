// SPDX-License-Identifier: Apache-2.0
//
// options.c: reads and checks the command line.

#include "options.h"

#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

static const char HELP[] =
    "Sends packets through a switch, receives them, and reports rates, loss, order and round-trip times.\n"
    "\n"
    "Usage: mswitch-generator MODE --port PORT... [OPTION]...\n"
    "\n"
    "Modes:\n"
    "  send       send in each direction, and receive at all ports\n"
    "  receive    only receive\n"
    "  reflect    return each packet to its port, with the MAC addresses swapped\n"
    "  vnf        forward between ports 0 and 1, 2 and 3..., with the MAC addresses swapped\n"
    "  ceiling    send between two ports of this process, without a switch: the generator's own limit\n"
    "\n"
    "Ports, numbered from 0; what follows a comma is handed to the driver:\n"
    "  --port memif:SOCKET[,id=N][,...]   client of a memif server\n"
    "  --port virtio-user:SOCKET[,...]    front-end of a vhost-user back-end\n"
    "  --port af_xdp:INTERFACE[,...]      AF_XDP socket\n"
    "  --port af_packet:INTERFACE[,...]   packet socket\n"
    "  --port tap:INTERFACE[,...]         TAP interface, made for the run\n"
    "  --port pci:ADDRESS[,...]           physical device\n"
    "  --port net_DRIVER0[,...]           any virtual device of DPDK\n"
    "  --queues N           queue pairs of each port, no more than a memif peer has; flows are spread over them (1)\n"
    "  --ring N             descriptors of each queue, a power of two (1024)\n"
    "  --direction A:B,...  sender and receiver (default: 0:1 and 1:0, 2:3 and 3:2...; with one port 0:0)\n"
    "  --one-way            of the default directions the first of each pair\n"
    "\n"
    "Packets:\n"
    "  --size SIZES         bytes without frame check sequence: 64, 64-1518, 64*7,1518, imix (64); reflect, vnf: the\n"
    "                       longest to forward (2048)\n"
    "  --headers KIND       udp, or ethernet for packets without IP (udp)\n"
    "  --flows N            flows of each direction (the number of MAC addresses)\n"
    "  --order ORDER        round-robin, uniform, zipf, zipf:EXPONENT (round-robin; zipf: 1)\n"
    "  --rules FILE         one flow for each rule of a file in ClassBench's format\n"
    "  --macs N             stations at each port; flow n goes from station n mod N to station n mod N (1)\n"
    "  --to MAC             destination address of all packets, instead of the receiving port's\n"
    "  --pcap FILE          packets of a capture file, one flow each, in their order\n"
    "  --seed N             seed of everything random (1)\n"
    "\n"
    "Load:\n"
    "  --rate RATE          each direction's packets per second (1M, 2.5e5), a share of the maximum (0.1%), or max "
    "(max)\n"
    "  --maximum PPS        that maximum; without this option it is measured first, for --trial seconds (2)\n"
    "  --seconds S          measured time (5; receive, reflect and vnf: until SIGINT or SIGTERM)\n"
    "  --warm-up S          time before it (0.5)\n"
    "  --burst N            most packets handed to a port at once (32)\n"
    "  --train N            packets of a paced direction are sent N back to back (1)\n"
    "  --in-flight N        most packets of a direction in flight: fewer than rings hold, and only the switch can "
    "lose\n"
    "                       packets, even if this program is paused (unlimited)\n"
    "  --sleep US           microseconds to sleep when no packet is due and none has arrived, so that the CPU has time "
    "for\n"
    "                       others; packets of a --rate leave in larger bursts then (0)\n"
    "\n"
    "Measurements:\n"
    "  --rtt                round-trip times, from time stamps in probes\n"
    "  --probes PPS         most probes per second and direction (10k)\n"
    "  --verify             check every byte of received packets\n"
    "  --announce yes|no    broadcast from each station first, so that switches learn where it is (yes)\n"
    "  --macs-swap yes|no   vnf: swap the MAC addresses (yes)\n"
    "  --run N|any          number of the measured run, 0 to 65535; receive: the first one seen (random; receive: "
    "any)\n"
    "\n"
    "Environment:\n"
    "  --cpu N              CPU to run on (any)\n"
    "  --huge auto|yes|no   huge pages (auto: where enough are free)\n"
    "  --connect S          time allowed for ports to connect (10)\n"
    "  --quiet              no line a second on standard error\n"
    "\n"
    "Prints one JSON object. Exit codes: 0 measured, 1 failed, 2 wrong usage.\n";

enum key {
    PORT = 256,
    QUEUES,
    RING,
    DIRECTION,
    ONE_WAY,
    SIZE,
    HEADERS,
    FLOWS,
    ORDER,
    RULES,
    MACS,
    TO,
    CAPTURE,
    SEED,
    RATE,
    MAXIMUM,
    SECONDS,
    WARM_UP,
    TRIAL,
    BURST,
    TRAIN,
    IN_FLIGHT,
    SLEEP,
    RTT,
    PROBES,
    VERIFY,
    ANNOUNCE,
    SWAP,
    RUN,
    CPU,
    HUGE_PAGES,
    CONNECT,
    QUIET,
    HELP_ASKED,
};

static const struct option OPTIONS[] = {
    {"port", required_argument, NULL, PORT},
    {"queues", required_argument, NULL, QUEUES},
    {"ring", required_argument, NULL, RING},
    {"direction", required_argument, NULL, DIRECTION},
    {"one-way", no_argument, NULL, ONE_WAY},
    {"size", required_argument, NULL, SIZE},
    {"headers", required_argument, NULL, HEADERS},
    {"flows", required_argument, NULL, FLOWS},
    {"order", required_argument, NULL, ORDER},
    {"rules", required_argument, NULL, RULES},
    {"macs", required_argument, NULL, MACS},
    {"to", required_argument, NULL, TO},
    {"pcap", required_argument, NULL, CAPTURE},
    {"seed", required_argument, NULL, SEED},
    {"rate", required_argument, NULL, RATE},
    {"maximum", required_argument, NULL, MAXIMUM},
    {"seconds", required_argument, NULL, SECONDS},
    {"warm-up", required_argument, NULL, WARM_UP},
    {"trial", required_argument, NULL, TRIAL},
    {"burst", required_argument, NULL, BURST},
    {"train", required_argument, NULL, TRAIN},
    {"in-flight", required_argument, NULL, IN_FLIGHT},
    {"sleep", required_argument, NULL, SLEEP},
    {"rtt", no_argument, NULL, RTT},
    {"probes", required_argument, NULL, PROBES},
    {"verify", no_argument, NULL, VERIFY},
    {"announce", required_argument, NULL, ANNOUNCE},
    {"macs-swap", required_argument, NULL, SWAP},
    {"run", required_argument, NULL, RUN},
    {"cpu", required_argument, NULL, CPU},
    {"huge", required_argument, NULL, HUGE_PAGES},
    {"connect", required_argument, NULL, CONNECT},
    {"quiet", no_argument, NULL, QUIET},
    {"help", no_argument, NULL, HELP_ASKED},
    {NULL, 0, NULL, 0},
};

__attribute__((noreturn, format(printf, 1, 2))) static void wrong(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "mswitch-generator: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n`mswitch-generator --help` lists all options.\n");
    va_end(arguments);
    exit(2);
}

// Reads a number with an optional k, M or G; returns false for other texts.
static bool number_of(const char *text, double *value) {
    static const char UNITS[] = "kMG";
    char *end;
    *value = strtod(text, &end);
    const char *unit = *end ? strchr(UNITS, *end) : NULL;
    if (unit) {
        *value *= pow(1000, (double)(unit - UNITS) + 1);
        end++;
    }
    return end != text && *end == 0 && isfinite(*value);
}

static double number(const char *option, const char *text, double least, double most) {
    double value;
    if (!number_of(text, &value) || value < least || value > most)
        wrong("--%s %s: expected a number from %g to %g", option, text, least, most);
    return value;
}

static unsigned whole(const char *option, const char *text, double least, double most) {
    double value = number(option, text, least, most);
    if (value != floor(value))
        wrong("--%s %s: expected a whole number from %g to %g", option, text, least, most);
    return (unsigned)value;
}

static bool yes_or_no(const char *option, const char *text) {
    if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
        wrong("--%s %s: expected yes or no", option, text);
    return text[0] == 'y';
}

static void set_mode(struct options *options, const char *text) {
    static const char *const MODES[] = {"send", "receive", "reflect", "vnf", "ceiling"};
    for (unsigned mode = 0; mode < sizeof MODES / sizeof *MODES; mode++) {
        if (!strcmp(text, MODES[mode])) {
            options->mode = (enum mode)mode;
            options->mode_name = MODES[mode];
            return;
        }
    }
    wrong("unknown mode `%s`, expected send, receive, reflect, vnf or ceiling", text);
}

static void set_directions(struct options *options, const char *text) {
    unsigned from, to;
    int used = 0;
    for (const char *at = text; *at; at += used + (at[used] == ',')) {
        used = 0;
        if (sscanf(at, "%2u:%2u%n", &from, &to, &used) != 2 || (at[used] && at[used] != ','))
            wrong("--direction %s: expected ports as in 0:1,1:0", text);
        if (options->direction_count == MAX_DIRECTIONS)
            wrong("--direction %s: more than %d directions", text, MAX_DIRECTIONS);
        // Checked against the number of ports when that is known.
        options->directions[options->direction_count][0] = (uint8_t)from;
        options->directions[options->direction_count++][1] = (uint8_t)to;
    }
}

static void set_order(struct options *options, const char *text) {
    if (!strcmp(text, "round-robin")) {
        options->order = ORDER_ROUND_ROBIN;
    } else if (!strcmp(text, "uniform")) {
        options->order = ORDER_UNIFORM;
    } else if (!strncmp(text, "zipf", 4) && (!text[4] || text[4] == ':')) {
        options->order = ORDER_ZIPF;
        options->exponent = 1;
        if (text[4] && (!number_of(text + 5, &options->exponent) || options->exponent < 0 || options->exponent > 10))
            wrong("--order %s: expected an exponent from 0 to 10", text);
    } else {
        wrong("--order %s: expected round-robin, uniform, zipf or zipf:EXPONENT", text);
    }
}

static void set_rate(struct options *options, const char *text) {
    char digits[32];
    size_t length = strlen(text);
    options->rate = RATE_PPS;
    if (!strcmp(text, "max")) {
        options->rate = RATE_MAX;
    } else if (length > 0 && length < sizeof digits && text[length - 1] == '%') {
        memcpy(digits, text, length - 1);
        digits[length - 1] = 0;
        options->rate = RATE_SHARE;
        if (!number_of(digits, &options->rate_value) || options->rate_value < 0.1 || options->rate_value > 100)
            wrong("--rate %s: expected a share from 0.1%% to 100%%", text);
        options->rate_value /= 100;
    } else if (!number_of(text, &options->rate_value) || options->rate_value <= 0 || options->rate_value > 1e9) {
        wrong("--rate %s: expected packets per second above 0, a share such as 50%%, or max", text);
    }
}

static void set_to(struct options *options, const char *text) {
    unsigned byte[6];
    int used = 0;
    if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%n", &byte[0], &byte[1], &byte[2], &byte[3], &byte[4], &byte[5], &used) !=
            6 ||
        text[used])
        wrong("--to %s: expected an address such as 02:00:00:00:00:01", text);
    options->to_mac = 0;
    for (unsigned index = 0; index < 6; index++)
        options->to_mac = options->to_mac << 8 | byte[index];
}

static void set_huge(struct options *options, const char *text) {
    if (!strcmp(text, "auto"))
        options->huge = HUGE_AUTO;
    else
        options->huge = yes_or_no("huge", text) ? HUGE_YES : HUGE_NO;
}

static void set_cpu(struct options *options, const char *text) {
    cpu_set_t allowed;
    options->cpu = (int)whole("cpu", text, 0, CPU_SETSIZE - 1);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && !CPU_ISSET((unsigned)options->cpu, &allowed))
        wrong("--cpu %s: this program may not run on that CPU, or there is none", text);
}

static void set(struct options *options, int option, const char *text) {
    switch (option) {
    case PORT:
        if (options->port_count == MAX_PORTS)
            wrong("--port %s: more than %d ports", text, MAX_PORTS);
        options->ports[options->port_count++] = text;
        break;
    case QUEUES:
        options->queues = whole("queues", text, 1, MAX_QUEUES);
        break;
    case RING:
        options->ring = whole("ring", text, 32, 16384);
        if (options->ring & (options->ring - 1))
            wrong("--ring %s: expected a power of two", text);
        break;
    case DIRECTION:
        set_directions(options, text);
        break;
    case ONE_WAY:
        options->one_way = true;
        break;
    case SIZE:
        options->size = text;
        if (!sizes_parse(&options->sizes, text, MIN_LEN, MAX_PACKET))
            wrong("--size %s: expected lengths or ranges from %d to %d, such as 64*7,1500-1518, or imix", text, MIN_LEN,
                  MAX_PACKET);
        break;
    case HEADERS:
        options->ip = !strcmp(text, "udp");
        if (!options->ip && strcmp(text, "ethernet") != 0)
            wrong("--headers %s: expected udp or ethernet", text);
        break;
    case FLOWS:
        options->flows = whole("flows", text, 1, MAX_FLOWS);
        break;
    case ORDER:
        set_order(options, text);
        break;
    case RULES:
        options->rules = text;
        break;
    case MACS:
        options->macs = whole("macs", text, 1, MAX_MACS);
        options->macs_given = true;
        break;
    case TO:
        set_to(options, text);
        break;
    case CAPTURE:
        options->capture = text;
        break;
    case SEED:
        options->seed = whole("seed", text, 0, UINT32_MAX);
        break;
    case RATE:
        set_rate(options, text);
        break;
    case MAXIMUM:
        options->maximum = number("maximum", text, 1, 1e9);
        break;
    case SECONDS:
        options->seconds = number("seconds", text, 0.01, 1e6);
        break;
    case WARM_UP:
        options->warm_up = number("warm-up", text, 0, 1e3);
        break;
    case TRIAL:
        options->trial = number("trial", text, 0.1, 1e3);
        break;
    case BURST:
        options->burst = whole("burst", text, 1, MAX_BURST);
        break;
    case TRAIN:
        options->train = whole("train", text, 1, MAX_BURST);
        break;
    case IN_FLIGHT:
        options->in_flight = whole("in-flight", text, 1, 1e6);
        break;
    case SLEEP:
        options->sleep = whole("sleep", text, 0, 1000);
        break;
    case RTT:
        options->rtt = true;
        break;
    case PROBES:
        options->probes = number("probes", text, 1, 1e9);
        break;
    case VERIFY:
        options->verify = true;
        break;
    case ANNOUNCE:
        options->announce = yes_or_no("announce", text);
        break;
    case SWAP:
        options->swap = yes_or_no("macs-swap", text);
        break;
    case RUN:
        options->run = strcmp(text, "any") != 0 ? (int)whole("run", text, 0, UINT16_MAX) : -1;
        break;
    case CPU:
        set_cpu(options, text);
        break;
    case HUGE_PAGES:
        set_huge(options, text);
        break;
    case CONNECT:
        options->connect_limit = number("connect", text, 0, 1e5);
        break;
    case QUIET:
        options->quiet = true;
        break;
    case HELP_ASKED:
        fputs(HELP, stdout);
        exit(0);
    default:
        wrong("unknown option");
    }
}

// Sends between neighbours both ways, or to the only port.
static void default_directions(struct options *options) {
    if (options->port_count == 1) {
        options->direction_count = 1;
        return;
    }
    if (options->port_count % 2)
        wrong("--port: %u ports cannot be paired, expected an even number or --direction", options->port_count);
    for (unsigned from = 0; from < options->port_count; from++) {
        if (options->one_way && from % 2)
            continue;
        options->directions[options->direction_count][0] = (uint8_t)from;
        options->directions[options->direction_count++][1] = (uint8_t)(from ^ 1);
    }
}

// A number that the runs of other generators on the same switch are not likely to have.
static int random_run(void) {
    uint16_t run = 0;
    if (getrandom(&run, sizeof run, 0) != sizeof run)
        run = (uint16_t)getpid();
    return run;
}

static void check(struct options *options) {
    enum mode mode = options->mode;
    if (mode == MODE_CEILING) {
        if (options->port_count)
            wrong("--port: ceiling makes its own ports");
        options->port_count = 2;
    }
    if (options->port_count == 0)
        wrong("--port is missing");
    if (mode == MODE_VNF && options->port_count % 2)
        wrong("--port: vnf needs an even number of ports, found %u", options->port_count);
    if (options->direction_count && options->one_way)
        wrong("--one-way selects from the default directions, and --direction names others");
    if (options->direction_count == 0 && (mode == MODE_SEND || mode == MODE_CEILING))
        default_directions(options);
    for (unsigned index = 0; index < options->direction_count; index++) {
        const uint8_t *direction = options->directions[index];
        if (direction[0] >= options->port_count || direction[1] >= options->port_count)
            wrong("--direction %u:%u: there are %u ports, numbered from 0", direction[0], direction[1],
                  options->port_count);
    }
    if (options->queues > 1 && mode != MODE_CEILING) {
        for (unsigned port = 0; port < options->port_count; port++)
            if (strstr(options->ports[port], "memif") && strstr(options->ports[port], "role=server"))
                wrong("--queues %u: a memif server has one queue, as its client decides how many there are",
                      options->queues);
    }
    if (mode == MODE_RECEIVE) {
        if (options->rtt)
            wrong("--rtt: only the sender of probes measures their times");
        if (options->direction_count)
            wrong("--direction: nothing is sent in the mode receive");
        if (options->port_count > 1)
            wrong("--port: receive takes one port");
        // Packets of any flow and sender count as this direction's.
        options->direction_count = 1;
    }
    if (options->rules && options->capture)
        wrong("--rules and --pcap both say what packets contain");
    if ((options->rules || options->capture) && options->flows)
        wrong("--flows: the file says how many flows there are");
    if (options->rules && !options->ip)
        wrong("--rules needs packets with IP, not --headers ethernet");
    if (options->capture && (options->size || !options->ip))
        wrong("--size and --headers: the packets of --pcap have theirs");
    if (options->capture && options->verify)
        wrong("--verify: the content of --pcap's packets is not checked");
    if (options->rate != RATE_SHARE && options->maximum > 0)
        wrong("--maximum belongs to a --rate in percent");
    if (options->sleep && (mode != MODE_SEND || options->rate == RATE_MAX))
        wrong("--sleep %u needs the mode send and a --rate such as 1M: nothing sleeps at full speed", options->sleep);
    if (options->sleep && options->rtt)
        wrong("--sleep %u: times of --rtt would contain the sleep; leave one of them out", options->sleep);
    if (options->train > options->burst)
        wrong("--train %u: longer than --burst %u", options->train, options->burst);
    if (options->in_flight && options->in_flight < options->train)
        wrong("--in-flight %u: fewer than --train %u", options->in_flight, options->train);
    if (options->run < 0 && mode != MODE_RECEIVE)
        options->run = random_run();
    if (!options->size)
        sizes_parse(&options->sizes, "64", MIN_LEN, MAX_PACKET);
    unsigned least = (options->ip ? UDP_STAMP_AT : ETHERNET_LEN) + STAMP_LEN + (options->rtt ? TIME_LEN : 0u);
    if (!options->capture && options->sizes.least < least)
        wrong("--size %s: probes of --rtt have at least %u bytes", options->size ? options->size : "64", least);
    if (!options->flows)
        options->flows = options->macs;
    // Without a time, `receive` and the forwarders run until they are stopped.
    if (options->seconds == 0 && (mode == MODE_SEND || mode == MODE_CEILING))
        options->seconds = 5;
}

void options_parse(struct options *options, int argc, char **argv) {
    *options = (struct options){
        .cpu = -1,
        .queues = 1,
        .ring = 1024,
        .macs = 1,
        .ip = true,
        .warm_up = 0.5,
        .trial = 2,
        .connect_limit = 10,
        .burst = 32,
        .train = 1,
        .probes = 10e3,
        .announce = true,
        .swap = true,
        .run = -1,
        .seed = 1,
    };
    int option;
    // The name in getopt's messages.
    argv[0] = "mswitch-generator";
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        if (option == '?')
            exit(2);
        set(options, option, optarg);
    }
    if (optind + 1 != argc)
        wrong(optind == argc ? "the mode is missing: send, receive, reflect, vnf or ceiling" : "one mode is expected");
    set_mode(options, argv[optind]);
    check(options);
}
