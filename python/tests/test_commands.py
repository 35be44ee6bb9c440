"""Commands as functions, data of lists and Hugging Face datasets, tables and progress of notebooks."""
import json
import random

import pytest

import norma
from conftest import SOURCE
from small_models import RECIPE, SENTENCES, norma_program

WORDS = {"good": ["fine", "lovely", "great"], "bad": ["dull", "awful", "poor"]}
CLASSIFY = {"data.valid_fraction": 0.2, "model.width": 16, "model.ff": 32, "model.heads": 2,
            "model.layers": 1, "train.epochs": 2, "device.threads": 1}


def reviews(n, seed):
    rng = random.Random(seed)
    return [(f"a {rng.choice(WORDS[label])} film, \"{i}\"\nwith {rng.choice(['an end', 'songs'])}", label)
            for i, label in enumerate(rng.choices(sorted(WORDS), k=n))]


def test_recipes():
    found = norma.recipes("lm", "text")
    assert "lm" in [one.name for one in found] and all(one.description for one in found)
    assert [one.name for one in found] == norma_program("recipes", "lm", "text", "--names").stdout.split()
    with pytest.raises(norma.UsageError, match="no recipe"):
        norma.recipes("nosuchrecipe")
    with pytest.raises(norma.UsageError, match="expected a word"):
        norma.recipes("--names")


def test_tokenize(folder):
    lines = ["haus, rot!", "", "ein unbekanntes ☃"]
    pieces = norma.tokenize(lines, like=folder / "data")
    assert len(pieces) == 3 and pieces[1] == "" and pieces[0] == "haus , rot !"
    assert norma.tokenize(pieces, like=folder / "data", undo=True) == lines
    with pytest.raises(norma.UsageError, match="a line contains a newline"):
        norma.tokenize(["a\nb"])
    with pytest.raises(norma.MissingFileError):
        norma.tokenize(["a"], like=folder / "nosuch")


def test_inspect_and_report(folder, tmp_path):
    found = norma.inspect(folder / "run", measure="spectrum", batches=2)
    done = norma_program("inspect", folder / "run", "--measure", "spectrum", "--batches", "2", "--json")
    assert found == json.loads(done.stdout) and found
    assert "<table>" in found._repr_html_()
    page = norma.report([folder / "run"], tmp_path / "page.html")
    assert page.path.stat().st_size > 1000 and page._repr_html_().startswith("<iframe srcdoc=\"&lt;")
    with pytest.raises(norma.UsageError, match="runs: empty"):
        norma.report([])


def test_convert(folder, tmp_path):
    with pytest.raises(norma.UsageError, match="expected one of to and from_"):
        norma.convert(folder / "run", tmp_path / "out")
    run = norma.train(RECIPE.format(folder=folder), tmp_path / "run", {"model.norm": "layer"})
    assert (norma.convert(run, tmp_path / "ct2", to="ctranslate2") / "config.json").exists()
    with pytest.raises(norma.UnsupportedError, match="is power"):
        norma.convert(folder / "run", tmp_path / "hf", to="huggingface")


def test_classification_of_lists(tmp_path):
    data = {"train": reviews(80, 1), "validation": reviews(20, 2), "test": reviews(20, 3)}
    shown = norma.Display()
    compared = norma.compare("classify", tmp_path / "c", ["layer", "rms"], CLASSIFY, data=data,
                             callback=shown)
    assert [row["norm"] for row in compared["variants"]] == ["layer", "rms"]
    assert sorted(shown.rows) == sorted(run.path.name for run in [norma.Run(one.parent) for one in
                                                                  (tmp_path / "c").glob("*/log.jsonl")])
    assert all(row["best"] <= row["valid"] or row["best"] < 10 for row in shown.rows.values())
    page = compared._repr_html_()
    assert page.count("<tr>") == 3 and "layer" in page and "<th>" in page
    model = norma.Run(next((tmp_path / "c").glob("*/log.jsonl")).parent).model()
    assert model.classify([data["test"][0][0]])[0].label in WORDS
    found = norma.baseline("classify", {"data.train": tmp_path / "c/data/train.jsonl",
                                        "data.valid": tmp_path / "c/data/valid.jsonl"})
    assert {"majority"} <= {one["name"] for one in found["baselines"]}


