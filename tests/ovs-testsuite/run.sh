#!/bin/bash
# Runs Open vSwitch's own tests against an ovs-vswitchd. See README.md beside it.
#
# Debian's package openvswitch-source has the tests as a finished shell script, so that nothing is compiled: only the two
# files that a build would have made are written here.
set -euo pipefail

usage() {
  cat >&2 <<USAGE
usage: run.sh [--stock] [--jobs N] CASE...
  CASE        a number, a range such as 856-1040, or a group: ofproto, ofproto-dpif, bridge, vswitchd, learn, mcast, ...
  --stock     run Open vSwitch's own daemon instead, for comparison
  --jobs N    so many cases at a time (default: the number of CPUs)
Environment: OVS_VSWITCHD, the daemon (default: target/release/ovs-vswitchd); OVS_TESTSUITE_DIR, where results stay.
USAGE
  exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
stock= jobs=$(nproc) cases=()
while [ $# -gt 0 ]; do
  case $1 in
    --stock) stock=1 ;;
    --jobs) shift; jobs=${1:?} ;;
    -*) usage ;;
    *) cases+=("$1") ;;
  esac
  shift
done
[ ${#cases[@]} -gt 0 ] || usage

daemon=${OVS_VSWITCHD:-$root/target/release/ovs-vswitchd}
[ -n "$stock" ] || [ -x "$daemon" ] || { echo "run.sh: $daemon does not exist; make ovs-vswitchd builds it" >&2; exit 1; }
results=${OVS_TESTSUITE_DIR:-$root/target/ovs-testsuite}
run=$results/run
mkdir -p "$results"
# A folder with the one program that is another one; the tools stay those of Open vSwitch.
bin=$results/bin
mkdir -p "$bin"
rm -f "$bin/ovs-vswitchd"
[ -n "$stock" ] || ln -s "$(readlink -f "$daemon")" "$bin/ovs-vswitchd"

sources=$results/source
archive=/usr/src/openvswitch/openvswitch.tar.gz
if [ ! -e "$sources/.complete" ] || [ "$archive" -nt "$sources/.complete" ]; then
  rm -rf "$sources"
  mkdir -p "$sources"
  tar -xzf "$archive" -C "$sources" --strip-components=1
  touch "$sources/.complete"
fi

rm -rf "$run"
mkdir -p "$run"
cat >"$run/atconfig" <<CONFIG
at_testdir=tests
abs_builddir=$run
at_srcdir=$sources/tests
abs_srcdir=$sources/tests
at_top_srcdir=$sources
abs_top_srcdir=$sources
at_top_build_prefix=$results/
abs_top_builddir=$results
at_top_builddir=$results/
EXEEXT=
AUTOTEST_PATH=$bin:/usr/sbin:/usr/bin:/sbin:/bin
SHELL=\${CONFIG_SHELL-/bin/sh}
CONFIG
# What a configured build would know; what it does not name is absent.
sed -e 's/@HAVE_OPENSSL@/yes/; s/@OPENSSL_SUPPORTS_SNI@/yes/; s/@PYTHON3@/python3/; s/@EGREP@/grep -E/' \
  -e 's/@HAVE_UNBOUND@/no/; s/@[A-Z_0-9]*@//g' "$sources/tests/atlocal.in" >"$run/atlocal"

suite=$sources/tests/testsuite
# The groups of cases are the files that they come from.
sh "$suite" -C "$run" --list 2>/dev/null | sed -n 's/^ *\([0-9][0-9]*\): \([^:]*\)\.at:.*/\1 \2/p' >"$results/groups"
numbers=()
for case in "${cases[@]}"; do
  case $case in
    [0-9]*) numbers+=("$case") ;;
    *)
      of_group=$(awk -v group="$case" '$2 == group || $2 == group "-snooping" || $2 == "ovs-" group { print $1 }' "$results/groups")
      [ -n "$of_group" ] || { echo "run.sh: \`$case\` is no group; known are:" $(cut -d' ' -f2 "$results/groups" | sort -u) >&2; exit 1; }
      # shellcheck disable=SC2206
      numbers+=($of_group)
      ;;
  esac
done

# Cases that fail are the result, not an error of this script.
(cd "$run" && sh "$suite" -C "$run" -j"$jobs" "${numbers[@]}") >"$results/log" 2>&1 || true
python3 "$here/summary.py" "$results/log" "$results/groups" "$results/passed"
