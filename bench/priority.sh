#!/usr/bin/env bash
# priority.sh: round-trip times of a good class while a worse one floods a shaped port, beside the kernel's htb.
#
# Three namespaces are connected by veth pairs to mswitch, or to a bridge of the kernel: a sender that floods, a prober,
# and a receiver behind a port of RATE. The flood is UDP in class selector 0 (iperf3), packets of 1,490 bytes; the probes
# are pings in class selector 7. mswitch has `shape` and strict order, htb two classes of different priorities.
#
#   bench/priority.sh [--rounds N] [--seconds N] [--rate MBIT] [--overload N,N,…]
#
# Prints, for each switch and load: packets lost of both classes, the flood's rate at the receiver, median and 99th
# percentile of the probes' round trips, and what these are above those without load in the same round; medians over
# all rounds (lowest to highest). MSWITCH names the binary. The switch's worker has CPU 0, all others CPU 1.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=5 seconds=4 rate=100 overloads=2,5,10
while (($#)); do
  case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --rate) rate=$2; shift 2 ;;
    --overload) overloads=$2; shift 2 ;;
    *) echo "usage: bench/priority.sh [--rounds N] [--seconds N] [--rate MBIT] [--overload N,N,…]" >&2; exit 2 ;;
  esac
done
mswitch=${MSWITCH:-target/release/mswitch}
for program in "$mswitch" iperf3 ping tc jq ethtool; do
  command -v "$program" >/dev/null || { echo "priority.sh: $program is missing; make bench installs and builds it" >&2; exit 1; }
done
mswitch=$(realpath "$(command -v "$mswitch")")

dir=$(mktemp -d) tag=prio$$ daemon='' server=''
clean_up() {
  local pid name
  for pid in $server $daemon; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  for name in flood probe receive switch; do ip netns del "$tag-$name" 2>/dev/null || true; done
  rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# inside NAME COMMAND…: in the namespace, at high priority on CPU 1.
inside() { ip netns exec "$tag-$1" nice -n -15 taskset -c 1 "${@:2}"; }

address() { case $1 in flood) echo 10.0.7.1 ;; probe) echo 10.0.7.2 ;; receive) echo 10.0.7.3 ;; esac; }

for name in switch flood probe receive; do
  ip netns add "$tag-$name"
  ip -n "$tag-$name" link set lo up
done
for name in flood probe receive; do
  ip -n "$tag-switch" link add "$name" type veth peer name eth0 netns "$tag-$name"
  ip -n "$tag-$name" addr add "$(address $name)/24" dev eth0
  ip -n "$tag-$name" link set eth0 up
  ip -n "$tag-switch" link set "$name" up
  ip netns exec "$tag-$name" ethtool -K eth0 tso off gso off gro off >/dev/null 2>&1
done
inside receive iperf3 -s >/dev/null 2>&1 &
server=$!

# The two switches between the same interfaces: SWITCH_start, SWITCH_stop.
mswitch_start() {
  {
    printf '[[bridge]]\nname = "br0"\nlogic = "learning"\n'
    for name in flood probe; do
      printf '[[bridge.port]]\nname = "%s"\ntype = "netdev"\ninterface = "%s"\ntrust = "dscp"\n' $name $name
    done
    printf '[[bridge.port]]\nname = "receive"\ntype = "netdev"\ninterface = "receive"\nshape = "%sMbit"\n' "$rate"
    printf 'queueing = "strict"\n'
  } >"$dir/config.toml"
  export MSWITCH_SOCKET=$dir/socket
  ip netns exec "$tag-switch" nice -n -20 "$mswitch" daemon --config "$dir/config.toml" --workers 0 2>"$dir/log" &
  daemon=$!
  until "$mswitch" status >/dev/null 2>&1; do kill -0 $daemon || { cat "$dir/log" >&2; exit 1; }; sleep 0.05; done
}
mswitch_stop() {
  kill $daemon
  wait $daemon || true
  daemon=''
}
htb_start() {
  ip -n "$tag-switch" link add br0 type bridge
  for name in flood probe receive; do ip -n "$tag-switch" link set "$name" master br0; done
  ip -n "$tag-switch" link set br0 up
  ip netns exec "$tag-switch" bash -e <<SH
tc qdisc add dev receive root handle 1: htb default 20
tc class add dev receive parent 1: classid 1:1 htb rate ${rate}mbit ceil ${rate}mbit
tc class add dev receive parent 1:1 classid 1:10 htb rate ${rate}mbit ceil ${rate}mbit prio 0
tc class add dev receive parent 1:1 classid 1:20 htb rate 8kbit ceil ${rate}mbit prio 7
tc qdisc add dev receive parent 1:10 handle 10: pfifo limit 512
tc qdisc add dev receive parent 1:20 handle 20: pfifo limit 512
tc filter add dev receive parent 1: protocol ip u32 match ip tos 0xe0 0xfc flowid 1:10
tc filter add dev receive parent 1: protocol arp u32 match u32 0 0 flowid 1:10
SH
}
htb_stop() {
  ip netns exec "$tag-switch" tc qdisc del dev receive root
  ip -n "$tag-switch" link del br0
}

