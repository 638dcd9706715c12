#!/bin/bash
# pairs.sh: mswitch against Open vSwitch with DPDK, memif to memif or vhost-user to vhost-user, in interleaved pairs.
#
#   bench/pairs.sh [--pairs N] [--seconds S] [--size BYTES] [--only learning|static|ovs] [--ports memif|vhost-user]
#                  [--packed 0|1] [--load testpmd|segments] [--buffer BYTES] [--out FILE]
#
# Each switch gets one thread on CPU 0. On CPU 1 dpdk-testpmd is both clients (vhost-user: virtio-user, one queue pair): what
# arrives at one goes back with the right addresses, so that a learning switch learns and never floods. `learning` is paired with Open vSwitch's NORMAL
# action, `static` with flows from port to port. Per run: packets a second (both directions added up) and the TSC cycles
# that the switching thread spends on a packet. Switches and clients run at the highest common priority, so that other
# programs on the machine disturb them little; still, only ratios of one pair mean anything on a shared machine.
#
# `--load segments` (vhost-user, `--only static`): TCP packets of 64 KiB with offload metadata from one device to the other,
# by bench's own client, and what the switch takes for a gigabyte of them: CPU time of its process, and the cycles that its
# thread spends on packets (without polling for nothing, which is most of what Open vSwitch's thread may do). `--buffer`: bytes
# of a receive buffer, by default enough for a packet; of smaller ones a packet takes several.
#
# MSWITCH names the binary (default: target/release/mswitch). Needs root, jq, dpdk-testpmd, openvswitch-switch-dpdk.
# Huge pages are set up, and given back at the end, as is everything else.
set -euo pipefail

pairs=5 seconds=4 size=64 only='' ports=memif packed=0 load=testpmd out=''
bursts=24 huge_pages=1024 buffer=65600
here=$(cd "$(dirname "$0")" && pwd)
mswitch=${MSWITCH:-$here/../target/release/mswitch}

usage() {
  sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --pairs) pairs=$2 ;;
    --seconds) seconds=$2 ;;
    --size) size=$2 ;;
    --only) only=$2 ;;
    --ports) ports=$2 ;;
    --packed) packed=$2 ;;
    --load) load=$2 ;;
    --buffer) buffer=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done

fail() {
  echo "pairs.sh: $*" >&2
  exit 1
}

case $ports in
  memif) queues=2 ;;
  vhost-user) queues=1 ;;
  *) usage ;;
esac

case $load in
  testpmd) ;;
  segments)
    if [ "$ports" != vhost-user ] || [ "$only" != static ]; then
      fail "--load segments is for vhost-user ports and flows from port to port: add --ports vhost-user --only static"
    fi
    size=65214
    ;;
  *) usage ;;
esac

[ "$(id -u)" = 0 ] || fail "needs root: huge pages and pinned threads"
[ "$(nproc)" -ge 2 ] || fail "needs two CPUs, one for the switch and one for the clients"
vswitchd=/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk
for tool in jq dpdk-testpmd ovsdb-tool ovsdb-server ovs-vsctl ovs-ofctl ovs-appctl; do
  command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install jq dpdk-dev openvswitch-switch-dpdk"
done
[ -x "$vswitchd" ] || fail "$vswitchd is missing: apt-get install openvswitch-switch-dpdk"
segments=$(dirname "$mswitch")/segments
[ "$load" = testpmd ] || [ -x "$segments" ] || fail "$segments is missing: cargo build --release -p mswitch-bench"
[ "$only" = ovs ] || [ -x "$mswitch" ] || fail "$mswitch is missing: cargo build --release, or name it in MSWITCH"

dir=$(mktemp -d)
pages_before=$(cat /proc/sys/vm/nr_hugepages)
mounted=''
client='' ours='' ovs_pids=()

# ends PID: asks, waits, then insists.
ends() {
  kill "$1" 2>/dev/null || return 0
  for _ in $(seq 100); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.05
  done
  kill -9 "$1" 2>/dev/null || true
}

