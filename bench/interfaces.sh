#!/bin/bash
# interfaces.sh: mswitch's netdev ports against the Linux bridge and Open vSwitch (userspace datapath, packet sockets),
# veth to veth, in interleaved rounds.
#
#   bench/interfaces.sh [--rounds N] [--seconds S] [--only NAME,NAME...] [--load 64,1518,tcp,memif] [--out FILE]
#
# Names: bridge (the kernel's), relay, af-packet and af-xdp (mswitch's drivers, logic `learning`), ovs (action NORMAL); on
# request p4 and p4-xdp (bench/p4/stations.p4 in the worker, and in the kernel, whose threads for the interfaces are on CPU 0
# then), and ovs-af-xdp (DPDK's AF_XDP driver). Each switch connects two veth pairs in a network namespace of its own; mswitch and Open vSwitch have one thread, on CPU 0.
# Loads: packets of 64 or 1,518 bytes (with frame check sequence), which dpdk-testpmd on CPU 1 sends over packet sockets
# at the far ends and returns with correct addresses; iperf3's TCP from one namespace to another, the sender on CPU 1; or
# (memif) packets of 64 bytes, with a memif port in place of the second veth pair, which the Linux bridge does not have.
# relay: a bare loop of recvmmsg and sendmmsg between the two packet sockets, the least that a switch of this kind does.
# Output per name and load: packets or bits per second, CPU time of the switch's process and of the whole machine, user
# and kernel; medians (lowest to highest), and ratios within a round.
#
# MSWITCH names the binary (default: target/release/mswitch). Needs root, jq, iperf3, dpdk-testpmd,
# openvswitch-switch-dpdk.
set -euo pipefail
# shellcheck source=bench/testbed.sh
. "$(dirname "$0")/testbed.sh"
rounds=5 seconds=3 only=bridge,relay,af-packet,af-xdp,ovs loads=64,1518,tcp,memif out=''

while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --only) only=$2 ;;
    --load) loads=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$mswitch" ] || fail "$mswitch is missing: cargo build --release -p mswitch"
relay=${RELAY:-$(dirname "$mswitch")/relay}
case ,$only, in *,relay,*) [ -x "$relay" ] || fail "$relay is missing: cargo build --release -p mswitch-bench" ;; esac
command -v iperf3 >/dev/null || fail "iperf3 is missing: apt-get install iperf3"
set_up

switch_ns=mswitch-bench-$$ near=$switch_ns-a far=$switch_ns-b
server='' process=''
remove_namespaces() {
  if [ -n "$server" ]; then ends "$server"; server=''; fi
  local netns
  for netns in "$switch_ns" "$near" "$far"; do ip netns del "$netns" 2>/dev/null || true; done
}
# Before what set_up arranged: the switch must let go first.
trap 'stop_client; stop_ours; stop_ovs; remove_namespaces; clean_up' EXIT

in_switch() { ip netns exec "$switch_ns" "$@"; }

# make_namespaces FAR: the far ends of both veth pairs, c0 in `near` and c1 in FAR, have addresses.
make_namespaces() {
  local netns i
  for netns in "$switch_ns" "$near" "$far"; do
    ip netns add "$netns"
    # Nothing but the load.
    ip netns exec "$netns" sysctl -qw net.ipv6.conf.default.disable_ipv6=1
    # Whatever the machine's default, one that does not pace: else timers are measured. A namespace may always take
    # this one.
    ip netns exec "$netns" sysctl -qw net.ipv4.tcp_congestion_control=reno
  done
  for i in 0 1; do
    netns=$near
    if [ "$i" = 1 ]; then netns=$1; fi
    ip link add "v$i" netns "$switch_ns" type veth peer name "c$i" netns "$netns"
    ip -n "$netns" link set "c$i" address "02:00:00:00:00:0$((i + 1))" up
    ip -n "$netns" address add "10.78.0.$((i + 1))/24" dev "c$i"
    ip -n "$switch_ns" link set "v$i" up
    # A veth takes packets from XDP only while its other end collects them.
    case $name in p4 | p4-xdp | ovs-af-xdp) ip netns exec "$netns" ethtool -K "c$i" gro on ;; esac
  done
}

