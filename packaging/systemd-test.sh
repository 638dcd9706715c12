#!/bin/bash
# systemd-test.sh PACKAGE: boots a Debian root by systemd-nspawn, with the package's unit and systemd-networkd, and
# takes a host port through what an administrator does: attach, restart networkd, kill the daemon, stop it, boot with
# the host port managed, and a DHCP lease. The host has one end of a veth pair; from the other end, a ping measures
# every gap, and a TCP connection must survive.
#
# BASE names a directory filled by debootstrap with the packages below, which saves creating one.
set -euo pipefail

package=$(realpath "$1")
# A private mount namespace removes the mounts when the process ends.
[ "${PRIVATE_MOUNTS:-}" ] || PRIVATE_MOUNTS=1 exec unshare --mount "$0" "$package"

die() {
  echo "systemd test: $*" >&2
  [ -z "$init" ] || inside journalctl --no-pager -n 60 -u mswitch -u systemd-networkd >&2 || true
  exit 1
}
step() { echo "== $*"; }

packages=adduser,dbus,iproute2,libpcap0.8,procps,systemd,systemd-sysv
work=$(mktemp -d /tmp/mswitch-systemd-XXXXXX)
# The network namespaces of the container and of its neighbour.
root=$work/root host=mssd$$h peer=mssd$$p
nspawn='' init='' ping='' server='' client='' leases=''

