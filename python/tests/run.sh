#!/usr/bin/env bash
# Runs the tests of the Python package without installing it. NORMA_LIBRARY: the library; NORMA: the program; SOURCE: the repository; PYTHON: the
# interpreter, otherwise the first that has pytest and NumPy. Exit code 77: there is none; without PyTorch a part is skipped.
set -u
export PYTHONPATH=$SOURCE/python PYTHONDONTWRITEBYTECODE=1 NORMA_PROGRAM=$NORMA
for python in ${PYTHON:-python3 /usr/bin/python3}; do
    if "$python" -c 'import numpy, pytest' 2>/dev/null; then
        exec "$python" -m pytest -q -p no:cacheprovider -rs --rootdir "$SOURCE" "$SOURCE/python/tests"
    fi
done
echo "skipped: python3-pytest or python3-numpy is not installed"
exit 77