def test_translation_of_a_hugging_face_dataset(tmp_path):
    datasets = pytest.importorskip("datasets")
    rng = random.Random(4)
    splits = {}
    for name, n in (("train", 120), ("validation", 8), ("test", 9)):
        lines = [rng.choices(sorted(SENTENCES), k=2 + i % 4) for i in range(n)]
        splits[name] = datasets.Dataset.from_list([
            {"id": i, "translation": {"de": " ".join(line), "en": " ".join(map(SENTENCES.get, line))}}
            for i, line in enumerate(lines)])
    run = norma.train(RECIPE.format(folder="."), tmp_path / "run", data=datasets.DatasetDict(splits),
                      preparation={"joint": True, "bpe_merges": 30})
    assert run.best["update"] in (6, 12)
    assert run.config["data"]["folder"] == str(tmp_path / "run" / "data" / "prepared")
    assert isinstance(run.model(beam=1).translate("haus rot"), str)


def test_tags_and_texts(tmp_path):
    from norma import _datasets
    tagged = [(["Anna", "lives", "in", "Rome"], ["B-PER", "O", "O", "B-LOC"]), (["It", "rains"], ["O", "O"])]
    settings = _datasets.write({"train": tagged}, tmp_path, "tag", {}, None, None)
    with open(settings["data.train"]) as file:
        assert file.read().startswith("Anna\tB-PER\nlives\tO\n")
    datasets = pytest.importorskip("datasets")
    named = datasets.Dataset.from_list([{"tokens": ["Rome"], "ner_tags": [1]}]).cast_column(
        "ner_tags", datasets.Sequence(datasets.ClassLabel(names=["O", "B-LOC"])))
    _datasets.write({"train": named}, tmp_path, "tag", {}, None, None)
    assert (tmp_path / "data/train.txt").read_text() == "Rome\tB-LOC\n\n"
    texts = {"train": ["the cat", "", "a dog"] * 20, "dev": [{"text": "the dog"}]}
    settings = _datasets.write(texts, tmp_path, "lm", {}, None, {"bpe_merges": 5})
    assert (tmp_path / "data/prepared/data.ini").exists() and list(settings) == ["data.folder"]


@pytest.mark.parametrize("data, columns, message", [
    ({"train": ["a"], "eval": []}, None, "splits train, eval; expected train, validation and test"),
    ({"validation": ["a"]}, None, "expected train"),
    ({"train": [("a", "b", "c")]}, None, "expected two values"),
    ({"train": ["only a text"]}, None, "expected two values"),
    ({"train": [{"body": "x", "label": 1}]}, None, "give columns"),
    ({"train": [{"body": "x", "label": 1}]}, ["text", "label"],
     "no column 'text'; the rows have body, label"),
])
def test_wrong_rows(data, columns, message, tmp_path):
    with pytest.raises(norma.UsageError, match=message):
        norma.train("classify", tmp_path / "run", data=data, columns=columns)


def test_tokens_without_tags(tmp_path):
    for row in ((["a b"], ["O"]), (["a", "b"], ["O"])):
        with pytest.raises(norma.MismatchError, match="expected one tag per token"):
            norma.train("tag", tmp_path / "run", data={"train": [row]})


def test_warnings_are_those_of_python(tmp_path):
    """Warnings of the program."""
    lines = "".join(f"{label}\t{text.splitlines()[0]}\n" for text, label in reviews(40, 1))
    (tmp_path / "train.tsv").write_text(lines)
    with pytest.warns(UserWarning, match="also training texts|also in the training"):
        norma.baseline("classify", {f"data.{split}": tmp_path / "train.tsv" for split in ("train", "valid")})


def test_study(tmp_path):
    rng, lines = random.Random(1), []
    (tmp_path / "text.txt").write_text("".join(
        " ".join(rng.choices(["the", "a", "cat", "dog", "sees", "chases", "red", "old"], k=6)) + " .\n"
        for _ in range(400)))
    options = {"norms": "layer,rms", "rates": "1", "updates": 20, "seeds": 2, "report": False, "jobs": 1,
               "set": "model.width=16; model.ff=32; model.heads=2; model.layers=1"}
    found = norma.study(tmp_path / "text.txt", tmp_path / "study", options, budget="120s",
                        message=lines.append)
    assert found == json.loads((tmp_path / "study/answer.json").read_text())
    assert any("confirm" in line for line in lines) and "layer" in str(found)
    assert found.winner.model().perplexity(["the cat sees a dog ."]) > 1
    assert norma.Study.open(tmp_path / "study") == found
    with pytest.raises(norma.UsageError, match="nosuch"):
        norma.study(tmp_path / "text.txt", tmp_path / "other", norms="nosuch")
    with pytest.raises(norma.MissingFileError):
        norma.Study.open(tmp_path)


