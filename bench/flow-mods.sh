#!/bin/bash
# flow-mods.sh: flows written by OpenFlow, as many as possible, while packets pass through the same table.
#
#   bench/flow-mods.sh [--rounds N] [--seconds S] [--flows N] [--rate PPS] [--writes N] [--batch N] [--in-flight N]
#                      [--only quiet,modify,replace,swap,alone] [--out FILE]
#
# A table of 100,000 exact destination addresses (--flows; the set `l2` of bench/rules.sh) forwards packets of 64 bytes
# at 1,000,000 a second (--rate). Cases:
#   quiet     nothing is written: what the same traffic costs otherwise
#   modify    all flows get another source address to set, then their own action again (OFPFC_MODIFY_STRICT)
#   replace   as many flows of other addresses are added, then deleted (OFPFC_DELETE_STRICT)
#   swap      as modify, in atomic bundles of all flows; times are those of the commits
#   alone     as modify, without traffic
#
# flow-client sends 1,000 flow-mods in front of a barrier (--batch), 2 barriers on their way at once (--in-flight), as
# fast as they are answered, or --writes a second. The generator has real-time priority, sleeps for 100 us when no
# packet is due, and has few enough packets in flight that rings hold them all, so only the switch can lose some.
# Reported are flow-mods a second, times to the barriers' replies, packets sent and lost, and CPU time of the switch's
# threads. The switch's worker is on CPU 0, the generator on CPU 1, and its other threads and the client where there is
# time left: with two CPUs, all share them. Exit code 1 if a run failed or a packet was lost.
#
# MSWITCH, MSWITCH_GENERATOR and MSWITCH_FLOW_CLIENT name the programs. Needs what bench/rules.sh needs.
set -euo pipefail
# shellcheck source=bench/testbed.sh
. "$(dirname "$0")/testbed.sh"
# shellcheck source=bench/one-way.sh
. "$(dirname "$0")/one-way.sh"
# shellcheck source=bench/updates.sh
. "$(dirname "$0")/updates.sh"
rounds=3 seconds=4 flows=100000 rate=1000000 writes='' batch=1000 in_flight=2 only=quiet,modify,replace,swap,alone out=''
generator=${MSWITCH_GENERATOR:-$here/../target/generator/mswitch-generator}
flow_client=${MSWITCH_FLOW_CLIENT:-$(dirname "$mswitch")/flow-client}

while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --flows) flows=$2 ;;
    --rate) rate=$2 ;;
    --writes) writes=$2 ;;
    --batch) batch=$2 ;;
    --in-flight) in_flight=$2 ;;
    --only) only=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done
for value in "$rounds" "$seconds" "$flows" "$rate" "$batch" "$in_flight" ${writes:+"$writes"}; do
  [[ $value =~ ^[1-9][0-9]{0,7}$ ]] || fail "$value: expected a whole number above 0"
done
[ "$flows" -le 400000 ] || fail "--flows $flows: at most 400000, of which twice as many are in the table"
IFS=, read -r -a cases <<<"$only"
for name in "${cases[@]}"; do
  case $name in
    quiet | modify | replace | swap | alone) ;;
    *) fail "--only $name: expected quiet, modify, replace, swap or alone" ;;
  esac
done
[ -x "$mswitch" ] || fail "$mswitch is missing: cargo build --release -p mswitch"
[ -x "$generator" ] || fail "$generator is missing: make generator"
[ -x "$flow_client" ] || fail "$flow_client is missing: cargo build --release -p mswitch-flow-client"
[ -z "$out" ] || [ -d "$(dirname "$out")" ] || fail "--out $out: no such folder"
set_up
awk -v set=l2 -v size="$flows" -v copies=1 -v rules="$dir/own" -v traffic="$dir/traffic" -f "$here/rules.awk"
sed 's/,actions=/,actions=set_field:02:ff:ff:ff:ff:ff->eth_src,/' "$dir/own" >"$dir/other"
sed 's/dl_dst=02:00:/dl_dst=06:00:/' "$dir/own" >"$dir/more"

write_flows() { "${first[@]}" "$flow_client" --socket "$dir/ours/br0.mgmt" --batch "$batch" --in-flight "$in_flight" "$@"; }
# write_case NAME: writes for the measured time; prints the client's report.
write_case() {
  local at=(${writes:+--rate "$writes"})
  case $1 in
    quiet) sleep "$seconds" && echo '{}' ;;
    replace) write_flows "${at[@]}" replace "$dir/more" --seconds "$seconds" ;;
    swap) write_flows "${at[@]}" swap "$dir/other" "$dir/own" --seconds "$seconds" ;;
    *) write_flows "${at[@]}" modify "$dir/other" "$dir/own" --seconds "$seconds" ;;
  esac
}
begin() {
  start_mswitch openflow
  write_flows load "$dir/own" >/dev/null 2>"$dir/client.log" || wrong="loading failed: $(tail -1 "$dir/client.log")"
}
finish() {
  local found
  found=$(ovs-ofctl -O OpenFlow13 dump-aggregate "unix:$dir/ours/br0.mgmt" | sed -n 's/.*flow_count=\([0-9]*\).*/\1/p') ||
    true
  [ "$found" = "$flows" ] || wrong="the table has ${found:-unknown} of $flows flows afterwards"
}

packets=(--flows "$flows" --macs "$flows" --size 64)
about=$(jq -n --argjson flows "$flows" --argjson batch "$batch" '{$flows, $batch}')
run_rounds