# start NAME LOAD: starts the switch, and sets `process` to its id, 0 for the kernel.
start() {
  case $1 in
    bridge)
      ip -n "$switch_ns" link add br0 type bridge
      ip -n "$switch_ns" link set v0 master br0
      ip -n "$switch_ns" link set v1 master br0
      ip -n "$switch_ns" link set br0 up
      process=0
      ;;
    af-packet | af-xdp)
      rm -rf "$dir/ours"
      mkdir "$dir/ours"
      {
        printf '[[bridge]]\nname = "br0"\nlogic = "learning"\n'
        printf '[[bridge.port]]\nname = "v%s"\ntype = "netdev"\ndriver = "'"$1"'"\n' 0
        if [ "$2" = memif ]; then
          printf '[[bridge.port]]\nname = "m1"\ntype = "memif"\npath = "%s/ours/m1"\n' "$dir"
        else
          printf '[[bridge.port]]\nname = "v1"\ntype = "netdev"\ndriver = "'"$1"'"\n'
        fi
      } >"$dir/ours/config.toml"
      # Not in_switch, whose process would be a shell.
      ip netns exec "$switch_ns" "${first[@]}" "$mswitch" daemon --socket "$dir/ours/ctl" --config "$dir/ours/config.toml" --workers 0 2>"$dir/ours/log" &
      ours=$!
      waits_for 10 ports_up "$([ "$2" = memif ] && echo 1 || echo 2)" || fail "mswitch did not start: $(tail -3 "$dir/ours/log")"
      process=$ours
      ;;
    p4 | p4-xdp)
      rm -rf "$dir/ours"
      mkdir "$dir/ours"
      {
        printf '[[bridge]]\nname = "br0"\nlogic = "p4:%s"\n' "$(realpath "$(dirname "$0")/p4/stations.p4")"
        if [ "$1" = p4-xdp ]; then printf 'params = { xdp = "on" }\n'; fi
        for i in 0 1; do
          printf '[[bridge.port]]\nname = "v%s"\ntype = "netdev"\ndriver = "af-xdp"\np4-port = %s\n' "$i" "$((i + 1))"
        done
      } >"$dir/ours/config.toml"
      ip netns exec "$switch_ns" "${first[@]}" "$mswitch" daemon --socket "$dir/ours/ctl" --config "$dir/ours/config.toml" --workers 0 2>"$dir/ours/log" &
      ours=$!
      waits_for 10 ports_up 2 || fail "mswitch did not start: $(tail -3 "$dir/ours/log")"
      if [ "$1" = p4-xdp ]; then
        waits_for 10 in_kernel || fail "the program does not run in XDP: $(tail -3 "$dir/ours/log")"
        # On CPU 0 like the other switches; else the sender's CPU does it all.
        for i in 0 1; do in_switch sh -c "echo 1 >/sys/class/net/v$i/threaded"; done
        for i in $(pgrep 'napi/v[01]-'); do taskset -pc 0 "$i" >/dev/null; done
      fi
      process=$ours
      ;;
    relay)
      ip netns exec "$switch_ns" "${first[@]}" taskset -c 0 "$relay" v0 v1 2>"$dir/relay.log" &
      ours=$!
      process=$ours
      waits_for 10 grep -q . "$dir/relay.log" || fail "the relay did not start"
      ;;
    ovs | ovs-af-xdp)
      rm -rf "$dir/ovs"
      mkdir "$dir/ovs"
      local db=unix:$dir/ovs/db.sock
      export OVS_RUNDIR=$dir/ovs OVS_DBDIR=$dir/ovs OVS_LOGDIR=$dir/ovs
      ovsdb-tool create "$dir/ovs/conf.db" /usr/share/openvswitch/vswitch.ovsschema
      ovsdb-server "$dir/ovs/conf.db" --remote="p$db" --pidfile="$dir/ovs/ovsdb.pid" --detach \
        --log-file="$dir/ovs/ovsdb.log" 2>/dev/null
      ovs_pids+=("$(cat "$dir/ovs/ovsdb.pid")")
      ovs-vsctl --db="$db" --no-wait init
      # Without it, it takes neither large segments nor partial checksums, and TCP over veth pairs stands still.
      if [ "$2" = memif ] || [ "$1" = ovs-af-xdp ]; then
        ovs-vsctl --db="$db" --no-wait set Open_vSwitch . other_config:dpdk-init=true other_config:pmd-cpu-mask=0x1 \
          other_config:dpdk-lcore-mask=0x1 other_config:dpdk-socket-mem=512 other_config:dpdk-extra=--no-pci
      else
        ovs-vsctl --db="$db" --no-wait set Open_vSwitch . other_config:userspace-tso-enable=true
      fi
      in_switch "${first[@]}" taskset -c 0 "$vswitchd" "$db" --pidfile="$dir/ovs/vswitchd.pid" --detach \
        --log-file="$dir/ovs/vswitchd.log" --unixctl="$dir/ovs/vswitchd.ctl" 2>/dev/null ||
        fail "Open vSwitch did not start: $(tail -3 "$dir/ovs/vswitchd.log")"
      ovs_pids+=("$(cat "$dir/ovs/vswitchd.pid")")
      favour "${ovs_pids[-1]}"
      local second=v1 kind=()
      if [ "$2" = memif ]; then
        second=m1 kind=(-- set Interface m1 type=dpdk options:n_rxq=2
          "options:dpdk-devargs=net_memif1,role=server,id=0,rsize=11,socket=$dir/ovs/m1,socket-abstract=no")
      fi
      local primary=()
      if [ "$1" = ovs-af-xdp ]; then
        primary=(-- set Interface v0 type=dpdk options:dpdk-devargs=net_af_xdp0,iface=v0)
        kind=(-- set Interface v1 type=dpdk options:dpdk-devargs=net_af_xdp1,iface=v1)
      fi
      ovs-vsctl --db="$db" --no-wait add-br br0 -- set bridge br0 datapath_type=netdev -- \
        add-port br0 v0 "${primary[@]}" -- add-port br0 "$second" "${kind[@]}"
      waits_for 10 grep -q "added interface $second" "$dir/ovs/vswitchd.log" ||
        fail "Open vSwitch has no ports: $(tail -3 "$dir/ovs/vswitchd.log")"
      process=${ovs_pids[-1]}
      ;;
    *) usage ;;
  esac
}
in_kernel() { ask logic show br0 | jq -e '.tables[] | select(.name == "card") | tostring | test("yes, ports: 1, 2")' >/dev/null; }
ports_up() { [ "$(ask port list br0 | jq '[.ports[] | select(.link == "up")] | length')" = "$1" ]; }

