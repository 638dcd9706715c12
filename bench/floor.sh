#!/bin/bash
# floor.sh: compares the switch with the minimal work of any switch and with Open vSwitch with DPDK; memif, interleaved
# rounds.
#
#   bench/floor.sh [--rounds N] [--seconds S] [--size BYTES] [--burst N] [--queues N] [--only NAME,NAME...] [--out FILE]
#
# Each round measures the floor (bench/src/bin/floor.rs: a bare loop that checks, learns and copies), mswitch with
# `static` and with `learning`, and Open vSwitch with its NORMAL action, under the load of bench/pairs.sh. Output: TSC
# cycles per packet, packets per batch and packets per second, and the ratios of cycles within each round; medians
# (lowest to highest). --only: any of floor, static, learning, ovs. --queues: queues per client, default 2; Open vSwitch
# requires 2.
#
# `--burst 8`: small batches. Each round measures the floor and `learning` (or the names of --only) under two loads:
# clients that send 64 packets at a time, which makes full batches, and clients that send 8 and have few in flight.
# Output: the ratio of cycles.
#
# MSWITCH and FLOOR name the binaries (default: target/release). Needs root, jq, dpdk-testpmd, openvswitch-switch-dpdk.
set -euo pipefail
# shellcheck source=bench/testbed.sh
. "$(dirname "$0")/testbed.sh"
rounds=9 seconds=2 small='' only='' out=''

while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --size) size=$2 ;;
    --burst) small=$2 ;;
    --queues) queues=$2 ;;
    --only) only=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done
if [ -n "$small" ]; then only=${only:-floor,learning} burst=64 bursts=12; fi
IFS=, read -r -a names <<<"${only:-floor,static,learning,ovs}"
for program in "$mswitch" "$floor"; do
  [ -x "$program" ] || fail "$program is missing: cargo build --release -p mswitch -p mswitch-bench"
done
set_up
usual_burst=$burst usual_bursts=$bursts

# measure NAME: writes a JSON object to $dir/run.
measure() {
  case $1 in
    floor) run_floor >"$dir/run" ;;
    static | learning) run_ours "$1" >"$dir/run" ;;
    ovs) run_ovs normal >"$dir/run" ;;
    *) usage ;;
  esac
  jq -e '(.flooded_share // 0) < 0.01' "$dir/run" >/dev/null || fail "$1 flooded packets: the round is not comparable: $(cat "$dir/run")"
}

# record ROUND NAME: measures, prints and appends to $dir/results.
record() {
  measure "$2"
  echo "  $2, bursts of $burst:"
  show_run "$(cat "$dir/run")"
  jq -c --arg name "$2" --argjson round "$1" --argjson burst "$burst" '{name: $name, round: $round, burst: $burst} + .' \
    "$dir/run" >>"$dir/results"
}

: >"$dir/results"
for round in $(seq "$rounds"); do
  echo "round $round of $rounds"
  for name in "${names[@]}"; do
    burst=$usual_burst bursts=$usual_bursts
    record "$round" "$name"
    if [ -n "$small" ]; then
      burst=$small bursts=1
      record "$round" "$name"
    fi
  done
done

jq -s --argjson size "$size" --argjson usual "$usual_burst" --argjson small "${small:-null}" "$jq_reports"'
  def cycles(name; burst): map(select(.name == name and .burst == burst)) | sort_by(.round) | map(.cycles_per_packet);
  def ratio(a; b): [a, b] | select(all(length > 0)) | transpose | map(.[0] / .[1]) | spread;
  . as $runs | {size: $size, runs: ., burst: $small,
    summary: (group_by([.name, .burst]) | map({name: .[0].name, burst: .[0].burst, rounds: length,
      cycles: (map(.cycles_per_packet) | spread), packets_per_batch: (map(.packets_per_batch) | spread), pps: (map(.pps) | spread)})),
    ratios: (
      [["learning", "floor"], ["static", "floor"], ["learning", "ovs"], ["floor", "ovs"]] | map(. as [$a, $b] | $runs |
        {name: "\($a)/\($b)", ratio: ratio(cycles($a; $usual); cycles($b; $usual))})),
    small_batches: (if $small then
      $runs | map(.name) | unique | map(. as $name | $runs |
        {name: "\($name), bursts of \($small)/bursts of \($usual)", ratio: ratio(cycles($name; $small); cycles($name; $usual))})
      else [] end)}' \
  "$dir/results" >"$dir/report.json"

echo
echo "$size B packets, memif, sum of both directions; median (lowest to highest) of $rounds rounds"
jq -r "$jq_reports"'
  (.summary[] | "  \(.name), bursts of \(.burst): \(.cycles | show(10)) cycles per packet, \(.packets_per_batch | show(10)) packets per batch, " +
    "\(.pps | map_values(. / 1e6) | show(100)) Mpps"),
  ((.ratios + .small_batches)[] | "  cycles, \(.name): \(.ratio | show(100))")' "$dir/report.json"
if [ -n "$out" ]; then cp "$dir/report.json" "$out"; fi
