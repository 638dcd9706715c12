#!/bin/bash
# http.sh: two HTTP servers on one address at once, the host's nginx and examples/http-server with a TCP stack of its own
# on a reserved port (logic `three-tuple`), loaded in turns by wrk behind the uplink.
#
#   bench/http.sh [--port memif|vhost-user] [--rounds N] [--seconds S] [--connections N,N...] [--bytes N,N...]
#                 [--out FILE]
#
# The uplink and the host's port are TAP interfaces with an MTU of 1,500 and all offloads (checksum, TSO); the server in
# user space is at a memif or vhost-user port without offloads. The switch has one thread, on CPU 0; wrk has one, and it
# and the servers run wherever the kernel puts them. Bodies of 0 bytes stand for short answers (a status line and a few
# headers).
#
# Output for each load and server: requests and bytes of bodies per second; CPU time per request of the server's process
# and of the switch's; medians (lowest to highest), and the ratios of the user-level server to nginx within a round.
#
# MSWITCH and HTTP_SERVER name the binaries (default: those in target/release). Needs root, jq, wrk, nginx (whose Debian
# package starts a server of its own on port 80 of the host; this script's servers are in namespaces).
set -euo pipefail
# shellcheck source=bench/testbed.sh
. "$(dirname "$0")/testbed.sh"
server=${HTTP_SERVER:-$(dirname "$mswitch")/mswitch-http-server}
port=memif rounds=5 seconds=3 connections=1,64,256 bodies=0,65536 out=''

while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --port) port=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --connections) connections=$2 ;;
    --bytes) bodies=$2 ;;
    --out) out=$2 ;;
    *) usage ;;
  esac
  shift 2
done
case $port in memif | vhost-user) ;; *) fail "--port is memif or vhost-user, not $port" ;; esac
[ "$(id -u)" = 0 ] || fail "needs root: namespaces and TAP interfaces"
[ -x "$mswitch" ] || fail "$mswitch is missing: cargo build --release -p mswitch"
[ -x "$server" ] || fail "$server is missing: cargo build --release -p mswitch-http-server"
for tool in jq wrk nginx; do
  command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install jq wrk nginx-light"
done

dir=$(mktemp -d)
# nginx's worker is another user.
chmod 755 "$dir"
outside=mswitch-http-$$-a host=mswitch-http-$$-b
pids=()
clean_up() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  ip netns del "$outside" 2>/dev/null || true
  ip netns del "$host" 2>/dev/null || true
  rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

for netns in "$outside" "$host"; do
  ip netns add "$netns"
  ip -n "$netns" link set lo up
  # Whatever the machine's default, one that does not pace.
  ip netns exec "$netns" sysctl -qw net.ipv4.tcp_congestion_control=reno
done
cat >"$dir/config.toml" <<CONFIG
[[bridge]]
name = "br0"
logic = "three-tuple"
params = { host = "host", uplink = "uplink", socket = "$dir/reserve", netns = "$host" }
[[bridge.port]]
name = "uplink"
type = "tap"
interface = "c0"
netns = "$outside"
addresses = ["10.79.0.2/24"]
[[bridge.port]]
name = "host"
type = "tap"
interface = "h0"
netns = "$host"
addresses = ["10.79.0.1/24"]
[[bridge.port]]
name = "stack"
type = "$port"
path = "$dir/port"
CONFIG
export MSWITCH_SOCKET=$dir/ctl
# started PID LOG CONDITION...: waits until the condition holds; fails if the process ends before.
started() {
  local pid=$1 log=$2
  shift 2
  until "$@"; do
    kill -0 "$pid" || fail "a process did not start: $(cat "$log")"
    sleep 0.05
  done
}
"$mswitch" daemon --config "$dir/config.toml" --workers 0 2>"$dir/log" &
daemon=$!
pids+=("$daemon")
answers() { "$mswitch" status >/dev/null 2>&1; }
started "$daemon" "$dir/log" answers

