# testbed.sh: sourced by measurements of memif and vhost-user switches. One switch at a time (mswitch, Open vSwitch with
# DPDK, the floor), with one thread on CPU 0; on CPU 1 dpdk-testpmd acts as both clients: it returns each packet from
# the other client with correct addresses, so that a learning switch learns and never floods. All run at the highest
# common priority, so that other programs on the machine disturb them little; still, on a shared machine only ratios
# within one round are meaningful.
#
# A script sets any of these, then calls set_up, which needs root and restores everything at the end.
# shellcheck shell=bash
# shellcheck disable=SC2034 # used by scripts that source this

# Measured seconds; packet size in bytes; memif or vhost-user; whether virtqueues are packed.
seconds=4 size=64 ports=memif packed=0
# Packets that a client sends at once; bursts that each of its queues sends at the start, and that circulate.
burst=32 bursts=24
# Queues per client; empty for the number that Open vSwitch's port type requires.
queues=''
# testpmd, or segments: packets of 64 KiB with offload metadata; size of a receive buffer in bytes.
load=testpmd buffer=65600
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mswitch=${MSWITCH:-$here/../target/release/mswitch}
floor=${FLOOR:-$here/../target/release/floor}
segments=$(dirname "$mswitch")/segments
vswitchd=/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk
huge_pages=1024
dir='' pages_before='' mounted=''
client='' ours='' floor_pid='' ovs_pids=()
# mswitch's control socket.
control=''

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# usage: prints the script's first comment.
usage() {
  sed -n '2,/^[^#]/{/^[^#]/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
}

# set_up: checks the requirements, sets up huge pages and a scratch folder, `dir`.
set_up() {
  [ "$(id -u)" = 0 ] || fail "needs root: huge pages and pinned threads"
  [ "$(nproc)" -ge 2 ] || fail "needs two CPUs, one for the switch and one for the clients"
  local tool
  for tool in jq dpdk-testpmd ovsdb-tool ovsdb-server ovs-vsctl ovs-ofctl ovs-appctl; do
    command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install jq dpdk-dev openvswitch-switch-dpdk"
  done
  [ -x "$vswitchd" ] || fail "$vswitchd is missing: apt-get install openvswitch-switch-dpdk"
  case $ports in
    memif) queues=${queues:-2} ;;
    vhost-user) queues=${queues:-1} ;;
    *) usage ;;
  esac
  dir=$(mktemp -d)
  control=$dir/ours/ctl
  pages_before=$(cat /proc/sys/vm/nr_hugepages)
  trap clean_up EXIT
  trap 'exit 130' INT TERM
  # Where memory is full of files' contents, each attempt frees some.
  for _ in $(seq 50); do
    [ "$(cat /proc/sys/vm/nr_hugepages)" -lt "$huge_pages" ] || break
    echo "$huge_pages" >/proc/sys/vm/nr_hugepages
  done
  [ "$(cat /proc/sys/vm/nr_hugepages)" -ge "$huge_pages" ] || fail "the kernel cannot provide $huge_pages huge pages"
  if ! grep -q '^[^ ]* /dev/hugepages hugetlbfs' /proc/mounts; then
    mkdir -p /dev/hugepages
    mount -t hugetlbfs none /dev/hugepages
    mounted=yes
  fi
}

clean_up() {
  stop_client
  stop_ours
  stop_floor
  stop_ovs
  echo "$pages_before" >/proc/sys/vm/nr_hugepages
  if [ -n "$mounted" ]; then umount /dev/hugepages; fi
  rm -rf "$dir"
}
stop_client() {
  if [ -n "$client" ]; then ends "$client"; wait "$client" 2>/dev/null || true; fi
  client=''
}
stop_ours() {
  if [ -n "$ours" ]; then ends "$ours"; wait "$ours" 2>/dev/null || true; fi
  ours=''
}
stop_floor() {
  if [ -n "$floor_pid" ]; then ends "$floor_pid"; wait "$floor_pid" 2>/dev/null || true; fi
  floor_pid=''
}
stop_ovs() {
  local pid
  for pid in "${ovs_pids[@]}"; do ends "$pid"; done
  ovs_pids=()
}

# ends PID: asks the process to end, waits, then kills it.
ends() {
  kill "$1" 2>/dev/null || return 0
  for _ in $(seq 100); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.05
  done
  kill -9 "$1" 2>/dev/null || true
}

# Measured programs start at the highest priority, in sessions of their own: where the kernel groups threads by session,
# priorities count within a session, and the session needs a high priority too.
favour() { if [ -w "/proc/$1/autogroup" ]; then echo -20 >"/proc/$1/autogroup"; fi; }
export -f favour
# shellcheck disable=SC2016 # for the other shell to expand
first=(setsid nice -n -20 bash -c 'favour self; exec "$@"' -)

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

ctl() { ovs-appctl -t "$dir/ovs/vswitchd.ctl" "$@"; }

