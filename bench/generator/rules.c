// SPDX-License-Identifier: Apache-2.0
//
// rules.c: reads rule files, and makes a packet's 5-tuple for each rule.

#include "rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "flows.h"

struct prefix {
    unsigned byte[4], length;
};

// A line without line break, which is longer than any rule.
enum { LINE_SIZE = 512 };

// Returns an address of the prefix; false if it is not valid.
static bool address(const struct prefix *prefix, uint64_t random, uint32_t *address) {
    uint32_t fixed = 0;
    for (unsigned byte = 0; byte < 4; byte++) {
        if (prefix->byte[byte] > 255)
            return false;
        fixed = fixed << 8 | prefix->byte[byte];
    }
    if (prefix->length > 32)
        return false;
    uint32_t mask = prefix->length ? ~UINT32_C(0) << (32 - prefix->length) : 0;
    *address = (fixed & mask) | ((uint32_t)random & ~mask);
    return true;
}

// Returns a port of the range; false if it is not valid.
static bool port(const unsigned range[2], uint64_t random, uint16_t *port) {
    if (range[0] > range[1] || range[1] > UINT16_MAX)
        return false;
    *port = (uint16_t)(range[0] + random_below((uint32_t)random, range[1] - range[0] + 1));
    return true;
}

// Reads one rule; returns NULL, or what is wrong.
static const char *rule(const char *line, uint64_t *random, struct five_tuple *tuple) {
    struct prefix from, to;
    unsigned from_ports[2], to_ports[2], protocol, mask;
    int fields = sscanf(line, "@%u.%u.%u.%u/%u %u.%u.%u.%u/%u %u : %u %u : %u %x/%x", &from.byte[0], &from.byte[1],
                        &from.byte[2], &from.byte[3], &from.length, &to.byte[0], &to.byte[1], &to.byte[2], &to.byte[3],
                        &to.length, &from_ports[0], &from_ports[1], &to_ports[0], &to_ports[1], &protocol, &mask);
    if (fields != 16)
        return "expected @ADDRESS/LENGTH ADDRESS/LENGTH PORT : PORT PORT : PORT 0xPROTOCOL/0xMASK";
    if (!address(&from, random_next(random), &tuple->source) || !address(&to, random_next(random), &tuple->destination))
        return "invalid prefix";
    if (!port(from_ports, random_next(random), &tuple->source_port) ||
        !port(to_ports, random_next(random), &tuple->destination_port))
        return "invalid range of ports";
    if (protocol > 0xff || (mask != 0 && mask != 0xff))
        return "invalid protocol, expected a mask of 0x00 or 0xFF";
    tuple->protocol = mask == 0 ? PROTOCOL_UDP : (uint8_t)protocol;
    return NULL;
}

long rules_read(const char *path, uint64_t seed, struct five_tuple **tuples, char *error, size_t error_size) {
    FILE *file = fopen(path, "r");
    if (!file) {
        snprintf(error, error_size, "%s: %s", path, strerror(errno));
        return -1;
    }
    long count = 0, room = 0, number = 0;
    const char *wrong = NULL;
    char line[LINE_SIZE];
    *tuples = NULL;
    while (!wrong && fgets(line, sizeof line, file)) {
        number++;
        if (!strchr(line, '\n') && !feof(file)) {
            wrong = "line too long";
        } else if (line[0] != '#' && line[strspn(line, " \t\r\n")]) {
            if (count == room) {
                room = room ? 2 * room : 1024;
                struct five_tuple *more = realloc(*tuples, (size_t)room * sizeof *more);
                if (!more) {
                    wrong = "out of memory";
                    continue;
                }
                *tuples = more;
            }
            wrong = count == MAX_RULES ? "more than 1048576 rules" : rule(line, &seed, &(*tuples)[count]);
            count += !wrong;
        }
    }
    if (wrong)
        snprintf(error, error_size, "%s, line %ld: %s", path, number, wrong);
    else if (ferror(file))
        snprintf(error, error_size, "%s: cannot be read", path);
    else if (count == 0)
        snprintf(error, error_size, "%s: no rules", path);
    bool failed = wrong || ferror(file) || count == 0;
    fclose(file);
    if (!failed)
        return count;
    free(*tuples);
    *tuples = NULL;
    return -1;
}
