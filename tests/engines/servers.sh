#!/bin/sh
# Sees to a PostgreSQL and a Java for the tests of engines: Debian's, where this machine has none and may install them.
# Without them those tests are skipped, and say so; nothing else needs them.
set -eu
missing=""
if ! command -v initdb >/dev/null 2>&1 && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    missing="postgresql"
fi
if ! command -v java >/dev/null 2>&1 && ! [ -x "${JAVA_HOME:-}/bin/java" ]; then
    missing="$missing default-jre-headless"
fi
if [ -z "$missing" ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Not here:$missing. Tests of engines will be skipped (on Debian: apt-get install $missing)." >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # several packages
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/dev/null 2>&1; then
    echo "Could not be installed: $missing. Tests of engines will be skipped." >&2
fi
