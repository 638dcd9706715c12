#!/bin/bash
# line-cards.sh: what it costs to split a router over two line cards: round-trip times by load and by size of packets, as
# figure 7 of HyMoS has them.
#
#   bench/line-cards.sh [--rounds N] [--seconds S] [--loads 10,25,50,75] [--sizes 64,256,512,800,1024,1514] [--cards xdp|worker]
#                       [--settings whole,cable,switch] [--out FILE]
#
# examples/p4/router.p4 between two veth interfaces:
#   whole    on one bridge
#   cable    as two line cards (`mswitch p4 split`), on a cable
#   switch   as two line cards, between which a bridge with the logic `learning` switches, in mswitch's worker
# Cards run in XDP, or in the worker (--cards). Packets go one way, from one interface to the other, over packet sockets
# of the generator, which holds both far ends. Loads are shares of the lowest of the settings' highest rates, which
# the script measures first for each size: with 800 bytes all loads, with each size the last of them.
#
# Output: for each load and size, median and 99th percentile of the round-trip times of each setting, the increase over
# `whole` within a round (median, lowest to highest), and packets that each setting's worker took from the cards'
# interfaces. The time for the transfer between cards is the difference between `switch` and `cable`. --out writes
# all runs and this summary as JSON.
#
# The interfaces at which hosts are have threads of the kernel on CPU 0, as they would otherwise run on the generator's
# CPU; those between the cards run where packets are sent to them, on CPU 0, too, as does mswitch's worker. The generator
# has CPU 1. MSWITCH and MSWITCH_GENERATOR name the programs. Needs root, jq, ethtool; `make generator`.
set -euo pipefail
# shellcheck source=bench/testbed.sh
. "$(dirname "$0")/testbed.sh"
rounds=5 seconds=3 loads=10,25,50,75 sizes=64,256,512,800,1024,1514 cards=xdp settings=whole,cable,switch out=''
generator=${MSWITCH_GENERATOR:-$here/../target/generator/mswitch-generator}
program=$here/../examples/p4/router.p4

while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --loads) loads=$2 ;;
    --sizes) sizes=$2 ;;
    --cards) cards=$2 ;;
    --settings) settings=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[[ $cards =~ ^(xdp|worker)$ ]] || fail "--cards $cards: expected xdp or worker"
[[ $settings =~ ^whole,cable(,switch)?$ ]] || fail "--settings $settings: expected whole,cable or whole,cable,switch"
[ -x "$mswitch" ] || fail "$mswitch is missing: cargo build --release -p mswitch"
[ -x "$generator" ] || fail "$generator is missing: make generator"
for tool in jq ethtool; do command -v $tool >/dev/null || fail "$tool is missing: apt-get install $tool"; done
IFS=, read -r -a loads <<<"$loads"
IFS=, read -r -a sizes <<<"$sizes"
IFS=, read -r -a settings <<<"$settings"

dir=$(mktemp -d)
control=$dir/ctl switch_ns=mswitch-cards-$$ hosts=mswitch-cards-$$-hosts
remove_namespaces() { local netns; for netns in "$switch_ns" "$hosts"; do ip netns del "$netns" 2>/dev/null || true; done; }
trap 'stop_ours; remove_namespaces; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
"$mswitch" p4 split "$program" --cards 1 2 --output "$dir" >/dev/null

in_switch() { ip netns exec "$switch_ns" "$@"; }

# interface NAME NUMBER: a port of the bridge that the configuration ends with.
interface() {
  printf '[[bridge.port]]\nname = "%s"\ntype = "netdev"\ndriver = "af-xdp"\n' "$1"
  if [ -n "$2" ]; then printf 'p4-port = %s\n' "$2"; fi
}
# card BRIDGE PROGRAM PARAMS
card() {
  printf '[[bridge]]\nname = "%s"\nlogic = "p4:%s"\nparams = { %s' "$1" "$(realpath "$2")" "$3"
  if [ "$cards" = xdp ]; then printf '%sxdp = "on"' "${3:+, }"; fi
  printf ' }\n'
}

