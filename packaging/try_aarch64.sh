#!/usr/bin/env bash
# Tries a Debian package for arm64 on a machine that is none: packaging/try_aarch64.sh JETWHEEL_arm64.deb
# Its program runs under qemu-aarch64-static (qemu-user-static) in Debian 12's arm64 libraries, which are unpacked, not installed:
# wheels in, inspected, served to this machine's pip and to a pip of aarch64, also under qemu. It needs apt-get, dpkg, readelf,
# curl and python3 with pip. What a Jetson has that qemu does not, its kernel and its driver, is not tried.
set -euo pipefail
if [ $# != 1 ]; then
    echo "usage: packaging/try_aarch64.sh JETWHEEL_arm64.deb" >&2
    exit 2
fi
deb=$(realpath "$1") work=$(mktemp -d) server=''
root=$work/root
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
check() { # WORDS COMMAND...
    local words=$1
    shift
    if "$@" >"$work/said" 2>&1; then echo "ok: $words"; else echo "NOT OK: $words" >&2 && tail -n 20 "$work/said" >&2 && exit 1; fi
}
jetwheel() { qemu-aarch64-static -L "$root" "$root/usr/bin/jetwheel" --data "$work/data" "$@"; }
admits() { jetwheel inspect "$wheel" --device orin-jp6.2 | grep -q admit; }

# An apt of our own, which leaves the machine's as it is.
apt=$work/apt
mkdir -p "$apt"/{lists/partial,cache/archives/partial,state} "$work/debs" "$root" "$work/wheels"
touch "$apt/status"
options=(-q -o Dir::State="$apt/state" -o Dir::State::Lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache"
    -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Install-Recommends=false -o Debug::NoLocking=1)
{
    apt-get "${options[@]}" update
    packages=$(apt-get "${options[@]}" install --print-uris -y python3-minimal libpython3-stdlib | sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p")
    # shellcheck disable=SC2086 # one word for each package
    (cd "$work/debs" && apt-get "${options[@]}" download $packages)
} >"$work/said" 2>&1 || { tail -n 5 "$work/said" >&2 && exit 3; }
for package in "$work"/debs/*.deb; do dpkg -x "$package" "$root"; done
dpkg -x "$deb" "$root"
for folder in bin lib; do [ -e "$root/$folder" ] || ln -s "usr/$folder" "$root/$folder"; done
python=$(find "$root/usr/bin" -name 'python3.*[0-9]' | head -n 1)

program=$root/usr/bin/jetwheel
check "the package is for arm64" test "$(dpkg-deb -f "$deb" Architecture)" = arm64
check "its program as well" sh -c "readelf -h '$program' | grep -q AArch64"
needs=$(readelf -V "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
says=$(dpkg-deb -f "$deb" Depends | sed -n 's/.*libc6 (>= \([0-9.]*\)).*/\1/p')
check "its dependencies say libc6 (>= $says), and it needs $needs" dpkg --compare-versions "${needs#GLIBC_}" le "$says"
check "JetPack 5 (glibc 2.31) and later have that" dpkg --compare-versions "$says" le 2.31
echo "the program has $(($(stat -c %s "$program") / 1000)) kB, the package $(($(stat -c %s "$deb") / 1000)) kB"
check "it runs: $(jetwheel --version)" jetwheel --version

# A wheel of aarch64 for every Python from 3.9 on, so that a device's Python and Debian's both take it.
if ! python3 -m pip download -q --no-deps -d "$work/wheels" pip ||
    ! python3 -m pip download -q --no-deps -d "$work/wheels" --only-binary :all: --platform manylinux_2_28_aarch64 --python-version 3.10 --abi abi3 bcrypt; then
    echo "the index that pip is configured with did not answer" >&2
    exit 3
fi
wheel=$(echo "$work"/wheels/bcrypt-*.whl)
check "takes wheels" jetwheel add "$wheel"
check "inspects one" admits
qemu-aarch64-static -L "$root" "$root/usr/bin/jetwheel" --data "$work/data" serve --listen 127.0.0.1:0 >"$work/serve.log" 2>&1 &
server=$!
for _ in $(seq 300); do
    index=$(sed -n 's/^listening on \(.*\)$/\1/p' "$work/serve.log")
    if [ -n "$index" ] && curl -fsS "${index}readyz" >/dev/null 2>&1; then break; fi
    sleep 0.1
done
index=${index}orin-jp6.2/simple/
pip=(-m pip install -q --isolated --no-deps --no-cache-dir --only-binary :all: --index-url "$index")
check "this machine's pip downloads from it" env -u PIP_FIND_LINKS python3 -m pip download -q --isolated --no-deps --no-cache-dir --only-binary :all: \
    --index-url "$index" --platform manylinux_2_28_aarch64 --python-version 3.10 --abi abi3 -d "$work/got" bcrypt
check "the same bytes" cmp "$wheel" "$work/got/$(basename "$wheel")"
begin=$(date +%s)
check "a pip of aarch64 installs from it" env -u PIP_FIND_LINKS PYTHONPATH="$(echo "$work"/wheels/pip-*.whl)" \
    qemu-aarch64-static -L "$root" "$python" "${pip[@]}" --target "$work/installed" bcrypt
echo "in $(($(date +%s) - begin)) s"
check "and its Python runs what was installed" env PYTHONPATH="$work/installed" qemu-aarch64-static -L "$root" "$python" -c \
    'import bcrypt, platform; assert platform.machine() == "aarch64"; assert bcrypt.checkpw(b"a", bcrypt.hashpw(b"a", bcrypt.gensalt(4)))'
kill -TERM "$server"
check "stops by SIGTERM, with its work done" wait "$server"
server=''
