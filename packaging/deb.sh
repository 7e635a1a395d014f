#!/bin/sh
# Builds a Debian package of a built trainyard with Debian's own dpkg-deb:
#
#   packaging/deb.sh BINARY FOLDER
#
# The package goes into FOLDER; its path is printed. It needs what the binary is linked with, of the versions that the binary asks for.
set -eu

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

[ $# = 2 ] || fail "usage: packaging/deb.sh BINARY FOLDER"
binary=$1 folder=$2 here=$(dirname "$0")
command -v dpkg-deb >/dev/null || fail "dpkg-deb is not here: Debian packages are built on Debian or its like"
command -v objdump >/dev/null || fail "objdump is not here: apt-get install binutils"

version=$("$binary" --version | cut -d ' ' -f 2)
architecture=$(dpkg --print-architecture)
glibc=$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
unknown=$(objdump -p "$binary" | awk '$1 == "NEEDED" && $2 !~ /^(libc|libm|libgcc_s|ld-linux.*)\.so/ {print $2}')
[ -z "$unknown" ] || fail "$binary is linked with $unknown, and packaging/deb.sh does not know its package"

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022
chmod 755 "$stage"
DESTDIR=$stage "$here/install.sh" install "$binary" /usr
gzip -9n "$stage"/usr/share/man/man1/*.1
# Debian's zsh looks there
mkdir "$stage/usr/share/zsh/vendor-completions"
mv "$stage/usr/share/zsh/site-functions/_trainyard" "$stage/usr/share/zsh/vendor-completions/"
rmdir "$stage/usr/share/zsh/site-functions"
doc=$stage/usr/share/doc/trainyard
mkdir -p "$doc" "$stage/DEBIAN"
gzip -9nc "$here/../CHANGELOG.md" >"$doc/changelog.gz"
cat >"$doc/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: trainyard

Files: *
Copyright: The Trainyard authors
License: Apache-2.0
 On Debian systems the text of this license is in /usr/share/common-licenses/Apache-2.0.
END
cat >"$stage/DEBIAN/control" <<END
Package: trainyard
Version: $version
Architecture: $architecture
Maintainer: The Trainyard authors <trainyard@localhost>
Installed-Size: $(du -ks "$stage/usr" | cut -f 1)
Depends: libc6 (>= ${glibc#GLIBC_}), libgcc-s1
Recommends: python3
Suggests: openmpi-bin
Section: science
Priority: optional
Description: distributed training from one binary, on a laptop and on Kubernetes
 Runs training scripts as jobs of several nodes and processes. It speaks the
 API of Kubeflow Trainer v2, so kubectl and the kubeflow Python SDK work with
 it as they are.
END
mkdir -p "$folder"
package=$folder/trainyard_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz -z1 --build "$stage" "$package" >/dev/null
printf '%s\n' "$package"
