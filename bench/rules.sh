#!/bin/bash
# rules.sh: OpenFlow rules in mswitch (logic `openflow`) and in Open vSwitch with DPDK: the same rules, loaded by
# ovs-ofctl (OpenFlow 1.3, add-flows), and the same traffic, uniform over all rules, between two memif ports in one
# direction.
#
#   bench/rules.sh [--rounds N] [--seconds S] [--only SET,SET...] [--sizes N,N...] [--flows N] [--patience S]
#                  [--bytes N,N...] [--burst N] [--switch mswitch,ovs] [--out FILE]
#
# Sets, and their default sizes in rules (bench/rules.awk makes them):
#   port      one rule, from port to port
#   l2, l3    exact destination addresses, Ethernet or IPv4: 1 to 1,000,000
#   exact     exact 5-tuples: 1 to 1,000,000
#   acl       access lists of nested prefixes, ports, ranges and priorities in the style of ClassBench: 1,000, 10,000
#   pipeline  five tables with metadata, the third of which has routes: 1,000, 10,000
#   masks     each rule with a mask of its own, the tuple-space attack: 1, 100, 1,000, 10,000
#
# --flows: least number of flows in the traffic, as many for one rule as for another (default: one a rule; masks:
# 100,000, more than Open vSwitch's exact-match cache holds). --bytes: sizes of packets without frame check sequence
# (64). --patience: seconds allowed for loading a set (180).
# --out: writes all runs and the summary as JSON; runs that the file has already are kept, and the summary covers them.
#
# A round measures each set and size with both switches, one after the other, which take turns in coming first. Switch
# on CPU 0, generator and all else on CPU 1. The generator sends 64 packets at a time (--burst), 32 to each of a port's
# two queues: with fewer, a switch that waits for packets takes small batches, and one that is behind takes full ones. A
# run fails unless all rules were accepted, packets arrive, and the counters of flows have all packets that the switch
# received but 0.1 %. Cycles are those of the switch's thread for a packet, without empty polls; ratios are Open
# vSwitch's to mswitch's cycles, mswitch's to Open vSwitch's throughput. Exit code 1 if mswitch failed; failures of
# either switch are named.
#
# MSWITCH and MSWITCH_GENERATOR name the programs (default: those in target). Needs root, jq, openvswitch-switch-dpdk.
set -euo pipefail
# shellcheck source=bench/testbed.sh
. "$(dirname "$0")/testbed.sh"
# shellcheck source=bench/one-way.sh
. "$(dirname "$0")/one-way.sh"
rounds=3 seconds=2 only=port,l2,l3,exact,acl,pipeline,masks sizes='' flows='' bytes=64 burst=64 patience=180
switches=mswitch,ovs out=''
generator=${MSWITCH_GENERATOR:-$here/../target/generator/mswitch-generator}
# The generator's limit.
most_flows=1048576

while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --only) only=$2 ;;
    --sizes) sizes=$2 ;;
    --flows) flows=$2 ;;
    --bytes) bytes=$2 ;;
    --burst) burst=$2 ;;
    --patience) patience=$2 ;;
    --switch) switches=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done

# default_sizes SET: also the check of its name.
default_sizes() {
  case $1 in
    port) echo 1 ;;
    l2 | l3 | exact) echo 1 10 100 1000 10000 100000 1000000 ;;
    acl | pipeline) echo 1000 10000 ;;
    masks) echo 1 100 1000 10000 ;;
    *) fail "--only $1: no such set: expected port, l2, l3, exact, acl, pipeline or masks" ;;
  esac
}
# most_rules SET
most_rules() {
  case $1 in
    port) echo 1 ;;
    masks) echo 16384 ;;
    *) echo 1000000 ;;
  esac
}