mkdir "$dir/www"
for bytes in ${bodies//,/ }; do head -c "$bytes" /dev/zero | tr '\0' x >"$dir/www/$bytes"; done
cat >"$dir/nginx.conf" <<CONFIG
daemon off;
worker_processes 1;
pid $dir/nginx.pid;
error_log $dir/nginx.log;
events { worker_connections 2048; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  open_file_cache max=10;
  server { listen 8080; root $dir/www; }
}
CONFIG
ip netns exec "$host" nginx -c "$dir/nginx.conf" 2>"$dir/nginx.log" &
master=$! worker=''
pids+=("$master")
has_worker() { worker=$(pgrep -P "$master" nginx); }
started "$master" "$dir/nginx.log" has_worker
"$server" "--$port" "$dir/port" --reserve "$dir/reserve" --port stack --address 10.79.0.1/24 --connections 1024 \
  >"$dir/serving" 2>"$dir/serving.log" &
own=$!
pids+=("$own")
started "$own" "$dir/serving.log" grep -q serving "$dir/serving"

# cpu PID: CPU time so far, seconds.
cpu() {
  awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) / hz }' "/proc/$1/stat"
}

# load NAME CONNECTIONS BYTES: loads a server and prints an object.
load() {
  local number=80 pid=$own
  if [ "$1" = nginx ]; then number=8080 pid=$worker; fi
  local before daemon_before
  before=$(cpu "$pid") daemon_before=$(cpu "$daemon")
  ip netns exec "$outside" wrk -t 1 -c "$2" -d "${seconds}s" --latency "http://10.79.0.1:$number/$3" >"$dir/wrk"
  if grep -q "Socket errors\|Non-2xx" "$dir/wrk"; then fail "$1, $2 connections, $3 bytes: $(cat "$dir/wrk")"; fi
  awk -v name="$1" -v connections="$2" -v bytes="$3" -v cpu="$(cpu "$pid")" -v before="$before" \
    -v daemon="$(cpu "$daemon")" -v daemon_before="$daemon_before" '
    / requests in / { requests = $1 }
    /^Requests\/sec/ { rate = $2 }
    END {
      if (!requests) exit 1
      printf "{\"server\": \"%s\", \"connections\": %d, \"bytes\": %d, \"rate\": %s, \"cpu\": %.9f, \"switch\": %.9f}\n",
        name, connections, bytes, rate, (cpu - before) / requests, (daemon - daemon_before) / requests
    }' "$dir/wrk"
}

for round in $(seq "$rounds"); do
  for bytes in ${bodies//,/ }; do
    for count in ${connections//,/ }; do
      echo "round $round: $count connections, bodies of $bytes bytes" >&2
      order="nginx user-level"
      if [ $((round % 2)) = 0 ]; then order="user-level nginx"; fi
      for name in $order; do load "$name" "$count" "$bytes" | jq -c --argjson round "$round" '.round = $round'; done
    done
  done
done >"$dir/runs"
[ -z "$out" ] || cp "$dir/runs" "$out"

jq -rs '
  def number: if . >= 100 then round elif . >= 1 then . * 100 | round / 100 else . * 1000 | round / 1000 end;
  def spread: sort | "\(.[length / 2 | floor] | number) (\(first | number) to \(last | number))";
  def ratio($key): [group_by(.round)[] | (map(select(.server == "user-level"))[0][$key] / (map(select(.server == "nginx"))[0][$key] | if . == 0 then 1e-9 else . end))] | spread;
  group_by([.bytes, .connections])[] |
  "\(.[0].bytes) bytes, \(.[0].connections) connections",
  (group_by(.server)[] | "  \(.[0].server): \(map(.rate) | spread) requests/s, \(map(.rate * .bytes / 125e6) | spread) Gbit/s of bodies, CPU time a request: \(map(.cpu * 1e6) | spread) µs, switch \(map(.switch * 1e6) | spread) µs"),
  "  user-level / nginx: rate \(ratio("rate")), CPU time \(ratio("cpu"))"
' "$dir/runs"
