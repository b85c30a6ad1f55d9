#!/usr/bin/env bash
# A binary for aarch64 with glibc 2.31 or later (JetPack 5 and up), built on a Debian x86-64: packaging/aarch64.sh [TARGET-DIR]
# It needs apt-get, dpkg and python3 with venv, and unpacks into TARGET-DIR/aarch64 without installing anything: Debian's own
# build of rustc with its library for arm64, and zig (with cargo-zigbuild) as the linker and C compiler for an old glibc.
# On an aarch64 machine none of this is needed: cargo build --profile dist.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(mkdir -p "${1:-target}" && realpath "${1:-target}")
tools=$target/aarch64 root=$target/aarch64/root
mkdir -p "$tools/debs" "$root"

if [ ! -x "$tools/venv/bin/cargo-zigbuild" ]; then
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install -q ziglang cargo-zigbuild
fi

# An apt of our own, that knows the packages of both architectures and leaves the machine's as it is.
apt=$tools/apt
mkdir -p "$apt"/{lists/partial,cache/archives/partial}
options=(-o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Architecture=amd64
    -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o Debug::NoLocking=1)
if ! ls "$root"/usr/lib/rustlib/aarch64-unknown-linux-gnu/lib/libstd-*.rlib >/dev/null 2>&1; then
    apt-get -q "${options[@]}" update
    newest=$(apt-cache "${options[@]}" pkgnames libstd-rust-web-1 | sort -V | tail -n 1)
    llvm=$(apt-cache "${options[@]}" depends rustc-web | sed -n 's/.*Depends: \(libllvm[0-9]*\)$/\1/p' | head -n 1)
    [ -n "$newest" ] || { echo "packaging/aarch64.sh: this Debian has no rustc-web" >&2 && exit 3; }
    llvm=${llvm:-$(apt-cache "${options[@]}" depends "$newest" | sed -n 's/.*Depends: \(libllvm[0-9]*\)$/\1/p' | head -n 1)}
    (cd "$tools/debs" && apt-get -q "${options[@]}" download rustc-web "$newest" libstd-rust-web-dev "$llvm" libstd-rust-web-dev:arm64)
    for deb in "$tools"/debs/*.deb; do dpkg -x "$deb" "$root"; done
fi
rustc=$(find "$root/usr" -path '*bin/rustc*' -type f -perm -u+x | head -n 1)
libraries=$(find "$root/usr/lib" -name 'libLLVM*.so*' -o -name 'librustc_driver*.so' | sed 's,/[^/]*$,,' | sort -u | paste -sd :)
cat >"$tools/rustc" <<END
#!/bin/sh
LD_LIBRARY_PATH=$libraries exec $rustc --sysroot $root/usr "\$@"
END
chmod +x "$tools/rustc"
"$tools/rustc" --version

RUSTC=$tools/rustc PATH=$tools/venv/bin:$PATH CARGO_TARGET_DIR=$tools/build \
    cargo-zigbuild zigbuild --locked --profile dist --target aarch64-unknown-linux-gnu.2.31
built=$tools/build/aarch64-unknown-linux-gnu/dist/jetwheel
readelf -V "$built" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1
echo "$built"