for value in "$rounds" "$seconds" "$patience" "$burst" ${flows:+"$flows"} ${sizes//,/ } ${bytes//,/ }; do
  [[ $value =~ ^[1-9][0-9]{0,6}$ ]] || fail "$value: expected a whole number above 0"
done
IFS=, read -r -a sets <<<"$only"
IFS=, read -r -a both <<<"$switches"
for name in "${both[@]}"; do
  case $name in mswitch | ovs) ;; *) fail "--switch $name: expected mswitch or ovs" ;; esac
done
# The work of a round: SET SIZE BYTES.
work=() wanted=${sizes//,/ }
for name in "${sets[@]}"; do
  default=$(default_sizes "$name")
  for size_of in ${wanted:-$default}; do
    [ "$size_of" -le "$(most_rules "$name")" ] || fail "--sizes $size_of: $name has at most $(most_rules "$name") rules"
    for length in ${bytes//,/ }; do
      if [ "$length" -lt 64 ] || [ "$length" -gt 1518 ]; then fail "--bytes $length: expected 64 to 1518"; fi
      work+=("$name $size_of $length")
    done
  done
done
[ ${#work[@]} -gt 0 ] || fail "nothing to measure: --only, --sizes or --bytes is empty"
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
if [ -n "$out" ] && [ -s "$out" ]; then jq -c '.runs[] | .bytes //= 64' "$out" >"$dir/results"; fi
first_round=$(jq -s 'map(.round) | max // 0' "$dir/results")

# prepare SET SIZE: writes rules and traffic; sets `entries` and `packets`, the generator's options.
prepare() {
  local least=${flows:-1}
  if [ -z "$flows" ] && [ "$1" = masks ]; then least=100000; fi
  local copies=$(((least + $2 - 1) / $2))
  traffic_flows=$((copies * $2))
  [ "$traffic_flows" -le "$most_flows" ] || fail "--flows $least: more than $most_flows flows for $2 rules"
  rm -f "$dir/rules" "$dir/traffic"
  awk -v set="$1" -v size="$2" -v copies="$copies" -v rules="$dir/rules" -v traffic="$dir/traffic" -f "$here/rules.awk"
  entries=$(wc -l <"$dir/rules")
  case $1 in
    port) packets=(--flows "$traffic_flows") ;;
    l2) packets=(--flows "$traffic_flows" --macs "$2") ;;
    *) packets=(--rules "$dir/traffic") ;;
  esac
}

# start NAME: sets `folder`, of its sockets, and `process`.
start() {
  if [ "$1" = mswitch ]; then
    start_mswitch openflow
    folder=$dir/ours process=$ours
  else
    start_ovs normal
    folder=$dir/ovs process=${ovs_pids[-1]}
  fi
  waits_for 10 ofctl dump-ports || fail "$1 does not speak OpenFlow on $folder/br0.mgmt"
  ofctl del-flows
}
ofctl() {
  local command=$1
  shift
  timeout --foreground "$patience" ovs-ofctl -O OpenFlow13 "$command" "unix:$folder/br0.mgmt" "$@"
}
# aggregate FIELD [MATCH]: flow_count or packet_count of all matching flows.
aggregate() { ofctl dump-aggregate ${2:+"$2"} | sed -n "s/.*$1=\([0-9]*\).*/\1/p"; }

# load_rules: sets load_seconds, or `wrong`.
load_rules() {
  local begin count
  begin=$(now)
  # Waiting for a job, other than for a command, ends with a signal.
  ofctl add-flows "$dir/rules" >"$dir/refused" 2>&1 &
  client=$!
  local code=0
  wait "$client" || code=$?
  client=''
  if [ "$code" = 124 ]; then
    wrong="not all flows were loaded within $patience s; --patience allows more"
    return
  elif [ "$code" != 0 ]; then
    wrong="loading failed: $(tail -1 "$dir/refused")"
    return
  fi
  # Answered after all changes.
  count=$(aggregate flow_count || true)
  load_seconds=$(jq -n "$(now) - $begin")
  [ "$count" = "$entries" ] || wrong="has ${count:-unknown} of $entries flows"
}

# received NAME: packets that the switch has received so far. DPDK's driver forgets its own count with the connection.
received() {
  if [ "$1" = mswitch ]; then
    ask worker show | jq '[.workers[].packets] | add'
  else
    ctl dpif-netdev/pmd-stats-show | awk '/packets received:/ { print $3; exit }'
  fi
}
# counted TABLE: whether flows have counted all packets but 0.1 %; Open vSwitch counts later.
counted() {
  matched=$(aggregate packet_count "$1")
  [ "$matched" -gt 0 ] && [ $((matched + arrived / 1000)) -ge "$arrived" ]
}

# reasons NAME: mswitch's forms of tables; flows of Open vSwitch's datapath, and how many it allows itself.
reasons() {
  if [ "$1" = mswitch ]; then
    ask logic show br0 | jq -c '{
      interpreted: (.counters[] | select(.name == "interpreted") | .value),
      tables: [.tables[] | select(.name == "tables") | .columns as $names | .rows[] |
        [$names, .cells] | transpose | map({key: .[0], value: .[1]}) | from_entries | {table, flows, form, why, bytes}]}'
  else
    ctl upcall/show | sed -n 's/.*(current \([0-9]*\)).*(limit \([0-9]*\)).*/{"datapath_flows": \1, "limit": \2}/p' | head -1
  fi
}

