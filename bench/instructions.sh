#!/bin/bash
# instructions.sh: counts a worker's instructions per packet from memif to memif with callgrind, and compares them with
# the record.
#
#   bench/instructions.sh [--record]
#
# bench/instructions.json is the record: instructions per packet for each case, and a budget for some. Fails when a case
# exceeds its record by more than 3 %, or its budget. --record writes a new record; budgets are edited by hand. With a
# different compiler or kind of CPU only the budgets apply.
#
# Needs valgrind and jq.
set -euo pipefail
cd "$(dirname "$0")/.."

record=bench/instructions.json tolerance=1.03
case ${1:-} in
  '') write='' ;;
  --record) write=yes ;;
  *) sed -n '2,/^[^#]/{/^[^#]/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
esac
for tool in valgrind jq; do
  command -v "$tool" >/dev/null || { echo "instructions.sh: $tool is missing: apt-get install valgrind jq" >&2; exit 1; }
done

cargo build --release --locked -p mswitch-instructions
program=${CARGO_TARGET_DIR:-target}/release/mswitch-instructions
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# count CASE ROUNDS: prints instructions and packets.
count() {
  local packets
  packets=$(valgrind --tool=callgrind --callgrind-out-file="$dir/profile" --log-file="$dir/log" "$program" run "$1" "$2") ||
    { cat "$dir/log" >&2; exit 1; }
  echo "$(awk '/^(summary|totals):/ { print $2; exit }' "$dir/profile") $packets"
}

mapfile -t cases < <("$program" cases)
for name in "${cases[@]}"; do
  read -r few few_packets < <(count "$name" 4)
  read -r many many_packets < <(count "$name" 12)
  jq -nc --arg name "$name" "{(\$name): (($many - $few) / ($many_packets - $few_packets) * 10 | round / 10)}"
done | jq -s add >"$dir/found"

rustc=$(rustc --version)
cpu='without AVX2'
if grep -qw avx2 /proc/cpuinfo; then cpu='with AVX2'; fi
[ -e "$record" ] || echo '{}' >"$dir/none"
jq -n --arg rustc "$rustc" --arg cpu "$cpu" --slurpfile before "$( [ -e "$record" ] && echo "$record" || echo "$dir/none")" \
  --slurpfile found "$dir/found" '{rustc: $rustc, cpu: $cpu, budget: ($before[0].budget // {}), instructions: $found[0]}' >"$dir/report"
if [ -n "$write" ]; then
  cp "$dir/report" "$record"
  cat "$record"
  exit
fi

jq -r --slurpfile before "$record" --argjson tolerance "$tolerance" '
  $before[0] as $before | (.rustc == $before.rustc and .cpu == $before.cpu) as $comparable |
  (if $comparable then empty else
    "recorded with \($before.rustc) \($before.cpu), counted with \(.rustc) \(.cpu): only the budgets apply" end),
  (.instructions | to_entries[] | $before.instructions[.key] as $was | $before.budget[.key] as $budget |
    (if $comparable and $was == null then "FAILED: not recorded"
     elif $comparable and .value > $was * $tolerance then "FAILED: over 3 % more than recorded"
     elif $budget and .value > $budget then "FAILED: over the budget"
     elif $comparable and .value * $tolerance < $was then "ok, less than recorded; run bench/instructions.sh --record to lower the record"
     else "ok" end) as $verdict |
    "\(.key): \(.value) instructions per packet, recorded \($was // "none")\(if $budget then ", budget \($budget)" else "" end): \($verdict)")' \
  "$dir/report" | tee "$dir/verdicts"
if grep -q FAILED "$dir/verdicts"; then
  echo "instructions.sh: to locate the increase, run callgrind_annotate on a profile; to accept it, bench/instructions.sh --record" >&2
  exit 1
fi