stop_client() {
  if [ -n "$client" ]; then ends "$client"; wait "$client" 2>/dev/null || true; fi
  client=''
}
stop_ours() {
  if [ -n "$ours" ]; then ends "$ours"; wait "$ours" 2>/dev/null || true; fi
  ours=''
}
stop_ovs() {
  local pid
  for pid in "${ovs_pids[@]}"; do ends "$pid"; done
  ovs_pids=()
}
clean_up() {
  stop_client
  stop_ours
  stop_ovs
  echo "$pages_before" >/proc/sys/vm/nr_hugepages
  if [ -n "$mounted" ]; then umount /dev/hugepages; fi
  rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

if [ "$pages_before" -lt "$huge_pages" ]; then echo "$huge_pages" >/proc/sys/vm/nr_hugepages; fi
[ "$(cat /proc/sys/vm/nr_hugepages)" -ge "$huge_pages" ] || fail "the kernel has no room for $huge_pages huge pages"
if ! grep -q '^[^ ]* /dev/hugepages hugetlbfs' /proc/mounts; then
  mkdir -p /dev/hugepages
  mount -t hugetlbfs none /dev/hugepages
  mounted=yes
fi

# Programs to be measured start with the highest priority, in sessions of their own: where the kernel groups threads by
# session, priorities count within one, and the session has to be favoured too.
favour() { if [ -w "/proc/$1/autogroup" ]; then echo -20 >"/proc/$1/autogroup"; fi; }
export -f favour
# shellcheck disable=SC2016 # for the other shell to expand
first=(setsid nice -n -20 bash -c 'favour self; exec "$@"' -)

# waits_for SECONDS COMMAND...: until the command succeeds.
waits_for() {
  local tries=$(($1 * 20))
  shift
  while ! "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 1
    sleep 0.05
  done
}

ctl() { ovs-appctl -t "$dir/ovs/vswitchd.ctl" "$@"; }

# start_ovs normal|flows: sockets are $dir/ovs/v0 and v1.
start_ovs() {
  rm -rf "$dir/ovs"
  mkdir "$dir/ovs"
  local db=unix:$dir/ovs/db.sock
  export OVS_RUNDIR=$dir/ovs OVS_DBDIR=$dir/ovs OVS_LOGDIR=$dir/ovs
  ovsdb-tool create "$dir/ovs/conf.db" /usr/share/openvswitch/vswitch.ovsschema
  ovsdb-server "$dir/ovs/conf.db" --remote="p$db" --pidfile="$dir/ovs/ovsdb.pid" --detach \
    --log-file="$dir/ovs/ovsdb.log" 2>/dev/null
  ovs_pids+=("$(cat "$dir/ovs/ovsdb.pid")")
  ovs-vsctl --db="$db" --no-wait init
  ovs-vsctl --db="$db" --no-wait set Open_vSwitch . other_config:dpdk-init=true other_config:pmd-cpu-mask=0x1 \
    other_config:dpdk-lcore-mask=0x2 other_config:dpdk-socket-mem=512 other_config:dpdk-extra=--no-pci
  if [ "$load" = segments ]; then ovs-vsctl --db="$db" --no-wait set Open_vSwitch . other_config:userspace-tso-enable=true; fi
  "${first[@]}" "$vswitchd" "$db" --pidfile="$dir/ovs/vswitchd.pid" --detach --log-file="$dir/ovs/vswitchd.log" \
    --unixctl="$dir/ovs/vswitchd.ctl" 2>/dev/null || fail "Open vSwitch did not start: $(tail -3 "$dir/ovs/vswitchd.log")"
  ovs_pids+=("$(cat "$dir/ovs/vswitchd.pid")")
  # It has made itself another session.
  favour "${ovs_pids[-1]}"
  ovs-vsctl --db="$db" add-br br0 -- set bridge br0 datapath_type=netdev
  local i
  for i in 0 1; do
    local kind=(type=dpdk "options:n_rxq=$queues" \
      "options:dpdk-devargs=net_memif$i,role=server,id=0,rsize=11,socket=$dir/ovs/v$i,socket-abstract=no")
    # The socket of such a port is called as the port is, in OVS_RUNDIR.
    if [ "$ports" = vhost-user ]; then kind=(type=dpdkvhostuser); fi
    # Of the two it is the other type that takes large packets.
    if [ "$load" = segments ]; then kind=(type=dpdkvhostuserclient "options:vhost-server-path=$dir/ovs/s$i"); fi
    ovs-vsctl --db="$db" add-port br0 "v$i" -- set Interface "v$i" "ofport_request=$((i + 1))" "${kind[@]}"
  done
  if [ "$1" = flows ]; then
    ovs-ofctl del-flows "$dir/ovs/br0.mgmt"
    ovs-ofctl add-flow "$dir/ovs/br0.mgmt" in_port=1,actions=output:2
    ovs-ofctl add-flow "$dir/ovs/br0.mgmt" in_port=2,actions=output:1
  fi
}

# The witness is a third port, without traffic of its own: it gets what is flooded, and nothing else.
start_ours() {
  rm -rf "$dir/ours"
  mkdir "$dir/ours"
  {
    printf '[[bridge]]\nname = "br0"\nlogic = "%s"\n' "$1"
    if [ "$1" = static ]; then printf 'params = { v0 = "v1" }\n'; fi
    local i
    for i in 0 1; do
      printf '[[bridge.port]]\nname = "v%s"\ntype = "%s"\nsocket = "%s/ours/v%s"\n' "$i" "$ports" "$dir" "$i"
    done
    if [ "$1" = learning ]; then printf '[[bridge.port]]\nname = "witness"\ntype = "tap"\ninterface = "witness%s"\n' "$$"; fi
  } >"$dir/ours/config.toml"
  "${first[@]}" "$mswitch" daemon --socket "$dir/ours/ctl" --config "$dir/ours/config.toml" --workers 0 2>"$dir/ours/log" &
  ours=$!
  waits_for 10 "$mswitch" status --socket "$dir/ours/ctl" || fail "mswitch did not start: $(tail -3 "$dir/ours/log")"
}
ask() { "$mswitch" "$@" --json --socket "$dir/ours/ctl"; }

# load_segments BEFORE AFTER SOCKET SOCKET PID: as `load`, with large packets one way. Sets pps and cpu_per_gb.
load_segments() {
  local listen=()
  if [ "$1" = ovs_before ]; then listen=(--listen); fi
  "$1"
  "${first[@]}" taskset -c 1 "$segments" "${listen[@]}" --from "$3" --to "$4" --buffer "$buffer" --size "$size" --seconds "$seconds" --watch "$5" \
    >"$dir/segments.json" || fail "the client failed"
  "$2"
  jq -e '.uncut == .packets' "$dir/segments.json" >/dev/null || fail "packets were cut: $(cat "$dir/segments.json")"
  pps=$(jq '.packets / .seconds' "$dir/segments.json")
  cpu_per_gb=$(jq '.cpu_seconds / (.bytes / 1e9)' "$dir/segments.json")
}

# load BEFORE AFTER SOCKET SOCKET PID: runs the clients; BEFORE and AFTER are called around the measured time. Sets pps.
load() {
  cpu_per_gb=null
  if [ "$load" = segments ]; then
    load_segments "$@"
    return
  fi
  local log=$dir/testpmd.log eth=02:00:00:00:00:0
  local device=net_memif options=role=client,socket-abstract=no,rsize=11,socket
  if [ "$ports" = vhost-user ]; then device=net_virtio_user options=queue_size=1024,queues=$queues,packed_vq=$packed,path; fi
  rm -f "$dir/commands"
  mkfifo "$dir/commands"
  "${first[@]}" dpdk-testpmd --lcores '(0)@1,(1)@1' --main-lcore 0 --no-pci --in-memory --single-file-segments \
    --file-prefix="pairs$$" --vdev="${device}0,$options=$3,mac=${eth}1" \
    --vdev="${device}1,$options=$4,mac=${eth}2" -- -i --no-mlockall --total-num-mbufs=32768 \
    --rxq="$queues" --txq="$queues" --eth-peer="0,${eth}2" --eth-peer="1,${eth}1" <"$dir/commands" >"$log" 2>&1 &
  client=$!
  exec 7>"$dir/commands"
  waits_for 20 grep -q 'testpmd> ' "$log" || fail "testpmd did not start: $(tail -3 "$log")"
  links_up || fail "testpmd did not connect: $(tail -3 "$log")"
  printf 'set txpkts %s\nset fwd mac\nstart tx_first %s\n' "$size" "$bursts" >&7
  sleep 2
  echo 'show port stats all' >&7
  "$1"
  sleep "$seconds"
  echo 'show port stats all' >&7
  "$2"
  printf 'stop\nquit\n' >&7
  exec 7>&-
  wait "$client" || fail "testpmd failed: $(tail -3 "$log")"
  client=''
  pps=$(awk '/Rx-pps:/ { last[n++ % 2] = $2 } END { if (n < 4) exit 1; print last[0] + last[1] }' "$log") ||
    fail "testpmd gave no rates"
  [ "$pps" -gt 0 ] || fail "no packets came back: $(tail -3 "$log")"
}
links_up() {
  local try
  for try in $(seq 50); do
    echo 'show port summary all' >&7
    sleep 0.2
    # The last two lines of the summary are the two ports.
    if [ "$(grep -E '^[01] +02:' "$dir/testpmd.log" | tail -2 | grep -c ' up ')" = 2 ]; then return 0; fi
    [ "$try" -lt 50 ] || return 1
  done
}

ovs_before() { ctl dpif-netdev/pmd-stats-clear >/dev/null; }
ovs_after() { ctl dpif-netdev/pmd-stats-show >"$dir/pmd"; }
ours_before() { ask worker show >"$dir/workers.0"; ask port stats br0 >"$dir/ports.0"; }
ours_after() { ask worker show >"$dir/workers.1"; ask port stats br0 >"$dir/ports.1"; }

# Each prints one JSON object.
run_ovs() {
  start_ovs "$1"
  local socket=v
  if [ "$load" = segments ]; then socket=s; fi
  load ovs_before ovs_after "$dir/ovs/${socket}0" "$dir/ovs/${socket}1" "${ovs_pids[-1]}"
  stop_ovs
  # "avg processing cycles per packet: 139.62 (...)" leaves out polling for nothing.
  local cycles hits
  cycles=$(awk '/avg processing cycles per packet/ { print $6; exit }' "$dir/pmd")
  hits=$(awk '/emc hits/ { print $3; exit }' "$dir/pmd")
  jq -nc --argjson pps "$pps" --argjson cpu "$cpu_per_gb" --argjson cycles "$cycles" --argjson hits "$hits" \
    '{pps: $pps, cpu_seconds_per_gb: $cpu, cycles_per_packet: $cycles, exact_match_hits: $hits}'
}
run_ours() {
  start_ours "$1"
  load ours_before ours_after "$dir/ours/v0" "$dir/ours/v1" "$ours"
  stop_ours
  jq -nc --argjson pps "$pps" --argjson cpu "$cpu_per_gb" --slurpfile w0 "$dir/workers.0" --slurpfile w1 "$dir/workers.1" \
    --slurpfile p0 "$dir/ports.0" --slurpfile p1 "$dir/ports.1" '
    def worker(w; f): [w[0].workers[] | f] | add;
    def witness(p): [p[0].ports[] | select(.name == "witness") | .totals.tx | .packets + .dropped] | add // 0;
    def drops(p): [p[0].ports[].totals | .rx.dropped + .tx.dropped] | add;
    (worker($w1; .packets) - worker($w0; .packets)) as $packets |
    (worker($w1; .busy_cycles) - worker($w0; .busy_cycles)) as $busy |
    {pps: $pps, cpu_seconds_per_gb: $cpu, cycles_per_packet: ($busy / $packets),
     busy_share: ($busy / (worker($w1; .elapsed_cycles) - worker($w0; .elapsed_cycles))),
     packets_per_batch: ($packets / (worker($w1; .batches) - worker($w0; .batches))),
     flooded_share: ((witness($p1) - witness($p0)) / $packets), dropped: (drops($p1) - drops($p0))}'
}

show_run() { jq -r '"    \(.pps / 1e6 * 100 | round / 100) Mpps, \(.cycles_per_packet * 10 | round / 10) cycles a packet\(if .cpu_seconds_per_gb then ", \(.cpu_seconds_per_gb * 1e4 | round / 1e4) CPU seconds a gigabyte" else "" end)"' <<<"$1"; }

# compare NAME OURS THEIRS: appends to $dir/results.
compare() {
  local number a b
  for number in $(seq "$pairs"); do
    echo "$1 against Open vSwitch's $2, pair $number of $pairs"
    run_ours "$1" >"$dir/a"
    a=$(cat "$dir/a")
    echo "  mswitch:"; show_run "$a"
    jq -ne --argjson a "$a" '$a.flooded_share < 0.01' >/dev/null ||
      fail "mswitch flooded $(jq -n --argjson a "$a" '$a.flooded_share * 100') % of the packets: not a fair pair"
    run_ovs "$2" >"$dir/b"
    b=$(cat "$dir/b")
    echo "  Open vSwitch:"; show_run "$b"
    jq -nc --arg name "$1" --argjson a "$a" --argjson b "$b" \
      '{name: $name, mswitch: $a, ovs: $b, ratio: ($a.pps / $b.pps)}' >>"$dir/results"
  done
}

: >"$dir/results"
case $only in
  '') compare learning normal; compare static flows ;;
  learning) compare learning normal ;;
  static) compare static flows ;;
  ovs)
    for mode in normal flows; do
      for number in $(seq "$pairs"); do
        run_ovs "$mode" >"$dir/b"
        echo "Open vSwitch, $mode, run $number of $pairs:"; show_run "$(cat "$dir/b")"
        jq -c --arg name "$mode" '{name: $name, ovs: .}' "$dir/b" >>"$dir/results"
      done
    done ;;
  *) usage ;;
