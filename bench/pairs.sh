#!/bin/bash
# pairs.sh: mswitch against Open vSwitch with DPDK, memif to memif or vhost-user to vhost-user, in interleaved pairs.
#
#   bench/pairs.sh [--pairs N] [--seconds S] [--size BYTES] [--only learning|static|ovs] [--ports memif|vhost-user]
#                  [--packed 0|1] [--load testpmd|segments] [--buffer BYTES] [--database] [--out FILE]
#
# Each switch gets one thread on CPU 0. On CPU 1 dpdk-testpmd acts as both clients (vhost-user: virtio-user, one queue
# pair): it returns each packet from the other client with correct addresses, so that a learning switch learns and never
# floods. `learning` is paired with Open vSwitch's NORMAL action, `static` with flows from port to port. Per run:
# packets per second (sum of both directions) and TSC cycles per packet of the switching thread. Switches and clients
# run at the highest common priority, so that other programs on the machine disturb them little; still, on a shared
# machine only ratios within one pair are meaningful.
#
# `--load segments` (vhost-user, `--only static`): bench's own client sends TCP packets of 64 KiB with offload metadata
# from one device to the other. Per gigabyte: CPU time of the switch's process, and the cycles that its thread spends on
# packets (without empty polling, most of the time of Open vSwitch's thread). `--buffer`: size of a receive buffer in
# bytes, by default enough for a packet; with smaller ones a packet takes several.
#
# `--database`: a third run per pair, mswitch in the place of Open vSwitch's daemon, configured by the same ovs-vsctl
# commands (memif: by the same but for the type of the ports); and flows from port to port on mswitch, too, in place of
# `static`. `door`: its figures over those of mswitch configured by its file.
#
# MSWITCH names the binary (default: target/release/mswitch). Needs root, jq, dpdk-testpmd, openvswitch-switch-dpdk.
# Huge pages are set up, and returned at the end, as is everything else.
set -euo pipefail

# shellcheck source=bench/testbed.sh
. "$(dirname "$0")/testbed.sh"
pairs=5 only='' out='' database=''

while [ $# -gt 0 ]; do
  if [ "$1" = --database ]; then
    database=yes
    shift
    continue
  fi
  [ $# -ge 2 ] || usage
  case $1 in
    --pairs) pairs=$2 ;;
    --seconds) seconds=$2 ;;
    --size) size=$2 ;;
    --only) only=$2 ;;
    --ports) ports=$2 ;;
    --packed) packed=$2 ;;
    --load) load=$2 ;;
    --buffer) buffer=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done

case $load in
  testpmd) ;;
  segments)
    if [ "$ports" != vhost-user ] || [ "$only" != static ]; then
      fail "--load segments needs vhost-user ports and flows from port to port: add --ports vhost-user --only static"
    fi
    size=65214
    ;;
  *) usage ;;
esac

[ "$load" = testpmd ] || [ -x "$segments" ] || fail "$segments is missing: cargo build --release -p mswitch-bench"
[ "$only" = ovs ] || [ -x "$mswitch" ] || fail "$mswitch is missing: cargo build --release, or name it in MSWITCH"
set_up

# compare NAME OURS THEIRS: appends to $dir/results.
compare() {
  local number a b c
  for number in $(seq "$pairs"); do
    echo "$1 against Open vSwitch's $2, pair $number of $pairs"
    run_ours "$1" >"$dir/a"
    a=$(cat "$dir/a")
    echo "  mswitch:"; show_run "$a"
    jq -ne --argjson a "$a" '$a.flooded_share < 0.01' >/dev/null ||
      fail "mswitch flooded $(jq -n --argjson a "$a" '$a.flooded_share * 100') % of the packets: the pair is not comparable"
    run_ovs "$2" >"$dir/b"
    b=$(cat "$dir/b")
    c=null
    if [ -n "$database" ]; then
      run_database "$2" >"$dir/c"
      c=$(cat "$dir/c")
      echo "  mswitch in Open vSwitch's place:"; show_run "$c"
    fi
    echo "  Open vSwitch:"; show_run "$b"
    jq -nc --arg name "$1" --argjson a "$a" --argjson b "$b" --argjson c "$c" \
      '{name: $name, mswitch: $a, ovs: $b, ratio: ($a.pps / $b.pps)} + (if $c then {database: $c} else {} end)' >>"$dir/results"
  done
}

: >"$dir/results"
flows=static
if [ -n "$database" ]; then flows=flows; fi
case $only in
  '') compare learning normal; compare "$flows" flows ;;
  learning) compare learning normal ;;
  static) compare "$flows" flows ;;
  ovs)
    for mode in normal flows; do
      for number in $(seq "$pairs"); do
        run_ovs "$mode" >"$dir/b"
        echo "Open vSwitch, $mode, run $number of $pairs:"; show_run "$(cat "$dir/b")"
        jq -c --arg name "$mode" '{name: $name, ovs: .}' "$dir/b" >>"$dir/results"
      done
    done ;;
  *) usage ;;
esac

jq -s --argjson size "$size" "$jq_reports"'
  {size: $size, runs: ., summary: (group_by(.name) | map({name: .[0].name, pairs: length} +
    (if .[0].mswitch then {
      mswitch_batch: (map(.mswitch.packets_per_batch) | spread),
      mswitch_pps: (map(.mswitch.pps) | spread), mswitch_cycles: (map(.mswitch.cycles_per_packet) | spread),
      cpu_ratio: (if .[0].mswitch.cpu_seconds_per_gb then
        map(.mswitch.cpu_seconds_per_gb / .ovs.cpu_seconds_per_gb) | spread else null end),
      cycles_ratio: (map(.mswitch.cycles_per_packet / .ovs.cycles_per_packet) | spread),
      door: (if .[0].database then {
        pps: (map(.database.pps / .mswitch.pps) | spread),
        cycles: (map(.database.cycles_per_packet / .mswitch.cycles_per_packet) | spread)} else null end),
      flooded_share_max: (map(.mswitch.flooded_share) | max), ratio: (map(.ratio) | spread)} else {} end) +
    {ovs_pps: (map(.ovs.pps) | spread), ovs_batch: (map(.ovs.packets_per_batch) | spread), ovs_cycles: (map(.ovs.cycles_per_packet) | spread)}))}' \
  "$dir/results" >"$dir/report.json"

echo
echo "$size B packets, $ports, sum of both directions; median (lowest to highest) of $pairs"
jq -r "$jq_reports"'
  def mpps: map_values(. / 1e6) | show(100);
  def cycles: show(10);
  def ratio: show(100);
  .summary[] | "  \(.name):",
    (if .mswitch_pps then
      "    mswitch       \(.mswitch_pps | mpps) Mpps, \(.mswitch_cycles | cycles) cycles per packet, \(.mswitch_batch | cycles) packets per batch; flooded at most \(.flooded_share_max * 100) %"
     else empty end),
    "    Open vSwitch  \(.ovs_pps | mpps) Mpps, \(.ovs_cycles | cycles) cycles per packet, \(.ovs_batch | cycles) packets per batch",
    (if .ratio then "    ratio         \(.ratio | ratio), of cycles \(.cycles_ratio | ratio)" else empty end),
    (if .door then "    door          \(.door.pps | show(1000)), of cycles \(.door.cycles | show(1000))" else empty end),
    (if .cpu_ratio then "    CPU time      \(.cpu_ratio | ratio) of Open vSwitch\u0027s per gigabyte" else empty end)' "$dir/report.json"
if [ -n "$out" ]; then cp "$dir/report.json" "$out"; fi
