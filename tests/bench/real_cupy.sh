#!/bin/sh
# From a real index to an installation: plan, fetch, serve and lock cupy-cuda12x for a Jetson Orin, then let pip and uv install
# the lock into empty folders with every other index out of reach, and compare what they got.
# Not part of CI: it needs a network, and downloads some 150 MB.
#
# usage: tests/bench/real_cupy.sh INDEX-URL [REQUIREMENT...]
#   JETWHEEL   the program                [target/release/jetwheel]
#   PYTHON     a Python with a recent pip [python3]
#   UV         uv                         [uv]
#   KEEP       a folder for all of it; kept, so that another run starts from its store
set -eu
url=${1:?"usage: $0 INDEX-URL [REQUIREMENT...]"}
shift
[ $# -gt 0 ] || set -- cupy-cuda12x
jetwheel=${JETWHEEL:-target/release/jetwheel}
python=${PYTHON:-python3}
uv=${UV:-uv}
device=orin-jp6.2
server=
if [ -n "${KEEP:-}" ]; then
    folder=$KEEP
    mkdir -p "$folder"
else
    folder=$(mktemp -d)
fi
end() {
    [ -z "$server" ] || kill "$server" 2> /dev/null || true
    [ -n "${KEEP:-}" ] || rm -rf "$folder"
}
trap end EXIT

echo "== plan"
"$jetwheel" --data "$folder/plan" sync --device $device --upstream "$url" --dry-run "$@"
echo "== sync"
"$jetwheel" --data "$folder/data" sync --device $device --upstream "$url" "$@"

echo "== serve"
: > "$folder/log"
"$jetwheel" --data "$folder/data" serve --listen 127.0.0.1:0 2> "$folder/log" &
server=$!
for _ in $(seq 40); do
    mirror=$(sed -n 's/.*listening on \(http[^ ]*\).*/\1/p' "$folder/log" | head -1)
    [ -z "$mirror" ] || break
    sleep 0.5
done
mirror=${mirror%/}
echo "$mirror"

echo "== lock"
for output in pylock requirements; do
    "$jetwheel" --data "$folder/data" resolve --device $device --output $output --base-url "$mirror" "$@" > "$folder/$output"
done
cp "$folder/requirements" "$folder/requirements.txt"
# uv holds the Python of the lock against the interpreter, which is that of this machine and not of the device.
sed 's/^requires-python = .*/requires-python = ">=3.10"/' "$folder/pylock" > "$folder/pylock.toml"
cat "$folder/requirements.txt"

echo "== install"
rm -rf "$folder/by-pip" "$folder/by-uv"
# Nothing but the mirror can be reached.
alone="env -i PATH=/usr/bin:/bin HOME=$folder http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 no_proxy=127.0.0.1
    PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1"
$alone "$python" -m pip install --quiet --no-cache-dir --only-binary=:all: --require-hashes \
    --implementation cp --python-version 3.10 --platform linux_aarch64 --platform manylinux2014_aarch64 \
    --platform manylinux_2_17_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 \
    --target "$folder/by-pip" -r "$folder/requirements.txt"
$alone "$uv" pip sync --quiet --no-cache --no-config --python "$python" --python-version 3.10 \
    --python-platform aarch64-manylinux_2_35 --preview-features pylock --target "$folder/by-uv" "$folder/pylock.toml"
for client in pip uv; do
    (cd "$folder/by-$client" && ls -d -- *.dist-info) > "$folder/set-$client"
done
cat "$folder/set-pip"
cmp "$folder/set-pip" "$folder/set-uv"
echo "pip and uv installed the same set"