both_cards() {
  card card1 "$dir/card1.p4" 'link = 500, behind-link = "2"'
  interface v0 1
  interface l0 500
  card card2 "$dir/card2.p4" 'link = 500, behind-link = "1"'
  interface v1 2
  interface l1 500
}

# cable NAME NAME: a veth pair within the switch's namespace.
cable() {
  in_switch ip link add "$1" type veth peer name "$2"
  local end
  for end in "$1" "$2"; do
    # Room for carriers.
    in_switch ip link set "$end" mtu 1600 up
    in_switch ethtool -K "$end" gro on
  done
}

# start SETTING: with its routes, and with the kernel's threads where they belong.
start() {
  local netns i bridge
  for netns in "$switch_ns" "$hosts"; do
    ip netns add "$netns"
    ip netns exec "$netns" sysctl -qw net.ipv6.conf.default.disable_ipv6=1
  done
  for i in 0 1; do
    ip link add "v$i" netns "$switch_ns" type veth peer name "c$i" netns "$hosts"
    ip -n "$hosts" link set "c$i" up
    ip -n "$switch_ns" link set "v$i" up
    ip netns exec "$hosts" ethtool -K "c$i" gro on
  done
  case $1 in
    whole)
      card whole "$program" ''
      interface v0 1
      interface v1 2
      ;;
    cable)
      cable l0 l1 >&2
      both_cards
      ;;
    switch)
      cable l0 f0 >&2
      cable l1 f1 >&2
      both_cards
      printf '[[bridge]]\nname = "fabric"\nlogic = "learning"\n'
      interface f0 ''
      interface f1 ''
      for i in 1 2; do printf '[[bridge.station]]\nmac = "02:00:00:00:00:0%s"\nport = "f%s"\n' $i $((i - 1)); done
      ;;
  esac >"$dir/config.toml"
  ip netns exec "$switch_ns" "${first[@]}" "$mswitch" daemon --socket "$control" --config "$dir/config.toml" --workers 0 2>"$dir/log" &
  ours=$!
  waits_for 10 "$mswitch" status --socket "$control" || fail "mswitch did not start: $(tail -3 "$dir/log")"
  for bridge in whole card1 card2; do
    grep -q "^name = \"$bridge\"" "$dir/config.toml" || continue
    "$mswitch" --socket "$control" p4 add "$bridge" 'routes hdr.ipv4.dst=198.0.0.0/8 => via(next_hop=1)' >/dev/null
    "$mswitch" --socket "$control" p4 add "$bridge" 'next_hops meta.next_hop=1 => forward(port=2, src=02:00:00:00:00:f1, dst=02:00:00:00:00:02)' >/dev/null
    if [ "$cards" = xdp ]; then
      waits_for 10 in_kernel "$bridge" || fail "$bridge does not run in XDP: $(ask logic show "$bridge" | jq -c '.tables[] | select(.name == "card")')"
    fi
  done
  for i in $(in_switch sh -c 'echo /sys/class/net/v[01]'); do
    waits_for 5 in_switch sh -c "echo 1 >$i/threaded" || fail "$i has no threads"
  done
  for i in $(pgrep 'napi/v[01]-'); do
    taskset -pc 0 "$i" >/dev/null
    renice -n -20 -p "$i" >/dev/null
  done
}
in_kernel() { ask logic show "$1" | jq -e '.tables[] | select(.name == "card") | tostring | test("yes, ports: ")' >/dev/null; }
stop() {
  stop_ours
  remove_namespaces
}

