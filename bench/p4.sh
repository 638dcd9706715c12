#!/bin/bash
# p4.sh: the same router in four switches: as a P4 program in mswitch (logic `p4`), as tables of OpenFlow in mswitch
# (logic `openflow`) and in Open vSwitch with DPDK, and as a program of DPDK's own pipeline for P4 (SWX) with generated
# code. Packets of 64 bytes with a tag of VLAN 10, in a uniform order over all prefixes, from one memif port to the other.
#
#   bench/p4.sh [--rounds N] [--seconds S] [--routes N] [--flows N] [--burst N] [--patience S] [--check yes|no]
#               [--switch p4,example,openflow,ovs,swx,static] [--program FILE] [--out FILE]
#
# The router (bench/p4/router.p4, router.spec, router.awk): the longest prefix of the destination gives one of 64 next
# hops, whose table gives port, VLAN tag and both MAC addresses; the time to live is decremented, and the checksum
# adjusted. `example` is examples/p4/router.p4 with the same entries, which verifies the checksum too, and computes the
# new one over the whole header. `static` is mswitch with that logic, which routes nothing and does not look at packets:
# what ports and fabric take alone. --program takes another program in the place of bench/p4/router.p4.
#
# --flows: number of destinations, at most 65,535 (default: the number of routes, --routes, 10,000). --patience: seconds
# allowed for loading the entries (180). --out: writes all runs and the summary as JSON; runs that the file has already
# are kept, and the summary covers them.
#
# First, packets of all flows go once through each switch, and it is checked that all emit the same bytes. Then, a round
# measures each switch, one after the other; the next round begins with the next one. Switch on CPU 0, generator and all
# else on CPU 1. The generator sends 64 packets at a time (--burst), half of them to each of a port's two queues. Cycles
# are those of the switch's thread for a packet without empty polls: mswitch and Open vSwitch count them by poll; for
# SWX, which knows none, they are the time in which packets arrived, as loops of a thousand steps, by the packets
# received: where the generator waits for the switch, both are the same. Ratios are of one round.
# Exit code 1 if a run failed, or what a switch emitted differs.
#
# MSWITCH, MSWITCH_GENERATOR, MSWITCH_P4_CLIENT and MSWITCH_SWX (a folder) name the programs (default: those in target).
# Needs root, jq, dpdk-dev, openvswitch-switch-dpdk; `make generator swx`, `cargo build --release -p mswitch
# -p mswitch-p4-client`.
set -euo pipefail
# shellcheck source=bench/testbed.sh
. "$(dirname "$0")/testbed.sh"
# shellcheck source=bench/one-way.sh
. "$(dirname "$0")/one-way.sh"
rounds=3 seconds=2 routes=10000 flows='' burst=64 patience=180 check=yes switches=p4,example,openflow,ovs,swx,static out=''
program=$here/p4/router.p4
generator=${MSWITCH_GENERATOR:-$here/../target/generator/mswitch-generator}
p4_client=${MSWITCH_P4_CLIENT:-$(dirname "$mswitch")/p4-client}
swx=${MSWITCH_SWX:-$here/../target/swx}

while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --routes) routes=$2 ;;
    --flows) flows=$2 ;;
    --burst) burst=$2 ;;
    --patience) patience=$2 ;;
    --check) check=$2 ;;
    --switch) switches=$2 ;;
    --program) program=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done
flows=${flows:-$((routes < 65535 ? routes : 65535))}
for value in "$rounds" "$seconds" "$patience" "$burst" "$routes" "$flows"; do
  [[ $value =~ ^[1-9][0-9]{0,6}$ ]] || fail "$value: expected a whole number above 0"
done
[ "$flows" -le 65535 ] || fail "--flows $flows: at most 65535"
[[ $check =~ ^(yes|no)$ ]] || fail "--check $check: expected yes or no"
IFS=, read -r -a names <<<"$switches"
for name in "${names[@]}"; do
  case $name in
    p4 | example) [ -x "$p4_client" ] || fail "$p4_client is missing: cargo build --release -p mswitch-p4-client" ;;
    openflow | ovs | static) ;;
    swx) [ -x "$swx/mswitch-swx" ] || fail "$swx/mswitch-swx is missing: make swx" ;;
    *) fail "--switch $name: expected p4, example, openflow, ovs, swx or static" ;;
  esac
