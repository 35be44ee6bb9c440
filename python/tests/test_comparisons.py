"""norma.compare: the runs are processes, everything else happens in this one; tables are those of the
program."""
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

import norma
from small_models import RECIPE, norma_program

SHORT = {"train.updates": 6, "tid_batches": 3}


def test_comparison_stops_at_an_exception_and_continues(folder, tmp_path):
    def stop(run, record):
        if record["type"] == "train":
            raise RuntimeError(str(run.path))

    recipe, settings = RECIPE.format(folder=folder), {"train.updates": 100000, "tid_batches": 3, "jobs": 1}
    with pytest.raises(RuntimeError, match="compared"):
        norma.compare(recipe, tmp_path / "compared", "layer,power", settings, callback=stop, interval=0.02)
    logs = list((tmp_path / "compared").glob("*/log.jsonl"))
    assert len(logs) == 1  # the second run was not started
    reached = norma.Run(logs[0].parent).log["train"]["update"]
    settings["train.updates"] = 6 * (int(reached[-1]) // 6 + 2)
    result = norma.compare(recipe, tmp_path / "compared", "layer,power", settings)
    assert [row["n"] for row in result["variants"]] == [1, 1]


def test_comparison(folder, tmp_path):
    records = []
    result = norma.compare(RECIPE.format(folder=folder), tmp_path / "compared", ["layer", "power"],
                           SHORT, interval=0.05,
                           callback=lambda run, record: records.append((run.path, record)))
    runs = {path for path, _ in records}
    assert len(runs) == 2 and {path.parent for path in runs} == {tmp_path / "compared"}
    for path in runs:
        assert [record for run, record in records if run == path] == norma.Run(path).log.records
    again = []
    assert norma.compare(RECIPE.format(folder=folder), tmp_path / "compared", ["layer", "power"],
                         SHORT, callback=lambda *_: again.append(1)) == result
    assert not again
    assert [row["norm"] for row in result["variants"]] == ["layer", "power"]
    assert all(row["n"] == 1 for row in result["variants"]) and len(result["runs"]) == 2
    json.dumps(result)
    assert len(result.table) == 2 and len(result.runs) == 2


@pytest.fixture(scope="module")
def compared(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("comparison") / "runs"
    return norma.compare(RECIPE.format(folder=folder), path, ["layer", "power"], SHORT, seeds=2), path


def test_tables_are_those_of_the_program(folder, compared):
    result, path = compared
    arguments = ["compare", path / "recipe.ini", "--folder", path, "--norms", "layer,power", "--seeds", 2,
                 "--train.updates", 6,
                 "--tid-batches", 3]
    assert json.loads(norma_program(*arguments, "--format", "json").stdout) == dict(result)
    for name in ("text", "markdown", "latex", "csv"):
        program = norma_program(*arguments, "--format", name)
        assert (program.stdout, program.stderr) == (result.text(name), "")
    assert str(result) == result.text() and result._repr_markdown_() == result.text("markdown")
    with pytest.raises(norma.UsageError, match="format = 'html': expected one of text, markdown"):
        result.text("html")


def test_results_are_read_without_recipe_and_models(compared):
    result, path = compared
    opened = norma.Comparison.open(path)
    assert opened == result and opened.text("csv") == result.text("csv")
    copy = pickle.loads(pickle.dumps(opened))
    assert copy == result and copy.text("latex") == result.text("latex")
    assert "p equiv" in norma.Comparison.open(path, margin=50).text()
    with pytest.raises(norma.FileError, match="nowhere/comparison.json"):
        norma.Comparison.open("nowhere")


def test_a_grid_is_given_as_a_list(folder, tmp_path):
    result = norma.compare(RECIPE.format(folder=folder), tmp_path / "grid", "layer",
                           {**SHORT, "grid": ["schedule.lr=0.001,0.002", "optim.beta2=0.9,0.98"]})
    assert len(result["grid"]) == 4 and sum(point["selected"] for point in result["grid"]) == 1
    assert "selected by validation loss: layer:schedule.lr=" in str(result)


def test_other_threads_run_during_a_comparison(folder, tmp_path):
    finished, turns = threading.Event(), 0

    def compare():
        norma.compare(RECIPE.format(folder=folder), tmp_path / "threads", "layer", SHORT)
        finished.set()

    worker = threading.Thread(target=compare)
    worker.start()
    while not finished.wait(0.001):
        turns += 1
    worker.join()
    assert turns > 20  # a call that held the interpreter lock would let it turn once


def test_interrupted_by_ctrl_c(folder, tmp_path):
    path = tmp_path / "interrupted"
    settings = {**SHORT, "train.updates": 100000, "jobs": 2}

    def interrupt(run, record):
        if record["type"] == "train":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        norma.compare(RECIPE.format(folder=folder), path, "layer,power", settings, callback=interrupt,
                      interval=0.02)
    assert list(path.glob("*/checkpoints/*.safetensors"))
    for run in path.glob("*-1"):
        assert max(norma.Run(run).log["train"].get("update", [0])) < settings["train.updates"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # The folder is unlocked, and the runs have ended: another comparison may use it at once.
    with pytest.raises(norma.UsageError, match="norms: layer is listed twice"):
        norma.compare(RECIPE.format(folder=folder), path, "layer,layer", settings)


def test_runs_end_with_a_killed_process(folder, tmp_path):
    path = tmp_path / "killed"
    recipe = RECIPE.format(folder=folder)
    call = f"norma.compare({recipe!r}, {str(path)!r}, 'layer', {{'train.updates': 10 ** 7}})"
    process = subprocess.Popen([sys.executable, "-c", f"import norma; {call}"])
    log = path / "layer-1" / "log.jsonl"
    while not log.exists() or b'"train"' not in log.read_bytes():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    # waits for the lock of the killed runs
    result = norma.compare(RECIPE.format(folder=folder), path, "power", SHORT)
    assert len(result["runs"]) == 1


def test_errors(folder, tmp_path):
    recipe = RECIPE.format(folder=folder)
    for problem, match, norms, settings in (
            (norma.UsageError, "unknown option compare.seed;", "layer", {"seed": 1}),
            (norma.UsageError, "train.updates = many", "layer", {"train.updates": "many"}),
            (norma.UsageError, "option train.updates = None: expected a text", "layer",
             {"train.updates": None}),
            (norma.UsageError, "layer is listed twice", ["layer", "layer"], {}),
            (norma.UsageError, "laier", "laier", {}),
            (norma.UsageError, "norms = 3: expected a list of variants", 3, {}),
            (norma.UsageError, r"norms = \[3\]: expected a list of texts", [3], {})):
        with pytest.raises(problem, match=match):
            norma.compare(recipe, tmp_path / "wrong", norms, settings)
    with pytest.raises(norma.FileError, match="nowhere.ini"):
        norma.compare(tmp_path / "nowhere.ini", tmp_path / "wrong", "layer")
    with pytest.raises(norma.DivergedError, match="no run finished; the first one failed"):
        norma.compare(recipe, tmp_path / "diverged", "layer", {**SHORT, "train.divergence_factor": 0.01})
