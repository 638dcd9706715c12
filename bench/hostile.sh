#!/usr/bin/env bash
# hostile.sh: the cost of failing modules to their neighbour. Measures the rate of two clients at full speed on one
# bridge while another bridge on the same worker passes packets to a failing module, relative to the rate with a working
# logic (`dummy`) there, alternating. For each fault, prints the median of the rounds' ratios, and the quartiles.
#
#   bench/hostile.sh [--rounds N] [--seconds N]
#
# MSWITCH and MEMIF_CHECK name the binaries (default: those of `cargo build --release --workspace --bins`).
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=9 seconds=1
while (($#)); do
  case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    *) echo "usage: bench/hostile.sh [--rounds N] [--seconds N]" >&2; exit 2 ;;
  esac
done
mswitch=${MSWITCH:-target/release/mswitch}
check=${MEMIF_CHECK:-target/release/memif-check}
for program in "$mswitch" "$check" clang wasm-ld jq; do
  command -v "$program" >/dev/null || { echo "bench/hostile.sh: $program is missing; make bench installs and builds it" >&2; exit 1; }
done

dir=$(mktemp -d) jobs=()
trap 'kill "${jobs[@]}" 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
faults=(TRAP RESTART LOOP LEAK PACKET VERB SETS OUTPUTS BOUNDS PORT HEADER)
for fault in "${faults[@]}"; do
  clang --target=wasm32 -O2 -nostdlib -mbulk-memory -matomics -Isdk/c -Wl,--no-entry "-D$fault" -o "$dir/$fault.wasm" tests/modules/hostile.c
done
port() { printf '[[bridge.port]]\nname = "%s"\ntype = "memif"\npath = "%s/memif"\nid = %s\n' "$1" "$dir" "$2"; }
{
  printf '[[bridge]]\nname = "good"\nlogic = "learning"\n'; port a 0; port b 1
  printf '[[bridge]]\nname = "evil"\nlogic = "dummy"\n'; port c 2; port d 3
} >"$dir/config.toml"
export MSWITCH_SOCKET=$dir/socket
"$mswitch" daemon --config "$dir/config.toml" --workers 0 2>"$dir/log" & jobs+=($!)
until "$mswitch" status >/dev/null 2>&1; do kill -0 "${jobs[0]}"; sleep 0.05; done

# Outlasts all rounds.
all=$((rounds * ${#faults[@]} * 2 * (seconds + 1) + 60))
client() {
  local first=$1; shift
  "$check" run --port "$dir/memif,id=$first" --port "$dir/memif,id=$((first + 1))" --size 60 --headers ethernet --allow-loss --cpu 1 \
    --seconds "$all" "$@" >"$dir/client$first.log" 2>&1 & jobs+=($!)
}
client 0 --rate max --poll
client 2 --rate 5000 --no-announce
delivered() { "$mswitch" port list good --json | jq '[.. | objects | select(has("totals")) | .totals.tx.packets] | add'; }
until (($(delivered) > 100000)); do sleep 0.1; done

# rate LOGIC: prints the neighbour's packets per second while the other bridge runs this logic.
rate() {
  local packets start
  "$mswitch" logic set evil "$1" >/dev/null
  packets=$(delivered) start=$(date +%s%N)
  sleep "$seconds"
  echo $((($(delivered) - packets) * 1000000000 / ($(date +%s%N) - start)))
}
for ((round = 1; round <= rounds; round++)); do
  for fault in "${faults[@]}"; do
    alone=$(rate dummy) beside=$(rate "wasm:$dir/$fault.wasm")
    printf '%s\t%s\t%s\n' "$fault" "$alone" "$beside" | tee -a "$dir/results" >&2
  done
done
echo
printf '%-10s %8s %8s %8s\n' FAULT MEDIAN QUARTILE QUARTILE
for fault in "${faults[@]}"; do
  awk -F'\t' -v fault="$fault" '$1 == fault { print $3 / $2 }' "$dir/results" | sort -n |
    awk -v fault="$fault" '{ v[NR] = $1 } END { printf "%-10s %8.3f %8.3f %8.3f\n", fault, v[int((NR + 1) / 2)], v[int((NR + 3) / 4)], v[int((3 * NR + 1) / 4)] }'
done
