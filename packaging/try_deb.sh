#!/usr/bin/env bash
# Tries a Debian package on a clean Debian 12: install, start, serve, upgrade, remove, purge. As root: packaging/try_deb.sh OLD.deb NEW.deb
# There is no systemd in a chroot, so the service's own command line is started as the service's own user; the unit itself is
# judged by `systemd-analyze verify` in the chroot. Takes the Debian mirror from /etc/apt, or from DEBIAN_MIRROR.
set -euo pipefail
if [ $# != 2 ] || [ "$(id -u)" != 0 ]; then
    echo "usage, as root: packaging/try_deb.sh OLD.deb NEW.deb" >&2
    exit 2
fi
old=$(realpath "$1") new=$(realpath "$2")
root=$(mktemp -d) server=''
chmod 755 "$root" # it becomes / for the service's user as well
cleanup() {
    [ -z "$server" ] || inside pkill -u jetwheel -x jetwheel || true
    umount -q "$root/proc" 2>/dev/null || true
    rm -rf --one-file-system "$root"
}
trap cleanup EXIT
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
as_service() { inside runuser -u jetwheel -- "$@"; }
check() { # WORDS COMMAND...
    local words=$1
    shift
    if "$@"; then echo "ok: $words"; else echo "NOT OK: $words" >&2 && exit 1; fi
}

debootstrap --variant=minbase --include=ca-certificates,procps,systemd,python3-pip bookworm "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$root.log" 2>&1 ||
    { tail -n 5 "$root.log" >&2 && exit 3; }
rm -f "$root.log"
mount -t proc proc "$root/proc"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" && chmod +x "$root/usr/sbin/policy-rc.d"
cp "$old" "$root/old.deb" && cp "$new" "$root/new.deb"

check "installs" inside dpkg -i /old.deb
check "made its user, without a shell" inside sh -c 'getent passwd jetwheel | grep -q nologin'
check "the service is enabled" test -L "$root/etc/systemd/system/multi-user.target.wants/jetwheel.service"
check "the units are sound" inside systemd-analyze verify --man=no /lib/systemd/system/jetwheel.service
check "manual pages are there" test -s "$root/usr/share/man/man1/jetwheel-serve.1.gz"

# What systemd does by StateDirectory=.
inside install -d -o jetwheel -g jetwheel -m 750 /var/lib/jetwheel
start() {
    as_service /usr/bin/jetwheel serve --listen 127.0.0.1:18080 2>>"$root/serve.log" &
    server=$!
    for _ in $(seq 100); do
        if curl -fsS http://127.0.0.1:18080/readyz >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    cat "$root/serve.log" >&2
    exit 1
}
stop() {
    inside pkill -TERM -u jetwheel -x jetwheel
    wait "$server" || true
    server=''
}
start
mkdir "$root/wheels"
python3 -m pip download -q --no-deps -d "$root/wheels" --only-binary :all: idna ||
    { echo "the index that pip is configured with did not answer" >&2 && exit 3; }
check "a command beside the service runs in it" as_service jetwheel add /wheels
check "the device's page lists the wheel" sh -c 'curl -fsS http://127.0.0.1:18080/orin-jp6.2/simple/idna/ | grep -q idna-'
check "pip downloads from it" inside pip download -q --no-deps -d /tmp/got --python-version 3.10 --only-binary :all: \
    --index-url http://127.0.0.1:18080/orin-jp6.2/simple/ idna
stop

echo '# a site changed this' >>"$root/etc/jetwheel/jetwheel.toml"
check "upgrades" inside dpkg -i --force-confold /new.deb
check "keeps the site's configuration" grep -q 'a site changed this' "$root/etc/jetwheel/jetwheel.toml"
start
check "serves what it had before the upgrade" sh -c 'curl -fsS http://127.0.0.1:18080/orin-jp6.2/simple/idna/ | grep -q idna-'
stop
check "is removed" inside dpkg -r jetwheel
check "removing keeps wheels and configuration" test -d "$root/var/lib/jetwheel/blobs" -a -f "$root/etc/jetwheel/jetwheel.toml"
check "is purged" inside dpkg -P jetwheel
check "purging leaves nothing" test ! -e "$root/var/lib/jetwheel" -a ! -e "$root/etc/jetwheel"