# start_ovs normal|flows [mswitch]: Open vSwitch, or mswitch in its daemon's place; sockets are $dir/ovs/v0 and v1.
start_ovs() {
  local daemon=$vswitchd
  if [ "${2:-}" = mswitch ]; then
    daemon=$(dirname "$mswitch")/ovs-vswitchd
    [ -x "$daemon" ] || fail "$daemon is missing: cargo build --release -p mswitch-vswitchd"
  fi
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
  "${first[@]}" "$daemon" "$db" --pidfile="$dir/ovs/vswitchd.pid" --detach --log-file="$dir/ovs/vswitchd.log" \
    --unixctl="$dir/ovs/vswitchd.ctl" 2>/dev/null || fail "$daemon did not start: $(tail -3 "$dir/ovs/vswitchd.log")"
  ovs_pids+=("$(cat "$dir/ovs/vswitchd.pid")")
  # The detached daemon is in a new session.
  favour "${ovs_pids[-1]}"
  ovs-vsctl --db="$db" add-br br0 -- set bridge br0 datapath_type=netdev
  local i
  for i in 0 1; do
    local kind=(type=dpdk "options:n_rxq=$queues" \
      "options:dpdk-devargs=net_memif$i,role=server,id=0,rsize=11,socket=$dir/ovs/v$i,socket-abstract=no")
    if [ "${2:-}" = mswitch ]; then kind=(type=memif "options:path=$dir/ovs/v$i"); fi
    # The socket of this port type has the port's name, in OVS_RUNDIR.
    if [ "$ports" = vhost-user ]; then kind=(type=dpdkvhostuser); fi
    # Of the two types only the other one accepts large packets.
    if [ "$load" = segments ]; then kind=(type=dpdkvhostuserclient "options:vhost-server-path=$dir/ovs/s$i"); fi
    ovs-vsctl --db="$db" add-port br0 "v$i" -- set Interface "v$i" "ofport_request=$((i + 1))" "${kind[@]}"
  done
  if [ "$1" = flows ]; then from_port_to_port "$dir/ovs/br0.mgmt"; fi
}

# start_ours static|learning|flows: the witness of `learning` is a third port without traffic of its own: it receives only
# flooded packets. With `flows`, OpenFlow has the same as Open vSwitch.
start_ours() {
  rm -rf "$dir/ours"
  mkdir "$dir/ours"
  local logic=$1
  if [ "$1" = flows ]; then logic=openflow; fi
  {
    printf '[[bridge]]\nname = "br0"\nlogic = "%s"\n' "$logic"
    if [ "$1" = static ]; then printf 'params = { v0 = "v1" }\n'; fi
    if [ "$1" = flows ]; then printf '[bridge.openflow]\nfail-mode = "secure"\n'; fi
    local i
    for i in 0 1; do
      printf '[[bridge.port]]\nname = "v%s"\ntype = "%s"\npath = "%s/ours/v%s"\n' "$i" "$ports" "$dir" "$i"
      if [ "$1" = flows ]; then printf 'openflow-port = %s\n' $((i + 1)); fi
    done
    if [ "$1" = learning ]; then printf '[[bridge.port]]\nname = "witness"\ntype = "tap"\ninterface = "witness%s"\n' "$$"; fi
  } >"$dir/ours/config.toml"
  "${first[@]}" "$mswitch" daemon --socket "$dir/ours/ctl" --config "$dir/ours/config.toml" --workers 0 2>"$dir/ours/log" &
  ours=$!
  waits_for 10 "$mswitch" status --socket "$dir/ours/ctl" || fail "mswitch did not start: $(tail -3 "$dir/ours/log")"
  if [ "$1" = flows ]; then from_port_to_port "$dir/ours/br0.mgmt"; fi
}
ask() { "$mswitch" "$@" --json --socket "$control"; }

# from_port_to_port SOCKET: the flows of `flows`.
from_port_to_port() {
  waits_for 10 ovs-ofctl del-flows "$1" || fail "no OpenFlow on $1"
  ovs-ofctl add-flow "$1" in_port=1,actions=output:2
  ovs-ofctl add-flow "$1" in_port=2,actions=output:1
}

# start_floor: sockets are $dir/floor/v0 and v1; a line to descriptor 8 makes the totals appear on descriptor 9.
start_floor() {
  rm -rf "$dir/floor"
  mkdir "$dir/floor"
  mkfifo "$dir/floor/in" "$dir/floor/out"
  "${first[@]}" "$floor" "$dir/floor/v0" "$dir/floor/v1" <"$dir/floor/in" >"$dir/floor/out" 2>"$dir/floor/log" &
  floor_pid=$!
  exec 8>"$dir/floor/in" 9<"$dir/floor/out"
  waits_for 10 test -S "$dir/floor/v1" || fail "the floor did not start: $(tail -3 "$dir/floor/log")"
}
# totals FILE: writes the floor's totals to the file.
totals() {
  local line
  echo >&8
  read -r -t 5 line <&9 || fail "the floor has stopped: $(tail -3 "$dir/floor/log")"
  echo "$line" >"$1"
}

