#!/bin/bash
# capture.sh: the cost of a capture on port a to the uncaptured pair b and c, in interleaved rounds.
#
#   bench/capture.sh [--rounds N] [--seconds S] [--size BYTES] [--rate PPS]
#
# One bridge, one worker on CPU 0: ports b and c exchange packets at full speed, a and d PPS packets a second. Each
# round measures without a capture and with one on port a (to /dev/null): the packets a second that c receives, and the
# worker's TSC cycles per packet over all ports. The order alternates between rounds.
#
# MSWITCH and MEMIF_CHECK name the binaries (default: target/release). Needs root and jq.
set -euo pipefail

rounds=7 seconds=3 size=64 rate=1000
here=$(cd "$(dirname "$0")" && pwd)
mswitch=${MSWITCH:-$here/../target/release/mswitch}
check=${MEMIF_CHECK:-$here/../target/release/memif-check}

usage() {
  sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --size) size=$2 ;;
    --rate) rate=$2 ;;
    *) usage ;;
  esac
  shift 2
done
for tool in jq "$mswitch" "$check"; do
  command -v "$tool" >/dev/null || { echo "capture.sh: $tool is missing" >&2; exit 1; }
done

dir=$(mktemp -d)
daemon='' background='' capture=''
clean_up() {
  for pid in $capture $background $daemon; do kill "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

{
  printf '[[bridge]]\nname = "br0"\nlogic = "static"\nparams = { a = "d", b = "c" }\n'
  id=0
  for port in a b c d; do
    printf '[[bridge.port]]\nname = "%s"\ntype = "memif"\npath = "%s"\nid = %d\n' "$port" "$dir/memif" "$id"
    id=$((id + 1))
  done
} >"$dir/config.toml"

# Measured processes run at the highest common priority, as in pairs.sh.
favour() { if [ -w "/proc/$1/autogroup" ]; then echo -20 >"/proc/$1/autogroup"; fi; }
export -f favour
# shellcheck disable=SC2016 # for the other shell to expand
first=(setsid nice -n -20 bash -c 'favour self; exec "$@"' -)

"${first[@]}" "$mswitch" daemon --socket "$dir/ctl" --workers 0 --config "$dir/config.toml" 2>"$dir/log" &
daemon=$!
for _ in $(seq 200); do "$mswitch" --socket "$dir/ctl" status >/dev/null 2>&1 && break; sleep 0.05; done
"${first[@]}" "$check" run --port "$dir/memif,id=0" --port "$dir/memif,id=3" --rate "$rate" --seconds 86400 \
  --allow-loss --cpu 1 >/dev/null 2>&1 &
background=$!

# Prints the worker's busy cycles and packets so far.
worker() { "$mswitch" --socket "$dir/ctl" worker show --json | jq -r '.workers[0] | "\(.busy_cycles) \(.packets)"'; }

# measure off|on: appends packets per second and cycles per packet to $dir/off or $dir/on.
measure() {
  local before after
  if [ "$1" = on ]; then
    "${first[@]}" "$mswitch" --socket "$dir/ctl" capture br0 --port a --write /dev/null 2>"$dir/capture.log" &
    capture=$!
    sleep 0.3
  fi
  before=$(worker)
  "${first[@]}" "$check" run --port "$dir/memif,id=1" --port "$dir/memif,id=2" --direction forward --rate max \
    --allow-loss --cpu 1 --size "$size" --headers ethernet --seconds "$seconds" --json >"$dir/report"
  after=$(worker)
  if [ "$1" = on ]; then
    kill -INT "$capture"
    wait "$capture"
    capture=''
    if grep -q '^mswitch: 0 packets' "$dir/capture.log"; then
      echo "capture.sh: the capture is empty: $(cat "$dir/capture.log")" >&2
      exit 1
    fi
  fi
  echo "$(jq '.directions[0].received_pps' "$dir/report") $before $after" |
    awk '{printf "%f\t%f\n", $1, ($4 - $2) / ($5 - $3)}' >>"$dir/$1"
}

measure off && rm "$dir/off" # warm-up
for round in $(seq "$rounds"); do
  if [ $((round % 2)) = 0 ]; then order='on off'; else order='off on'; fi
  for which in $order; do measure "$which"; done
  paste "$dir/off" "$dir/on" | tail -1 |
    awk '{printf "off %.3f Mpps, %.1f cycles; on %.3f Mpps, %.1f cycles; ratio %.3f\n", $1/1e6, $2, $3/1e6, $4, $3/$1}'
done
cat "$dir/capture.log"
paste "$dir/off" "$dir/on" | awk '{print $3/$1, $4/$2}' >"$dir/ratios"
median() { sort -n | awk '{v[NR] = $1} END {print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
echo "median of the ratios: rate $(cut -d' ' -f1 "$dir/ratios" | median), cycles per packet $(cut -d' ' -f2 "$dir/ratios" | median)"
