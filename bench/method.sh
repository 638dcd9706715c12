#!/bin/bash
# method.sh: checks that `mswitch bench compare` tells a slower switch from noise, on this machine.
#
#   bench/method.sh [--rounds N] [--seconds S] [--out DIR]
#
# Builds a switch whose batches take a tenth longer (feature `slowdown` of mswitch-fabric), and measures twice, with the
# usual switch beside it in the same rounds: the slower one, and the usual one again. Fails unless the comparison says
# that the slower switch needs more cycles per packet, and that one program differs from itself in nothing but noise.
#
# SLOW names the slower binary, if it exists already. Needs root, jq, the generator.
set -euo pipefail

rounds=15 seconds=0.3 out=''
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

# verdict NAME BINARY: measures this switch beside the usual one, and prints the comparison's verdict on its cycles.
verdict() {
  "$mswitch" bench run --mswitch "$2" --before "$mswitch" --scenario v2v-memif --peer mswitch --size 64 --size 256 \
    --load max --rounds "$rounds" --seconds "$seconds" --limit 1000 --out "$dir/$1" >&2 || exit 1
  "$mswitch" bench compare "$dir/$1" >&2
  "$mswitch" bench compare "$dir/$1" --json | jq -r '.overall[] | select(.figure == "cycles per packet") | .verdict'
}

echo "The slower switch beside the usual one:"
found=$(verdict slower "$slow")
[ "$found" = worse ] || fail "the slower switch was not recognized: $found"
echo "The usual switch beside itself:"
found=$(verdict same "$mswitch")
[ "$found" = same ] || fail "one program was told apart from itself: $found"
