#!/bin/sh
# Points pip and uv on this device at the mirror, or takes that back.
#   sh setup.sh [--ca FILE] [--token FILE] [--undo] [--yes-really] [--root DIR]
# --ca takes over a certificate authority (PEM) that the mirror's certificate is by.
# --token writes an access token, the first line of FILE or of standard input (-), to ~/.netrc, mode 0600.
# --yes-really goes on although the device in the mirror's address and this machine differ.
set -eu

DEVICE='@DEVICE@'
INDEX='@INDEX@'
HOST='@HOST@'
MARK='# written by jetwheel setup.sh'

root='' undo='' really='' ca='' token_file=''
while [ $# -gt 0 ]; do
    case $1 in
        --undo) undo=1 ;;
        --yes-really) really=1 ;;
        --root) root=${2:?--root needs a folder}; shift ;;
        --ca) ca=${2:?--ca needs a file}; shift ;;
        --token) token_file=${2:?--token needs a file, or - for standard input}; shift ;;
        -h | --help) sed -n '2,6p' "$0"; exit 0 ;;
        *)
            echo "setup.sh: unknown argument $1 (known: --ca FILE, --token FILE, --undo, --yes-really, --root DIR)" >&2
            exit 2
            ;;
    esac
    shift
done

config=${XDG_CONFIG_HOME:-$HOME/.config}
pip_file=$root${PIP_CONFIG_FILE:-$config/pip/pip.conf}
uv_file=$root$config/uv/uv.toml
ca_file=$config/jetwheel/ca.pem
netrc=$root${NETRC:-$HOME/.netrc}

# restore FILE: takes back what was written there; a file that somebody else wrote stays.
restore() {
    if [ -f "$1" ] && grep -qF "$MARK" "$1"; then
        if [ -f "$1.before-jetwheel" ]; then mv "$1.before-jetwheel" "$1"; else rm "$1"; fi
        echo "restored $1"
    else
        echo "nothing of jetwheel's in $1"
    fi
}

# others: the lines of the netrc file but ours.
others() {
    awk -v host="$HOST" '!($1 == "machine" && $2 == host && $3 == "login" && $4 == "__token__" && $6 ~ /^jetwheel_/)' "$netrc"
}

# forget: takes our line out of the netrc file, which goes if nothing else was in it.
forget() {
    [ -f "$netrc" ] || return 0
    (umask 077 && others >"$netrc.new")
    if cmp -s "$netrc" "$netrc.new"; then
        rm "$netrc.new"
    elif [ -s "$netrc.new" ]; then
        mv "$netrc.new" "$netrc"
        echo "restored $netrc"
    else
        rm "$netrc.new" "$netrc"
        echo "removed $netrc"
    fi
}

if [ -n "$undo" ]; then
    restore "$pip_file"
    restore "$uv_file"
    if [ -f "$root$ca_file" ]; then restore "$root$ca_file"; fi
    forget
    exit 0
fi

# What was asked for is read before anything is changed. A message never shows what may be a token.
fail() {
    echo "setup.sh: $*. Nothing was changed." >&2
    exit 2
}
if [ -n "$ca" ]; then
    grep -q -e '-----BEGIN CERTIFICATE-----' "$ca" || fail "--ca $ca: no certificate in it, expected a PEM file"
fi
token=''
if [ -n "$token_file" ]; then
    if [ "$token_file" = - ]; then
        read -r token || :
    else
        [ -r "$token_file" ] || fail "--token $token_file: cannot be read"
        read -r token <"$token_file" || :
    fi
    case $token in
        jetwheel_*[!A-Za-z0-9_-]*) fail "--token $token_file: its first line is no access token" ;;
        jetwheel_*) ;;
        *) fail "--token $token_file: its first line is no access token, which begins with jetwheel_" ;;
    esac
    if [ -f "$netrc" ] && others | grep -qE "^[[:space:]]*machine[[:space:]]+$(echo "$HOST" | sed 's/\./[.]/g')([[:space:]]|\$)"; then
        fail "$netrc has another login for $HOST; please change it by hand"
    fi
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
    if [ -n "$ca" ]; then echo "cert = $ca_file"; fi
} | put "$pip_file"
{
    echo "$MARK"
    echo '[[index]]'
    echo 'name = "jetwheel"'
    echo "url = \"$INDEX\""
    echo 'default = true'
} | put "$uv_file"
if [ -n "$ca" ]; then
    { echo "$MARK"; cat "$ca"; } | put "$root$ca_file"
    echo "uv has no setting for it. Before uv runs: export SSL_CERT_FILE=$ca_file"
fi
if [ -n "$token" ]; then
    mkdir -p "$(dirname "$netrc")"
    (
        umask 077
        {
            if [ -f "$netrc" ]; then others; fi
            echo "machine $HOST login __token__ password $token"
        } >"$netrc.new"
    )
    mv "$netrc.new" "$netrc"
    echo "wrote $netrc"
fi
echo "Take it back with: sh setup.sh --undo"
