#!/usr/bin/env bash
# Builds packaging/Containerfile and tries the image: serve, health, sync of a command beside it, pip, a new container on the old
# volume, stop. As root: packaging/try_container.sh [BINARY]
# No image is fetched: both bases are made by debootstrap, with this machine's Rust for the build. With BINARY nothing is
# compiled: that binary of the profile `dist` is what the build stage yields. It needs debootstrap, buildah, podman and crun.
# The Debian mirror is that of /etc/apt, or DEBIAN_MIRROR. Everything is kept in a folder of its own, and removed at the end.
set -euo pipefail
if [ $# -gt 1 ] || [ "$(id -u)" != 0 ]; then
    echo "usage, as root: packaging/try_container.sh [BINARY]" >&2
    exit 2
fi
# crun takes cgroups of version 1 or 2, but no mixture: in mounts of our own only version 1 is there.
if [ -z "${JETWHEEL_TRY_MOUNTS-}" ]; then
    JETWHEEL_TRY_MOUNTS=own exec unshare --mount --propagation private "$0" "$@"
fi
if grep -q ' /sys/fs/cgroup/unified ' /proc/mounts; then umount /sys/fs/cgroup/unified; fi
export DISABLE_HC_SYSTEMD=true # the health check is run by hand

binary=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
export TMPDIR=$work # where buildah keeps the caches of its build as well
store=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
podman() { command podman "${store[@]}" --cgroup-manager cgroupfs --events-backend none "$@"; }
buildah() { command buildah "${store[@]}" "$@"; }
cleanup() {
    podman rm --all --force --time 5 >/dev/null 2>&1 || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
check() { # WORDS COMMAND...
    local words=$1
    shift
    if "$@" >"$work/said" 2>&1; then echo "ok: $words"; else echo "NOT OK: $words" >&2 && tail -n 20 "$work/said" >&2 && exit 1; fi
}

debootstrap --variant=minbase bookworm "$work/base" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$work/said" 2>&1 ||
    { tail -n 5 "$work/said" >&2 && exit 3; }
rm -rf "$work"/base/var/cache/apt/archives/*.deb "$work"/base/var/lib/apt/lists/*
image() { # NAME FOLDER CONFIG...
    local name=$1 folder=$2 container
    shift 2
    container=$(buildah from scratch)
    buildah add -q "$container" "$folder" / >/dev/null
    buildah config "$@" "$container"
    buildah commit -q "$container" "$name" >/dev/null
    buildah rm "$container" >/dev/null
}
image localhost/base "$work/base" --cmd /bin/bash
volumes=()
if [ -n "$binary" ]; then
    install -D "$binary" "$work/base/usr/local/bin/jetwheel.built"
    printf '#!/bin/sh\nexec install -D /usr/local/bin/jetwheel.built target/dist/jetwheel\n' >"$work/base/usr/local/bin/cargo"
    chmod +x "$work/base/usr/local/bin/cargo"
else
    chroot "$work/base" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -c \
        'apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev ca-certificates' \
        >"$work/said" 2>&1 || { tail -n 5 "$work/said" >&2 && exit 3; }
    cp /etc/ssl/certs/ca-certificates.crt "$work/base/etc/ssl/certs/" # with the site's own authorities, if any
    mkdir -p "$work/base/usr/local/rust"
    volumes=(--volume "$(rustc --print sysroot):/usr/local/rust:ro")
fi
image localhost/build-base "$work/base" --env PATH=/usr/local/rust/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
rm -rf --one-file-system "$work/base"

check "the image builds" buildah build --isolation chroot --format docker --pull=never "${volumes[@]}" -f packaging/Containerfile \
    --build-arg BUILD_BASE=localhost/build-base --build-arg BASE=localhost/base -t localhost/jetwheel .
size() { podman image inspect --format '{{.Size}}' "$1"; }
echo "the image adds $((($(size localhost/jetwheel) - $(size localhost/base)) / 1000000)) MB to its base of $(($(size localhost/base) / 1000000)) MB"
is() { [ "$(podman inspect --format "$1" "$2")" = "$3" ]; }
check "nothing in it runs as root" is '{{.Config.User}}' localhost/jetwheel 10001:10001
check "docker and podman know its health check" is '{{index .HealthCheck.Test 0}}' localhost/jetwheel CMD

# The image's own command, on port 8080 of a network of its own: --network none has a loopback.
limits=(--cgroups=disabled --ulimit nofile=4096:4096 --ulimit nproc=1024:1024 --network none --read-only --cap-drop all --security-opt no-new-privileges)
start() { # ARGUMENTS... after the image
    podman run -d --name mirror "${limits[@]}" --stop-timeout 45 -v mirror:/var/lib/jetwheel -v "$work/site:/etc/jetwheel:ro" -v "$work/wheels:/wheels:ro" \
        localhost/jetwheel "$@" >/dev/null
    for _ in $(seq 300); do
        if beside curl -fsSk "${scheme:-http}://127.0.0.1:8080/readyz" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    podman logs mirror >&2
    exit 1
}
beside() { nsenter --net --target "$(podman inspect --format '{{.State.Pid}}' mirror)" "$@"; }
stop() {
    check "stops by SIGTERM, with its work done" podman stop mirror
    check "and says so by its exit code" is '{{.State.ExitCode}}' mirror 0
    podman rm mirror >/dev/null
}
lists() { beside curl -fsS http://127.0.0.1:8080/orin-jp6.2/simple/idna/ | grep -q idna-; }
configured() { podman exec mirror jetwheel config show | grep -q 'keep_snapshots .*/etc/jetwheel/jetwheel.toml'; }

mkdir "$work/wheels" "$work/site"
chmod 755 "$work" "$work/wheels" "$work/site" # the container's user reads them
python3 -m pip download -q --no-deps -d "$work/wheels" --only-binary :all: idna ||
    { echo "the index that pip is configured with did not answer" >&2 && exit 3; }
echo 'keep_snapshots = 7' >"$work/site/jetwheel.toml"
start
# shellcheck disable=SC2016 # for the shell in the container
check "serves as its own user, by a root that nobody can write" podman exec mirror /bin/sh -c '[ "$(id -u)" = 10001 ] && ! touch /probe /usr/bin/jetwheel'
check "reads the site's configuration" configured
check "is healthy" podman healthcheck run mirror
check "a command beside it runs in it" podman exec mirror jetwheel add /wheels
check "the device's page lists the wheel" lists
check "pip installs from it" beside python3 -m pip install -q --isolated --no-deps --no-cache-dir --target "$work/got" \
    --index-url http://127.0.0.1:8080/orin-jp6.2/simple/ idna
check "the installed package is there" test -f "$work/got/idna/__init__.py"
stop
start
check "another container serves the same volume" lists
stop
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1 -keyout "$work/site/key.pem" -out "$work/site/cert.pem" 2>/dev/null
chown 10001 "$work/site/key.pem"
scheme=https
start serve --listen 0.0.0.0:8080 --tls-cert /etc/jetwheel/cert.pem --tls-key /etc/jetwheel/key.pem
check "is healthy with TLS as well" podman healthcheck run mirror
stop
