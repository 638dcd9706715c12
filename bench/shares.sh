#!/usr/bin/env bash
# shares.sh: the shares of a shaped port that classes get by their weights, and what a class's minimum and maximum leave.
#
# Eight replayed files flood a TAP port, each in a class of its own: classes 0, 3 and 6 with packets of 60 bytes, 1, 4 and
# 7 with 594, 2 and 5 with 1,514. The port has `shape` and `queueing = "1,2,3,4,5,6,7,8"`.
#
#   bench/shares.sh [--seconds N] [--rate MBIT] [--queueing LIST]
#
# Prints for each class the share of bytes over the measured time (default: 10 s), that by its weight, and the deviation.
# MSWITCH names the binary. The worker has CPU 0.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=10 rate=200 queueing=1,2,3,4,5,6,7,8
while (($#)); do
  case $1 in
    --seconds) seconds=$2; shift 2 ;;
    --rate) rate=$2; shift 2 ;;
    --queueing) queueing=$2; shift 2 ;;
    *) echo "usage: bench/shares.sh [--seconds N] [--rate MBIT] [--queueing LIST]" >&2; exit 2 ;;
  esac
done
mswitch=${MSWITCH:-target/release/mswitch}
for program in "$mswitch" jq xxd; do
  command -v "$program" >/dev/null || { echo "shares.sh: $program is missing; make bench installs and builds it" >&2; exit 1; }
done
dir=$(mktemp -d) netns=shares$$ daemon=''
trap 'for pid in $daemon; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done; ip netns del "$netns" 2>/dev/null || true; rm -rf "$dir"' EXIT
ip netns add "$netns"

# capture LENGTH: a file of a thousand packets for the station behind the port.
capture() {
  {
    printf 'd4c3b2a1020004000000000000000000ffff000001000000'
    local header
    printf -v header '0000000000000000%02x%02x0000%02x%02x0000' $(($1 % 256)) $(($1 / 256)) $(($1 % 256)) $(($1 / 256))
    # The format is repeated for each pair: zeros for the payload, and a number that is not printed.
    printf "${header}02000000000102000000000988b5%0$((($1 - 14) * 2))d%.0s" $(printf '0 %s ' {1..1000})
  } | xxd -r -p >"$dir/$1.pcap"
}
lengths=(60 594 1514)
for length in "${lengths[@]}"; do capture "$length"; done

{
  printf '[[bridge]]\nname = "br0"\nlogic = "learning"\n'
  printf '[[bridge.station]]\nmac = "02:00:00:00:00:01"\nport = "sink"\n'
  printf '[[bridge.port]]\nname = "sink"\ntype = "tap"\ninterface = "sink"\nnetns = "%s"\n' "$netns"
  printf 'shape = "%sMbit"\nqueueing = "%s"\n' "$rate" "$queueing"
  for class in 0 1 2 3 4 5 6 7; do
    # Each could fill half of the port.
    printf '[[bridge.port]]\nname = "source%s"\ntype = "pcap"\nread = "%s/%s.pcap"\nclass = %s\n' \
      $class "$dir" "${lengths[class % 3]}" $class
    printf 'speed = "%sMbit"\nloop = "forever"\n' $((rate / 2))
  done
} >"$dir/config.toml"
export MSWITCH_SOCKET=$dir/socket
nice -n -20 "$mswitch" daemon --config "$dir/config.toml" --workers 0 2>"$dir/log" &
daemon=$!
until "$mswitch" status >/dev/null 2>&1; do kill -0 $daemon || { cat "$dir/log" >&2; exit 1; }; sleep 0.05; done

# classes: nanoseconds, and bytes of each class so far.
classes() {
  local before bytes
  before=$(date +%s%N)
  bytes=$("$mswitch" port show br0 sink --json | jq -c '[.classes[] | .bytes]')
  echo "$(((before + $(date +%s%N)) / 2)) $bytes"
}
sleep 1
read -r start before < <(classes)
sleep "$seconds"
read -r end after < <(classes)
jq -nr --argjson before "$before" --argjson after "$after" --arg queueing "$queueing" --argjson ns $((end - start)) '
  def percent: . * 10000 | round / 100;
  ($queueing | split(",") | map(tonumber)) as $weights
  | [range(8) | $after[.] - $before[.]] as $bytes | ($bytes | add) as $all | ($weights | add) as $sum
  | "CLASS  WEIGHT  SHARE, %  BY WEIGHT, %  DEVIATION, %",
    (range(8) | "\(.)      \($weights[.])       \($bytes[.] / $all | percent)      \($weights[.] / $sum | percent)          \((($bytes[.] / $all) / ($weights[.] / $sum) - 1) | percent)"),
    "all: \($all * 8e5 / $ns | round / 100) Mbit/s"'
