#!/usr/bin/env bash
# shaper.sh: the rate that a shaped port keeps: a memif client floods it with packets of 1,514 bytes, and the bytes that
# leave in the measured time are compared with `shape`.
#
#   bench/shaper.sh [--seconds N] [RATE...]
#
# Rates are those of `shape` (default: 1Mbit 10Mbit 100Mbit 1Gbit 10Gbit). Prints the deviation for each. MSWITCH and
# MEMIF_CHECK: see memif-pair.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=10 rates=()
while (($#)); do
  case $1 in
    --seconds) seconds=$2; shift 2 ;;
    -*) echo "usage: bench/shaper.sh [--seconds N] [RATE...]" >&2; exit 2 ;;
    *) rates+=("$1"); shift ;;
  esac
done
((${#rates[@]})) || rates=(1Mbit 10Mbit 100Mbit 1Gbit 10Gbit)
# shellcheck source=bench/memif-pair.sh
. bench/memif-pair.sh
start_pair
clients --size 1514 --seconds $(((seconds + 3) * ${#rates[@]} + 5))
sleep 1

# sent: time in nanoseconds, bytes to b.
sent() {
  local before bytes
  before=$(date +%s%N)
  bytes=$("$mswitch" port stats br0 b --json | jq '.ports[0].totals.tx.bytes')
  echo "$(((before + $(date +%s%N)) / 2)) $bytes"
}

for rate in "${rates[@]}"; do
  "$mswitch" port set br0 b --shape "$rate" >/dev/null
  sleep 2
  read -r start bytes < <(sent)
  sleep "$seconds"
  read -r end bytes_after < <(sent)
  awk -v rate="$rate" -v ns=$((end - start)) -v bytes=$((bytes_after - bytes)) 'BEGIN {
    number = rate + 0
    if (rate ~ /kbit$/) number *= 1e3; else if (rate ~ /Mbit$/) number *= 1e6; else if (rate ~ /Gbit$/) number *= 1e9
    found = bytes * 8e9 / ns
    printf "%-8s %.6g Mbit/s, %+.2f %%\n", rate, found / 1e6, (found / number - 1) * 100
  }'
done
