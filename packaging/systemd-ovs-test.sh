#!/bin/bash
# systemd-ovs-test.sh PACKAGE: boots a Debian root by systemd-nspawn, with openvswitch-switch and the package mswitch-ovs,
# and takes the units of Open vSwitch through what an administrator does: boot, restart, reload, a crash, the way back.
# The host has one end of a veth pair, which is a port of the bridge.
#
# BASE names a directory filled by debootstrap, which saves creating one.
set -euo pipefail

package=$(realpath "$1")
# A private mount namespace removes the mounts when the process ends.
[ "${PRIVATE_MOUNTS:-}" ] || PRIVATE_MOUNTS=1 exec unshare --mount "$0" "$package"

die() {
  echo "systemd test of mswitch-ovs: $*" >&2
  [ -z "$init" ] || inside journalctl --no-pager -n 60 -u ovs-vswitchd -u ovsdb-server >&2 || true
  tail -n 30 "$root/var/log/openvswitch/ovs-vswitchd.log" >&2 || true
  exit 1
}
step() { echo "== $*"; }

work=$(mktemp -d /tmp/mswitch-systemd-ovs-XXXXXX)
root=$work/root host=mso$$h peer=mso$$p
nspawn='' init=''
finish() {
  if [ -n "$nspawn" ]; then
    kill -TERM "$nspawn" 2>/dev/null || true
    wait_for 30 over "$nspawn" || kill -KILL "$nspawn" 2>/dev/null || true
    wait "$nspawn" || true
  fi
  for netns in $host $peer; do ip netns del $netns 2>/dev/null || true; done
  # Empty cgroups, which nobody else removes.
  find /sys/fs/cgroup -depth -type d \( -path '*/payload*' -o -name supervisor \) -exec rmdir {} + 2>/dev/null || true
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
booting() { init=$(pgrep -P "$nspawn" | head -n 1); [ -n "$init" ] && [ "$(cat /proc/"$init"/comm)" = systemd ]; }
booted() { [[ $(inside systemctl is-system-running) =~ ^(running|degraded)$ ]]; }
over() { ! kill -0 "$1" 2>/dev/null; }
pid() { inside systemctl show -P MainPID ovs-vswitchd; }
changed() { local now; now=$(pid); [ "$now" != 0 ] && [ "$now" != "$1" ]; }
stopped() { [ "$(pid)" = 0 ]; }
answers() { ip netns exec $peer ping -q -c 1 -W 1 10.78.0.1; }
# The bridge's interface goes with the daemon, and its address with it.
check() {
  inside ip addr replace 10.78.0.1/24 dev br0
  inside ip link set br0 up
  wait_for 20 answers || die "after $1: no packets"
}
version() { inside ovs-appctl -T 10 -t ovs-vswitchd version; }

step "a Debian root with systemd, Open vSwitch and mswitch-ovs"
if [ "${BASE:-}" ]; then
  cp -a "$BASE" "$root"
else
  debootstrap --variant=minbase --include=iproute2 bookworm "$root" >"$work/debootstrap.log" ||
    { tail "$work/debootstrap.log"; die "debootstrap failed"; }
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
# Services are not started by their packages.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
cp "$package" "$root/package.deb"
{ chroot "$root" apt-get update && DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y --no-install-recommends \
  dbus kmod procps systemd systemd-sysv openvswitch-switch /package.deb; } >"$work/apt.log" 2>&1 ||
  { tail "$work/apt.log"; die "installing failed"; }
rm "$root/usr/sbin/policy-rc.d"

step "boot"
systemd-nspawn --quiet --directory="$root" --machine=mswitch-ovs$$ --private-network --register=no --keep-unit \
  --link-journal=no --bind=/dev/net/tun --console=pipe --boot >"$work/console" 2>&1 </dev/null &
nspawn=$!
wait_for 20 booting || die "systemd-nspawn failed: $(cat "$work/console")"
ip netns attach $host "$init"
ip netns add $peer
ip -n $host link add name port0 type veth peer name p0 netns $peer
ip -n $host link set port0 up
ip -n $peer link set p0 up
ip -n $peer addr add 10.78.0.2/24 dev p0
wait_for 60 booted || die "systemd does not come up: $(inside systemctl list-jobs --no-pager)"
inside systemctl is-active ovs-vswitchd
[[ $(version) == *mswitch* ]] || die "another daemon runs: $(version)"
inside ovs-vsctl -t 20 add-br br0 -- add-port br0 port0
check boot

for action in "restart openvswitch-switch" "reload openvswitch-switch"; do
  step "systemctl $action"
  before=$(pid)
  # shellcheck disable=SC2086 # several words
  inside systemctl $action
  wait_for 20 changed "$before" || die "after $action: the same daemon"
  check "$action"
done

step "kill -9"
before=$(pid)
inside kill -9 "$before"
wait_for 20 changed "$before" || die "systemd does not restart it"
wait_for 20 version || die "the daemon does not answer"
check "kill -9"

step "the way back"
inside dpkg --purge mswitch-ovs
wait_for 5 answers || die "removing the package interrupts traffic"
[ "$(inside readlink -f /usr/sbin/ovs-vswitchd)" = /usr/lib/openvswitch-switch/ovs-vswitchd ] || die "no alternative"
inside systemctl stop openvswitch-switch
wait_for 20 stopped || die "the daemon runs"
echo "systemd test of mswitch-ovs: passed"