stop() {
  stop_ours
  stop_ovs
  remove_namespaces
}

# cpu: the time, and CPU time so far in seconds: of the switch's process in user mode and kernel, and of the machine in the
# same.
cpu() {
  local own='0 0'
  if [ "$process" != 0 ]; then own=$(awk '{ print $14 / 100, $15 / 100 }' "/proc/$process/stat"); fi
  # user, nice; system, irq, softirq.
  echo "$EPOCHREALTIME $own $(awk '/^cpu / { print ($2 + $3) / 100, ($4 + $7 + $8) / 100 }' /proc/stat)"
}

cpu_before() { cpu >"$dir/cpu.0"; }
cpu_after() { cpu >"$dir/cpu.1"; }

# packets BYTES NAME LOAD: runs the load, and sets `rate` to packets per second, both directions together.
packets() {
  local log=$dir/testpmd.log eth=02:00:00:00:00:0 second=net_af_packet1,iface=c1,framecnt=2048 queues=1
  if [ "$3" = memif ]; then
    local folder=ours
    if [ "$2" = ovs ]; then folder=ovs; fi
    second=net_memif1,role=client,socket-abstract=no,rsize=11,socket=$dir/$folder/m1,mac=${eth}2
    # As many as Open vSwitch's port type requires.
    queues=2
  fi
  rm -f "$dir/commands"
  mkfifo "$dir/commands"
  ip netns exec "$near" "${first[@]}" dpdk-testpmd --lcores '(0)@1,(1)@1' --main-lcore 0 --no-pci --in-memory \
    --file-prefix="interfaces$$" --vdev="net_af_packet0,iface=c0,framecnt=2048,qpairs=$queues" \
    --vdev="$second" -- -i --rxq="$queues" --txq="$queues" --no-mlockall --total-num-mbufs=32768 \
    --eth-peer="0,${eth}2" --eth-peer="1,${eth}1" <"$dir/commands" >"$log" 2>&1 &
  client=$!
  exec 7>"$dir/commands"
  waits_for 20 grep -q 'testpmd> ' "$log" || fail "testpmd did not start: $(tail -3 "$log")"
  if [ "$3" = memif ]; then links_up || fail "testpmd did not connect: $(tail -3 "$log")"; fi
  printf 'set txpkts %s\nset fwd mac\nstart tx_first 8\n' "$(($1 - 4))" >&7
  sleep 1
  measure cpu_before cpu_after
  rate=$pps
}

