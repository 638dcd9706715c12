#!/bin/bash
# p4-writes.sh: table entries written by P4Runtime, as many as possible, while packets pass through the same program.
#
#   bench/p4-writes.sh [--rounds N] [--seconds S] [--routes N] [--rate PPS] [--writes N] [--batch N] [--in-flight N]
#                      [--only quiet,modify,replace,alone] [--program FILE] [--out FILE]
#
# The router of bench/p4.sh with 10,000 routes (--routes) forwards packets of 64 bytes at 1,000,000 a second (--rate).
# Cases:
#   quiet     nothing is written: what the same traffic costs otherwise
#   modify    all routes get the following next hop, then their own again
#   replace   as many other routes are inserted, then deleted
#   alone     as modify, without traffic
#
# p4-client writes requests of 1,000 updates (--batch), 2 on their way at once (--in-flight), as fast as they are
# answered, or --writes a second. The generator has real-time priority, sleeps for 100 us when no packet is due, and has
# few enough packets in flight that rings hold them all, so only the switch can lose some. Reported are updates a
# second, times of requests, packets sent and lost, and CPU time of the switch's threads: `mswitch-w` passes packets,
# `mswitch-control` carries out writes. The switch's worker is on CPU 0, the generator on CPU 1, and its other threads
# and the client where there is time left: with two CPUs, all share them. Exit code 1 if a run failed or a packet was
# lost.
#
# MSWITCH, MSWITCH_GENERATOR and MSWITCH_P4_CLIENT name the programs. Needs what bench/p4.sh needs, but for SWX.
set -euo pipefail
# shellcheck source=bench/testbed.sh
. "$(dirname "$0")/testbed.sh"
# shellcheck source=bench/one-way.sh
. "$(dirname "$0")/one-way.sh"
# shellcheck source=bench/updates.sh
. "$(dirname "$0")/updates.sh"
rounds=3 seconds=4 routes=10000 rate=1000000 writes='' batch=1000 in_flight=2 only=quiet,modify,replace,alone out=''
program=$here/p4/router.p4
generator=${MSWITCH_GENERATOR:-$here/../target/generator/mswitch-generator}
p4_client=${MSWITCH_P4_CLIENT:-$(dirname "$mswitch")/p4-client}

while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --routes) routes=$2 ;;
    --rate) rate=$2 ;;
    --writes) writes=$2 ;;
    --batch) batch=$2 ;;
    --in-flight) in_flight=$2 ;;
    --only) only=$2 ;;
    --program) program=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done
for value in "$rounds" "$seconds" "$routes" "$rate" "$batch" "$in_flight" ${writes:+"$writes"}; do
  [[ $value =~ ^[1-9][0-9]{0,7}$ ]] || fail "$value: expected a whole number above 0"
done
IFS=, read -r -a cases <<<"$only"
for name in "${cases[@]}"; do
  case $name in quiet | modify | replace | alone) ;; *) fail "--only $name: expected quiet, modify, replace or alone" ;; esac
done
[ -r "$program" ] || fail "--program $program: cannot be read"
[ -x "$mswitch" ] || fail "$mswitch is missing: cargo build --release -p mswitch"
[ -x "$generator" ] || fail "$generator is missing: make generator"
[ -x "$p4_client" ] || fail "$p4_client is missing: cargo build --release -p mswitch-p4-client"
[ -z "$out" ] || [ -d "$(dirname "$out")" ] || fail "--out $out: no such folder"
set_up
flows=$((routes < 65535 ? routes : 65535))
LC_ALL=C awk -v size="$routes" -v flows="$flows" -v dir="$dir" -f "$here/p4/router.awk"
grep '^routes' "$dir/entries.p4" >"$dir/own.p4"

write_entries() { "${first[@]}" "$p4_client" --socket "$dir/ours/br0.p4rt" --batch "$batch" --in-flight "$in_flight" "$@"; }
# write_case NAME: writes for the measured time; prints the client's report.
write_case() {
  local at=(${writes:+--rate "$writes"})
  case $1 in
    quiet) sleep "$seconds" && echo '{}' ;;
    replace) write_entries "${at[@]}" replace "$dir/more.p4" --seconds "$seconds" ;;
    *) write_entries "${at[@]}" modify "$dir/routes.p4" "$dir/own.p4" --seconds "$seconds" ;;
  esac
}

# entries_now: of the table of routes.
entries_now() {
  ask logic show br0 |
    jq -r '.tables[] | select(.name == "tables").rows[].cells | select(.[0] | endswith("routes")) | .[1]'
}

begin() {
  start_mswitch "p4:$program"
  write_entries load "$dir/entries.p4" >/dev/null 2>"$dir/client.log" || wrong="loading failed: $(tail -1 "$dir/client.log")"
}
finish() {
  local found
  found=$(entries_now) || true
  [ "$found" = "$routes" ] || wrong="the table has ${found:-unknown} of $routes routes afterwards"
}

packets=(--pcap "$dir/traffic.pcap")
about=$(jq -n --argjson routes "$routes" --argjson batch "$batch" '{$routes, $batch}')
run_rounds
