#!/usr/bin/env bash
# queueing.sh: the cost of classes at a port, in TSC cycles of the worker per packet, as ratios to no classes in the same
# round. Logic `static`, two memif ports.
#
#   passes  eight classes in strict order, where nothing has to wait: two clients at full load, 60 B, both directions;
#           throughput as well
#   waits   every packet waits in its class: full rings of 64 B in turns, full batches (mswitch-instructions)
#
#   bench/queueing.sh [--rounds N] [--seconds N]
#
# Prints the median, minimum and maximum. MSWITCH and MEMIF_CHECK: see memif-pair.sh. INSTRUCTIONS names
# mswitch-instructions (default: that of `cargo build --release -p mswitch-instructions`).
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=9 seconds=2
while (($#)); do
  case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    *) echo "usage: bench/queueing.sh [--rounds N] [--seconds N]" >&2; exit 2 ;;
  esac
done
instructions=${INSTRUCTIONS:-target/release/mswitch-instructions}
# shellcheck source=bench/memif-pair.sh
. bench/memif-pair.sh
start_pair "$instructions"

# counters: busy cycles of the worker, packets delivered.
counters() {
  local cycles
  cycles=$("$mswitch" worker show --json | jq '[.workers[].busy_cycles] | add')
  "$mswitch" port stats br0 --json | jq -r --argjson cycles "$cycles" '"\($cycles) \([.ports[].totals.tx.packets] | add)"'
}

for ((round = 1; round <= rounds; round++)); do
  for order in off strict; do
    for port in a b; do "$mswitch" port set br0 "$port" --queueing "$order" >/dev/null; done
    clients --size 60 --seconds $((seconds + 2))
    sleep 1
    read -r cycles packets < <(counters)
    sleep "$seconds"
    read -r cycles_after packets_after < <(counters)
    wait "$client" || { cat "$dir/client.log" >&2; exit 1; }
    client=''
    awk -v name="$order" -v c=$((cycles_after - cycles)) -v p=$((packets_after - packets)) \
      'BEGIN { printf "%s\t%.2f\t%d\n", name, c / p, p }' | tee -a "$dir/passes" >&2
  done
  for case in static 'static, packets wait'; do
    printf '%s\t%s\n' "$case" "$("$instructions" cycles "$case" 200)" | tee -a "$dir/waits" >&2
  done
done

# ratios FILE COLUMN: of each second line of the file to the one before it.
ratios() {
  awk -F'\t' -v column="$2" 'NR % 2 { first = $column; next } { print $column / first }' "$dir/$1" |
    sort -n | awk '{ v[NR] = $1 } END { printf "%.2f (%.2f to %.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'
}
echo
printf '%-8s %-28s %s\n' CASE CYCLES THROUGHPUT
printf '%-8s %-28s %s\n' passes "$(ratios passes 2)" "$(ratios passes 3)" waits "$(ratios waits 2)" ''