# stream: runs the load, and sets `rate` to bits per second.
stream() {
  ip netns exec "$near" ping -q -c 1 -w 10 10.78.0.2 >"$dir/ping" || fail "the namespaces do not reach each other: $(tail -2 "$dir/ping")"
  ip netns exec "$far" iperf3 -s -B 10.78.0.2 >"$dir/server.log" 2>&1 &
  server=$!
  waits_for 10 eval "ip netns exec $far ss -Hltn | grep -q :5201" || fail "iperf3 did not start"
  cpu_before
  ip netns exec "$near" timeout $((seconds + 10)) taskset -c 1 iperf3 -c 10.78.0.2 -t "$seconds" -J >"$dir/iperf3.json" ||
    fail "iperf3 failed: $(jq -r .error "$dir/iperf3.json")"
  cpu_after
  ends "$server"
  server=''
  rate=$(jq '.end.sum_received.bits_per_second' "$dir/iperf3.json")
}

# run NAME LOAD: appends to $dir/results.
run() {
  make_namespaces "$([ "$2" = tcp ] && echo "$far" || echo "$near")"
  start "$1" "$2"
  case $2 in
    tcp) stream ;;
    memif) packets 64 "$1" memif ;;
    *) packets "$2" "$1" veth ;;
  esac
  stop
  jq -nc --arg name "$1" --arg load "$2" --argjson rate "$rate" \
    --arg from "$(cat "$dir/cpu.0")" --arg to "$(cat "$dir/cpu.1")" '
    def times: split(" ") | map(tonumber);
    ([($from | times), ($to | times)] | transpose | map(.[1] - .[0]) | .[0] as $seconds | map(. / $seconds)) as $cpu |
    {name: $name, load: $load, rate: $rate, user: $cpu[1], kernel: $cpu[2], machine_user: $cpu[3], machine_kernel: $cpu[4]}' \
    >>"$dir/results"
  tail -1 "$dir/results" | jq -r "$jq_line"
}
# shellcheck disable=SC2016 # for jq to expand
jq_line='
  def to(n): . * n | round / n;
  def cores: to(100);
  "  \(.name): " + (if .load == "tcp" then "\(.rate / 1e9 | to(100)) Gbit/s" else "\(.rate / 1e6 | to(1000)) Mpps" end) +
  "; cores: \(.user | cores) user and \(.kernel | cores) kernel of its process, \(.machine_user | cores) and \(.machine_kernel | cores) of the machine"'

IFS=, read -r -a names <<<"$only"
IFS=, read -r -a kinds <<<"$loads"
: >"$dir/results"
for number in $(seq "$rounds"); do
  for kind in "${kinds[@]}"; do
    echo "round $number of $rounds, $kind"
    for name in "${names[@]}"; do
      case $kind,$name in memif,bridge | memif,relay | memif,p4* | memif,ovs-* | tcp,p4* | tcp,ovs-*) continue ;; esac
      run "$name" "$kind"
    done
  done
done

jq -s "$jq_reports"'
  def ratios($others): [range($others | length) as $i | .[$i].rate / $others[$i].rate];
  {runs: ., summary: (group_by(.load) | map(. as $load | {load: .[0].load, names: (group_by(.name) | map({
    name: .[0].name, rate: (map(.rate) | spread),
    process: (map(.user + .kernel) | spread), machine: (map(.machine_user + .machine_kernel) | spread),
    ratios: (. as $mine | [("bridge", "relay", "ovs", "p4", "ovs-af-xdp") as $other | [$load[] | select(.name == $other)] |
      select(length == ($mine | length)) | . as $theirs | {to: $other, ratio: ($mine | ratios($theirs) | spread)}])}))}))}' \
  "$dir/results" >"$dir/report.json"

echo
echo "veth to veth; median (lowest to highest) of $rounds rounds"
jq -r "$jq_reports"'
  .summary[] | .load as $load | "  \($load):", (.names[] | . as $name |
    "    \(.name): " + (if $load == "tcp" then (.rate | map_values(. / 1e9) | show(100)) + " Gbit/s"
      else (.rate | map_values(. / 1e6) | show(1000)) + " Mpps" end) +
    ", \(.process | show(100)) cores of its own, \(.machine | show(100)) of the machine" +
    ([.ratios[] | select(.to != $name.name) | "; \(.ratio | show(100)) of \(.to)"] | add // ""))' "$dir/report.json"
if [ -n "$out" ]; then cp "$dir/report.json" "$out"; fi
