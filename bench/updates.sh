# updates.sh: sourced by measurements of tables that change while packets pass (one-way.sh): p4-writes.sh, flow-mods.sh.
#
# A script has $mswitch, $generator, $rate, $seconds, $rounds, $out, $cases and set_up's $dir, and the generator's options
# for its packets in $packets, and what each run is about as a JSON object in $about. It defines:
#   begin            starts the switch, its sockets in $dir/ours, and fills its tables; sets `wrong` if that fails
#   write_case NAME  changes tables for the measured time; prints the client's report as JSON
#   finish           sets `wrong` if the tables are not as they were
# and calls run_rounds, whose exit code is 1 if a run failed or a packet was lost.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # between scripts that source each other

# threads: CPU seconds of the switch's threads so far, as JSON.
threads() {
  local ticks
  ticks=$(getconf CLK_TCK)
  cat /proc/"$ours"/task/*/stat 2>/dev/null |
    jq -Rnc --argjson ticks "$ticks" '[inputs | capture("\\((?<key>.*)\\) (?<rest>.*)") |
      {key: (.key | sub("[-:0-9]+$"; "")), value: (.rest / " " | (.[11] | tonumber) + (.[12] | tonumber)) }] |
      group_by(.key) | map({key: .[0].key, value: (map(.value) | add / $ticks)}) | from_entries'
}

# run NAME: appends to the results.
run() {
  wrong='' client=''
  # A run that fails early leaves some of them empty.
  for name in report.json threads.0 threads.1 workers.0 workers.1 client.time; do : >"$dir/$name"; done
  echo '{}' >"$dir/written.json"
  begin
  if [ -z "$wrong" ] && [ "$1" != alone ]; then
    # Packets come when they are due, whatever else wants the CPU, as from another machine.
    "${first[@]}" chrt --fifo 1 "$generator" send --cpu 1 --port "memif:$dir/ours/v0" --port "memif:$dir/ours/v1" \
      --queues 2 --ring 4096 --one-way --announce no --order uniform "${packets[@]}" --rate "$rate" \
      --in-flight 3000 --sleep 100 --warm-up 1 --seconds 1000 --connect 20 >"$dir/report.json" 2>"$dir/generator.log" &
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
  if [ -z "$wrong" ]; then finish; fi
  stop_ours
  jq -nc --argjson round "$number" --arg case "$1" --arg wrong "$wrong" --argjson about "$about" \
    --slurpfile written "$dir/written.json" --slurpfile report "$dir/report.json" --slurpfile time "$dir/client.time" \
    --slurpfile t0 "$dir/threads.0" --slurpfile t1 "$dir/threads.1" \
    --slurpfile w0 "$dir/workers.0" --slurpfile w1 "$dir/workers.1" '
    def grown(f): ([$w1[0].workers[] | f] | add) - ([$w0[0].workers[] | f] | add);
    {round: $round, case: $case} + $about +
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
      {case: .[0].case, rounds: length,
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

run_rounds() {
  : >"$dir/results"
  trap 'if [ -s "$dir/results" ]; then summarize || true; fi; clean_up' EXIT
  local number name
  for number in $(seq "$rounds"); do
    echo "round $number"
    for name in "${cases[@]}"; do run "$name"; done
  done
  jq -se 'all((.failed | not) and (.lost // 0) == 0)' "$dir/results" >/dev/null || exit 1
}
