#!/bin/sh
# Points pip and uv on this device at the mirror, or takes that back.
#   sh setup.sh [--undo] [--yes-really] [--root DIR]
# --yes-really goes on although the device in the mirror's address and this machine differ.
set -eu

DEVICE='@DEVICE@'
INDEX='@INDEX@'
HOST='@HOST@'
MARK='# written by jetwheel setup.sh'

root='' undo='' really=''
while [ $# -gt 0 ]; do
    case $1 in
        --undo) undo=1 ;;
        --yes-really) really=1 ;;
        --root) root=${2:?--root needs a folder}; shift ;;
        -h | --help) sed -n '2,4p' "$0"; exit 0 ;;
        *) echo "setup.sh: unknown argument $1 (known: --undo, --yes-really, --root DIR)" >&2; exit 2 ;;
    esac
    shift
done

pip_file=$root${PIP_CONFIG_FILE:-${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf}
uv_file=$root${XDG_CONFIG_HOME:-$HOME/.config}/uv/uv.toml

# restore FILE: takes back what was written there; a file that somebody else wrote stays.
restore() {
    if [ -f "$1" ] && grep -qF "$MARK" "$1"; then
        if [ -f "$1.before-jetwheel" ]; then mv "$1.before-jetwheel" "$1"; else rm "$1"; fi
        echo "restored $1"
    else
        echo "nothing of jetwheel's in $1"
    fi
}

if [ -n "$undo" ]; then
    restore "$pip_file"
    restore "$uv_file"
    exit 0
fi

# soc: the SoC named by the device tree, any entry of which may be the one.
soc() {
    for tree in "$root/proc/device-tree/compatible" "$root/sys/firmware/devicetree/base/compatible"; do
        [ -r "$tree" ] || continue
        tr '\000' '\n' <"$tree" | while read -r entry; do
            case $entry in
@SOC_CASES@
            esac
        done | head -n 1
        return
    done
}

# l4t: R and revision of the first line of nv_tegra_release, as 36.4.3.
l4t() {
    [ -r "$root/etc/nv_tegra_release" ] || return 0
    sed -n 's/^# R\([0-9]*\) (release), REVISION: \([0-9.]*\).*/\1.\2/p;1q' "$root/etc/nv_tegra_release"
}

jetpack() {
    case $1 in
@JETPACK_CASES@
    esac
}

soc=$(soc)
release=$(l4t)
jetpack=$(jetpack "$release")
here=
if [ -n "$soc" ] && [ -n "$jetpack" ]; then here=$soc-jp$jetpack; fi
echo "this machine: ${here:-not recognized} (SoC: ${soc:-unknown}, L4T: ${release:-unknown})"
echo "the mirror's index: $DEVICE"
if [ -n "$here" ] && [ "$here" != "$DEVICE" ]; then
    echo "WARNING: the address is for $DEVICE, this machine is $here." >&2
    if [ -z "$really" ]; then
        echo "Nothing was changed. Take the script from the address of $here, or add --yes-really." >&2
        exit 1
    fi
fi

# put FILE: writes standard input there, keeping what was there before.
put() {
    mkdir -p "$(dirname "$1")"
    if [ -f "$1" ] && ! grep -qF "$MARK" "$1"; then cp -p "$1" "$1.before-jetwheel"; fi
    cat >"$1.new"
    mv "$1.new" "$1"
    echo "wrote $1"
}

{
    echo "$MARK"
    echo '[global]'
    echo "index-url = $INDEX"
    case $INDEX in http://*) echo "trusted-host = $HOST" ;; esac
} | put "$pip_file"
{
    echo "$MARK"
    echo '[[index]]'
    echo 'name = "jetwheel"'
    echo "url = \"$INDEX\""
    echo 'default = true'
} | put "$uv_file"
echo "Take it back with: sh setup.sh --undo"
