"""The table of errors in accuracy.md: no figure is larger than it says."""
import subprocess
import sys

import pytest

from conftest import SOURCE

torch = pytest.importorskip("torch", reason="PyTorch is not installed (python3-torch)")
script, page = SOURCE / "scripts" / "torch_table.py", SOURCE / "python" / "tests" / "accuracy.md"
pytestmark = pytest.mark.skipif(not script.exists(), reason="not in this copy of the sources")


@pytest.mark.skipif(not hasattr(torch, "compile") or torch.__version__ < (2, 15),
                    reason="PyTorch before 2.15")
def test_figures_are_those_of_the_page():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_rows_are_the_norms():
    """Without computing them."""
    import norma
    lines = page.read_text().split("<!-- scripts/torch_table.py -->\n")[1].split("<!--")[0].splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == [
        name for name in norma.norm_types() if name != "none"
    ]