esac

jq -s --argjson size "$size" '
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def spread: {median: median, min: min, max: max};
  {size: $size, runs: ., summary: (group_by(.name) | map({name: .[0].name, pairs: length} +
    (if .[0].mswitch then {
      mswitch_pps: (map(.mswitch.pps) | spread), mswitch_cycles: (map(.mswitch.cycles_per_packet) | spread),
      cpu_ratio: (if .[0].mswitch.cpu_seconds_per_gb then
        map(.mswitch.cpu_seconds_per_gb / .ovs.cpu_seconds_per_gb) | spread else null end),
      cycles_ratio: (map(.mswitch.cycles_per_packet / .ovs.cycles_per_packet) | spread),
      flooded_share_max: (map(.mswitch.flooded_share) | max), ratio: (map(.ratio) | spread)} else {} end) +
    {ovs_pps: (map(.ovs.pps) | spread), ovs_cycles: (map(.ovs.cycles_per_packet) | spread)}))}' \
  "$dir/results" >"$dir/report.json"

echo
echo "$size B packets, $ports, both directions added up; median (lowest to highest) of $pairs"
jq -r '
  def mpps: "\(.median / 1e4 | round / 100) (\(.min / 1e4 | round / 100) to \(.max / 1e4 | round / 100))";
  def cycles: "\(.median * 10 | round / 10) (\(.min * 10 | round / 10) to \(.max * 10 | round / 10))";
  def ratio: "\(.median * 100 | round / 100) (\(.min * 100 | round / 100) to \(.max * 100 | round / 100))";
  .summary[] | "  \(.name):",
    (if .mswitch_pps then
      "    mswitch       \(.mswitch_pps | mpps) Mpps, \(.mswitch_cycles | cycles) cycles a packet; flooded at most \(.flooded_share_max * 100) %"
     else empty end),
    "    Open vSwitch  \(.ovs_pps | mpps) Mpps, \(.ovs_cycles | cycles) cycles a packet",
    (if .ratio then "    ratio         \(.ratio | ratio), of cycles \(.cycles_ratio | ratio)" else empty end),
    (if .cpu_ratio then "    CPU time      \(.cpu_ratio | ratio) of Open vSwitch\u0027s for a gigabyte" else empty end)' "$dir/report.json"
if [ -n "$out" ]; then cp "$dir/report.json" "$out"; fi