done
[ -r "$program" ] || fail "--program $program: cannot be read"
[ -x "$mswitch" ] || fail "$mswitch is missing: cargo build --release -p mswitch"
[ -x "$generator" ] || fail "$generator is missing: make generator"
if [ -n "$out" ]; then
  [ -d "$(dirname "$out")" ] || fail "--out $out: no such folder"
  if [ -s "$out" ]; then
    jq -e '.runs | type == "array"' "$out" >/dev/null 2>&1 || fail "--out $out: not a report of this script"
  fi
fi
set_up
: >"$dir/results"
if [ -n "$out" ] && [ -s "$out" ]; then jq -c '.runs[]' "$out" >"$dir/results"; fi
first_round=$(jq -s 'map(.round) | max // 0' "$dir/results")
LC_ALL=C awk -v size="$routes" -v flows="$flows" -v dir="$dir" -f "$here/p4/router.awk"
entries=$((routes + 64))

start_swx() {
  rm -rf "$dir/swx"
  mkdir "$dir/swx"
  mkfifo "$dir/swx/in" "$dir/swx/out"
  "${first[@]}" "$swx/mswitch-swx" run --library "$swx/router.so" --port "$dir/swx/v0" --port "$dir/swx/v1" --queues 2 \
    --table "routes=$dir/swx.routes" --table "next_hops=$dir/swx.next_hops" \
    <"$dir/swx/in" >"$dir/swx/out" 2>"$dir/swx/log" &
  # As the floor: one switch at a time.
  floor_pid=$!
  exec 8>"$dir/swx/in" 9<"$dir/swx/out"
  waits_for "$patience" grep -q ' entries in ' "$dir/swx/log" || fail "SWX did not start: $(tail -3 "$dir/swx/log")"
}

# start NAME: starts a switch and loads its entries. Sets `folder`, of its sockets, `process`, `counters`, which says how to
# read its counters, and `load_seconds`, or `wrong`.
start() {
  local begin count
  wrong='' load_seconds=null
  case $1 in
    p4 | example)
      local file=$program
      if [ "$1" = example ]; then file=$here/../examples/p4/router.p4; fi
      start_mswitch "p4:$file"
      folder=$dir/ours process=$ours counters=mswitch
      begin=$(now)
      timeout "$patience" "$p4_client" --socket "$folder/br0.p4rt" load "$dir/entries.p4" >"$dir/loaded" 2>"$dir/refused" ||
        wrong="loading failed: $(tail -1 "$dir/refused")"
      ;;
    static)
      start_mswitch static
      folder=$dir/ours process=$ours counters=mswitch
      return
      ;;
    swx)
      begin=$(now)
      start_swx
      folder=$dir/swx process=$floor_pid counters=swx
      load_seconds=$(sed -n 's/.* entries in \([0-9.]*\) s/\1/p' "$dir/swx/log")
      return
      ;;
    *)
      if [ "$1" = ovs ]; then
        start_ovs normal
        folder=$dir/ovs process=${ovs_pids[-1]} counters=ovs
      else
        start_mswitch openflow
        folder=$dir/ours process=$ours counters=mswitch
      fi
      waits_for 10 ofctl dump-ports || fail "$1 does not speak OpenFlow on $folder/br0.mgmt"
      ofctl del-flows
      begin=$(now)
      if ofctl add-flows "$dir/flows" >"$dir/refused" 2>&1; then
        # Answered after all changes.
        count=$(ofctl dump-aggregate | sed -n 's/.*flow_count=\([0-9]*\).*/\1/p')
        [ "$count" = "$entries" ] || wrong="has ${count:-unknown} of $entries flows"
      else
        wrong="loading failed: $(tail -1 "$dir/refused")"
      fi
      ;;
  esac
  load_seconds=$(jq -n "$(now) - $begin")
}
ofctl() {
  local command=$1
  shift
  timeout --foreground "$patience" ovs-ofctl -O OpenFlow13 "$command" "unix:$folder/br0.mgmt" "$@"
}
stop() {
  stop_ours
  stop_ovs
  exec 8>&- 9<&-
  stop_floor
}

