"""What the tests share: the folder of the golden cases."""
import json
import os
import pathlib

import pytest

SOURCE = pathlib.Path(os.environ.get("SOURCE", pathlib.Path(__file__).resolve().parents[2]))


@pytest.fixture
def header():
    """header(name): a public header."""
    return lambda name: (SOURCE / "include" / "norma" / name).read_text()


@pytest.fixture
def golden():
    """golden(name): a case of tests/golden/cases."""
    def read(name):
        path = SOURCE / "tests" / "golden" / "cases" / (name + ".json")
        if not path.exists():
            pytest.skip(f"{path}: not in this copy of the sources")
        return json.loads(path.read_text())
    return read
