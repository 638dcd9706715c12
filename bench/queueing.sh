#!/usr/bin/env bash
# queueing.sh: the cost of classes at a port. Measures the worker's TSC cycles per packet that leaves, 60 B, two memif
# clients in both directions, logic `static`, in rounds:
#
#   off     no classes
#   passes  eight classes in strict order, where nothing has to wait
#   waits   the same with a bucket a byte shorter than a full batch, so that every packet waits in its class
#
#   bench/queueing.sh [--rounds N] [--seconds N]
#
# Prints the median, minimum and maximum of the ratios to `off` of the same round, of cycles and of throughput.
# MSWITCH and MEMIF_CHECK name the binaries (default: those of `cargo build --release --workspace --bins`).
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
mswitch=${MSWITCH:-target/release/mswitch}
check=${MEMIF_CHECK:-target/release/memif-check}
for program in "$mswitch" "$check" jq; do
  command -v "$program" >/dev/null || { echo "bench/queueing.sh: $program is missing; cargo build --release --workspace --bins, apt-get install jq" >&2; exit 1; }
done

dir=$(mktemp -d)
trap '[[ -z ${daemon:-} ]] || kill "$daemon"; rm -rf "$dir"' EXIT
cat >"$dir/config.toml" <<CONFIG
[[bridge]]
name = "br0"
logic = "static"
[[bridge.port]]
name = "a"
type = "memif"
path = "$dir/memif"
id = 0
[[bridge.port]]
name = "b"
type = "memif"
path = "$dir/memif"
id = 1
CONFIG
export MSWITCH_SOCKET=$dir/socket
"$mswitch" daemon --config "$dir/config.toml" --workers 0 2>"$dir/log" &
daemon=$!
until "$mswitch" status >/dev/null 2>&1; do kill -0 "$daemon"; sleep 0.05; done

# counters: busy cycles of the worker, packets delivered, packets that have waited.
counters() {
  local cycles
  cycles=$("$mswitch" worker show --json | jq '[.workers[].busy_cycles] | add')
  "$mswitch" port stats br0 --json | jq -r --argjson cycles "$cycles" '
    "\($cycles) \([.ports[].totals.tx.packets] | add) \([.ports[].classes[]?.waiting.waited] | add // 0)"'
}

for ((round = 1; round <= rounds; round++)); do
  for case in off passes waits; do
    case $case in
      off) settings=(--queueing off) ;;
      passes) settings=(--queueing off) more=(--queueing strict) ;;
      waits) settings=(--queueing off) more=(--shape "100Gbit burst 3839B") ;;
    esac
    for port in a b; do
      "$mswitch" port set br0 "$port" "${settings[@]}" >/dev/null
      if [ "$case" != off ]; then "$mswitch" port set br0 "$port" "${more[@]}" >/dev/null; fi
    done
    "$check" run --port "$dir/memif,id=0" --port "$dir/memif,id=1" --size 60 --rate max --seconds $((seconds + 2)) \
      --allow-loss --cpu 1 --poll >"$dir/client.log" 2>&1 &
    client=$!
    sleep 1
    read -r cycles packets waited < <(counters)
    sleep "$seconds"
    read -r cycles_after packets_after waited_after < <(counters)
    wait $client || { cat "$dir/client.log" >&2; exit 1; }
    awk -v round="$round" -v name="$case" -v c=$((cycles_after - cycles)) -v p=$((packets_after - packets)) \
      -v w=$((waited_after - waited)) 'BEGIN { printf "%d\t%s\t%.2f\t%d\t%.3f\n", round, name, c / p, p, w / p }' |
      tee -a "$dir/results" >&2
  done
done
echo
printf '%-8s %-28s %-28s %s\n' CASE 'CYCLES TO off' 'THROUGHPUT TO off' WAITED
for case in passes waits; do
  ratios() {
    awk -F'\t' -v name="$case" -v column="$1" '$2 == "off" { off = $column } $2 == name { print $column / off }' "$dir/results" |
      sort -n | awk '{ v[NR] = $1 } END { printf "%.2f (%.2f to %.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'
  }
  waited=$(awk -F'\t' -v name="$case" '$2 == name { sum += $5; n++ } END { printf "%.2f", sum / n }' "$dir/results")
  printf '%-8s %-28s %-28s %s\n' "$case" "$(ratios 3)" "$(ratios 4)" "$waited"
done
