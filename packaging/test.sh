#!/bin/bash
# test.sh PACKAGE OVS-PACKAGE: installs the package into a bare Debian root, runs the daemon there as the service would
# (its user, only its capabilities, a read-only system, no device but TAP's), sends packets between a namespace and a
# memif client, compares its system calls with the unit's filter, and removes the package again. The package
# mswitch-ovs follows in the same root (test-ovs.sh).
#
# systemd does not run: the test applies the unit's settings itself. BASE names a directory filled by debootstrap, which
# saves creating one; MEMIF_CHECK_BIN the memif client, if it is not in target/debug.
set -euo pipefail

package=$(realpath "$1")
ovs_package=$(realpath "$2")
check=$(realpath "${MEMIF_CHECK_BIN:-$(dirname "$0")/../target/debug/memif-check}")
# A private mount namespace removes the mounts when the process ends.
[ "${PRIVATE_MOUNTS:-}" ] || PRIVATE_MOUNTS=1 exec unshare --mount "$0" "$package" "$ovs_package"

die() { echo "package test: $*" >&2; exit 1; }
step() { echo "== $*"; }

work=$(mktemp -d /tmp/mswitch-package-XXXXXX)
root=$work/root
blue=mspkg$$
daemon='' client='' pid=''
finish() {
  [ -z "$client" ] || kill "$client" 2>/dev/null || true
  [ -z "$daemon" ] || { kill -TERM "${pid:-$daemon}" && wait "$daemon"; } 2>/dev/null || true
  ip netns del $blue 2>/dev/null || true
  umount -R -l "$root" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap finish EXIT
chmod 755 "$work"

step "a bare Debian"
if [ "${BASE:-}" ]; then
  cp -a "$BASE" "$root"
else
  debootstrap --variant=minbase --include=adduser,iproute2,iputils-ping bookworm "$root" \
    >"$work/debootstrap.log" || { tail "$work/debootstrap.log"; die "debootstrap failed"; }
fi
mount --bind "$root" "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

step "install"
cp "$package" "$root/package.deb"
# Only with the libraries that it depends on.
libraries=$(dpkg-deb -f "$package" Depends | sed 's/([^)]*)//g; s/,/ /g')
cp /etc/resolv.conf "$root/etc/resolv.conf"
# shellcheck disable=SC2086 # several words
{ chroot "$root" apt-get update && DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y --no-install-recommends \
  $libraries && in_root dpkg -i /package.deb; } >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; die "installing failed"; }
rm "$root/package.deb"
[ -z "$(in_root dpkg --verify mswitch)" ] || die "files differ from the package's"
in_root id mswitch >/dev/null || die "there is no user mswitch"
in_root mswitch config check /etc/mswitch/mswitch.toml
[ "$(in_root stat -c '%U:%G:%a' /etc/mswitch/mswitch.toml)" = root:mswitch:640 ] || die "the configuration has another owner or mode"
for file in man/man1/mswitch-port-add.1.gz bash-completion/completions/mswitch zsh/vendor-completions/_mswitch \
  fish/vendor_completions.d/mswitch.fish; do
  [ -s "$root/usr/share/$file" ] || die "usr/share/$file is missing"
done

step "settings of the unit"
unit=$root/usr/lib/systemd/system/mswitch.service
[ -e "$unit" ] || unit=$root/lib/systemd/system/mswitch.service
of_unit() { sed -n "s/^$1=//p" "$unit"; }
capabilities=$(of_unit AmbientCapabilities)
[ "$capabilities" = "$(of_unit CapabilityBoundingSet)" ] || die "ambient and bounding capabilities differ"
caps=$(for c in $capabilities; do echo -n ",+${c#CAP_}"; done | tr '[:upper:]' '[:lower:]')
read -ra start <<<"$(of_unit ExecStart)"
echo "   ${start[*]}"
echo "   $capabilities"
systemd-analyze security --offline=yes --threshold=40 --no-pager "$unit" | tail -n 1

step "a read-only system, no device but TAP's"
ip netns add $blue
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do touch "$root/dev/$node"; mount --bind /dev/$node "$root/dev/$node"; done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/net"; touch "$root/dev/net/tun"; mount --bind /dev/net/tun "$root/dev/net/tun"
mkdir "$root/run/netns"; mount --rbind /run/netns "$root/run/netns"
in_root install -d -o mswitch -g mswitch -m "$(of_unit RuntimeDirectoryMode)" "/run/$(of_unit RuntimeDirectory)"
cat >"$root/etc/mswitch/mswitch.toml" <<END
[daemon]
workers = "0"
group = "games"
mode = "0660"
metrics = "0"

[[bridge]]
name = "br0"

[[bridge.port]]
name = "blue"
type = "tap"
netns = "$blue"
mtu = 1400
addresses = ["10.0.0.1/24"]

[[bridge.port]]
name = "vm1"
type = "memif"
path = "/run/mswitch/vm1.sock"
owner = "nobody"
mode = "0600"
END
mount -o remount,bind,ro "$root"

