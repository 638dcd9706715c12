#!/bin/bash
# method.sh: checks that `mswitch bench compare` tells a slower switch from noise, on this machine.
#
#   bench/method.sh [--rounds N] [--seconds S] [--out DIR]
#
# Builds a switch whose batches take a tenth longer (feature `slowdown` of mswitch-fabric), and measures three times:
# twice the usual switch, once the slower one, each beside testpmd, whose changes are the machine's. Fails unless the
# comparison says that the slower switch needs more cycles per packet, and that the two runs of one binary differ in
# nothing but noise.
#
# SLOW names the slower binary, if it exists already. Needs root, jq, dpdk-testpmd, the generator.
set -euo pipefail

rounds=5 seconds=0.5 out=''
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}
mswitch=${MSWITCH:-$target/release/mswitch}
slow=${SLOW:-$target/mswitch-slow}

usage() {
  sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done

fail() {
  echo "method.sh: $*" >&2
  exit 1
}
command -v jq >/dev/null || fail "jq is missing: apt-get install jq"
[ -x "$mswitch" ] || fail "$mswitch is missing: cargo build --release, or name it in MSWITCH"
if [ ! -x "$slow" ]; then
  echo "Building the slower switch"
  # Cargo keeps what both have in common; the usual switch comes back last.
  (
    cd "$here/.."
    cargo build --release --locked -p mswitch -p mswitch-fabric --features mswitch-fabric/slowdown
    cp "$target/release/mswitch" "$slow"
    cargo build --release --locked -p mswitch
  )
fi

dir=${out:-$(mktemp -d)}
if [ -z "$out" ]; then trap 'rm -rf "$dir"' EXIT; fi

# measure NAME BINARY
measure() {
  "$mswitch" bench run --mswitch "$2" --scenario v2v-memif --peer mswitch --peer testpmd --size 64 --size 256 --load max \
    --rounds "$rounds" --seconds "$seconds" --limit 1000 --out "$dir/$1"
}
# verdict A B: prints the comparison's verdict on the cycles of mswitch.
verdict() {
  "$mswitch" bench compare "$dir/$1" "$dir/$2" >&2
  "$mswitch" bench compare "$dir/$1" "$dir/$2" --json |
    jq -r '.overall[] | select(.peer == "mswitch" and .figure == "cycles per packet") | .verdict'
}

measure first "$mswitch"
measure slower "$slow"
measure second "$mswitch"

echo "The slower switch beside the usual one:"
found=$(verdict first slower)
[ "$found" = worse ] || fail "the slower switch was not recognized: $found"
echo "The usual switch twice:"
found=$(verdict first second)
[ "$found" = same ] || fail "two runs of one binary were told apart: $found"
