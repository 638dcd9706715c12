#!/bin/bash
# deb.sh OUT: builds OUT/mswitch_VERSION_ARCHITECTURE.deb from the files of `make install`, and
# OUT/mswitch-ovs_VERSION_ARCHITECTURE.deb from those of `make install-ovs`.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$1
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# package NAME TARGET PROGRAM: files installed by the Makefile's target; the program decides on the libraries.
package() {
  local name=$1 target=$2 program=$3 tree=$work/$1 scripts=packaging/debian/$1 libraries
  mkdir "$tree"
  make --no-print-directory "$target" DESTDIR="$tree" PREFIX=/usr
  chmod 755 "$tree"
  install -d "$tree/DEBIAN"
  # Packages of the libraries that the program is linked with; dpkg-shlibdeps needs a source package.
  mkdir -p "$work/source/debian"
  printf 'Source: %s\n\nPackage: %s\nArchitecture: any\n' "$name" "$name" >"$work/source/debian/control"
  libraries=$(cd "$work/source" && dpkg-shlibdeps -O -e"$tree/$program" 2>/dev/null | sed 's/^shlibs:Depends=//')
  sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@LIBRARIES@/$libraries/" "$scripts/control" \
    >"$tree/DEBIAN/control"
  [ ! -e "$scripts/conffiles" ] || install -m 644 "$scripts/conffiles" "$tree/DEBIAN/"
  for script in postinst prerm postrm; do
    [ ! -e "$scripts/$script" ] || install -m 755 "$scripts/$script" "$tree/DEBIAN/"
  done
  install -D -m 644 LICENSE "$tree/usr/share/doc/$name/copyright"
  (cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  dpkg-deb --root-owner-group --build "$tree" "$out/${name}_${version}_$architecture.deb"
}

package mswitch install usr/bin/mswitch
package mswitch-ovs install-ovs usr/lib/mswitch/ovs-vswitchd
