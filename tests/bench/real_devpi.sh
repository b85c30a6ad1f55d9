#!/usr/bin/env bash
# The main job with real wheels (some 450 MB), as tests/it/pip_uv.rs does it with small ones: a devpi that holds a CPU-only
# torch, a CUDA 13 torchvision, cupy for CUDA 12, nvTIFF for Tegra and a pure-Python wheel; sync for an Orin and a Thor; serve;
# then three pips, uv and curl ask; then devpi is stopped and they ask again.
#
#   tests/bench/real_devpi.sh WHEELS       a folder; what it lacks is fetched into it with pip, from its configured index
set -euo pipefail
wheels=$(realpath "${1:?usage: tests/bench/real_devpi.sh WHEELS}")
cd "$(dirname "$0")/../.."
clients=$PWD/target/clients
[ -e "$clients/devpi/.ready" ] || { echo "run ./ci.sh test first: it installs pip, uv and devpi" >&2; exit 2; }
unset PIP_FIND_LINKS PIP_NO_INDEX
${CARGO:-cargo} build --release --locked -q
jetwheel=${CARGO_TARGET_DIR:-target}/release/jetwheel
work=$(mktemp -d)
pids=()
stop() {
    [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap stop EXIT

failed=0
check() { # WHAT FOUND EXPECTED
    if [ "$2" = "$3" ]; then echo "ok    $1: ${2:-nothing}"; else
        echo "WRONG $1: ${2:-nothing}, expected ${3:-nothing}"
        failed=1
    fi
}

# --- the wheels, for both devices' Python
orin_tags=(--python-version 3.10 --platform manylinux_2_35_aarch64 --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64
    --platform manylinux2014_aarch64 --platform linux_aarch64)
thor_tags=(--python-version 3.12 "${orin_tags[@]:2}")
download=("$clients/pip-newest/bin/python" -m pip download -q --no-deps --only-binary=:all: --implementation cp)
mkdir "$work/upload"
take() { # FILE-NAME-PATTERN REQUIREMENT TAG...
    local pattern=$1 requirement=$2
    shift 2
    # shellcheck disable=SC2086 # the pattern is to be expanded
    (cd "$wheels" && ls $pattern >/dev/null 2>&1) || "${download[@]}" "$@" -d "$wheels" "$requirement"
    # shellcheck disable=SC2086
    (cd "$wheels" && ln -s "$PWD"/$pattern "$work/upload/")
}
for python in 310 312; do
    if [ $python = 310 ]; then tags=("${orin_tags[@]}"); else tags=("${thor_tags[@]}"); fi
    take "torch-2.9.1-cp$python-cp$python-*aarch64.whl" torch==2.9.1 "${tags[@]}"
    take "torchvision-0.26.0-cp$python-cp$python-*aarch64.whl" torchvision==0.26.0 "${tags[@]}"
    take "cupy_cuda12x-13.6.0-cp$python-cp$python-*aarch64.whl" cupy-cuda12x==13.6.0 "${tags[@]}"
done
take "nvidia_nvtiff_tegra_cu12-*aarch64.whl" nvidia-nvtiff-tegra-cu12 "${orin_tags[@]}"
take "click-8.*-py3-none-any.whl" "click<9" "${orin_tags[@]}"

# --- devpi
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
until_there() { # URL
    curl -q -s -o /dev/null --noproxy '*' --retry 60 --retry-delay 1 --retry-connrefused --fail -H 'Accept: application/json' "$1"
}
devpi=http://127.0.0.1:$(port)
"$clients/devpi/bin/devpi-init" --no-root-pypi --root-passwd secret --serverdir "$work/devpi" >"$work/devpi.log" 2>&1
"$clients/devpi/bin/devpi-server" --offline-mode --host 127.0.0.1 --port "${devpi##*:}" --serverdir "$work/devpi" \
    --max-request-body-size 4000000000 >>"$work/devpi.log" 2>&1 &
devpi_pid=$!
pids+=("$devpi_pid")
until_there "$devpi/+api"
put=(curl -q -sS --noproxy '*' --fail-with-body -o /dev/null -u root:secret -H 'Accept: application/json')
"${put[@]}" -X PUT -H 'Content-Type: application/json' -d '{"type": "stage", "bases": []}' "$devpi/root/wheels"
for wheel in "$work"/upload/*.whl; do
    name=$(basename "$wheel")
    version=${name#*-}
    "${put[@]}" -F :action=file_upload -F "name=${name%%-*}" -F "version=${version%%-*}" -F "content=@$wheel" "$devpi/root/wheels/"
done

# --- sync and serve
projects=(torch torchvision cupy-cuda12x nvidia-nvtiff-tegra-cu12 click)
time "$jetwheel" --data "$work/data" sync --device orin-jp6.2 --device thor-jp7.0 --upstream "$devpi/root/wheels/+simple/" \
    "${projects[@]}" || [ $? = 1 ] # torch has nothing for either
for device in orin-jp6.2 thor-jp7.0; do
    for project in "${projects[@]}"; do
        "$jetwheel" --data "$work/data" explain "$project" --device "$device" || [ $? = 1 ]
    done
done
mirror=http://127.0.0.1:$(port)
"$jetwheel" --data "$work/data" serve --listen "${mirror#http://}" 2>"$work/mirror.log" &
pids+=($!)
until_there "$mirror/healthz"

# --- the clients
fetch() { # CLIENT DEVICE PROJECT: names of what it got
    local index=$mirror/$2/simple/ out tags
    out=$(mktemp -d "$work/out.XXXX")
    if [ "$2" = orin-jp6.2 ]; then tags=("${orin_tags[@]}"); else tags=("${thor_tags[@]}"); fi
    local clean=(env -i PATH=/usr/bin:/bin HOME="$out" PIP_CONFIG_FILE=/dev/null)
    local pip=(-m pip download -q --disable-pip-version-check --no-cache-dir --no-deps --only-binary=:all: --implementation cp)
    case $1 in
    uv)
        "${clean[@]}" "$clients/uv/bin/uv" pip install -q --no-config --no-cache --no-deps --only-binary :all: \
            --python "$clients/uv/bin/python" --python-version "${tags[1]}" --python-platform aarch64-manylinux_2_35 \
            --default-index "$index" --target "$out/to" "$3" 2>"$out/log" || true
        [ -d "$out/to" ] && (cd "$out/to" && find . -maxdepth 1 -name '*.dist-info' | sed 's#^\./##')
        ;;
    pip-20.0.2) # understands one --platform
        local platform
        for platform in "${tags[@]}"; do
            case $platform in *aarch64) ;; *) continue ;; esac
            "${clean[@]}" "$clients/$1/bin/python" "${pip[@]}" --python-version "${tags[1]}" --platform "$platform" \
                -i "$index" -d "$out/to" "$3" >"$out/log" 2>&1 && break
        done
        find "$out/to" -name '*.whl' -printf '%f\n' 2>/dev/null
        ;;
    *)
        "${clean[@]}" "$clients/$1/bin/python" "${pip[@]}" "${tags[@]}" -i "$index" -d "$out/to" "$3" >"$out/log" 2>&1 || true
        find "$out/to" -name '*.whl' -printf '%f\n' 2>/dev/null
        ;;
    esac
    rm -rf "$out"
}
name_of() { basename "$(ls "$work"/upload/$1)"; }
ask() {
    local client device project pattern name
    while read -r device project pattern; do
        name=
        [ "$pattern" = - ] || name=$(name_of "$pattern")
        for client in pip-20.0.2 pip-22.0.2 pip-newest uv; do
            local expected=$name
            [ $client != uv ] || [ -z "$name" ] || expected=$(cut -d- -f1,2 <<<"$name").dist-info
            check "$1 $device $client $project" "$(fetch $client "$device" "$project" || true)" "$expected"
        done
        check "$1 $device browser $project" \
            "$(curl -q -s --noproxy '*' -H 'Accept: text/html,application/xhtml+xml,*/*;q=0.8' "$mirror/$device/simple/$project/" |
                grep -o '>[^<>]*\.whl<' | tr -d '<>' || true)" "$name"
    done <<'END'
orin-jp6.2 cupy-cuda12x cupy_cuda12x-*-cp310-*.whl
orin-jp6.2 nvidia-nvtiff-tegra-cu12 nvidia_nvtiff_*.whl
orin-jp6.2 click click-*.whl
orin-jp6.2 torchvision -
orin-jp6.2 torch -
thor-jp7.0 torchvision torchvision-*-cp312-*.whl
thor-jp7.0 torch -
thor-jp7.0 click click-*.whl
END
}
ask "with devpi,"
kill "$devpi_pid"
wait "$devpi_pid" 2>/dev/null || true
ask "without devpi,"
exit $failed
