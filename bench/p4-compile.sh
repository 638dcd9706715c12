#!/bin/bash
# p4-compile.sh: how long P4 programs take from source text to machine code.
#
#   bench/p4-compile.sh [--rounds N] [--out FILE] PROGRAM.p4...
#
# For each program: `mswitch p4 check`, from the start of the command to its end; and a bridge that is given the program
# by `mswitch logic set`, which ends when packets meet its machine code: the command, and of it the time for machine code
# and its size, as `mswitch logic show` has them. Also their CPU time, which other programs on the machine change less: of
# `check` that of the command, of `set` that of the daemon. Median (lowest to highest) of all rounds. Exit code 1 if a program took more than a
# second in the median, or cannot run.
#
# MSWITCH names the program (default: target/release/mswitch). Needs root and jq.
set -euo pipefail
# shellcheck source=bench/testbed.sh
. "$(dirname "$0")/testbed.sh"
rounds=5 out='' programs=()
while [ $# -gt 0 ]; do
  case $1 in
    --rounds | --out)
      [ $# -ge 2 ] || usage
      if [ "$1" = --out ]; then out=$2; else rounds=$2; fi
      shift
      ;;
    -*) usage ;;
    *) programs+=("$1") ;;
  esac
  shift
done
[ ${#programs[@]} -gt 0 ] || usage
[[ $rounds =~ ^[1-9][0-9]{0,3}$ ]] || fail "--rounds $rounds: expected a whole number above 0"
for program in "${programs[@]}"; do [ -r "$program" ] || fail "$program: cannot be read"; done
[ -x "$mswitch" ] || fail "$mswitch is missing: cargo build --release -p mswitch"
command -v jq >/dev/null || fail "jq is missing: apt-get install jq"
[ -z "$out" ] || [ -d "$(dirname "$out")" ] || fail "--out $out: no such folder"
dir=$(mktemp -d)
control=$dir/ours/ctl
trap 'stop_ours; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
mkdir "$dir/ours"
: >"$dir/results"
printf '[[bridge]]\nname = "br0"\nlogic = "learning"\n' >"$dir/ours/config.toml"
"$mswitch" daemon --socket "$control" --config "$dir/ours/config.toml" 2>"$dir/ours/log" &
ours=$!
waits_for 10 "$mswitch" status --socket "$control" || fail "mswitch did not start: $(tail -3 "$dir/ours/log")"

# seconds_of COMMAND...: wall and CPU time as JSON, or nothing if the command fails.
seconds_of() {
  local TIMEFORMAT='[%R, (%U + %S)]'
  { time "$@" >"$dir/said" 2>&1; } 2>"$dir/time" || return 1
  jq -nc "$(cat "$dir/time")"
}
# daemon_seconds: CPU time of the daemon so far.
daemon_seconds() { awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) / ticks }' "/proc/$ours/stat"; }
# figure NAME: of the running program's code.
figure() { jq -r --arg name "$1" '.tables[] | select(.name == "code").rows[].cells | select(.[0] == $name) | .[1]' "$dir/shown"; }
# in_seconds TIME: such as 12.3ms.
in_seconds() {
  awk -v time="$1" 'BEGIN { n = time + 0; print time ~ /ns$/ ? n / 1e9 : time ~ /ms$/ ? n / 1e3 : time ~ /s$/ && time !~ /[0-9]s$/ ? n / 1e6 : n }'
}

measure() {
  local check set code size before
  check=$(seconds_of "$mswitch" p4 check "$1") || fail "$1: $(head -3 "$dir/said")"
  # The same file again would be the same program.
  "$mswitch" logic set br0 learning --socket "$control" >/dev/null
  before=$(daemon_seconds)
  set=$(seconds_of "$mswitch" logic set br0 "p4:$1" --socket "$control") || fail "$1: $(head -3 "$dir/said")"
  set=$(jq -c --argjson before "$before" --argjson after "$(daemon_seconds)" '.[1] = $after - $before' <<<"$set")
  ask logic show br0 >"$dir/shown"
  [ "$(figure "executed by")" = "machine code" ] || fail "$1: executed by $(figure "executed by")"
  code=$(in_seconds "$(figure "time to start, compiling included")")
  size=$(figure "bytes of code")
  jq -nc --arg program "$1" --argjson check "$check" --argjson set "$set" --argjson code "$code" --argjson size "$size" \
    '{$program, check_seconds: $check[0], check_cpu_seconds: $check[1], set_seconds: $set[0], set_cpu_seconds: $set[1],
      code_seconds: $code, code_bytes: $size}' >>"$dir/results"
}

for _ in $(seq "$rounds"); do
  for program in "${programs[@]}"; do measure "$(realpath "$program")"; done
done
jq -s "$jq_reports"'
  {format: 1, runs: ., summary: (group_by(.program) | map({program: .[0].program,
    rounds: length, check_seconds: (map(.check_seconds) | spread), check_cpu_seconds: (map(.check_cpu_seconds) | spread),
    set_seconds: (map(.set_seconds) | spread), set_cpu_seconds: (map(.set_cpu_seconds) | spread),
    code_seconds: (map(.code_seconds) | spread), code_bytes: .[-1].code_bytes}))}' "$dir/results" >"$dir/summary.json"
if [ -n "$out" ]; then cp "$dir/summary.json" "$out"; fi
jq -r "$jq_reports"'
  .summary[] | "\(.program | split("/") | last): check \(.check_seconds | show(1000)) s, " +
    "CPU \(.check_cpu_seconds | show(1000)) s; set \(.set_seconds | show(1000)) s, CPU \(.set_cpu_seconds | show(1000)) s, of it machine code \(.code_seconds | show(1000)) s, \(.code_bytes) bytes"' "$dir/summary.json"
jq -e 'all(.summary[]; .check_seconds.median < 1 and .set_seconds.median < 1)' "$dir/summary.json" >/dev/null || exit 1
