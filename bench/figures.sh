#!/bin/bash
# figures.sh: measures the figures of docs/benchmarks.md.
#
#   bench/figures.sh [--long|--quick] [--only STEP]... DIR
#
# Steps, in order, with reports in a folder each:
#   v2v       throughput and cycles between two ports, memif and vhost-user, beside Open vSwitch with DPDK
#   stations  the same between 10,000 stations at each port, in random order
#   chains    cycles per packet and hop through 1 to 5 functions
#   rtt       round-trip times and CPU time: single packets, 10 % and 50 % of the rate at saturation, idle
#   idle      CPU time and wake-ups with 1,024 connected clients
#   fabric    many destinations, idle ports, incast, large packets; batches, rings, ports on a core, logics
#   rules     OpenFlow rules: forwarding, exact matches, access lists, a pipeline, many masks, beside Open vSwitch
#   p4        one router as a P4 program, as OpenFlow's tables, and in DPDK's pipeline; writes of entries (only if named)
#   pairs     throughput and CPU time by number of ports (only with --long)
#   method    a switch that is a tenth slower is recognized, the same one is not (builds that switch)
#
# Takes about an hour without `method` and `p4`, half of it for `rules`, with --long some hours; --quick measures once and
# shortly, to see that all of it runs. Each step starts only what it needs, and returns huge pages and all else. A step
# that was interrupted continues with the same command. Nothing else should run meanwhile.
#
# MSWITCH, EXPERIMENTS and MEMIF_CHECK name the binaries (default: those in target/release). Needs root, jq,
# openvswitch-switch-dpdk, the generator.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}/release
export MSWITCH=${MSWITCH:-$target/mswitch} MEMIF_CHECK=${MEMIF_CHECK:-$target/memif-check}
experiments=${EXPERIMENTS:-$target/mswitch-experiments}
long='' quick='' only=() out=''

usage() {
  sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --long) long=yes ;;
    --quick) quick=yes ;;
    --only) [ $# -ge 2 ] || usage; only+=("$2"); shift ;;
    -*) usage ;;
    *) [ -z "$out" ] || usage; out=$1 ;;
  esac
  shift
done
[ -n "$out" ] || usage
for program in "$MSWITCH" "$MEMIF_CHECK" "$experiments"; do
  [ -x "$program" ] || { echo "figures.sh: $program is missing: cargo build --release -p mswitch -p mswitch-bench -p mswitch-experiments" >&2; exit 1; }
done
if [ -n "$long" ]; then
  effort=(--rounds 15 --seconds 1 --limit 10000) turns=(--rounds 15 --milliseconds 200)
elif [ -n "$quick" ]; then
  effort=(--rounds 1 --seconds 0.1 --limit 10000) turns=(--rounds 1 --milliseconds 10)
else
  effort=(--rounds 5 --seconds 0.5 --limit 10000) turns=(--rounds 7 --milliseconds 100)
fi
mkdir -p "$out"

# run COMMAND...: shows a command and runs it.
run() {
  printf '+ '; printf '%q ' "$@"; echo
  "$@"
}
bench() {
  local name=$1
  shift
  run "$MSWITCH" bench run "$@" "${effort[@]}" --out "$out/$name"
}

v2v() {
  bench v2v --scenario v2v --peer mswitch --peer mswitch-learning --peer ovs --peer ovs-learning \
    --size 64 --size 1518 --load max --ways 2
}
stations() {
  bench stations --scenario stations --peer mswitch-learning --peer ovs-learning --size 64 --load max --ways 2
}
chains() {
  local lengths=()
  for length in 1 2 3 4 5; do lengths+=(--scenario "loopback-$length-memif"); done
  bench chains "${lengths[@]}" --peer mswitch --peer ovs --size 64 --load max --load 50% --ways 2
}
rtt() {
  bench rtt --scenario v2v --peer mswitch --peer mswitch-poll --peer ovs --size 64 \
    --load idle --load 1000/s --load 10% --load 50% --ways 1
}
idle() {
  local seconds=10
  if [ -n "$long" ]; then seconds=30; fi
  run "$here/idle.sh" --seconds "$seconds" --out "$out/idle.json"
}
fabric() {
  # As `mswitch bench` runs its programs: what else runs on the machine takes their CPUs from them less often.
  run nice -n -20 "$experiments" "${turns[@]}" --out "$out/fabric"
}
rules() {
  local turns=(--rounds 3) sizes=()
  if [ -n "$long" ]; then turns=(--rounds 9); fi
  if [ -n "$quick" ]; then turns=(--rounds 1 --seconds 1) sizes=(--only port,exact --sizes 1); fi
  run "$here/rules.sh" "${turns[@]}" "${sizes[@]}" --out "$out/rules.json"
}
p4() {
  local turns=(--rounds 5 --seconds 1)
  if [ -n "$long" ]; then turns=(--rounds 15 --seconds 2); fi
  if [ -n "$quick" ]; then turns=(--rounds 1 --seconds 1); fi
  run "$here/p4.sh" "${turns[@]}" --out "$out/p4.json"
  run "$here/p4-writes.sh" "${turns[@]}" --out "$out/p4-writes.json"
}
pairs() {
  [ -n "$long$quick" ] || return 0
  bench pairs --scenario v2v-memif --scenario pairs --peer mswitch --peer ovs --size 64 --load max --load 10%
}
method() {
  run "$here/method.sh" --out "$out/method"
}

steps=("${only[@]}")
if [ ${#steps[@]} = 0 ]; then
  steps=(v2v stations chains rtt idle fabric rules pairs)
  if [ -n "$long" ]; then steps+=(method); fi
fi
for step in "${steps[@]}"; do
  case $step in
    v2v | stations | chains | rtt | idle | fabric | rules | p4 | pairs | method) ;;
    *) usage ;;
  esac
  began=$SECONDS
  "$step"
  echo "$step: $((SECONDS - began)) s"
done
