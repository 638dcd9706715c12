#!/usr/bin/env bash
# logics.sh: the cost of logics. Measures the worker's TSC cycles per packet, 60 B, two memif clients in both
# directions, with one logic after another on the same bridge, in rounds. For each logic, prints the median, minimum and
# maximum of the rounds, and the median of packets per batch.
#
#   bench/logics.sh [--rounds N] [--seconds N] [--headers ethernet|udp] [--only REGEX]
#
# --headers udp: packets of one UDP conversation, for logics that read port numbers. --only: logics whose name matches.
# MSWITCH and MEMIF_CHECK name the binaries (default: those of `cargo build --release --workspace --bins`).
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=5 seconds=2 headers=ethernet only=''
while (($#)); do
  case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --headers) headers=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    *) echo "usage: bench/logics.sh [--rounds N] [--seconds N] [--headers ethernet|udp] [--only REGEX]" >&2; exit 2 ;;
  esac
done
# shellcheck source=bench/memif-pair.sh
. bench/memif-pair.sh
start_pair clang wasm-ld
clang --target=wasm32 -O2 -nostdlib -mbulk-memory -matomics -Isdk/c -Wl,--no-entry -o "$dir/learning.wasm" examples/modules/learning.c
cc -O2 -shared -fPIC -Isdk/c -o "$dir/learning.so" examples/modules/learning.c

# NAME LOGIC [PARAMETER...]
logics=(
  "dummy|dummy"
  "static|static"
  "hub|hub"
  "learning, built in|learning"
  "learning, native|native:$dir/learning.so"
  "learning, WebAssembly|wasm:$dir/learning.wasm"
  "chain of learning|chain|1=learning"
  "chain of two|chain|1=native:$dir/pass.so|2=learning"
  "middlebox, learning|chain|1=middlebox b=0-65535/udp|2=learning"
  "middlebox, static|chain|1=middlebox b=0-65535/udp|2=static"
  "three-tuple|three-tuple|host=a|uplink=b"
  "pcap-filter, learning|chain|1=pcap-filter '1=tcp port 23 -> drop'|2=learning"
)
if [[ -n $only ]]; then
  chosen=()
  for logic in "${logics[@]}"; do [[ ! ${logic%%|*} =~ $only ]] || chosen+=("$logic"); done
  logics=("${chosen[@]}")
fi
cat >"$dir/pass.c" <<'MODULE'
#include "mswitch.h"
const char *msw_describe(void) { return "{\"name\": \"pass\", \"summary\": \"leaves everything\"}"; }
uint32_t msw_forward(struct msw_batch *batch) { (void)batch; return 0; }
MODULE
cc -O2 -shared -fPIC -Isdk/c -o "$dir/pass.so" "$dir/pass.c"

for ((round = 1; round <= rounds; round++)); do
  for logic in "${logics[@]}"; do
    IFS='|' read -r -a part <<<"$logic"
    params=()
    for param in "${part[@]:2}"; do params+=(--param "$param"); done
    "$mswitch" logic set br0 "${part[1]}" "${params[@]}" >/dev/null
    clients --size 60 --headers "$headers" --seconds $((seconds + 2))
    # Packets flow once a worker has switched some.
    cycles=0 batch=0
    until awk -v c="$cycles" 'BEGIN { exit c <= 0 }'; do
      read -r cycles batch < <("$mswitch" worker show --interval "$seconds" --json |
        jq -r '.workers[0] | if .packets > 1000 then "\(.cycles_per_packet) \(.packets / .batches)" else "0 0" end')
      kill -0 "$client" || break
    done
    wait "$client" || { cat "$dir/client.log" >&2; exit 1; }
    printf '%s\t%s\t%s\n' "${part[0]}" "$cycles" "$batch" | tee -a "$dir/results" >&2
  done
done
echo
printf '%-24s %8s %8s %8s %8s\n' LOGIC MEDIAN MIN MAX BATCH
for logic in "${logics[@]}"; do
  name=${logic%%|*}
  column() { awk -F'\t' -v name="$name" -v column="$1" '$1 == name { print $column }' "$dir/results" | sort -n; }
  batch=$(column 3 | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
  column 2 | awk -v name="$name" -v batch="$batch" \
    '{ v[NR] = $1 } END { printf "%-24s %8.1f %8.1f %8.1f %8.1f\n", name, v[int((NR + 1) / 2)], v[1], v[NR], batch }'
done
