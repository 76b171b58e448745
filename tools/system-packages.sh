#!/bin/sh
# What the tests need beside Python packages: a headless browser for the pages, and OpenGL that needs no display for
# MuJoCo's pictures (3 MB).
set -eu
missing=""
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    missing="chromium"
if [ "$(uname)" = Linux ]; then # a Mac draws with its own
    PATH="$PATH:/sbin" ldconfig -p | grep -qE 'libEGL\.so|libOSMesa\.so' || missing="$missing libosmesa6"
fi
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "the tests need packages of the system: install $missing, then run make again" >&2
    exit 1
fi
