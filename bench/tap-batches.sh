#!/usr/bin/env bash
# tap-batches.sh: nanoseconds for a frame through a TAP interface, by the way to call the kernel: a read or writev a
# frame, as TAP ports do, or io_uring with batches. Rounds alternate; prints medians, and 10th and 90th percentiles.
#
#   bench/tap-batches.sh [ROUNDS]
#
# Needs root, Linux 6.7 and a C compiler. It uses a network namespace of its own.
set -euo pipefail
cd "$(dirname "$0")"

dir=$(mktemp -d) netns=tap-batches-$$
trap 'ip netns del "$netns" 2>/dev/null || true; rm -rf "$dir"' EXIT
"${CC:-cc}" -O2 -Wall -Wextra -o "$dir/tap-batches" tap-batches.c
ip netns add "$netns"
ip netns exec "$netns" "$dir/tap-batches" "$@"