@pytest.mark.parametrize("data, task, columns, files", [
    ([(f"a fine film {i:2}", i % 2) for i in range(40)], None, None, {"csv": "1,a fine film  1"}),
    ([(f"a fine {i:2}", "a") for i in range(40)], "classification", None, {"csv": "a,a fine  1"}),
    ([{"text": f'"a"\n{i:2}', "label": i % 2} for i in range(40)], None, None, {"csv": '1,"""a""\n 1"'}),
    ([f"a text\nof {i:2}" for i in range(40)], None, None, {"txt": "a text of  1"}),
    ([{"translation": {"de": f"ein {i:2}", "en": f"a {i:2}"}} for i in range(40)], None, None,
     {"de": "ein  1", "en": "a  1"}),
    ([{"a": f"ein {i:2}", "b": f"a {i:2}"} for i in range(40)], None, ["b", "a"],
     {"b": "a  1", "a": "ein  1"}),
    ([(["Rome", "is"], ["B-LOC", "O"])] * 40, None, None, {"txt": "Rome\tB-LOC\nis\tO\n"}),
])
def test_rows_of_a_study(data, task, columns, files, tmp_path):
    from norma import _datasets
    folder = _datasets.write_study(data, tmp_path, task, columns)
    for ending, text in files.items():
        parts = [(folder / f"{name}.{ending}").read_text() for name in ("train", "valid", "test")]
        assert text in parts[0] and len(parts[0]) > 10 * len(parts[1]) > 0 and len(parts[2]) == len(parts[1])
    assert len(list(folder.iterdir())) == 3 * len(files)
    parts = {"train": data[:30], "validation": data[30:35], "test": data[35:]}
    again = _datasets.write_study(parts, tmp_path / "parts", task, columns)
    assert sorted(path.name for path in again.iterdir()) == sorted(path.name for path in folder.iterdir())


def test_wrong_rows_of_a_study(tmp_path):
    for data, message in (([("a", "b")] * 30, "give task='translation' or task='classification'"),
                          ([], "no rows"), (["a", "b", "c"], "no rows for valid and test; at least 20"),
                          ({"train": ["a"], "eval": []}, "splits train, eval"),
                          ([{"x": "a", "label": 1}] * 30, "give columns")):
        with pytest.raises(norma.UsageError, match=message):
            norma.study(data, tmp_path / "study")
    with pytest.raises(norma.FileError):
        norma.study(["a.de", "a.en"], tmp_path / "study")  # two paths


def test_study_of_a_dataset(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"text": text, "label": int(label == "good")} for text, label in reviews(200, 1)]
    data = datasets.Dataset.from_list(rows).cast_column("label", datasets.ClassLabel(names=["bad", "good"]))
    shown = norma.Display()
    options = {"norms": "layer,rms", "rates": "1", "updates": 20, "seeds": 2, "report": False, "jobs": 1,
               "set": "model.width=16; model.ff=32; model.heads=2; model.layers=1"}
    found = norma.study(data, tmp_path / "study", options, budget="120s", message=shown)
    assert found.winner.model().classify([rows[0]["text"]])[0].label in ("bad", "good")
    assert "confirm" in "".join(shown.lines) and shown._repr_html_().startswith("<pre>")


NOTEBOOKS = sorted((SOURCE / "examples" / "python").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks(path, tmp_path):
    """Every cell runs; the notebook is saved without outputs."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, 4)
    if "norma.torch" in path.read_text():
        pytest.importorskip("torch")
    assert not any(cell.get("outputs") for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    tables = [output for cell in notebook.cells for output in cell.get("outputs", ())
              if "<table>" in "".join(output.get("data", {}).get("text/html", ""))]
    assert tables or "norma.torch" in path.read_text()
    nbformat.write(notebook, tmp_path / path.name)


def test_display_in_a_terminal(capfd):
    shown = norma.Display()
    shown({"type": "train", "update": 4, "loss": 2.0})
    shown({"type": "valid", "update": 4, "loss": 1.5})
    shown({"type": "valid", "update": 8, "loss": 1.7})
    assert capfd.readouterr().err.splitlines()[1] == "run: update 8, validation loss 1.7000, best 1.5000"
    with pytest.raises(norma.UsageError, match="expected a record"):
        shown(1)
    assert "1.5" in shown._repr_html_()