# run SET SIZE BYTES NAME: appends to the results.
run() {
  wrong='' load_seconds=null matched=0 arrived=0 pps=0 span=1
  : >"$dir/report.json"
  start "$4"
  load_rules
  local memory found='{}' table=''
  if [ "$1" = pipeline ]; then table=table=4; fi
  if [ -z "$wrong" ]; then traffic "$4" --size "$3" --burst "$burst" "${packets[@]}"; fi
  if [ -z "$wrong" ]; then
    arrived=$(received "$4")
    found=$(work_of "$4" 2>/dev/null) || wrong="no packet within $seconds s"
    waits_for 10 counted "$table" || wrong="flows counted $matched of $arrived packets"
    jq -e '.directions[0].received > 0' "$dir/report.json" >/dev/null || wrong="no packet came back"
  fi
  if [ -z "$wrong" ]; then
    found=$(jq -c --argjson why "$(reasons "$4")" '. + $why' <<<"$found")
  fi
  memory=$(awk '/^VmRSS/ { print $2 / 1024 }' "/proc/$process/status" || echo 0)
  kill -0 "$process" 2>/dev/null || wrong="the switch has stopped: $(tail -3 "$folder"/*log | tail -1)"
  stop_ours
  stop_ovs
  jq -nc --argjson round "$number" --arg set "$1" --argjson size "$2" --argjson bytes "$3" --arg switch "$4" \
    --argjson entries "$entries" --argjson flows "$traffic_flows" --argjson load "$load_seconds" \
    --argjson memory "${memory:-0}" --arg wrong "$wrong" \
    --argjson arrived "${arrived:-0}" --argjson matched "${matched:-0}" --argjson work "${found:-null}" --argjson pps "$pps" \
    --argjson span "$span" \
    --slurpfile report "$dir/report.json" '
    {round: $round, set: $set, size: $size, bytes: $bytes, flows: $flows, switch: $switch, entries: $entries,
     load_seconds: $load, memory_mib: $memory} +
    if $wrong != "" then {failed: $wrong}
    else {pps: (if $pps < 1e6 then $work.packets / $span else $pps end),
      near_ceiling: $report[0].core.near_ceiling, missed: ([$arrived - $matched, 0] | max / $arrived)} + $work end' \
    >>"$dir/results"
  tail -1 "$dir/results" | jq -r "$line_of"
}
# shellcheck disable=SC2016 # for jq to expand
line_of='
  def to(n): . * n | round / n;
