"""The programs of examples/python."""
import importlib.util
import os
import re
import subprocess
import sys

import pytest

import norma
from conftest import SOURCE

examples = SOURCE / "examples" / "python"
pytestmark = pytest.mark.skipif(not examples.exists(), reason="not in this copy of the sources")


def run_example(name, *arguments, **options):
    done = subprocess.run([sys.executable, examples / name, *map(str, arguments)], capture_output=True,
                          encoding="utf-8",
                          env={**os.environ, "PYTHONIOENCODING": "utf-8"}, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_translate(folder, tmp_path):
    lines = ["haus rot läuft .", "", "katze " * 100, "ein unbekanntes Wörtchen ☃"]
    (tmp_path / "lines.de").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    out = run_example("translate.py", folder / "run", tmp_path / "lines.de")
    assert out.startswith("power norm, at most 64 tokens\n")
    expected = norma.Translator(folder / "run", beam=4, nbest=2).run([lines[0], lines[3]])
    assert re.findall(r"^  \d\. (.*)  \(", out, re.MULTILINE) == [
        one.text for found in expected for one in found
    ]
    assert out.count("not translated") == 1 and out.count(", from '") >= 2
    assert out == run_example("translate.py", folder / "run", input="".join(line + "\n" for line in lines))


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
def test_power_norm_encoder():
    out = run_example("power_norm_encoder.py", 8)
    rows = re.findall(r"^(\w+) +test loss ([\d.]+) +[\d.]+ ms per update +mean TID ([\d.]+) %$", out,
                      re.MULTILINE)
    assert [row[0] for row in rows] == ["layer", "power"] and rows[0][1] != rows[1][1]
    assert all(0 < float(tid) < 100 for *_, tid in rows)
