#!/usr/bin/env bash
# norma watch over raw HTTP: test_watch.py, skipped without pytest or without a web server in this build.
set -uo pipefail
for python in python3 /usr/bin/python3 none; do
    $python -c 'import pytest' 2>/dev/null && break
done
if [ $python = none ]; then
    echo "skipped: it needs pytest (Debian package python3-pytest)"
    exit 77
fi
if "${NORMA:?}" watch . --bind nowhere 2>&1 | grep -F libmicrohttpd-dev; then
    echo "skipped: this build has no web server (Debian package libmicrohttpd-dev)"
    exit 77
fi
exec $python -m pytest -q -p no:cacheprovider "${SOURCE:?}/tests/e2e/test_watch.py"
