#!/bin/sh
# Make a virtual environment. Debian keeps the venv module in a package of its own: install it if we may.
set -eu
target=$1
python=${PYTHON:-python3}
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null
    else
        echo "$python cannot make virtual environments: install the package $package, then run make again" >&2
        exit 1
    fi
fi
"$python" -m venv "$target"
