#!/bin/bash
# deb.sh OUT: makes OUT/mswitch_VERSION_ARCHITECTURE.deb of what `make install` installs.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$1
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
libc=$(dpkg-query -W -f='${Version}' libc6 | sed 's/-.*//')
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

make --no-print-directory install DESTDIR="$tree" PREFIX=/usr
chmod 755 "$tree"
install -d "$tree/DEBIAN"
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@LIBC@/$libc/" packaging/debian/control \
  >"$tree/DEBIAN/control"
install -m 644 packaging/debian/conffiles "$tree/DEBIAN/"
install -m 755 packaging/debian/{postinst,prerm,postrm} "$tree/DEBIAN/"
install -D -m 644 LICENSE "$tree/usr/share/doc/mswitch/copyright"
(cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$tree" "$out/mswitch_${version}_$architecture.deb"