# measure SWITCH OVERLOAD: one line of the results. Overload 0 is no flood.
measure() {
  local flood='' arrived='-'
  if [ "$2" != 0 ]; then
    # Class selector 0; iperf3's own connection is TCP in the same class, and survives on what it gets.
    inside flood iperf3 -c "$(address receive)" -u -b "$((rate * $2))M" -l 1448 -t $((seconds + 2)) -J \
      >"$dir/flood.json" 2>/dev/null &
    flood=$!
    sleep 1
  fi
  inside probe ping -n -Q 0xe0 -i 0.002 -w "$seconds" "$(address receive)" >"$dir/probes" || true
  if [ -n "$flood" ]; then
    wait $flood || true
    arrived=$(jq -r '.end.sum | "\(.bits_per_second * (100 - .lost_percent) / 1e8 | round)"' "$dir/flood.json" 2>/dev/null || echo '-')
  fi
  sed -n 's/.*time=\([0-9.]*\) ms/\1/p' "$dir/probes" | sort -n >"$dir/times"
  awk -v name="$1" -v load="$2" -v arrived="$arrived" \
    -v lost="$(sed -n 's/^\([0-9]*\) packets transmitted, \([0-9]*\) received.*/\1 \2/p' "$dir/probes" | awk '{ print $1 - $2 }')" '
    { v[NR] = $1 * 1000 }
    END { printf "%s\t%s\t%d\t%d\t%.0f\t%.0f\t%s\n", name, load, NR, lost, v[int(NR / 2) + 1], v[int(NR * 0.99) + 1], arrived }' \
    "$dir/times" | tee -a "$dir/results" >&2
}

printf 'switch\tload\tprobes\tlost\tmedian\tp99\tflood\n' >&2
for ((round = 1; round <= rounds; round++)); do
  for switch in mswitch htb; do
    "${switch}_start"
    # Addresses are resolved and learned first.
    for name in flood probe; do inside $name ping -c 2 -w 5 "$(address receive)" >/dev/null; done
    for load in 0 ${overloads//,/ }; do measure $switch "$load"; done
    "${switch}_stop"
  done
done

echo
awk -F'\t' '
  function median(list, n,   i, j, t) {
    for (i = 2; i <= n; i++) { t = list[i]; for (j = i - 1; j && list[j] > t; j--) list[j + 1] = list[j]; list[j + 1] = t }
    return sprintf("%d (%d to %d)", list[int((n + 1) / 2)], list[1], list[n])
  }
  $2 == 0 { unloaded50[$1] = $5; unloaded99[$1] = $6 }
  { key = $1 "\t" $2; if (!(key in n)) order[++keys] = key
    i = ++n[key]; p50[key, i] = $5; p99[key, i] = $6; d50[key, i] = $5 - unloaded50[$1]; d99[key, i] = $6 - unloaded99[$1]
    lost[key] += $4; probes[key] += $3 + $4 }
  END {
    printf "%-8s %-5s %-14s %-24s %-24s %-24s %s\n", "SWITCH", "LOAD", "LOST", "MEDIAN, us", "P99, us", "MEDIAN ABOVE IDLE, us", "P99 ABOVE IDLE, us"
    for (k = 1; k <= keys; k++) {
      key = order[k]; split(key, part, "\t"); m = n[key]
      for (i = 1; i <= m; i++) { a[i] = p50[key, i]; b[i] = p99[key, i]; c[i] = d50[key, i]; d[i] = d99[key, i] }
      printf "%-8s %-5s %-14s %-24s %-24s %-24s %s\n", part[1], part[2], lost[key] " of " probes[key], median(a, m), median(b, m), median(c, m), median(d, m)
    }
  }' "$dir/results"