# send OPTION...: one way, the report in $dir/report.json.
send() {
  ip netns exec "$hosts" "${first[@]}" "$generator" send --cpu 1 --port af_packet:c0 --port af_packet:c1 --one-way --announce no \
    --flows 1000 --warm-up 0.3 --quiet "$@" >"$dir/report.json" 2>"$dir/generator.log" ||
    fail "the generator failed: $(tail -1 "$dir/generator.log")"
}
# taken: packets that the worker took from the cards' own interfaces, v0 and v1.
taken() {
  local bridge
  for bridge in whole card1 card2; do
    grep -q "^name = \"$bridge\"" "$dir/config.toml" || continue
    ask port stats "$bridge" | jq '[.ports[] | select(.name | test("^v[01]$")) | .totals.rx.packets] | add // 0'
  done | awk '{ sum += $1 } END { print sum + 0 }'
}

declare -A highest
for size in $(printf '%s\n' "${sizes[@]}" 800 | sort -nu); do
  for setting in "${settings[@]}"; do
    start $setting
    send --size "$size" --seconds 1
    stop
    rate=$(jq '.directions[0].received_pps | floor' "$dir/report.json")
    echo "$setting, $size B: at most $rate packets/s" >&2
    if [ -z "${highest[$size]:-}" ] || [ "$rate" -lt "${highest[$size]}" ]; then highest[$size]=$rate; fi
  done
  [ "${highest[$size]}" -gt 0 ] || fail "nothing arrives"
done

# Points: load in %, size.
points=()
for load in "${loads[@]}"; do points+=("$load 800"); done
for size in "${sizes[@]}"; do if [ "$size" != 800 ]; then points+=("${loads[-1]} $size"); fi; done

: >"$dir/results"
for ((round = 1; round <= rounds; round++)); do
  echo "round $round of $rounds" >&2
  for setting in "${settings[@]}"; do
    start $setting
    for point in "${points[@]}"; do
      read -r load size <<<"$point"
      before=$(taken)
      send --size "$size" --seconds "$seconds" --rate $((highest[$size] * load / 100)) --rtt --probes 20k
      jq -c --arg setting $setting --argjson round $round --argjson load "$load" --argjson size "$size" --argjson took $(($(taken) - before)) '
        .directions[0] | {$round, $setting, $load, $size, pps: .sent_pps, lost, sent, worker: $took,
          p50: (.rtt_ns.p50 / 1000), mean: (.rtt_ns.mean / 1000), p99: (.rtt_ns.p99 / 1000)}' "$dir/report.json" | tee -a "$dir/results" >&2
    done
    stop
  done
done

jq -s '
  def spread: sort | {median: .[((length - 1) / 2 | floor)], min: .[0], max: .[-1]};
  {runs: ., summary: (group_by([.size, .load]) | map(. as $all | {size: .[0].size, load: .[0].load,
    settings: (group_by(.setting) | map(. as $mine | {setting: .[0].setting, pps: (map(.pps) | spread), p50: (map(.p50) | spread), p99: (map(.p99) | spread),
      lost: (map(.lost) | add), sent: (map(.sent) | add), worker: (map(.worker) | add),
      increase: ([$mine[] | . as $run | .p50 / ($all[] | select(.setting == "whole" and .round == $run.round) | .p50)] | spread),
      above_cable: ([$mine[] | . as $run | .p50 - ($all[] | select(.setting == "cable" and .round == $run.round) | .p50)] | spread)}))}))}' \
  "$dir/results" >"$dir/summary.json"
jq -r '
  def d: . * 100 | round / 100;
  def show: "\(.median | d) (\(.min | d) to \(.max | d))";
  .summary[] | "\(.size) B, load \(.load) %:", (.settings | sort_by(.setting != "whole")[] |
    "  \(.setting): \(.pps.median / 1000 | round) kpps, median \(.p50 | show) us, p99 \(.p99 | show) us, of whole \(.increase | show)" +
    (if .setting == "switch" then ", above cable \(.above_cable | show) us" else "" end) +
    ", lost \(.lost) of \(.sent), to the worker \(.worker)")' "$dir/summary.json"
if [ -n "$out" ]; then cp "$dir/summary.json" "$out"; fi
