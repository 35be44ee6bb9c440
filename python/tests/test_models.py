"""Training, run folders and trained models: results are those of the program."""
import json
import random
import subprocess
import threading

import numpy as np
import pytest

import norma
from norma._runs import program_path

SENTENCES = {"haus": "house", "baum": "tree", "hund": "dog", "katze": "cat", "rot": "red", "blau": "blue",
             "grün": "green", "läuft": "runs", "springt": "jumps", "singt": "sings"}
RECIPE = """[data]
folder = {folder}/data
max_length = 60
[model]
width = 16
ff = 32
heads = 2
encoder_layers = 1
decoder_layers = 1
max_positions = 64
norm = power
[train]
updates = 12
max_tokens = 200
log_every = 4
validate_every = 6
score = false
[decode]
beam = 3
max_length_b = 8
[device]
threads = 1
"""


def norma_program(*words, **options):
    return subprocess.run([program_path(), *map(str, words)], capture_output=True, check=True, encoding="utf-8", **options)


def write_pairs(folder, name, n, seed):
    rng = random.Random(seed)
    words = [rng.choices(sorted(SENTENCES), k=2 + i % 4) for i in range(n)]
    (folder / f"{name}.de").write_text("".join(" ".join(line) + " .\n" for line in words), encoding="utf-8")
    (folder / f"{name}.en").write_text("".join(" ".join(map(SENTENCES.get, line)) + " .\n" for line in words),
                                       encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data folder and the run folder run/ of a small model."""
    folder = tmp_path_factory.mktemp("models")
    for name, n, seed in (("train", 150, 1), ("valid", 8, 2), ("test", 9, 3)):
        write_pairs(folder, name, n, seed)
    norma_program("prepare", "--train", folder / "train", "--valid", folder / "valid", "--test", folder / "test",
                  "--source-lang", "de", "--target-lang", "en", "--output", folder / "data", "--joint", "--tokenizer",
                  "moses", "--bpe-merges", "40")
    records = []
    run = norma.train(RECIPE.format(folder=folder), folder / "run", callback=records.append, interval=0.05)
    assert records == run.log.records and records[0]["type"] == "start"
    return folder


@pytest.fixture(scope="module")
def texts(folder):
    lines = (folder / "test.de").read_text(encoding="utf-8").splitlines()
    return [*lines, "", "ein unbekanntes Wörtchen ☃", "haus " * 200, "katze"]


def test_translations_are_those_of_the_program(folder, texts):
    expected = norma_program("translate", folder / "run", "--beam", 4, input="\n".join(texts) + "\n").stdout
    translator = norma.Translator(folder / "run", beam=4)
    with pytest.warns(UserWarning, match="text 11 has more than"):
        got = translator.translate(texts)
    assert "".join(line + "\n" for line in got) == expected
    assert translator.translate(texts[0]) == got[0]
    with pytest.warns(UserWarning):
        assert list(translator.stream(iter(texts), batch=5)) == got
    assert translator.translate([]) == []
    assert translator.max_tokens == 64 and translator.nbest == 1


def test_nbest_and_ensembles(folder, texts):
    expected = norma_program("translate", folder / "run", "--nbest", 2, input="\n".join(texts[:9]) + "\n")
    translator = norma.Translator(norma.Run(folder / "run"), nbest=2)
    results = translator.run(texts)
    lines = [line.split(" ||| ") for line in expected.stdout.splitlines()]
    got = [one for found in results[:9] for one in found]
    assert [one.text for one in got] == [line[1].strip() for line in lines]
    assert [one.score for one in got] == pytest.approx([float(line[2]) for line in lines], abs=1e-4)
    best = results[0][0]
    assert len(best.tokens) == len(best.token_scores) and all(score <= 0 for score in best.token_scores)
    assert results[0][0].score >= results[0][1].score
    assert results[9] == [] and not results[9].too_long and results[11] == [] and results[11].too_long
    same = norma.Translator([folder / "run", folder / "run" / "best.safetensors"], nbest=2).run(texts[:9])
    assert [[one.text for one in found] for found in same] == [[one.text for one in found] for found in results[:9]]


def test_threads_of_one_translator(folder, texts):
    translator = norma.Translator(folder / "run", {"device.threads": 1})
    expected = translator.run(texts)
    wrong = []

    def work():
        for _ in range(3):
            if translator.run(texts) != expected:
                wrong.append(1)
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_errors_of_models(folder, tmp_path):
    with pytest.raises(norma.FileError, match="nowhere"):
        norma.Translator(folder / "nowhere")
    with pytest.raises(norma.UsageError, match="beem"):
        norma.Translator(folder / "run", beem=4)
    (tmp_path / "x.safetensors").write_bytes(b"not a model")
    with pytest.raises(norma.FormatError, match="x.safetensors"):
        norma.Translator(tmp_path / "x.safetensors")
    translator = norma.Translator(folder / "run")
    for texts, error, message in ((["a", "b\nc"], norma.FormatError, "text 1"),
                                  (["a", "b\0c"], norma.FormatError, "text 1: the character NUL at position 1"),
                                  (["\ud800"], norma.FormatError, "text 0: surrogates not allowed"),
                                  ([b"a"], norma.UsageError, "text 0: expected str, got bytes")):
        with pytest.raises(error, match=message):
            translator.translate(texts)
    with pytest.raises(norma.UsageError, match="expected a list of texts"):
        translator.run("haus")


def test_run_folder(folder):
    run = norma.Run(folder / "run")
    assert run.config["model"]["norm"] == "power" and run.config["data"]["folder"] == f"{folder}/data"
    assert run.log.types[0] == "start" and {"train", "valid"} <= set(run.log.types)
    train, valid = run.log["train"], run.log["valid"]
    assert isinstance(train["loss"], np.ndarray) and train["update"].tolist() == [4, 8, 12]
    assert valid["update"].tolist() == [6, 12] and valid["best"].dtype == bool
    assert (valid["batch_loss"] > 0).all() and run.log["nothing"] == {}
    with pytest.raises(norma.FileError, match="nowhere: not a folder"):
        norma.Run(folder / "nowhere")


def test_incomplete_and_damaged_logs(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"type":"train","loss":1.5,"x":null}\n{"type":"train","loss":2,"lr":[1]}\n{"ty')
    run = norma.Run(tmp_path)
    assert run.log["train"]["loss"].tolist() == [1.5, 2] and np.isnan(run.log["train"]["x"]).all()
    assert run.log["train"]["lr"].tolist() == [None, [1]]
    (tmp_path / "log.jsonl").write_text('{"type":"train"}\n[1]\n')
    with pytest.raises(norma.FormatError, match="log.jsonl:2"):
        run.log
    with pytest.raises(norma.FileError, match="config.ini: No such file"):
        run.config


def test_training_stops_at_an_exception_and_resumes(folder, tmp_path):
    recipe = RECIPE.format(folder=folder)
    seen = []

    def stop(record):
        seen.append(record)
        if record["type"] == "valid":
            raise RuntimeError("enough")
    with pytest.raises(RuntimeError, match="enough"):
        norma.train(recipe, tmp_path / "stopped", {"train.updates": 100000}, callback=stop, interval=0.02)
    assert list((tmp_path / "stopped" / "checkpoints").glob("*.safetensors"))
    reached = norma.Run(tmp_path / "stopped").log["train"]["update"]
    resumed = []
    run = norma.train(recipe, tmp_path / "stopped", {"train.updates": 6 * (int(max(reached, default=0)) // 6 + 3)},
                      resume=True, callback=resumed.append)
    assert run.log["valid"]["update"][-1] == 6 * (int(max(reached, default=0)) // 6 + 3)


def test_errors_of_training(folder, tmp_path):
    with pytest.raises(norma.UsageError, match="train.updatse"):
        norma.train(RECIPE.format(folder=folder), tmp_path / "x", {"train.updatse": 4})
    with pytest.raises(norma.FileError, match="no-such-recipe"):
        norma.train("no-such-recipe.ini", tmp_path / "x")


def test_comparison(folder, tmp_path):
    result = norma.compare(RECIPE.format(folder=folder), tmp_path / "compared", ["layer", "power"],
                           {"train.updates": 6, "tid_batches": 3})
    assert [row["norm"] for row in result["variants"]] == ["layer", "power"]
    assert all(row["n"] == 1 for row in result["variants"]) and len(result["runs"]) == 2
    json.dumps(result)
