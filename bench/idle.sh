#!/bin/bash
# idle.sh: the cost of connected but idle clients.
#
#   bench/idle.sh [--clients N] [--seconds S] [--out FILE]
#
# Starts a daemon with N memif ports (default 1024), first without clients and then with one on each port. Prints the
# memory per port and client, and, over S seconds (default 30), the CPU time of the whole daemon and the number of its
# workers' wake-ups. Fails if a worker wakes up or the daemon uses more than 1 ms of CPU time per second.
#
# MSWITCH and MEMIF_CHECK name the binaries (default: those in target/release). Needs jq.
set -euo pipefail

clients=1024 seconds=30 out=''
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
    --clients) clients=$2 ;;
    --seconds) seconds=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done

fail() {
  echo "idle.sh: $*" >&2
  exit 1
}
command -v jq >/dev/null || fail "jq is missing: apt-get install jq"
[ -x "$mswitch" ] || fail "$mswitch is missing: cargo build --release, or name it in MSWITCH"
[ -x "$check" ] || fail "$check is missing: cargo build --release, or name it in MEMIF_CHECK"

dir=$(mktemp -d)
daemon='' idle=''
clean_up() {
  local pid
  for pid in $idle $daemon; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# waits_for SECONDS COMMAND...: waits until the command succeeds.
waits_for() {
  local tries=$(($1 * 20))
  shift
  while ! "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 1
    sleep 0.05
  done
}

ask() { "$mswitch" "$@" --json --socket "$dir/ctl"; }
wakeups() { ask worker show | jq '[.workers[].wakeups] | add'; }
# Prints the daemon's memory in KiB, with pages shared with clients in proportion.
memory() { awk '/^Pss:/ { print $2 }' /proc/"$daemon"/smaps_rollup; }

{
  printf '[[bridge]]\nname = "br0"\nlogic = "learning"\n'
  for i in $(seq 0 $((clients - 1))); do
    printf '[[bridge.port]]\nname = "p%s"\ntype = "memif"\npath = "%s/memif"\nid = %s\n' "$i" "$dir" "$i"
  done
} >"$dir/config.toml"
"$mswitch" daemon --socket "$dir/ctl" --config "$dir/config.toml" --workers 0 2>"$dir/log" &
daemon=$!
waits_for 30 "$mswitch" status --socket "$dir/ctl" || fail "mswitch did not start: $(tail -3 "$dir/log")"
memory_before=$(memory)

# The clients report the switch's CPU time: a query to the switch itself would use some.
"$check" idle --port "$dir/memif" --count "$clients" --seconds "$seconds" --watch "$daemon" >"$dir/idle.log" 2>&1 &
idle=$!
waits_for 60 grep -q 'clients are connected' "$dir/idle.log" || fail "clients did not connect: $(cat "$dir/idle.log")"
up=$(ask status | jq '.ports_up')
[ "$up" = "$clients" ] || fail "$up of $clients ports are up"
memory_after=$(memory)
wakeups_before=$(wakeups)
waits_for $((seconds + 30)) grep -q '^CPU time:' "$dir/idle.log" || fail "a client was disconnected: $(cat "$dir/idle.log")"
wakeups_after=$(wakeups)
cpu=$(awk '/^CPU time:/ { print $3 }' "$dir/idle.log")

jq -n --argjson clients "$clients" --argjson seconds "$seconds" --argjson cpu "$cpu" \
  --argjson wakeups "$((wakeups_after - wakeups_before))" --argjson kib "$((memory_after - memory_before))" \
  '{clients: $clients, seconds: $seconds, cpu_ms_per_second: ($cpu / 1e6 / $seconds), worker_wakeups: $wakeups,
    kib_per_client: ($kib / $clients)}' >"$dir/report.json"
jq -r '"\(.clients) connected idle clients over \(.seconds) s: \(.cpu_ms_per_second) ms of CPU time per second, " +
  "\(.worker_wakeups) worker wake-ups, \(.kib_per_client) KiB of memory per client"' "$dir/report.json"
if [ -n "$out" ]; then cp "$dir/report.json" "$out"; fi
jq -e '.worker_wakeups == 0 and .cpu_ms_per_second < 1' "$dir/report.json" >/dev/null || fail "more than the limit of 0 wake-ups and 1 ms of CPU time per second"