step "the daemon as the service"
# Open files: the unit's limit, or this machine's if that is lower.
limit=$(of_unit LimitNOFILE)
most=$(ulimit -Hn)
if [ "$most" != unlimited ] && [ "$most" -lt "$limit" ]; then limit=$most; fi
as_service() {
  # strace exits with the status of its child.
  strace -f -qq -o "$trace" chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "umask $(of_unit UMask); ulimit -n $limit; exec \"\$@\"" sh \
    setpriv --reuid "$(of_unit User)" --regid "$(of_unit Group)" --clear-groups --no-new-privs \
    --inh-caps "-all$caps" --ambient-caps "-all$caps" --bounding-set "-all$caps" "$@"
}
trace=$work/trace
as_service "${start[@]}" >"$work/log" 2>&1 &
daemon=$!
for _ in $(seq 200); do in_root mswitch status >/dev/null 2>&1 && break; sleep 0.05; done
in_root mswitch status || { cat "$work/log"; die "the daemon does not serve"; }
pid=$(in_root mswitch status --json | sed -n 's/.*"pid": \([0-9]*\).*/\1/p')
effective=$(sed -n 's/^CapEff:\t//p' /proc/"$pid"/status)
echo "   process $pid of user $(in_root stat -c %U /proc/"$pid"), capabilities $(capsh --decode="$effective")"
[ "$(sed -n 's/^Uid:\t\([0-9]*\).*/\1/p' /proc/"$pid"/status)" != 0 ] || die "the daemon runs as root"
[ "$(stat -c '%a' "$root/run/mswitch/mswitch.sock")" = 660 ] || die "the control socket has another mode"
[ "$(in_root stat -c '%U:%G' /run/mswitch/mswitch.sock)" = mswitch:games ] || die "the control socket has another group"
[ "$(in_root stat -c '%U:%a' /run/mswitch/vm1.sock)" = nobody:600 ] || die "vm1's socket has another owner"
# A caller needs access to the directory, which belongs to the group mswitch, and to the socket.
in_root setpriv --reuid nobody --regid games --groups mswitch mswitch status >/dev/null || die "the socket's group is refused"
refusal=$(in_root setpriv --reuid nobody --regid nogroup --clear-groups mswitch status 2>&1) && die "strangers are admitted"
[[ $refusal == *"permission denied for"* ]] || die "the refusal reads: $refusal"

# shellcheck disable=SC2016 # expanded in the root
completed=$(in_root bash -c '. /usr/share/bash-completion/completions/mswitch
  COMP_LINE="mswitch port show br0 v" COMP_POINT=${#COMP_LINE}; _mswitch mswitch v br0; echo "${COMPREPLY[*]}"')
[ "$completed" = vm1 ] || die "a TAB after \`mswitch port show br0 v\` offers: $completed"

step "packets"
"$check" host --port "$root/run/mswitch/vm1.sock" --address 10.0.0.2/24 >"$work/client" 2>&1 &
client=$!
ip netns exec $blue ping -q -c 20 -i 0.05 -W 5 10.0.0.2 | tail -n 2 || { cat "$work/log" "$work/client"; die "no packets"; }

step "changes while it runs"
# 60 more ports, which the unit's limit of open files allows; one port in a namespace.
for i in $(seq 60); do in_root mswitch port add br0 "p$i" --type memif --path /run/mswitch/many.sock --id "$i"; done
in_root mswitch port add br0 t2 --type tap --netns $blue
in_root mswitch port del br0 t2
in_root mswitch worker pin br0 blue 0 0

step "the end"
kill "$client"; wait "$client" || true; client=''
kill -TERM "$pid"
wait "$daemon" || { cat "$work/log"; die "the daemon failed"; }
daemon=''
[ -z "$(ls "$root/run/mswitch")" ] || die "left behind: $(ls "$root/run/mswitch")"

step "the unit's filter allows the daemon's system calls"
expand() { # expands a set of the filter and its subsets
  systemd-analyze syscall-filter "$1" | sed -n 's/^    \([-@a-z_0-9]*\)$/\1/p' | while read -r name; do
    case $name in @*) expand "$name" ;; *) echo "$name" ;; esac
  done
}
for name in $(of_unit SystemCallFilter); do
  case $name in @*) expand "$name" ;; *) echo "$name" ;; esac
done | sort -u >"$work/allowed"
# Skip the system calls of chroot and setpriv.
sed '1,/execve("[^"]*mswitch", /d' "$trace" >"$work/calls"
grep -q epoll "$work/calls" || die "nothing was traced"
sed -nE 's/^[0-9]+ +([a-z_0-9]+)\(.*/\1/p' "$work/calls" | sort -u >"$work/called"
refused=$(comm -23 "$work/called" "$work/allowed")
[ -z "$refused" ] || die "SystemCallFilter= refuses $(tr '\n' ' ' <<<"$refused")"
families=$(sed -nE 's/^[0-9]+ +socket\((AF_[A-Z0-9]+).*/\1/p' "$work/calls" | sort -u)
for family in $families; do
  [[ " $(of_unit RestrictAddressFamilies) " == *" $family "* ]] || die "RestrictAddressFamilies= refuses $family"
done
grep -E 'setns\(' "$work/calls" | grep -v CLONE_NEWNET && die "RestrictNamespaces= refuses these"
echo "   $(wc -l <"$work/called") of $(wc -l <"$work/allowed") allowed system calls; sockets: $(tr '\n' ' ' <<<"$families")"

step "remove"
mount -o remount,bind,rw "$root"
in_root dpkg --purge mswitch >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; die "dpkg --purge failed"; }
left=$(find "$root/etc/mswitch" "$root/usr" -name '*mswitch*' 2>/dev/null || true)
[ -z "$left" ] || die "left behind: $left"
"$(dirname "$0")/test-ovs.sh" "$root" "$ovs_package" $blue
echo "package test: passed"
