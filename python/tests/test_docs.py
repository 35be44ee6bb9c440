"""The Sphinx pages (make python-docs) have every public name."""
import importlib
import re

import pytest

import norma
from conftest import SOURCE

pages = SOURCE / "python" / "docs" / "index.rst"


@pytest.mark.skipif(not pages.exists(), reason="not in this copy of the sources")
def test_every_public_name_is_documented():
    listed = set(re.findall(r":: norma\.(\w+)$", pages.read_text(), re.MULTILINE))
    assert set(norma.__all__) - listed == set()


@pytest.mark.skipif(not pages.exists(), reason="not in this copy of the sources")
def test_every_public_name_of_torch_is_documented():
    pytest.importorskip("torch")
    torch = importlib.import_module("norma.torch")
    listed = set(re.findall(r":: norma\.torch\.(\w+)$", pages.read_text(), re.MULTILINE))
    assert set(torch.__all__) - listed == set()