# emitted NAME: writes what the switch makes of a packet of each flow, in order of bytes, to $dir/NAME.emitted.
emitted() {
  start "$1"
  [ -z "$wrong" ] || fail "$1: $wrong"
  local log=$dir/testpmd.log none=rx_pcap=$dir/none.pcap
  rm -f "$dir/commands" "$dir/received".*
  mkfifo "$dir/commands"
  local memif=role=client,socket-abstract=no,rsize=11,socket
  # Packets go from the file of port 0 to the switch, and from the switch to the files of port 3, one a queue.
  "${first[@]}" dpdk-testpmd --lcores '(0)@1,(1)@1' --main-lcore 0 --no-pci --in-memory --single-file-segments --file-prefix="p4$$" \
    --vdev="net_pcap0,rx_pcap=$dir/traffic.pcap,$none,tx_pcap=/dev/null,tx_pcap=/dev/null" \
    --vdev="net_memif0,$memif=$folder/v0" --vdev="net_memif1,$memif=$folder/v1" \
    --vdev="net_pcap1,$none,$none,tx_pcap=$dir/received.0,tx_pcap=$dir/received.1" \
    -- -i --no-flush-rx --no-mlockall --total-num-mbufs=32768 --rxq=2 --txq=2 <"$dir/commands" >"$log" 2>&1 &
  client=$!
  exec 7>"$dir/commands"
  waits_for 20 grep -q 'testpmd> ' "$log" || fail "testpmd did not start: $(tail -3 "$log")"
  sleep 1
  printf 'set fwd io retry\nset burst tx delay 100 retry 10000\nstart\n' >&7
  waits_for 30 has_most || true
  sleep 0.5
  printf 'stop\nquit\n' >&7
  exec 7>&-
  wait "$client" || fail "testpmd failed: $(tail -3 "$log")"
  client=''
  stop
  [ "$(records)" = "$flows" ] || fail "$1 emitted $(records) of $flows packets"
  # Records of 16 bytes that say when, and 64 of the packet.
  tail -qc +25 "$dir"/received.* | od -An -v -tx1 -w80 | cut -c 49- | sort >"$dir/$1.emitted"
}
records() { echo $((($(cat "$dir"/received.* | wc -c) - 48) / 80)); }
# The last ones, of a page at most, are written to a file at its end.
has_most() { [ "$(records)" -ge $((flows - 2 * 4096 / 80)) ]; }

before_swx() { totals "$dir/swx.0"; }
after_swx() { totals "$dir/swx.1"; }
swx_work() {
  jq -nc --slurpfile a "$dir/swx.0" --slurpfile b "$dir/swx.1" '
    def grown(f): ($b[0] | f) - ($a[0] | f);
    {packets: grown(.packets), cycles: (grown(.busy_cycles) / grown(.packets)),
     busy: (grown(.busy_cycles) / grown(.elapsed_cycles)), dropped: grown(.dropped),
     empty_polls: (grown(.empty_polls) / (grown(.empty_polls) + grown(.packets)))}'
}
# reasons NAME: forms of mswitch's tables, and whether code is specialised; flows of Open vSwitch's datapath.
reasons() {
  case $1 in
    swx | static) echo '{}' ;;
    ovs) jq -nc --arg flows "$(datapath_flows)" '{datapath_flows: ($flows | tonumber)}' ;;
    *)
      ask logic show br0 | jq -c '{
        specialised: ([.tables[].rows[].cells | select(.[0] | startswith("specialised for the ")) | .[1]] | first),
        tables: [.tables[] | select(.name == "tables") | .columns as $names | .rows[] |
          [$names, .cells] | transpose | map({key: .[0], value: .[1]}) | from_entries | {table, form, why, bytes}]}'
      ;;
  esac
}

# run NAME: appends to the results.
run() {
  local memory found='{}'
  pps=0 span=1
  : >"$dir/report.json"
  start "$1"
  if [ -z "$wrong" ]; then traffic "$counters" --burst "$burst" --pcap "$dir/traffic.pcap"; fi
  if [ -z "$wrong" ]; then
    case $counters in
      swx) found=$(swx_work) ;;
      *) found=$(work_of "$counters") ;;
    esac 2>/dev/null || wrong="no packet within $seconds s"
    jq -e '.directions[0] | .received > 0 and .corrupted == 0' "$dir/report.json" >/dev/null ||
      wrong="no packet came back, or not as long as it was"
  fi
  if [ -z "$wrong" ]; then found=$(jq -c --argjson why "$(reasons "$1")" '. + $why' <<<"$found"); fi
  memory=$(awk '/^VmRSS/ { print $2 / 1024 }' "/proc/$process/status" || echo 0)
  kill -0 "$process" 2>/dev/null || wrong="the switch has stopped: $(tail -3 "$folder"/*log | tail -1)"
  stop
  jq -nc --argjson round "$number" --arg switch "$1" --argjson routes "$routes" --argjson flows "$flows" \
    --argjson burst "$burst" --argjson load "$load_seconds" --argjson memory "${memory:-0}" --arg wrong "$wrong" --argjson work "${found:-null}" \
    --argjson pps "$pps" --argjson span "$span" --slurpfile report "$dir/report.json" '
    {round: $round, switch: $switch, routes: $routes, flows: $flows, burst: $burst, load_seconds: $load, memory_mib: $memory} +
    if $wrong != "" then {failed: $wrong}
    else {pps: (if $pps < 1e6 then $work.packets / $span else $pps end),
      near_ceiling: $report[0].core.near_ceiling,
      lost: ($report[0].directions[0] | .lost / .sent)} + $work end' >>"$dir/results"
  tail -1 "$dir/results" | jq -r "$jq_digits"'
    "    \(.switch): " + if .failed then "FAILED: \(.failed)" else
      "\(.pps / 1e6 | digits) Mpps\(if .near_ceiling then " *" else "" end), \(.cycles | round) cycles, " +
      "busy \(.busy * 100 | round) %, lost \(.lost * 100 | digits) %" +
      (if .tables then " (\([.tables[].form] | join(", ")); specialised: \(.specialised))" else "" end) end +
    if .load_seconds then "; loaded in \(.load_seconds | digits) s, \(.memory_mib | round) MiB" else "" end'
}

