// SPDX-License-Identifier: Apache-2.0
//
// rules.h: 5-tuples of a rule file, one a rule.
//
// Format of ClassBench's filter sets, a rule a line; empty lines and lines that start with `#` are skipped:
//
//     @198.18.0.0/16 10.0.0.0/8 0 : 65535 80 : 80 0x06/0xFF
//
// source and destination prefix, range of source and destination ports, protocol and its mask; what follows is ignored.
#pragma once

#include <stddef.h>

#include "packet.h"

// Most rules of a file.
enum { MAX_RULES = 1 << 20 };

// Reads a file: `*tuples` (for the caller to free) gets one 5-tuple that matches each rule. What a rule leaves open is
// chosen by `seed` and the rule's number. Returns the number of rules; -1 with the reason in `error`.
long rules_read(const char *path, uint64_t seed, struct five_tuple **tuples, char *error, size_t error_size);
