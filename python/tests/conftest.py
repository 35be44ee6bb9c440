"""What the tests share: golden cases, a small model."""
import json
import os
import pathlib
import signal

import pytest

import norma
from small_models import RECIPE, norma_program, write_pairs

# A job that a script starts in the background ignores SIGINT, and the tests of Ctrl-C would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SOURCE = pathlib.Path(os.environ.get("SOURCE", pathlib.Path(__file__).resolve().parents[2]))


@pytest.fixture
def golden():
    """golden(name): a case of tests/golden/cases."""
    def read(name):
        path = SOURCE / "tests" / "golden" / "cases" / (name + ".json")
        if not path.exists():
            pytest.skip(f"{path}: not in this copy of the sources")
        return json.loads(path.read_text())
    return read


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A data folder and the run folder run/ of a small model."""
    folder = tmp_path_factory.mktemp("models")
    for name, n, seed in (("train", 150, 1), ("valid", 8, 2), ("test", 9, 3)):
        write_pairs(folder, name, n, seed)
    norma_program("prepare", "--train", folder / "train", "--valid", folder / "valid", "--test",
                  folder / "test",
                  "--source-lang", "de", "--target-lang", "en", "--output", folder / "data", "--joint",
                  "--tokenizer",
                  "moses", "--bpe-merges", "40")
    records = []
    run = norma.train(RECIPE.format(folder=folder), folder / "run", callback=records.append, interval=0.05)
    assert records == run.log.records and records[0]["type"] == "start"
    return folder