# summarize: writes the report, and shows its summary.
summarize() {
  jq -s "$jq_reports"'
    def figures: {rounds: length, pps: (map(.pps) | spread), cycles: (map(.cycles) | spread),
      load_seconds: (map(.load_seconds) | spread), memory_mib: (map(.memory_mib) | spread),
      near_ceiling: any(.near_ceiling)};
    {format: 1, runs: ., summary: (group_by([.routes, .flows, .burst // 32]) | map(
      . as $all | map(select(.failed | not)) as $good |
      def pairs($a; $b): [$good[] | select(.switch == $a)] as $ours | [$ours[] as $o | $good[] |
        select(.switch == $b and .round == $o.round) | [$o, .]];
      {routes: .[0].routes, flows: .[0].flows, burst: (.[0].burst // 32),
       switches: ($good | group_by(.switch) | map({key: .[0].switch, value: figures}) | from_entries),
       ratios: ([("p4", "example", "static") as $ours | ("openflow", "ovs", "swx") as $other | pairs($ours; $other) |
         select(. != []) | {key: "\($ours) to \($other)", value: {
           throughput: (map(.[0].pps / .[1].pps) | spread), cycles: (map(.[0].cycles / .[1].cycles) | spread)}}] |
         from_entries),
       failures: [$all[] | select(.failed) | "\(.switch): \(.failed)"]}))}' "$dir/results" >"$dir/summary.json"
  if [ -n "$out" ]; then cp "$dir/summary.json" "$out"; fi
  echo
  echo "median (lowest to highest); *: the generator was near its ceiling, cycles decide"
  jq -r "$jq_digits"'
    .summary[] | "  \(.routes) routes, \(.flows) flows in the traffic, bursts of \(.burst):",
      (.switches | to_entries[] | .key as $name | .value |
        "    \($name): \(.pps | map_values(. / 1e6) | show) Mpps\(if .near_ceiling then " *" else "" end), " +
        "\(.cycles | show) cycles, loaded in \(.load_seconds | show) s, \(.memory_mib.median | round) MiB"),
      (.ratios | to_entries[] | "    \(.key): throughput \(.value.throughput | show), cycles \(.value.cycles | show)"),
      (.failures | unique[] | "    FAILED: \(.)")' "$dir/summary.json"
}

if [ "$check" = yes ]; then
  head -c 24 "$dir/traffic.pcap" >"$dir/none.pcap"
  routers=()
  for name in "${names[@]}"; do
    if [ "$name" = static ]; then continue; fi
    routers+=("$name")
    emitted "$name"
    cmp -s "$dir/$name.emitted" "$dir/${routers[0]}.emitted" ||
      fail "$name emits other packets than ${routers[0]}: $(diff "$dir/$name.emitted" "$dir/${routers[0]}.emitted" | head -4)"
  done
  if [ ${#routers[@]} -gt 0 ]; then echo "all emit the same $flows packets: ${routers[*]}"; fi
fi
trap 'if [ -s "$dir/results" ]; then summarize || true; fi; clean_up' EXIT
for number in $(seq $((first_round + 1)) $((first_round + rounds))); do
  echo "round $number"
  for at in "${!names[@]}"; do run "${names[(at + number - 1) % ${#names[@]}]}"; done
done
jq -se --argjson first "$first_round" 'all(.round <= $first or (.failed | not))' "$dir/results" >/dev/null || exit 1
