"""The options of functions as typed dicts (norma/options.py)."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import typing

import pytest

import norma
from norma import options

SOURCE = pathlib.Path(os.environ.get("SOURCE", pathlib.Path(__file__).resolve().parents[2]))
SCRIPT = SOURCE / "scripts" / "python_options.py"


def test_the_file_is_that_of_the_program():
    found = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=True,
                           env={**os.environ, "NORMA_PROGRAM": norma._runs.program_path()}).stdout
    assert pathlib.Path(options.__file__).read_text() == found, "run scripts/python_options.py"


def value_of(kind):
    """A value of the type of an option."""
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)[0]
    return {bool: False, int: 1, float: 0.5}.get(kind, "x")


def refuses(task, name, value, folder):
    with pytest.raises(norma.Error) as problem:
        norma.train(f"[run]\ntask = {task}\n", folder, {name: value})
    return "unknown option" in str(problem.value)


def test_training_knows_the_names(tmp_path):
    """Each is an option of one task at least."""
    kinds = typing.get_type_hints(options.TrainOptions)
    tasks = "translation", "lm", "classification", "tagging"
    assert refuses("lm", "train.updats", 3, tmp_path / "run")
    assert [name for name, kind in kinds.items() if name not in ("run.task", "device") and all(
        refuses(task, name, value_of(kind), tmp_path / "run") for task in tasks)] == []


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_a_type_checker_finds_mistakes(tmp_path):
    lines = {
        'norma.train("lm", "run", {"train.updates": 3, "model.norm": "rbn"})': None,
        'norma.train("lm", "run", {"train.updats": 3})': 'expected "TrainOptions',
        'norma.train("lm", "run", {"train.updates": "3"})': 'expected "TrainOptions',
        'norma.train("lm", "run", {"model.activation": "reul"})': 'expected "TrainOptions',
        'norma.compare("lm", "runs", ["layer"], {"margin": "x"})': 'expected "CompareOptions',
        'norma.study("text", "study", budget="1h")': None,
        'norma.study("text", "study", bugdet="1h")': 'Unexpected keyword argument "bugdet"',
        'norma.Translator("run", beam="4")': 'expected "int"',
        'norma.Tagger("run", beam=4)': 'Unexpected keyword argument "beam"',
        'norma.LanguageModel("run", {"device.threads": 1}, tokens=5, stop=["."])': None,
        'norma.prepare(train="a", valid="b", source_lang="de", target_lang="en", output="c")': None,
        'norma.score("bleu", ["a"], ["a"], tokenize="14a")': "expected \"Literal['13a'",
    }
    program = tmp_path / "program.py"
    program.write_text("import norma\n" + "".join(line + "\n" for line in lines))
    package = str(pathlib.Path(norma.__file__).parents[1])
    found = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache",
                            program.name], capture_output=True, text=True, cwd=tmp_path,
                           env={**os.environ, "MYPYPATH": package}).stdout
    for number, expected in enumerate(lines.values(), 2):
        errors = [one for one in found.splitlines() if one.startswith(f"program.py:{number}: error")]
        assert len(errors) == (expected is not None), found
        assert all(expected in one for one in errors), (expected, errors)
