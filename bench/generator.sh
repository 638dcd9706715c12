#!/bin/bash
# generator.sh: the generator's ceilings, and the generator beside dpdk-testpmd over one hop of memif without a switch.
#
#   bench/generator.sh [--rounds N] [--seconds S] [--size BYTES] [--out FILE]
#
# Sender on CPU 1, receiver on CPU 0. Each round measures a testpmd (txonly) into another (rxonly), the generator into a
# testpmd, and the generator into another, in turn; the rate is the receiver's. Needs root and 1,024 huge pages of 2 MiB.
# --out writes all runs and medians as JSON.
set -euo pipefail

rounds=3 seconds=2 size=64 out=/dev/null
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
generator=${MSWITCH_GENERATOR:-$here/../target/generator/mswitch-generator}

usage() {
  sed -n '2,/^[^#]/{/^[^#]/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
}
fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --size) size=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$generator" ] || fail "$generator is missing: make generator"
for tool in jq dpdk-testpmd; do
  command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install jq dpdk-dev"
done
[ "$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages)" -ge 512 ] ||
  fail "too few huge pages: echo 1024 >/proc/sys/vm/nr_hugepages"

dir=$(mktemp -d)
receiver=''
clean_up() {
  if [ -n "$receiver" ]; then kill "$receiver" 2>/dev/null || true; fi
  rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

memif=net_memif0,socket=$dir/hop,socket-abstract=no,rsize=10
# Time for both programs to start and connect.
lead=3

# testpmd CPU ROLE: reads commands from standard input.
testpmd() {
  dpdk-testpmd --lcores "(0)@$1,(1)@$1" --main-lcore 0 --no-pci --in-memory --single-file-segments \
    --file-prefix="hop$$-$1" --vdev="$memif,role=$2" -- -i --no-mlockall --total-num-mbufs=16384 --rxd=1024 --txd=1024
}
# The rate between two looks at the port is testpmd's own; the first one of each pair is from its start.
testpmd_receives() {
  { printf 'set fwd rxonly\nstart\n'; sleep $((lead + 1)); echo 'show port stats 0'; sleep "$seconds"
    printf 'show port stats 0\nstop\nquit\n'; } | testpmd 0 server >"$dir/receiver" 2>&1
}
testpmd_sends() {
  { sleep 1; printf 'set txpkts %s\nset fwd txonly\nstart\n' "$size"; sleep $((lead + seconds)); printf 'stop\nquit\n'; } |
    testpmd 1 client >"$dir/sender" 2>&1 || true
}
generator_receives() {
  "$generator" receive --cpu 0 --port "$memif,role=server" --seconds $((lead + seconds)) --quiet \
    >"$dir/receiver" 2>/dev/null
}
generator_sends() {
  "$generator" send --cpu 1 --port "memif:$dir/hop" --size "$size" --seconds $((lead + seconds + 2)) --quiet \
    >"$dir/sender" 2>/dev/null || true
}
# hop SENDER RECEIVER: prints packets per second.
hop() {
  "${2}_receives" &
  receiver=$!
  until [ -S "$dir/hop" ]; do
    kill -0 "$receiver" 2>/dev/null || fail "$2 did not start: $(tail -3 "$dir/receiver")"
    sleep 0.05
  done
  "${1}_sends"
  wait "$receiver" || fail "$2 failed: $(tail -3 "$dir/receiver")"
  receiver=''
  if [ "$2" = testpmd ]; then
    awk '/Rx-pps:/ { rate = $2 } END { print rate + 0 }' "$dir/receiver"
  else
    jq '.directions[0].median_pps' "$dir/receiver"
  fi
}

echo "Ceilings, both directions added up, $rounds runs each: Mpps and TSC cycles per packet sent and received"
for load in "--size 64" "--size imix" "--size 1518" "--size 9000" "--size 64 --macs 10000 --order uniform"; do
  for _ in $(seq "$rounds"); do
    # shellcheck disable=SC2086 # several options
    "$generator" ceiling --cpu 1 --seconds 1 --quiet $load |
      jq -c --arg load "$load" '{load: $load, pps: (.directions | map(.received_pps) | add), cycles: .core.cycles_per_packet}'
  done | tee -a "$dir/ceilings" | jq -rs '
    def show(f; n): map(f) | sort | "\(.[length / 2 | floor] * n | round / n) (\(.[0] * n | round / n) to \(.[-1] * n | round / n))";
    "  \(.[0].load): \(show(.pps / 1e6; 100)) Mpps, \(show(.cycles; 1)) cycles"'
done

echo "One hop, $size bytes: Mpps"
for round in $(seq "$rounds"); do
  for pair in "testpmd testpmd" "generator testpmd" "generator generator"; do
    # shellcheck disable=SC2086 # sender and receiver
    rate=$(hop $pair)
    jq -nc --arg pair "${pair/ / into }" --argjson round "$round" --argjson pps "$rate" '{pair: $pair, round: $round, pps: $pps}' |
      tee -a "$dir/hops" | jq -r '"  \(.pair): \(.pps / 1e6 * 100 | round / 100)"'
  done
done
jq -n --slurpfile ceilings "$dir/ceilings" --slurpfile hops "$dir/hops" '{ceilings: $ceilings, hops: $hops}' >"$out"
