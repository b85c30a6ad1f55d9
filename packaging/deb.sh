#!/usr/bin/env bash
# A Debian package of the program: packaging/deb.sh [--binary FILE --arch ARCH --libs DEPENDS] [--version VERSION] [--output DIR]
# Without --binary it builds one of the profile `dist` for this machine; for another architecture it builds that as well, since it
# writes completions and manual pages. It needs dpkg-dev, debhelper (13) and fakeroot.
# For another architecture (packaging/aarch64.sh builds such a binary) --libs states what the binary links.
set -euo pipefail
cd "$(dirname "$0")/.."

binary='' arch=$(dpkg --print-architecture) libs='' output=$PWD/target/debian
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
while [ $# -gt 0 ]; do
    case $1 in
    --binary) binary=$(realpath "$2") ;;
    --arch) arch=$2 ;;
    --libs) libs=$2 ;;
    --version) version=$2 ;;
    --output) output=$2 ;;
    *) echo "packaging/deb.sh: no such option: $1" >&2 && exit 2 ;;
    esac
    shift 2
done

if [ -n "$binary" ] && [ "$arch" = "$(dpkg --print-architecture)" ]; then
    native=$binary
else
    ${CARGO:-cargo} build --locked --profile dist
    native=${CARGO_TARGET_DIR:-target}/dist/jetwheel
fi
binary=${binary:-$native}

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
build=$tree/jetwheel
mkdir -p "$build"/{bin,completions,man,docs} "$output"
cp -r packaging/debian "$build/debian"
install -m 755 "$binary" "$build/bin/jetwheel"
"$native" completions bash >"$build/completions/jetwheel.bash"
"$native" completions zsh >"$build/completions/_jetwheel"
"$native" completions fish >"$build/completions/jetwheel.fish"
"$native" man --output "$build/man"
cp README.md CHANGELOG.md packaging/jetwheel.toml "$build/"
cp docs/*.md SECURITY.md "$build/docs/"
mv "$build/docs/README.md" "$build/docs/BOOK.md" # beside the README of the whole
cp policies/README.md "$build/docs/policies.md"
cp -r packaging/grafana packaging/prometheus "$build/docs/"
cat >"$build/debian/changelog" <<END
jetwheel ($version) stable; urgency=medium

  * See CHANGELOG.md.

 -- The jetwheel contributors <jetwheel@localhost>  $(git log -1 --format=%aD 2>/dev/null || date -R)
END
(cd "$build" && LIBS=$libs dpkg-buildpackage --build=binary --no-sign --no-check-builddeps --host-arch "$arch")
cp "$tree"/jetwheel_*.deb "$output/"
echo "$output/$(basename "$tree"/jetwheel_*.deb)"