'"$jq_digits"'
  "    \(.switch): " + if .failed then "FAILED: \(.failed)" else
    "\(.pps / 1e6 | digits) Mpps\(if .near_ceiling then " *" else "" end), \(.cycles | round) cycles" +
    (if .subtables then " (hits: simple \(.simple_hits | to(100)), exact \(.emc_hits | to(100)), " +
      "megaflow \(.megaflow_hits | to(100)) in \(.subtables | to(10)) subtables; upcalls \(.upcalls | to(1e4)))"
      else "" end) +
    (if .tables then " (\([.tables[].form] | join(", ")); \(.interpreted) interpreted)" else "" end) +
    (if (.missed // 0) > 0 then ", \(.missed | digits) without a flow" else "" end) end +
  if .load_seconds then "; \(.entries) flows loaded in \(.load_seconds | to(100)) s, \(.memory_mib | round) MiB" else "" end'

# summarize: writes the report, and shows its summary.
summarize() {
  jq -s "$jq_reports"'
    def of($name): map(select(.switch == $name and (.failed | not)));
    {format: 1, runs: ., summary: (group_by([.set, .flows != .size and .set != "masks", .size, .flows, .bytes]) | map(
      . as $all | of("mswitch") as $ours | of("ovs") as $theirs |
      [$ours[] as $o | $theirs[] | select(.round == $o.round) | [$o, .]] as $pairs |
      def figures: if length == 0 then null else {pps: (map(.pps) | spread), cycles: (map(.cycles) | spread),
        load_seconds: (map(.load_seconds) | spread), memory_mib: (map(.memory_mib) | spread),
        near_ceiling: any(.near_ceiling)} end;
      {set: .[0].set, size: .[0].size, bytes: .[0].bytes, flows: .[0].flows, entries: .[0].entries,
       rounds: ($pairs | length), mswitch: ($ours | figures), ovs: ($theirs | figures),
       throughput_ratio: (if $pairs == [] then null else $pairs | map(.[0].pps / .[1].pps) | spread end),
       cycles_ratio: (if $pairs == [] then null else $pairs | map(.[1].cycles / .[0].cycles) | spread end),
       failures: [$all[] | select(.failed) | "\(.switch): \(.failed)"]}))}' "$dir/results" >"$dir/summary.json"
  if [ -n "$out" ]; then cp "$dir/summary.json" "$out"; fi
  echo
  echo "median (lowest to highest); *: the generator was near its ceiling, cycles decide"
  jq -r "$jq_digits"'
    def figures($name): if . == null then "\($name) -" else
      "\($name) \(.pps | map_values(. / 1e6) | show) Mpps\(if .near_ceiling then " *" else "" end), " +
      "\(.cycles | show) cycles, loaded in \(.load_seconds | show) s, \(.memory_mib.median | round) MiB" end;
    .summary[] | "  \(.set), \(.size) rules (\(.entries) flows of OpenFlow, \(.flows) in the traffic), \(.bytes) bytes:",
      "    \(.mswitch | figures("mswitch"))", "    \(.ovs | figures("ovs"))",
      (select(.cycles_ratio) |
        "    ratios: throughput \(.throughput_ratio | show), cycles \(.cycles_ratio | show)"),
      (.failures | unique[] | "    FAILED: \(.)")' "$dir/summary.json"
}

trap 'if [ -s "$dir/results" ]; then summarize || true; fi; clean_up' EXIT
for number in $(seq $((first_round + 1)) $((first_round + rounds))); do
  for item in "${work[@]}"; do
    read -r name size_of length <<<"$item"
    echo "round $number: $name, $size_of rules, $length bytes"
    prepare "$name" "$size_of"
    order=("${both[@]}")
    if [ $((number % 2)) = 0 ] && [ ${#both[@]} = 2 ]; then order=("${both[1]}" "${both[0]}"); fi
    for switch in "${order[@]}"; do run "$name" "$size_of" "$length" "$switch"; done
  done
done
jq -se --argjson first "$first_round" 'all(.round <= $first or .switch != "mswitch" or (.failed | not))' \
  "$dir/results" >/dev/null || exit 1
