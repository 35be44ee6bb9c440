"""Every public name has a docstring and a type, and the Sphinx pages (make docs) have every public
name."""
import importlib
import inspect
import re
import subprocess
import sys

import pytest

import norma
from conftest import SOURCE

pages = SOURCE / "python" / "docs" / "index.rst"
headers = SOURCE / "include" / "norma"


@pytest.fixture
def page_scripts(monkeypatch):
    """What writes the pages of C and of the norms."""
    monkeypatch.syspath_prepend(str(pages.parent))
    return importlib.import_module("c_pages"), importlib.import_module("norm_pages")


def undocumented(kind):
    """Public members of a class, inherited ones included, that have no docstring; fields of a NamedTuple need
    a comment for Sphinx, `#:`."""
    source = inspect.getsource(kind) if hasattr(kind, "_fields") else ""
    for key in dir(kind):
        owner = next((base for base in kind.__mro__ if key in vars(base)), object)
        if key.startswith("_") or not owner.__module__.startswith("norma"):
            continue
        if key in getattr(kind, "_fields", ()):
            found = re.search(rf"^    (#: \S.*\n    {key}: |{key}: .*  #: \S)", source, re.MULTILINE)
        else:
            found = isinstance(getattr(kind, key), (bool, int)) or inspect.getdoc(
                inspect.getattr_static(kind, key)
            )
        if not found:
            yield key


def missing(module, names):
    for name in names:
        value = getattr(module, name)
        text = inspect.getdoc(value) or ""
        if not text or text.startswith(f"{name}("):  # that of a NamedTuple without one
            yield name
        if inspect.isclass(value):
            yield from (f"{name}.{key}" for key in undocumented(value))


def test_every_public_name_has_a_docstring():
    assert list(missing(norma, norma.__all__)) == []


def test_every_public_name_of_torch_has_a_docstring():
    pytest.importorskip("torch")
    torch = importlib.import_module("norma.torch")
    names = dir(torch)
    assert "PowerNorm" in names and "tid" in names
    assert list(missing(torch, names)) == []


def test_classes_of_norms_are_those_of_the_library():
    """scripts/torch_classes.py writes them, with typed options."""
    pytest.importorskip("torch")
    torch = importlib.import_module("norma.torch")
    assert sorted(torch._classes.by_type) == sorted(norma.norm_types())
    done = subprocess.run([sys.executable, str(SOURCE / "scripts" / "torch_classes.py")], capture_output=True,
                          text=True, check=True)
    assert done.stdout == (SOURCE / "python" / "norma" / "torch" / "_classes.py").read_text()


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


def test_every_norm_has_a_page(monkeypatch):
    """The pages that `make docs` generates (python/docs/norm_pages.py)."""
    pytest.importorskip("torch", reason="PyTorch is not installed (python3-torch)")
    monkeypatch.syspath_prepend(str(SOURCE / "python" / "docs"))
    import norm_pages
    titles, rows = norm_pages.costs(SOURCE / "docs" / "norms.md")
    assert titles[:4] == ["norm", "forward", "backward", "inference"]
    for name, found in norma.norm_types().items():
        text = norm_pages.page(found, titles, rows.get(name))
        assert found.formula in text and found.source in text and f"--model.norm {name}" in text
        assert all(f"``{option}``" in text for option in found.options)
        assert name in rows and f"     - {rows[name][1]}\n" in text
        assert hasattr(norma.torch, text.split("norma.torch.")[1].split("(")[0])


def test_pages_of_c_have_every_function(page_scripts):
    known = set()
    for header in sorted(headers.glob("*.h")):
        text = header.read_text()
        page = page_scripts[0].page(header.name, text, known)
        for name in re.findall(r"^NM_API [^;(]*?(\w+)\(", text, re.MULTILINE):
            assert re.search(rf"^\.\. c:function:: .*\b{name}\(", page, re.MULTILINE), name
        code = re.sub(r"^#(?!define).*", "", text, flags=re.MULTILINE)
        comments = re.findall(r"/\*.*?\*/", code, re.DOTALL)
        lost = set(re.findall(r"\w+", " ".join(comments))) - set(re.findall(r"\w+", page.replace("\\", "")))
        assert not lost, header.name


def test_pages_of_norms_have_their_claims(page_scripts):
    """The rows of results/README.md that name the norm."""
    ledger = page_scripts[1].claims(str(SOURCE))
    text = (SOURCE / "results" / "README.md").read_text()
    measured = re.findall(r"^\| \[(\w+-\d+)\].*\| \d+ \|$", text, re.MULTILINE)
    assert [row[0] for row in ledger if row[4]] == measured and len(measured) > 5
    found = {name: "\n".join(page_scripts[1].findings(kind, ledger))
             for name, kind in norma.norm_types().items()}
    for name, _, variants, *_ in ledger:
        assert ("RBN" in variants) <= (name in found["rbn"])
        assert (re.search(r"\bPN-V", variants) is not None) <= (name in found["pnv"])
        assert ("ScaleNorm" in variants) <= (name in found["scale"])
        assert name not in found["dyt"]
    assert "BN - LN" in found["layer"] and "BN - LN" in found["batch"]


def test_pages_of_norms_have_their_results(page_scripts):
    """Rows of results/*.md that are recomputed from archived runs, and of the studies."""
    pages = page_scripts[1].results(str(SOURCE))
    found = {name: "\n".join(page_scripts[1].measurements(kind, pages))
             for name, kind in norma.norm_types().items()}
    row = re.search(r"^\| MABN \| 3 \| (\S+) \|.*?\| ([+-][^|]*\)) \|", pages["classification"],
                    re.MULTILINE)
    assert f"accuracy {row[1]}\n     - {row[2]} (LN: " in found["mabn"]
    row = re.search(r"^\| dyt \| .*\| (\S+ ± \S+) \|$", pages["studies"], re.MULTILINE)
    assert f"studies`: SST-2\n     - \\ \n     - {row[1]}\n     - layer: " in found["dyt"]
    assert "ptb-structures\n     - 1\n" in found["dyt"] and "dropped" not in found["dyt"]
    assert "/results/images`" in found["group2d"] and "Not measured" not in found["group2d"]
    assert "Not measured" in "\n".join(page_scripts[1].measurements(norma.norm_types()["group2d"], {}))
    assert all(name == "layer" or text.count("classification-") in (0, 10)
               for name, text in found.items())
