#!/bin/bash
# test-ovs.sh ROOT PACKAGE NETNS: in a Debian root that test.sh has prepared, with a namespace for its network: installs
# Open vSwitch and the package mswitch-ovs, takes mswitch through what ovs-ctl does, as the units of openvswitch-switch
# call it, and removes the package again.
set -euo pipefail

root=$1 package=$2 netns=$3
peer=${netns}p

die() {
  echo "package test: $*" >&2
  tail -n 30 "$root/var/log/openvswitch/ovs-vswitchd.log" >&2 || true
  exit 1
}
step() { echo "== $*"; }
in_root() { ip netns exec "$netns" chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
ovs_ctl() { in_root /usr/share/openvswitch/scripts/ovs-ctl "$@" >"$log" 2>&1 || { cat "$log"; die "ovs-ctl $1 failed"; }; }
log=$(mktemp)
finish() {
  in_root /usr/share/openvswitch/scripts/ovs-ctl stop >/dev/null 2>&1 || true
  ip netns del "$peer" 2>/dev/null || true
  rm -f "$log"
}
trap finish EXIT

step "Open vSwitch, and mswitch in the place of its daemon"
libraries=$(dpkg-deb -f "$package" Depends | sed 's/([^)]*)//g; s/,/ /g')
# Services are not started by their packages.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
cp "$package" "$root/package.deb"
# shellcheck disable=SC2086 # several words
{ DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y --no-install-recommends $libraries &&
  in_root dpkg -i /package.deb; } >"$log" 2>&1 || { cat "$log"; die "installing failed"; }
rm "$root/package.deb"
[ -z "$(in_root dpkg --verify mswitch-ovs)" ] || die "files differ from the package's"
program() { in_root readlink -f /usr/sbin/ovs-vswitchd; }
[ "$(program)" = /usr/lib/mswitch/ovs-vswitchd ] || die "the alternative is $(program)"
warnings=$(zcat "$root/usr/share/man/man8/mswitch-ovs-vswitchd.8.gz" | groff -man -Tutf8 -ww 2>&1 >/dev/null)
[ -z "$warnings" ] || die "the manual page: $warnings"

step "ovs-ctl start"
# Shows the devices of the namespace, as in a container.
nsenter --net=/run/netns/"$netns" mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
ovs_ctl --system-id=test start
[[ $(in_root ovs-appctl -T 10 -t ovs-vswitchd version) == *mswitch* ]] || die "another daemon runs"
ip netns add "$peer"
ip -n "$netns" link add port0 type veth peer name eth0 netns "$peer"
ip -n "$netns" link set port0 up
ip -n "$peer" link set eth0 up
ip -n "$peer" addr add 10.0.9.2/24 dev eth0
errors=$(in_root ovs-vsctl -t 20 add-br br0 -- add-port br0 port0 2>&1)
[ -z "$errors" ] || die "ovs-vsctl: $errors"
in_root ovs-ofctl add-flow br0 priority=7,dl_type=0x88cc,actions=drop
answers() {
  ip -n "$netns" addr replace 10.0.9.1/24 dev br0
  ip -n "$netns" link set br0 up
  ip netns exec "$peer" ping -q -c 3 -i 0.2 -w 20 10.0.9.1 >"$log" || { cat "$log"; die "after $1: no packets"; }
}
answers start
pid() { cat "$root/run/openvswitch/ovs-vswitchd.pid"; }
first=$(pid)

for action in restart force-reload-kmod; do
  step "ovs-ctl $action"
  ovs_ctl --system-id=test $action
  [ "$(pid)" != "$first" ] || die "after $action: the same daemon"
  first=$(pid)
  answers $action
  in_root ovs-ofctl dump-flows br0 | grep -q 'priority=7,dl_type=0x88cc actions=drop' ||
    die "after $action: flows are lost: $(in_root ovs-ofctl dump-flows br0)"
done

step "ovs-ctl stop"
ovs_ctl stop
[ ! -e "$root/run/openvswitch/ovs-vswitchd.pid" ] || die "the pidfile is left"
[ ! -e "/proc/$first" ] || die "the daemon runs"

step "remove mswitch-ovs"
in_root dpkg --purge mswitch-ovs >"$log" 2>&1 || { cat "$log"; die "dpkg --purge failed"; }
[ "$(program)" = /usr/lib/openvswitch-switch/ovs-vswitchd ] || die "the alternative is $(program)"
