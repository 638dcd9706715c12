#!/bin/bash
# demo.sh: a demonstration of mswitch in about twenty seconds. Run it with `make demo`.
#
# Builds the switch, starts it in a temporary folder with two network namespaces on TAP ports, one on a veth pair that
# exists already and one program on a memif port, sends traffic between them, shows the switch's state, and removes
# everything again.
#
# MSWITCH and MEMIF_CHECK name the binaries (default: those in target/demo, built first). Needs root.
#
# `make picture` sets DEMO_PICTURE, a file, and TERMINAL_SVG, a program that draws terminals. The demo then also runs
# `mswitch top` while packets flow, and draws its screen to the file.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
seconds=${DEMO_SECONDS:-2}

fail() {
  echo "demo: $*" >&2
  exit 1
}
[ "$(id -u)" = 0 ] || fail "needs root: it creates network namespaces and TAP interfaces"
for tool in ip ping iperf3; do
  command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install iproute2 iputils-ping iperf3"
done
[ -c /dev/net/tun ] || fail "/dev/net/tun is missing: modprobe tun"

if [ -n "${MSWITCH:-}" ] && [ -n "${MEMIF_CHECK:-}" ]; then
  mswitch=$MSWITCH check=$MEMIF_CHECK
else
  echo "Building mswitch; the first build takes some minutes."
  (cd "$here" && cargo build --locked --profile demo -p mswitch -p mswitch-bench --bin mswitch --bin memif-check)
  target=${CARGO_TARGET_DIR:-$here/target}
  mswitch=$target/demo/mswitch check=$target/demo/memif-check
fi