# load_segments BEFORE AFTER SOCKET SOCKET PID: as `load`, with large packets in one direction. Sets pps and cpu_per_gb.
load_segments() {
  local listen=()
  if [ "$1" = ovs_before ]; then listen=(--listen); fi
  "$1"
  "${first[@]}" taskset -c 1 "$segments" "${listen[@]}" --from "$3" --to "$4" --buffer "$buffer" --size "$size" --seconds "$seconds" --watch "$5" \
    >"$dir/segments.json" || fail "the client failed"
  "$2"
  jq -e '.uncut == .packets' "$dir/segments.json" >/dev/null || fail "packets were segmented: $(cat "$dir/segments.json")"
  pps=$(jq '.packets / .seconds' "$dir/segments.json")
  cpu_per_gb=$(jq '.cpu_seconds / (.bytes / 1e9)' "$dir/segments.json")
}

# load BEFORE AFTER SOCKET SOCKET PID: runs the clients; calls BEFORE and AFTER around the measured time. Sets pps.
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
    --burst="$burst" --rxq="$queues" --txq="$queues" --eth-peer="0,${eth}2" --eth-peer="1,${eth}1" <"$dir/commands" >"$log" 2>&1 &
  client=$!
  exec 7>"$dir/commands"
  waits_for 20 grep -q 'testpmd> ' "$log" || fail "testpmd did not start: $(tail -3 "$log")"
  links_up || fail "testpmd did not connect: $(tail -3 "$log")"
  printf 'set txpkts %s\nset fwd mac\nstart tx_first %s\n' "$size" "$bursts" >&7
  sleep 2
  measure "$1" "$2"
}
# measure BEFORE AFTER: calls both around the measured time, while testpmd forwards, and ends testpmd. Sets pps.
measure() {
  local log=$dir/testpmd.log
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
floor_before() { totals "$dir/floor/totals.0"; }
floor_after() { totals "$dir/floor/totals.1"; }
ours_before() { ask worker show >"$dir/workers.0"; ask port stats br0 >"$dir/ports.0"; }
ours_after() { ask worker show >"$dir/workers.1"; ask port stats br0 >"$dir/ports.1"; }

# Each of these prints one JSON object.
run_ovs() {
  start_ovs "$1"
  local socket=v
  if [ "$load" = segments ]; then socket=s; fi
  load ovs_before ovs_after "$dir/ovs/${socket}0" "$dir/ovs/${socket}1" "${ovs_pids[-1]}"
  stop_ovs
  # "avg processing cycles per packet: 139.62 (...)" excludes empty polling.
  local cycles hits batch
  cycles=$(awk '/avg processing cycles per packet/ { print $6; exit }' "$dir/pmd")
  hits=$(awk '/emc hits/ { print $3; exit }' "$dir/pmd")
  batch=$(awk '/avg. packets per output batch/ { print $6; exit }' "$dir/pmd")
  jq -nc --argjson pps "$pps" --argjson cpu "$cpu_per_gb" --argjson cycles "$cycles" --argjson hits "$hits" --argjson batch "$batch" \
    '{pps: $pps, cpu_seconds_per_gb: $cpu, cycles_per_packet: $cycles, packets_per_batch: $batch, exact_match_hits: $hits}'
}
run_floor() {
  start_floor
  load floor_before floor_after "$dir/floor/v0" "$dir/floor/v1" "$floor_pid"
  exec 8>&- 9<&-
  stop_floor
  jq -nc --argjson pps "$pps" --slurpfile t0 "$dir/floor/totals.0" --slurpfile t1 "$dir/floor/totals.1" '
    def grown(f): ($t1[0] | f) - ($t0[0] | f);
    {pps: $pps, cycles_per_packet: (grown(.busy_cycles) / grown(.packets)),
     busy_share: (grown(.busy_cycles) / grown(.elapsed_cycles)), packets_per_batch: (grown(.packets) / grown(.batches))}'
}
run_ours() {
  start_ours "$1"
  load ours_before ours_after "$dir/ours/v0" "$dir/ours/v1" "$ours"
  stop_ours
  ours_json
}
# mswitch, configured by the same commands as Open vSwitch.
run_database() {
  local control=$dir/ovs/mswitch.sock
  start_ovs "$1" mswitch
  load ours_before ours_after "$dir/ovs/v0" "$dir/ovs/v1" "${ovs_pids[-1]}"
  stop_ovs
  ours_json
}
ours_json() {
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

# show_run JSON: prints a run on one line.
show_run() {
  jq -r '
    def to(n): . * n | round / n;
    "    \(.pps / 1e6 | to(100)) Mpps, \(.cycles_per_packet | to(10)) cycles per packet, \(.packets_per_batch | to(10)) packets per batch" +
    (if .busy_share then ", busy \(.busy_share * 100 | round) %" else "" end) +
    (if .cpu_seconds_per_gb then ", \(.cpu_seconds_per_gb | to(1e4)) CPU seconds per gigabyte" else "" end)' <<<"$1"
}

# Functions of jq for reports.
# shellcheck disable=SC2016 # for jq to expand
jq_reports='
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def spread: {median: median, min: min, max: max};
  def show(n): "\(.median * n | round / n) (\(.min * n | round / n) to \(.max * n | round / n))";'
