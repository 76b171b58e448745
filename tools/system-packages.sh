#!/bin/sh
# What the tests need beside Python packages: a headless browser for the report page.
set -eu
for browser in chromium chromium-browser google-chrome; do
    command -v "$browser" >/dev/null && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
else
    echo "no Chromium found: the test of the report page needs it; install the package 'chromium', then run make again" >&2
    exit 1
fi