dir=$(mktemp -d)
# Unique names.
red=demo-red-$$ blue=demo-blue-$$ green=demo-green-$$ outside=demo-outside-$$
daemon='' client='' server=''
clean_up() {
  local pid
  for pid in $client $server $daemon; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  local netns
  for netns in $red $blue $green $outside; do ip netns del "$netns" 2>/dev/null || true; done
  rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# show COMMAND...: prints the command as typed, and its output.
show() {
  printf '\n  $ mswitch %s\n' "$*"
  "$mswitch" "$@" --socket "$dir/ctl" | sed 's/^/  /'
}
in_red() { ip netns exec "$red" "$@"; }
in_blue() { ip netns exec "$blue" "$@"; }
in_green() { ip netns exec "$green" "$@"; }
# waits_for NAME COMMAND...: waits until the command succeeds.
waits_for() {
  local name=$1
  shift
  for _ in $(seq 200); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.05
  done
  fail "timed out waiting for $name; the switch's log: $(tail -5 "$dir/log")"
}

step "1. Network namespaces stand in for two machines, red and blue, and a container, green, with its veth pair."
for netns in $red $blue $green $outside; do ip netns add "$netns"; done
# As a container runtime does.
ip link add eth0 netns "$green" type veth peer name veth-green netns "$outside"
in_green ip address add 10.0.0.4/24 dev eth0
in_green ip link set eth0 up
ip netns exec "$outside" ip link set veth-green up

step "2. The switch starts with this configuration: one bridge that learns addresses, four ports."
cat >"$dir/demo.toml" <<EOF
[[bridge]]
name = "br0"
logic = "learning"

[[bridge.port]]            # an interface in red, with the host's network stack behind it
name = "red"
type = "tap"
netns = "$red"
addresses = ["10.0.0.1/24"]

[[bridge.port]]            # the same in blue
name = "blue"
type = "tap"
netns = "$blue"
addresses = ["10.0.0.2/24"]

[[bridge.port]]            # an interface that exists: the outer end of the container's veth pair
name = "green"
type = "netdev"
interface = "veth-green"
netns = "$outside"

[[bridge.port]]            # shared memory for a program with a network stack of its own
name = "program"
type = "memif"
path = "$dir/memif.sock"
EOF
sed 's/^/  /' "$dir/demo.toml"
"$mswitch" daemon --config "$dir/demo.toml" --socket "$dir/ctl" >"$dir/log" 2>&1 &
daemon=$!
waits_for "the switch" "$mswitch" status --socket "$dir/ctl"

step "3. A program connects to the memif port. It has an IP stack of its own, at 10.0.0.3."
"$check" host --port "$dir/memif.sock,mac=02:00:00:00:00:03" --address 10.0.0.3/24 >"$dir/client.log" 2>&1 &
client=$!
is_up() { "$mswitch" port show br0 "$1" --json --socket "$dir/ctl" | grep -q '"link": *"up"'; }
waits_for "the program" is_up program
waits_for "the container's interface" is_up green

step "4. Red pings blue and green, from interface to interface, and the program, from interface to shared memory."
in_red ping -q -c 20 -i 0.02 10.0.0.2 | sed 's/^/  /'
in_red ping -q -c 20 -i 0.02 10.0.0.4 | sed 's/^/  /'
in_red ping -q -c 20 -i 0.02 10.0.0.3 | sed 's/^/  /'

step "5. iperf3 sends TCP from red to blue, then from blue to red, $seconds s each."
# Not in_blue: the process must be iperf3 itself, so that it can be ended.
ip netns exec "$blue" iperf3 -s -B 10.0.0.2 >"$dir/iperf3" 2>&1 &
server=$!
listens() { in_blue ss -Hltn | grep -q ':5201'; }
waits_for "iperf3" listens
for way in "red to blue:" "blue to red:-R"; do
  # shellcheck disable=SC2086 # no argument at all in the first round
  in_red iperf3 -c 10.0.0.2 -t "$seconds" ${way#*:} |
    awk -v way="${way%:*}" '/receiver/ { print "  " way ": " $5, $6 ", " $7, $8 }'
done

# The live view, with TCP in both directions, pings to the program, and a port without its guest.
picture() {
  "$mswitch" port add br0 vm1 --type vhost-user --path "$dir/vm1.sock" --socket "$dir/ctl"
  in_red iperf3 -c 10.0.0.2 -t 8 --bidir >"$dir/traffic" 2>&1 &
  local traffic=$!
  in_red ping -q -i 0.01 -w 8 10.0.0.3 >"$dir/pings" 2>&1 &
  local pings=$!
  # top measures for a second; after four it has shown a complete one.
  { sleep 4; printf q; } |
    TERM=xterm-256color script -qec "stty rows 12 columns 122; '$mswitch' top --socket '$dir/ctl'" /dev/null |
    "$TERMINAL_SVG" 12 122 >"$dir/top.svg"
  { wait "$traffic" && wait "$pings"; } || fail "the traffic of the picture failed: $(tail -5 "$dir/traffic" "$dir/pings")"
  "$mswitch" port del br0 vm1 --socket "$dir/ctl"
  grep -q 'ports up' "$dir/top.svg" || fail "the picture does not show the ports"
  mv "$dir/top.svg" "$DEMO_PICTURE"
}
if [ -n "${DEMO_PICTURE:-}" ]; then picture; fi

step "6. The state of the switch. Ports:"
show port list br0
step "   Learned addresses:"
show fdb show br0
step "   Packets, bytes and drops of the ports:"
show port stats br0
step "   The worker thread, which sleeps without traffic:"
show worker show

step "7. The switch stops and removes its interfaces and sockets."
kill "$daemon"
wait "$daemon" || fail "the switch ended with an error: $(tail -5 "$dir/log")"
daemon=''
left=$( (in_red ip -o link; in_blue ip -o link) | grep -cv ' lo: ' || true)
[ "$left" = 0 ] || fail "$left interfaces are left"
# The container's interface was there before.
in_green ip -o link show eth0 >/dev/null || fail "the container has lost its interface"
[ ! -e "$dir/memif.sock" ] || fail "a socket is left"
echo "  Everything is removed. docs/getting-started.md continues from here."