finish() {
  for process in $ping $client $server $leases; do kill "$process" 2>/dev/null || true; done
  stop_container || true
  for netns in $host $peer; do ip netns del $netns 2>/dev/null || true; done
  rm -rf --one-file-system "$work"
}
trap finish EXIT

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
  local limit=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -le $limit ] || return 1
    sleep 0.1
  done
}
inside() { nsenter --target "$init" --all -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

start_container() {
  systemd-nspawn --quiet --directory="$root" --machine=mswitch$$ --private-network --register=no --keep-unit \
    --link-journal=no --bind=/dev/net/tun --console=pipe --boot >>"$work/console" 2>&1 </dev/null &
  nspawn=$!
  wait_for 20 booting || die "systemd-nspawn failed: $(cat "$work/console")"
  ip netns attach $host "$init"
  ip -n $host link add name eth0 address 02:00:00:00:00:01 type veth peer name p0 address 02:00:00:00:00:fe netns $peer
  ip -n $peer addr add 10.79.0.254/24 dev p0
  ip -n $peer addr add fd79::fe/64 dev p0 nodad
  ip -n $peer link set p0 up
  wait_for 60 booted || die "systemd does not come up: $(inside systemctl list-jobs --no-pager)"
}
# Its child is the container's first process.
booting() { init=$(pgrep -P "$nspawn" | head -n 1); [ -n "$init" ] && [ "$(cat /proc/"$init"/comm)" = systemd ]; }
booted() { [[ $(inside systemctl is-system-running) =~ ^(running|degraded)$ ]]; }
stop_container() {
  [ -n "$nspawn" ] || return 0
  # Like `poweroff`; the second signal ends what is left.
  kill -TERM "$nspawn" 2>/dev/null || true
  wait_for 30 over "$nspawn" || kill -KILL "$nspawn" 2>/dev/null || true
  wait "$nspawn" || true
  nspawn='' init=''
  # The veth pair ends with the namespace, a little later.
  ip netns del $host
  wait_for 10 unplugged || die "the interface of the container remains"
  # Empty cgroups, which nobody else removes.
  find /sys/fs/cgroup -depth -type d \( -path '*/payload*' -o -name supervisor \) -exec rmdir {} + 2>/dev/null || true
}
unplugged() { ! ip -n $peer link show p0; }
over() { ! kill -0 "$1" 2>/dev/null; }

# Interfaces that have an address.
places() { ip -n $host -o addr show | awk -v a="$1" '{ split($4, b, "/"); if (b[1] == a) print $2 }' | sort | paste -sd ' '; }
is_at() { for a in 10.79.0.1 fd79::1; do [ "$(places $a)" = "$1" ] || return 1; done; }
dump() {
  ip -n $host -o addr show dev eth0 | sed 's/ *valid_lft.*//'
  for family in -4 -6; do ip -n $host $family route show table all | sed 's/ expires.*//' | grep -v fe80 | sort; done
  ip -n $host rule
}
port_is_up() { inside mswitch port list br0 --json | jq -e '.ports[] | select(.name == "eth0").link == "up"'; }
state() { inside networkctl --no-pager --no-legend list | awk -v i="$1" '$2 == i { print $5 }'; }
states() { echo "   networkctl: eth0 $(state eth0), br0-host $(state br0-host || true)"; }

# gap NAME: the longest time without an answer since the last call, in milliseconds.
last=1
gap() {
  sleep 0.3
  local missing
  missing=$(grep -o 'icmp_seq=[0-9]*' "$work/ping" | cut -d= -f2 | awk -v last=$last '
    { if ($1 - last > most) most = $1 - last; last = $1 } END { print (most - 1) * 20, last }')
  last=${missing#* } missing=${missing% *}
  echo "   $1: at most $missing ms without an answer"
  [ "$missing" -le "$2" ] || die "$1: $missing ms without an answer"
  # Bytes arrive after this, over the connection of the beginning.
  local before
  before=$(received)
  wait_for 15 more_than "$before" || die "$1: the TCP connection has stopped: $(tail -n 3 "$work/client")"
}
received() { ip netns exec $host ss -Htin state established '( sport = :5201 )' | grep -o 'bytes_received:[0-9]*' | cut -d: -f2 | sort -n | tail -n 1; }
more_than() { [ "$(received)" -gt "$1" ]; }

start_load() {
  ip netns exec $peer ping -n -i 0.02 10.79.0.1 >"$work/ping" &
  ping=$!
  ip netns exec $host iperf3 -s >"$work/server" 2>&1 &
  server=$!
  wait_for 10 listening || die "iperf3 does not listen"
  ip netns exec $peer iperf3 -c 10.79.0.1 -b 5M -t 3600 >"$work/client" 2>&1 &
  client=$!
  wait_for 10 more_than 100000 || die "no TCP connection: $(cat "$work/client")"
  wait_for 10 grep -q icmp_seq "$work/ping"
  last=1
}
listening() { ip netns exec $host ss -Hltn | grep -q :5201; }
stop_load() {
  kill "$ping" "$client" "$server" 2>/dev/null || true
  wait "$ping" "$client" "$server" 2>/dev/null || true
  ping='' client='' server=''
}

step "a Debian root with systemd"
if [ "${BASE:-}" ]; then
  cp -a "$BASE" "$root"
else
  debootstrap --variant=minbase --include=$packages bookworm "$root" >"$work/debootstrap.log" ||
    { tail "$work/debootstrap.log"; die "debootstrap failed"; }
fi
cp "$package" "$root/package.deb"
chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin dpkg -i /package.deb >"$work/dpkg.log" 2>&1 ||
  { cat "$work/dpkg.log"; die "dpkg -i failed"; }
cat >"$root/etc/mswitch/mswitch.toml" <<END
[[bridge]]
name = "br0"

[[bridge.port]]
name = "br0-host"
type = "tap"

[[bridge.port]]
name = "eth0"
type = "netdev"
host = "br0-host"
END
systemctl --quiet --root="$root" disable mswitch
systemctl --quiet --root="$root" enable systemd-networkd
# In the container nobody answers it while eth0 is attached and managed; the test asks for states itself.
systemctl --quiet --root="$root" mask systemd-networkd-wait-online systemd-resolved systemd-timesyncd
networks=$root/etc/systemd/network
static() {
  cat <<END
[Match]
Name=$1
[Network]
Address=10.79.0.1/24
Address=fd79::1/64
Gateway=10.79.0.254
IPv6AcceptRA=no
[Route]
Destination=10.80.0.0/16
Gateway=10.79.0.253
[RoutingPolicyRule]
From=10.79.0.1
Table=100
Priority=1000
END
}
# networkd sets the interface up and does nothing else.
without_addresses() {
  printf '[Match]\nName=eth0\n\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n' >"$networks/05-eth0.network"
}
static eth0 >"$networks/eth0.network"

ip netns add $peer
start_container
wait_for 20 is_at eth0 || die "networkd does not configure eth0"
wait_for 20 test "$(state eth0)" = configured || true
echo "   $(inside systemctl --version | head -n 1); $(inside systemctl is-system-running); $(inside networkctl --no-legend list | wc -l) interfaces"
before=$(dump)
start_load

step "networkd manages eth0: attach"
inside systemctl start mswitch
wait_for 20 port_is_up || die "the port does not come up: $(inside mswitch port show br0 eth0)"
wait_for 10 is_at br0-host || die "the addresses are at $(places 10.79.0.1)"
gap attach 1000
states

for action in "systemctl restart systemd-networkd" "networkctl reload" "networkctl reconfigure eth0"; do
  step "$action"
  # shellcheck disable=SC2086 # several words
  inside $action
  sleep 3
  wait_for 20 is_at br0-host || die "the addresses are at $(places 10.79.0.1)"
  [ "$(ip -n $host rule | grep -c 'from 10.79.0.1 lookup 100')" = 1 ] || die "rules: $(ip -n $host rule)"
  gap "$action" 5000
  states
done

step "kill -9 of the daemon: the guardian, then systemd's restart"
pid=$(inside systemctl show -P MainPID mswitch)
inside kill -9 "$pid"
restarted() { local now; now=$(inside systemctl show -P MainPID mswitch); [ "$now" != 0 ] && [ "$now" != "$pid" ]; }
wait_for 20 restarted || die "systemd does not restart it"
wait_for 20 port_is_up || die "the port does not come up again"
wait_for 10 is_at br0-host || die "the addresses are at $(places 10.79.0.1)"
gap "kill -9" 3000
states

step "systemctl stop"
inside systemctl stop mswitch
wait_for 10 is_at eth0 || die "the addresses are at $(places 10.79.0.1)"
gap stop 1000
states
after=$(dump)
[ "$before" = "$after" ] || { diff <(echo "$before") <(echo "$after") || true; die "the configuration of the host differs"; }
stop_load

step "networkd manages the host port: boot"
stop_container
rm "$networks/eth0.network"
without_addresses
static br0-host >"$networks/br0-host.network"
systemctl --quiet --root="$root" enable mswitch
start_container
wait_for 30 is_at br0-host || die "the addresses are at $(places 10.79.0.1)"
wait_for 20 port_is_up || die "the port does not come up: $(inside mswitch port show br0 eth0)"
states
start_load
gap boot 1000
step "systemctl restart mswitch"
inside systemctl restart mswitch
wait_for 20 port_is_up || die "the port does not come up again"
wait_for 20 is_at br0-host || die "the addresses are at $(places 10.79.0.1)"
gap "restart" 5000
states
stop_load

# Files for a lease of this interface.
dhcp_files() {
  rm "$networks"/*.network
  printf '[Match]\nName=%s\n[Network]\nDHCP=ipv4\nIPv6AcceptRA=no\nAddress=fd79::1/64\n' "$1" >"$networks/10-dhcp.network"
  if [ "$1" != eth0 ]; then without_addresses; fi
}
# dhcp INTERFACE: prepares a boot with a lease of 10 s for this interface.
dhcp() {
  stop_container
  dhcp_files "$1"
  cat >"$work/udhcpd.conf" <<END
start 10.79.0.1
end 10.79.0.1
interface p0
lease_file $work/leases
pidfile $work/udhcpd.pid
min_lease 5
option subnet 255.255.255.0
option router 10.79.0.254
option lease 10
END
  : >"$work/leases"
}
# After start_container, which makes its interface.
serve_dhcp() {
  if [ -n "$leases" ]; then kill "$leases"; wait "$leases" || true; fi
  ip netns exec $peer busybox udhcpd -f "$work/udhcpd.conf" >"$work/udhcpd" 2>&1 &
  leases=$!
}

step "networkd has a DHCP lease of 10 s for the host port"
dhcp br0-host
start_container
serve_dhcp
wait_for 30 is_at br0-host || die "the addresses are at $(places 10.79.0.1)"
states
start_load
sleep 24
is_at br0-host || die "the addresses are at $(places 10.79.0.1)"
gap "two leases" 500
stop_load

step "networkd has a DHCP lease of 10 s for eth0, which is attached, and then one for the host port"
systemctl --quiet --root="$root" disable mswitch
dhcp eth0
start_container
serve_dhcp
wait_for 30 is_at eth0 || die "networkd does not configure eth0"
start_load
inside systemctl start mswitch
dhcp_files br0-host
inside networkctl reload
wait_for 20 port_is_up || die "the port does not come up"
sleep 24
is_at br0-host || die "the addresses are at $(places 10.79.0.1)"
gap "two leases" 1000
states
inside systemctl stop mswitch
stop_load
echo "systemd test: passed"
