#!/usr/bin/env bash
# Runs the tests of this folder. NORMA: the program; SOURCE: the repository. Exit code 77: no interpreter has pytest.
set -u
export PYTHONDONTWRITEBYTECODE=1
for python in ${PYTHON:-python3 /usr/bin/python3}; do
    if "$python" -c 'import pytest' 2>/dev/null; then
        exec "$python" -m pytest -q -p no:cacheprovider --rootdir "$SOURCE" "$SOURCE/tests/foreign"
    fi
done
echo "skipped: python3-pytest is not installed"
exit 77
