#!/bin/sh
# Sees to a Chromium for the tests of pages: Debian's, where this machine has none and may install one.
# Without it those tests are skipped, and say so; nothing else needs it.
set -eu
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then
        exit 0
    fi
done
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "No Chromium here: tests of pages will be skipped (on Debian: apt-get install chromium)." >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1; then
    echo "Chromium could not be installed: tests of pages will be skipped." >&2
fi
