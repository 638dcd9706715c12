#!/usr/bin/env bash
# filters.sh: the cost of pcap-filter's machine code beside libpcap's interpreter: ten expressions, each alone and all
# in a list, interleaved in one process on one core. For each, prints nanoseconds per packet and the ratio of both.
#
#   bench/filters.sh [--rounds N] [--cpu N] [--branches]
#
# --branches: without the branchless form of short lists.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=501 cpu=1 branches=()
while (($#)); do
  case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --cpu) cpu=$2; shift 2 ;;
    --branches) branches=(--branches); shift ;;
    *) echo "usage: bench/filters.sh [--rounds N] [--cpu N] [--branches]" >&2; exit 2 ;;
  esac
done
cargo build --release --locked --quiet -p mswitch-bpf-jit --example filters
exec taskset -c "$cpu" "${CARGO_TARGET_DIR:-target}/release/examples/filters" "$rounds" "${branches[@]}"
