#!/bin/bash
# deb.sh OUT: builds OUT/mswitch_VERSION_ARCHITECTURE.deb from the files of `make install`.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$1
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
tree=$(mktemp -d) source=$(mktemp -d)
trap 'rm -rf "$tree" "$source"' EXIT

make --no-print-directory install DESTDIR="$tree" PREFIX=/usr
chmod 755 "$tree"
install -d "$tree/DEBIAN"
# Packages of the libraries that the program is linked with; dpkg-shlibdeps needs a source package.
mkdir "$source/debian"
printf 'Source: mswitch\n\nPackage: mswitch\nArchitecture: any\n' >"$source/debian/control"
libraries=$(cd "$source" && dpkg-shlibdeps -O -e"$tree/usr/bin/mswitch" 2>/dev/null | sed 's/^shlibs:Depends=//')
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@LIBRARIES@/$libraries/" packaging/debian/control \
  >"$tree/DEBIAN/control"
install -m 644 packaging/debian/conffiles "$tree/DEBIAN/"
install -m 755 packaging/debian/{postinst,prerm,postrm} "$tree/DEBIAN/"
install -D -m 644 LICENSE "$tree/usr/share/doc/mswitch/copyright"
(cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$tree" "$out/mswitch_${version}_$architecture.deb"
