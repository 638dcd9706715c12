// SPDX-License-Identifier: Apache-2.0
//
// report.h: the result, as one JSON object on standard output. Where names are those of the verifying client's report,
// so are the meanings (bench/src/report.rs).
#pragma once

#include "forward.h"
#include "traffic.h"

// `failed`: the run ended early, by itself.
void report_traffic(const struct traffic *traffic, bool failed);
void report_forwarding(const struct forwarding *forwarding, const struct options *options, const struct ports *ports);
