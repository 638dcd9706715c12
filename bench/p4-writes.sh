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
# answered, or --writes a second. The generator has few enough packets in flight that rings hold them all, so only the
# switch can lose some. Reported are updates a second, times of requests, packets sent and lost, and CPU time of the
# switch's threads: `mswitch-w` passes packets, `mswitch-control` carries out writes. The switch's worker is on CPU 0, the
# generator on CPU 1, and its other threads and the client where there is time left: with two CPUs, all share them.
# Exit code 1 if a run failed or a packet was lost.
#
# MSWITCH, MSWITCH_GENERATOR and MSWITCH_P4_CLIENT name the programs. Needs what bench/p4.sh needs, but for SWX.
set -euo pipefail
# shellcheck source=bench/testbed.sh
. "$(dirname "$0")/testbed.sh"
# shellcheck source=bench/one-way.sh
. "$(dirname "$0")/one-way.sh"
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
: >"$dir/results"
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

# threads: CPU seconds of the switch's threads so far, as JSON.
threads() {
  local ticks
  ticks=$(getconf CLK_TCK)
  cat /proc/"$ours"/task/*/stat 2>/dev/null |
    jq -Rnc --argjson ticks "$ticks" '[inputs | capture("\\((?<key>.*)\\) (?<rest>.*)") |
      {key: (.key | sub("[-:0-9]+$"; "")), value: (.rest / " " | (.[11] | tonumber) + (.[12] | tonumber)) }] |
      group_by(.key) | map({key: .[0].key, value: (map(.value) | add / $ticks)}) | from_entries'
}

# entries_now: of the table of routes.
entries_now() {
  ask logic show br0 |
    jq -r '.tables[] | select(.name == "tables").rows[].cells | select(.[0] | endswith("routes")) | .[1]'
}

# run NAME: appends to the results.
run() {
  wrong='' client=''
  # A run that fails early leaves some of them empty.
  for name in report.json threads.0 threads.1 workers.0 workers.1 client.time; do : >"$dir/$name"; done
  echo '{}' >"$dir/written.json"
  start_mswitch "p4:$program"
  write_entries load "$dir/entries.p4" >/dev/null 2>"$dir/client.log" || wrong="loading failed: $(tail -1 "$dir/client.log")"
  if [ -z "$wrong" ] && [ "$1" != alone ]; then
    "${first[@]}" "$generator" send --cpu 1 --port "memif:$dir/ours/v0" --port "memif:$dir/ours/v1" --queues 2 --ring 2048 \
      --one-way --announce no --order uniform --pcap "$dir/traffic.pcap" --rate "$rate" --in-flight 1500 --warm-up 1 \
      --seconds 1000 --connect 20 >"$dir/report.json" 2>"$dir/generator.log" &
    client=$!
    waits_for 60 grep -q '^sending:' "$dir/generator.log" || wrong="the generator failed: $(tail -1 "$dir/generator.log")"
  fi
  waits_for 10 specialised || true
  if [ -z "$wrong" ]; then
    threads >"$dir/threads.0"
    before_mswitch
    local TIMEFORMAT='{"client_cpu_seconds": [%U, %S]}'
    { time write_case "$1" >"$dir/written.json" 2>"$dir/client.log"; } 2>"$dir/client.time" ||
      wrong="writing failed: $(tail -1 "$dir/client.log")"
    after_mswitch
    threads >"$dir/threads.1"
  fi
  if [ -n "$client" ]; then
    kill -INT "$client" 2>/dev/null || true
    wait "$client" || wrong=${wrong:-the generator failed: $(tail -1 "$dir/generator.log")}
    client=''
  fi
  if [ -z "$wrong" ]; then
    local found
    found=$(entries_now)
    [ "$found" = "$routes" ] || wrong="the table has ${found:-unknown} of $routes routes afterwards"
  fi
  stop_ours
  jq -nc --argjson round "$number" --arg case "$1" --argjson routes "$routes" --argjson batch "$batch" --arg wrong "$wrong" \
    --slurpfile written "$dir/written.json" --slurpfile report "$dir/report.json" --slurpfile time "$dir/client.time" \
    --slurpfile t0 "$dir/threads.0" --slurpfile t1 "$dir/threads.1" \
    --slurpfile w0 "$dir/workers.0" --slurpfile w1 "$dir/workers.1" '
    def grown(f): ([$w1[0].workers[] | f] | add) - ([$w0[0].workers[] | f] | add);
    {round: $round, case: $case, routes: $routes, batch: $batch} +
    if $wrong != "" then {failed: $wrong}
    else $written[0] + {client_cpu_seconds: ($time[0].client_cpu_seconds | add),
      cpu_seconds: ($t1[0] | with_entries(.value -= ($t0[0][.key] // 0) | select(.value > 0)))} +
      (if $report == [] then {} else $report[0].directions[0] | {sent_pps, sent, lost, skipped,
        cycles: (if grown(.packets) > 0 then grown(.busy_cycles) / grown(.packets) else null end)} end) end' \
    >>"$dir/results"
  tail -1 "$dir/results" | jq -r '
    def to(n): . * n | round / n;
    "    \(.case): " + if .failed then "FAILED: \(.failed)" else
      ([if .updates then "\(.updates_per_second | round) updates a second, requests \(.milliseconds | map(to(10)) | join("/")) ms" else empty end,
        if .sent then "\(.sent_pps / 1e6 | to(1000)) Mpps, \(.lost) of \(.sent) lost, \(.cycles | round) cycles" else empty end,
        "CPU seconds: " + (.cpu_seconds | to_entries | sort_by(-.value) | map("\(.key) \(.value | to(100))") | join(", ")) +
        ", client \(.client_cpu_seconds | to(100))"] | join("; ")) end'
}

summarize() {
  jq -s "$jq_reports"'
    {format: 1, runs: ., summary: (group_by(.case) | map(map(select(.failed | not)) | select(. != []) |
      {case: .[0].case, rounds: length, routes: .[0].routes, batch: .[0].batch,
       updates_per_second: (if .[0].updates then map(.updates_per_second) | spread else null end),
       median_milliseconds: (if .[0].updates then map(.milliseconds[0]) | spread else null end),
       longest_milliseconds: (if .[0].updates then map(.milliseconds[2]) | max else null end),
       sent_pps: (if .[0].sent then map(.sent_pps) | spread else null end),
       lost: (if .[0].sent then map(.lost) | add else null end),
       cycles: (if .[0].sent then map(.cycles) | spread else null end)}))}' "$dir/results" >"$dir/summary.json"
  if [ -n "$out" ]; then cp "$dir/summary.json" "$out"; fi
  echo
  echo "median (lowest to highest)"
  jq -r "$jq_reports"'
    .summary[] | "  \(.case): " + ([
      (.updates_per_second | values | "\(show(1)) updates a second"),
      (.median_milliseconds | values | "requests \(show(10)) ms"),
      (.longest_milliseconds | values | "at most \(. * 10 | round / 10) ms"),
      (.sent_pps | values | "\(map_values(. / 1e6) | show(1000)) Mpps"),
      (.lost | values | "\(.) packets lost"),
      (.cycles | values | "\(show(1)) cycles a packet")] | join(", "))' "$dir/summary.json"
}

trap 'if [ -s "$dir/results" ]; then summarize || true; fi; clean_up' EXIT
for number in $(seq "$rounds"); do
  echo "round $number"
  for name in "${cases[@]}"; do run "$name"; done
done
jq -se 'all((.failed | not) and (.lost // 0) == 0)' "$dir/results" >/dev/null || exit 1
