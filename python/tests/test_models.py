"""Training, run folders and trained models: results are those of the program."""
import copy
import errno
import json
import math
import os
import pickle
import pydoc
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import norma
from norma._library import library
from small_models import RECIPE, norma_program

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


def test_scores_of_given_translations(folder, texts):
    translator = norma.Translator(folder / "run")
    found = translator.run(texts[:9])
    scored = translator.score(texts[:9], [one[0].text for one in found])
    same = [(a[0], b) for a, b in zip(found, scored) if a[0].tokens == b.tokens]
    assert len(same) > 3 and all(a.token_scores == b.token_scores and a.score == b.score for a, b in same)
    assert translator.score([""], ["x"]) == [None]
    with pytest.raises(norma.UsageError, match="1 sources and 2 targets"):
        translator.score(["a"], ["b", "c"])


def test_prefixes_and_alignments(folder, texts, tmp_path):
    lines, prefixes = texts[:9], ["cat", "", "house cat", *["dog"] * 6]
    (tmp_path / "prefixes").write_text("".join(line + "\n" for line in prefixes))
    program = norma_program("translate", folder / "run", "--prefix", tmp_path / "prefixes", "--json",
                            "--alignment",
                            input="\n".join(lines) + "\n").stdout
    expected = [json.loads(line)["translations"][0] for line in program.splitlines()]
    translator = norma.Translator(folder / "run", alignment=True)
    found = [one[0] for one in translator.run(lines, prefixes)]
    assert [one.text for one in found] == [one["text"] for one in expected]
    assert all(one.text.startswith(prefix) for one, prefix in zip(found, prefixes))
    for one, other in zip(found, expected):
        assert [(w.begin, w.end, w.source) for w in one.words] == [
            (w["begin"], w["end"], w["source"]) for w in other["words"]
        ]
        assert [w.text for w in one.words] == one.text.split() and all(
            one.text[w.begin : w.end] == w.text for w in one.words
        )
    scored = translator.score(["Ein Haus ."], ["A hoüse ☃ x"])[0]
    assert [(w.text, w.begin) for w in scored.words] == [("A", 0), ("hoüse", 2), ("☃", 8), ("x", 10)]
    assert norma.Translator(folder / "run").run(lines)[0][0].words == []
    assert translator.run(lines[:1], [""])[0][0] == translator.run(lines[:1])[0][0]
    phrase, with_tab, phrases = (translator.run(lines[:1], None, [one])[0]
                                 for one in (["dog red"], ["dog\tred"], ["dog", "red"]))
    assert with_tab == phrase != phrases
    with pytest.raises(norma.UsageError, match="1 texts and 2 prefixes"):
        translator.run(["a"], ["b", "c"])


def test_sampled_translations(folder, texts):
    options = {"search": "sample", "nbest": 3, "seed": 5}
    first, again = (norma.Translator(folder / "run", options).run(texts[:9]) for _ in range(2))
    other = norma.Translator(folder / "run", {**options, "seed": 6}).run(texts[:9])
    assert first == again and first != other and all(len(found) == 3 for found in first)


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
    assert [[one.text for one in found] for found in same] == [
        [one.text for one in found] for found in results[:9]
    ]


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
                                  (["a", "b\0c"], norma.FormatError,
                                   "text 1: the character NUL at position 2"),
                                  (["é\ud800"], norma.FormatError,
                                   "text 0: surrogates not allowed at position 3"),
                                  ([b"a"], norma.UsageError, "text 0: expected str, got bytes")):
        with pytest.raises(error, match=message):
            translator.translate(texts)
    for arguments, message in ((("haus",), "texts: expected a list of texts, got one text"),
                               ((None,), "texts = None: expected a list of texts"),
                               ((["haus"], "house"), "prefixes: expected a list of texts, got one text"),
                               ((["haus"], None, "house"),
                                "constraints: expected a list of lists of phrases"),
                               ((["haus"], None, ["house"]),
                                "constraints 0: expected a list of phrases, got one text")):
        with pytest.raises(norma.UsageError, match=message):
            translator.run(*arguments)
    with pytest.raises(norma.UsageError, match="targets = None"):
        translator.score(["haus"], None)
    for stream in (translator.stream, translator.stream_run):
        for texts in ("haus", folder / "test.de"):
            with pytest.raises(norma.UsageError, match="texts = .*: expected a list, a file or an iterator"):
                list(stream(texts))
        with pytest.raises(norma.UsageError, match="batch = 0"):
            list(stream(["haus"], batch=0))
    for path, message in ((None, "path = None: expected a list of paths"), ([], "path: empty"),
                          (["x", ""], "path: empty"),
                          (["a,b", "c"], "must not contain commas"), (3, "path = 3"),
                          ([folder, 3], "path = 3: expected a path"), ("", "path: empty")):
        with pytest.raises(norma.UsageError, match=message):
            norma.Translator(path)
    for options in ("beam=4", ["beam"], {3: 4}):
        with pytest.raises(norma.UsageError,
                           match="options = .*: expected a dict|name of an option = 3: expected a text"):
            norma.Translator(folder / "run", options)


def test_the_character_nul(folder, tmp_path, language_model):
    """In C it would end the text."""
    scorer, tiny = norma.Scorer("accuracy"), RECIPE.format(folder=folder)
    for call, what in ((lambda: norma.Translator(f"{folder}/run\0x"), "path"),
                       (lambda: norma.Translator([folder / "run", f"{folder}/run\0x"]), "path"),
                       (lambda: norma.Translator(folder / "run", {"decode.beam\0x": 3}), "name of an option"),
                       (lambda: norma.Translator(folder / "run", beam="3\0"), "option beam"),
                       (lambda: norma.Translator(folder / "run").option("model.norm\0x"), "name"),
                       (lambda: norma.LanguageModel(language_model).perplexity_of_file(f"{folder}/test.de\0"),
                        "path"),
                       (lambda: norma.train(tiny + "\0", tmp_path / "run"), "recipe"),
                       (lambda: norma.train(tiny, f"{tmp_path}/run\0x"), "folder"),
                       (lambda: norma.train(tiny, tmp_path / "run", {"data.folder": f"{folder}/data\0x"}),
                        "option data.folder"),
                       (lambda: norma.train(tiny, tmp_path / "run", {"data.folder": f"{folder}/data\0x"},
                                            process=True),
                        "option data.folder"),
                       (lambda: norma.compare(tiny, f"{tmp_path}/run\0x"), "folder"),
                       (lambda: norma.Comparison.open(f"{tmp_path}/run\0x"), "folder"),
                       (lambda: norma.prepare(train=folder / "train", output=f"{tmp_path}/run\0x"),
                        "option output"),
                       (lambda: norma.prepare(settings=f"{folder}/data/data.ini\0", output=tmp_path / "run"),
                        "settings"),
                       (lambda: norma.Scorer("bleu\0x"), "metric"),
                       (lambda: scorer.score(f"{folder}/test.de\0", folder / "test.de"), "hypotheses"),
                       (lambda: scorer.score(folder / "test.de", f"{folder}/test.de\0"), "references")):
        with pytest.raises(norma.UsageError, match=rf"^{what}: the character NUL at position \d+$"):
            call()
    assert not list(tmp_path.iterdir())


def test_messages_of_streams_count_from_the_beginning(folder, tagger, classifier, language_model):
    translator, texts = norma.Translator(folder / "run"), ["haus"] * 5
    with pytest.warns(UserWarning, match="text 5 has more than") as caught:
        assert len(list(translator.stream([*texts, "haus " * 200], batch=2))) == 6
    assert caught[0].filename == __file__
    tagger, classifier, language_model = (
        norma.Tagger(tagger),
        norma.Classifier(classifier),
        norma.LanguageModel(language_model),
    )
    for stream, items, error, message in ((translator.stream, [*texts, "a\nb"], norma.FormatError,
                                           "text 5: a line break"),
                                          (translator.stream_run, [*texts, None], norma.UsageError,
                                           "text 5: expected str"),
                                          (language_model.stream, [*texts, "a\nb"], norma.FormatError,
                                           "line 5: a line break"),
                                          (classifier.stream, [*texts, "a\0b"], norma.FormatError,
                                           "text 5: the character"),
                                          (tagger.stream, [["a"]] * 4 + ["a"], norma.UsageError,
                                           "sentence 4: expected a list"),
                                          (tagger.stream, [["a", "b"]] * 4 + [["a", "a\nb"]],
                                           norma.FormatError,
                                           "^sentence 4, token 1: has a line break"),
                                          (tagger.stream, [["a", "b"]] * 3 + [["a"], ["a", 3]],
                                           norma.UsageError,
                                           "^sentence 4, token 1: expected str")):
        with pytest.raises(error, match=message):
            list(stream(items, batch=2))


def test_help_has_the_types():
    text = pydoc.plain(pydoc.render_doc(norma.Translator.translate))
    assert "Any" not in text and "Union[str, Iterable[str]]" in text


# ---- other tasks ----

LM_RECIPE = """[run]
task = lm
[data]
folder = {folder}/lm-data
[model]
preset = tiny
width = 16
ff = 32
heads = 2
context = 16
[train]
updates = 12
max_tokens = 256
score = false
[device]
threads = 1
"""
TAG_RECIPE = """[run]
task = tagging
[data]
train = {folder}/tags.txt
valid = {folder}/tags.txt
[model]
preset = tiny
[train]
epochs = 14
[optim]
name = sgd
[schedule]
name = linear
lr = 0.02
[device]
threads = 1
"""
CLASSIFY_RECIPE = """[run]
task = classification
[data]
train = {folder}/reviews.tsv
batch = 16
[model]
preset = tiny
[train]
max_tokens = 512
epochs = 2
label_smoothing = 0
[optim]
name = adamw
[schedule]
name = constant
lr = 0.01
warmup = 0
[device]
threads = 1
"""


@pytest.fixture(scope="module")
def language_model(folder):
    norma_program("prepare", "--format", "text", "--tokenizer", "moses", "--bpe-merges", 20, "--train",
                  folder / "train.de", "--output", folder / "lm-data")
    return norma.train(LM_RECIPE.format(folder=folder), folder / "run-lm")


@pytest.fixture(scope="module")
def tagger(folder):
    rng = random.Random(4)
    with open(folder / "tags.txt", "w", encoding="utf-8") as out:
        for _ in range(120):
            second = rng.choice(["Ek I-PER\n", ""])
            out.write(f"{rng.choice(['Anna', 'Bernd', 'Zoë'])} B-PER\n{second}lives O\nin O\n"
                      f"{rng.choice(['Rom', 'Bonn'])} B-LOC\n. O\n\n")
    return norma.train(TAG_RECIPE.format(folder=folder), folder / "run-tag")


@pytest.fixture(scope="module")
def classifier(folder):
    rng = random.Random(5)
    with open(folder / "reviews.tsv", "w", encoding="utf-8") as out:
        for _ in range(120):
            word = rng.choice(["great", "fine", "awful", "boring"])
            rest = " ".join(rng.choices("the film plot was quite and its cast".split(), k=rng.randint(2, 7)))
            out.write(f"{'good' if word in ('great', 'fine') else 'bad'}\t{word} {rest}\n")
    return norma.train(CLASSIFY_RECIPE.format(folder=folder), folder / "run-classify")


def test_language_model(language_model, folder):
    lines = (folder / "test.de").read_text(encoding="utf-8").splitlines() + ["", "unbekannte Wörter"]
    (folder / "lines").write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = norma.LanguageModel(language_model, tokens=12, temperature=0.8)
    expected = json.loads(norma_program("perplexity", language_model.path, folder / "lines", "--json").stdout)
    assert model.perplexity(lines) == pytest.approx(expected["perplexity"], rel=1e-5)
    expected = json.loads(norma_program("perplexity", language_model.path, folder / "lines", "--json",
                                        "--interval").stdout)
    measured = model.perplexity_of_file(folder / "lines")
    assert measured._asdict() == {
        **{
            key: expected[key]
            for key in (
                "perplexity",
                "per_word",
                "low",
                "high",
                "tokens",
                "words",
                "unknown",
                "left_out",
                "bits_per_character",
                "perplexity_without_unknown",
                "alphabet",
            )
        },
        "nll": measured.nll,
    }
    assert measured.nll == pytest.approx(expected["nll"] * measured.tokens)
    punctuated = 'Er sagte:\t"Ja, (z.B.)\u00a0das" ...\n\n l\'eau 3.5%!\n'  # more tokens of Moses than words
    (folder / "punctuated").write_text(punctuated, encoding="utf-8")
    counted = model.perplexity_of_file(folder / "punctuated")
    assert counted.words == len(punctuated.split()) + 3 and counted.per_word >= math.exp(
        counted.nll / counted.words
    )
    with pytest.raises(norma.FileError, match="nowhere"):
        model.perplexity_of_file("nowhere")
    with pytest.raises(FileNotFoundError):
        model.perplexity_of_file("nowhere")
    (folder / "one-word").write_text("a-" * 2000 + "\n", encoding="utf-8")
    assert model.perplexity_of_file(folder / "one-word").per_word == math.inf
    assert json.loads(norma_program("perplexity", language_model.path, folder / "one-word",
                                    "--json").stdout)["per_word"] is None
    scores = model.score(lines)
    for line in scores:
        assert line.log_probability == pytest.approx(sum(line.token_scores)) and len(line.tokens) == len(
            line.token_scores
        )
    assert model.score(lines[3:4]) == scores[3:4]  # every line is a text
    assert model.score(lines, text=True)[0] == scores[0] and model.score(lines, text=True)[3] != scores[3]
    expected = norma_program("generate", language_model.path, "--prompt", lines[0], "--bare", "--tokens", 12,
                             "--temperature", 0.8).stdout
    got = model.generate(lines[:3])
    assert got[0].split() == expected.split() and len(got) == 3
    assert model.generate(lines[2:3], first=2) == got[2:]
    assert model.generate([]) == [] and model.score([]) == []
    for first in (-1, 2**64, 1.5):
        with pytest.raises(norma.UsageError, match=f"first = {first}: expected an integer from 0"):
            model.generate(lines[:1], first)


def test_stop_strings(language_model):
    prompts = ["der hund", "", "die katze", "das haus"] * 3
    options = {"tokens": 12, "seed": 3, "threads": 1}
    whole = norma.LanguageModel(language_model, options).generate(prompts)
    word = next(word for text in whole for word in text.split()[1:])
    stops = [word[1:], " " + word[:2]]
    for stop in (stops, tuple(stops), word[1:]):
        cut = norma.LanguageModel(language_model, options, stop=stop).generate(prompts)
        strings = [stop] if isinstance(stop, str) else stop
        for prompt, text, got in zip(prompts, whole, cut):
            text = " " * bool(prompt) + text  # the space after the prompt
            end = min((text.index(string) for string in strings if string in text), default=len(text))
            assert got == text[:end][bool(prompt):]
        assert cut != whole
    assert norma.LanguageModel(language_model, options, stop=[]).generate(prompts) == whole
    assert norma.LanguageModel(language_model, options, repetition_penalty=5).generate(prompts) != whole
    with pytest.raises(norma.UsageError, match="repetition_penalty = 0: outside"):
        norma.LanguageModel(language_model, repetition_penalty=0)


def test_documents(folder):
    stories = [f"Story {i}\n\n  A cat sat.\n\tThe end." for i in range(40)]
    with open(folder / "stories.jsonl", "w", encoding="utf-8") as out:
        out.writelines(json.dumps({"text": story}) + "\n" for story in stories)
    norma_program("prepare", "--format", "text", "--tokenizer", "byte_level", "--documents", "separated",
                  "--document-separator",
                  "====", "--bpe-merges", 40, "--train", folder / "stories.jsonl", "--output",
                  folder / "story-data")
    run = norma.train(LM_RECIPE.format(folder=folder).replace("lm-data", "story-data"),
                      folder / "run-stories")
    model = norma.LanguageModel(run, temperature=0, tokens=60)
    scores = model.score([stories[7], stories[7] + "\n"])
    assert (
        "".join(scores[0].tokens[:-1]).replace("Ġ", " ").replace("Ċ", "\n").replace("ĉ", "\t") == stories[7]
    )
    assert scores[0].tokens[-1] == "</s>" and len(scores[1].tokens) > len(scores[0].tokens)
    (folder / "stories").write_text(f"{stories[7]}\n====\n{stories[8]}\n", encoding="utf-8")
    measured = model.perplexity_of_file(folder / "stories")
    assert measured.tokens == sum(len(score.tokens) for score in model.score(stories[7:9]))
    lines = norma.LanguageModel(run, **{"perplexity.documents": "line"})
    assert lines.perplexity_of_file(folder / "stories").nll != measured.nll
    with pytest.raises(norma.FormatError, match="line 0: a line break"):
        lines.score(stories[:1])
    texts = model.generate([stories[7][:20]])
    assert texts[0].count("\n") <= 3


def test_tagger(tagger, folder):
    sentences = [line.split() for line in ("Zoë Ek lives in Rom .", "Anna", "Unknown lives in Bonn .")]
    (folder / "names").write_text("".join(" ".join(tokens) + "\n" for tokens in sentences), encoding="utf-8")
    output = norma_program("tag", tagger.path, folder / "names", "--input-format", "text", "--scheme",
                           "bio").stdout
    expected = [[line.split()[-1] for line in block.split("\n") if line]
                for block in output.strip().split("\n\n")]
    model = norma.Tagger(tagger, {"tag.scheme": "bio"})
    results = model.tag(sentences)
    assert [one.tags for one in results] == expected
    assert results[0].spans == [(0, 2, "PER"), (4, 5, "LOC")] and not results[0].in_pieces
    assert {"O", "B-PER", "I-PER", "B-LOC"} <= set(model.tags)
    assert model.file_scheme == "bio"
    assert model.tag([]) == []
    with pytest.raises(norma.FormatError, match="^sentence 2, token 1: is empty"):
        model.tag([["a"], [], ["a", ""]])
    with pytest.raises(norma.FormatError, match="^sentence 1, token 0: the character NUL at position 2"):
        model.tag([["a", "b"], ["a\0"]])
    with pytest.raises(norma.UsageError, match="sentence 1: expected a list of tokens, got one text"):
        model.tag([["Anna"], "Anna lives"])


def test_classifier(classifier, folder):
    texts = ["great film", "boring plot and cast", "unknown wörd", "", "awful\nfilm"]
    (folder / "texts").write_text("".join(text.replace("\n", " ") + "\n" for text in texts), encoding="utf-8")
    output = norma_program("classify", classifier.path, folder / "texts",
                           "--probabilities").stdout.splitlines()
    names = output[0].split("\t")[1:]
    rows = [line.split("\t") for line in output[1:]]
    model = norma.Classifier(classifier)
    results = model.classify(texts)
    assert [one.label for one in results] == [row[0] for row in rows] and {"good", "bad"} == {*names} == {
        *model.labels
    }
    for one, row in zip(results, rows):
        assert [one.probabilities[name] for name in names] == pytest.approx(
            [float(p) for p in row[1:]], abs=1e-5
        )
        assert sum(one.probabilities.values()) == pytest.approx(1) and not one.truncated
    assert model.classify([]) == []


def test_options_and_streams(folder, tagger, classifier, language_model):
    translator = norma.Translator(folder / "run", nbest=2)
    assert translator.option("model.norm") == "power" and translator.option("decode.nbest") == "2"
    assert translator.option("model.nothing") is None
    lines = ["haus rot", "baum läuft", "hund"]
    assert list(translator.stream_run(lines, batch=2)) == translator.run(lines)
    assert list(translator.stream(iter(lines), batch=1)) == translator.translate(lines)
    for model, call, items in ((norma.Tagger(tagger), "tag", [["Anna", "x"], ["y"], ["z"]]),
                               (norma.Classifier(classifier), "classify", ["a", "b c", "d"]),
                               (norma.LanguageModel(language_model), "score", lines)):
        assert list(model.stream(items, batch=2)) == getattr(model, call)(items)


def test_context_managers(folder, language_model, tagger, classifier):
    """``with`` frees the model at its end; a call of another thread finishes first."""
    for kind, path, call, items in ((norma.Translator, folder / "run", "run", ["haus rot", "hund"]),
                                    (norma.LanguageModel, language_model, "score", ["haus rot", "hund"]),
                                    (norma.Tagger, tagger, "tag", [["Anna", "x"]]),
                                    (norma.Classifier, classifier, "classify", ["a", "b c"]),
                                    (norma.Scorer, "bleu", "score", ["a b c d"])):
        with kind(path) as model:
            memory, run = weakref.ref(model._handle), getattr(model, call)
            arguments = [items, items] if kind is norma.Scorer else [items]
            before, done = run(*arguments), []

            def work():
                try:
                    for _ in range(2000):  # not forever if ``close`` does nothing
                        done.append(run(*arguments))
                except norma.UsageError as problem:
                    done.append(str(problem))
            thread = threading.Thread(target=work)
            thread.start()
            while not done:
                time.sleep(0.001)
        thread.join()
        assert done.pop() == f"this {kind.__name__} is closed" and memory() is None
        if kind is norma.Scorer:
            assert {one.value for one in done} == {before.value}
        else:
            assert all(one == before for one in done)
        for use in (model.__enter__, lambda: run(*arguments)):
            with pytest.raises(norma.UsageError, match=f"this {kind.__name__} is closed"):
                use()
        model.close()
    with norma.score("bleu", ["a b c d"], ["a b c d"]) as scores:
        pass
    assert scores.value == 100
    with pytest.raises(norma.UsageError, match="this Scores is closed"):
        scores.interval()


def test_load(folder, language_model, tagger, classifier):
    kinds = {folder / "run": norma.Translator, language_model: norma.LanguageModel, tagger: norma.Tagger,
             classifier: norma.Classifier}
    for path, kind in kinds.items():
        assert type(norma.load(path)) is kind
        for other in kinds.values():
            if other is not kind:
                with pytest.raises(norma.UnsupportedError, match="task of the model is"):
                    other(path)
    with pytest.raises(norma.FileError):
        norma.load(folder / "nowhere")
    assert norma.load(folder / "run", {"decode.beam": 2}, nbest=2).nbest == 2
    assert norma.load(iter([folder / "run", folder / "run"]), nbest=2).nbest == 2


def test_load_with_options_of_the_task(folder, language_model, tagger, classifier):
    assert len(norma.load(language_model, {"perplexity.context": 4},
                          tokens=3).generate(["haus"])[0].split()) <= 3
    assert norma.load(tagger, {"tag.scheme": "bio"}, threads=1).tag([["Anna"]])
    for path, options, message in ((language_model, {"beam": 2}, "sample.beam"),
                                   (tagger, {"tokens": 3}, "tag.tokens"),
                                   (classifier, {"scheme": "bio"}, "device.scheme")):
        with pytest.raises(norma.UsageError, match=f"unknown option {message}"):
            norma.load(path, options)
    for path in ([language_model, language_model], [folder / "run", language_model]):
        with pytest.raises(norma.UnsupportedError,
                           match="run-lm.*: the task of the model is lm, not translation"):
            norma.load(path)
    for kind, path in ((norma.LanguageModel, language_model), (norma.Tagger, tagger),
                       (norma.Classifier, classifier)):
        with pytest.raises(norma.UsageError, match="path: 2 paths; only translation models form ensembles"):
            kind([path, path])


def test_run_folder(folder):
    run = norma.Run(folder / "run")
    assert run.config["model"]["norm"] == "power" and run.config["data"]["folder"] == f"{folder}/data"
    assert run.log.types[0] == "start" and {"train", "valid"} <= set(run.log.types)
    train, valid = run.log["train"], run.log["valid"]
    assert isinstance(train["loss"], np.ndarray) and train["update"].tolist() == [4, 8, 12]
    assert valid["update"].tolist() == [6, 12] and valid["best"].dtype == bool
    assert (valid["batch_loss"] > 0).all() and run.log["nothing"] == {}
    assert repr(run.log) == f"<norma.Log, {len(run.log.records)} records: {', '.join(run.log.types)}>"
    with pytest.raises(FileNotFoundError, match="nowhere: No such file") as missing:
        norma.Run(folder / "nowhere")
    assert missing.value.filename == str(folder / "nowhere")
    with pytest.raises(norma.FileError, match="config.ini: not a folder"):
        norma.Run(folder / "run" / "config.ini")


def test_incomplete_and_damaged_logs(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"type":"train","loss":1.5,"x":null}\n'
                                        '{"type":"train","loss":2,"lr":[1]}\n{"ty')
    run = norma.Run(tmp_path)
    assert run.log["train"]["loss"].tolist() == [1.5, 2] and np.isnan(run.log["train"]["x"]).all()
    assert run.log["train"]["lr"].tolist() == [None, [1]]
    (tmp_path / "log.jsonl").write_text('{"type":"train"}\n[1]\n')
    with pytest.raises(norma.FormatError, match="log.jsonl:2"):
        run.log
    with pytest.raises(norma.FileError, match="config.ini: No such file"):
        run.config


def tensors(run):
    """Bytes of the tensors of the last model."""
    data = (run.path / "last.safetensors").read_bytes()
    return data[8 + int.from_bytes(data[:8], "little"):]


def losses(run):
    return [(record["type"], record["loss"]) for record in run.log.records if "loss" in record]


def test_training_is_that_of_the_program(folder, tmp_path):
    recipe = tmp_path / "recipe.ini"
    recipe.write_text(RECIPE.format(folder=folder))
    norma_program("train", recipe, "--run.folder", tmp_path / "program", "--run.quiet", "--train.seed", 3)
    progress, validations, records = [], [], []
    run = norma.train(recipe, tmp_path / "here", {"train.seed": 3}, callback=records.append,
                      callbacks=norma.Callbacks(progress.append, validations.append))
    program = norma.Run(tmp_path / "program")
    assert tensors(run) == tensors(program) and losses(run) == losses(program)
    assert [p.update for p in progress] == list(range(1, 13)) and progress[-1].updates == 12
    assert [v.loss for v in validations] == pytest.approx(run.log["valid"]["loss"].tolist(), rel=1e-8)
    assert validations[0].best and validations[0].score_name is None and np.isnan(validations[0].score)
    assert records == run.log.records
    other = norma.train(recipe, tmp_path / "process", {"train.seed": 3}, process=True)
    assert tensors(other) == tensors(run)
    with pytest.raises(norma.UsageError, match="process"):
        norma.train(recipe, tmp_path / "x", process=True, callbacks=norma.Callbacks())


def test_best_validation_and_model_of_a_run(folder, tmp_path):
    run = norma.Run(folder / "run")
    losses = list(run.log["valid"]["loss"])
    assert run.best["loss"] == min(losses) and run.best["update"] in list(run.log["valid"]["update"])
    with run.model(threads=1) as model:
        assert model.translate(["haus"]) == norma.Translator(folder / "run").translate(["haus"])
    (tmp_path / "log.jsonl").write_text('{"type": "start"}\n')
    with pytest.raises(norma.UsageError, match="no validation in log.jsonl yet"):
        norma.Run(tmp_path).best


def test_a_separate_training_ends_with_its_python_process(folder, tmp_path):
    call = (f"import norma; norma.train({RECIPE.format(folder=folder)!r}, {str(tmp_path / 'run')!r}, "
            "{'train.updates': 10**7, 'train.save_every': 1}, process=True)")
    parent = subprocess.Popen([sys.executable, "-c", call])
    lock, model = tmp_path / "run" / ".lock", tmp_path / "run" / "last.safetensors"

    def wait(condition):
        end = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < end and parent.returncode != 0
            time.sleep(0.05)
    wait(model.exists)
    program = int(lock.read_text())
    parent.kill()
    parent.wait()
    wait(lambda: not lock.exists())  # it has written a checkpoint and ended
    wait(lambda: not os.path.exists(f"/proc/{program}"))


def test_a_model_file_may_be_overwritten_while_it_is_open(folder, tmp_path):
    path = tmp_path / "model.safetensors"
    shutil.copy(folder / "run" / "best.safetensors", path)
    model = norma.Translator(path)
    with open(path, "r+b") as file:
        file.truncate(0)
    assert model.translate(["haus"]) == norma.Translator(folder / "run").translate(["haus"])


@pytest.mark.parametrize("process", [False, True])
def test_training_stops_at_an_exception_and_resumes(folder, tmp_path, process):
    recipe = RECIPE.format(folder=folder)
    seen = []

    def stop(record):
        seen.append(record)
        if record["type"] == "valid":
            raise RuntimeError("enough")
    with pytest.raises(RuntimeError, match="enough"):
        norma.train(recipe, tmp_path / "stopped", {"train.updates": 100000}, callback=stop, interval=0.02,
                    process=process)
    assert list((tmp_path / "stopped" / "checkpoints").glob("*.safetensors"))
    reached = norma.Run(tmp_path / "stopped").log["train"]["update"]
    resumed = []
    run = norma.train(recipe, tmp_path / "stopped", {"train.updates": 6
                                                     * (int(max(reached, default=0)) // 6 + 3)},
                      resume=True, callback=resumed.append, process=process)
    assert run.log["valid"]["update"][-1] == 6 * (int(max(reached, default=0)) // 6 + 3)
    whole = norma.train(recipe, tmp_path / "whole", {"train.updates": int(run.log["valid"]["update"][-1])})
    assert tensors(run) == tensors(whole)


def test_process_stops_where_sigint_is_ignored(folder, tmp_path):
    """As in a job of nohup, whose children ignore SIGINT, too."""
    def stop(record):
        raise RuntimeError("enough")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(RuntimeError, match="enough"):
            norma.train(RECIPE.format(folder=folder), tmp_path / "run", {"train.updates": 2000},
                        callback=stop, interval=0.02, process=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert max(norma.Run(tmp_path / "run").log["train"].get("update", [0])) < 2000


def test_interrupt_stops_the_training(folder, tmp_path):
    """SIGINT in the main thread, after the first update; the handler of the process is restored."""
    updates = []

    def progress(update):
        updates.append(update.update)
        if len(updates) == 2:
            os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        norma.train(RECIPE.format(folder=folder), tmp_path / "stopped", {"train.updates": 100000},
                    callbacks=norma.Callbacks(progress))
    assert 2 <= updates[-1] <= 3 and list((tmp_path / "stopped" / "checkpoints").glob("*.safetensors"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def interrupted(monkeypatch):
    """interrupted(call, error): a signal interrupts a call of the main thread soon after its beginning. The
    library ends it with NM_INTERRUPTED, and the exception of the handler is raised."""
    lib, statuses = library(), []

    def with_signal(function):
        def call(*arguments):
            if threading.current_thread() is not threading.main_thread():
                return function(*arguments)
            timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            statuses.append(function(*arguments))
            timer.join()
            return statuses[-1]
        return call

    def run(call, error, handler=signal.default_int_handler):
        before = signal.signal(signal.SIGINT, handler)
        try:
            with monkeypatch.context() as patch:
                for name in ("nm_translator_run", "nm_translator_score", "nm_language_model_generate",
                             "nm_scorer_run", "nm_scorer_run_files", "nm_scores_compare"):
                    patch.setattr(lib, name, with_signal(getattr(lib, name)))
                with pytest.raises(error):
                    call()
            assert statuses[-1] == 9 and signal.getsignal(signal.SIGINT) is handler
        finally:
            signal.signal(signal.SIGINT, before)
    return run


@pytest.mark.parametrize("threads", [1, 2])
def test_interrupt_ends_translations(folder, texts, threads, interrupted):
    """The translator can be used again."""
    class Stopped(Exception):
        pass

    def handler(*_):
        raise Stopped
    translator = norma.Translator(folder / "run", threads=threads, beam=5, min_length=50, max_length_b=50)
    expected = translator.translate(texts[:4])
    many = texts[:9] * 3000
    for call in (lambda: translator.translate(many), lambda: list(translator.stream(many, batch=len(many))),
                 lambda: translator.score(many * 8, many * 8)):
        interrupted(call, KeyboardInterrupt)
        interrupted(call, Stopped, handler)
        assert translator.translate(texts[:4]) == expected


def test_interrupt_ends_a_generation(language_model, interrupted):
    model = norma.LanguageModel(language_model, tokens=10**9)
    interrupted(lambda: model.generate(["a"]), KeyboardInterrupt)


def test_interrupt_ends_scoring(tmp_path, interrupted):
    """The scorer and the scores can be used again."""
    hypotheses = [" ".join(str(i * j % 97) for j in range(1, 30)) for i in range(1, 400)]
    references = [" ".join(text.split()[::-1]) for text in hypotheses]
    for name, texts in (("hyp", hypotheses), ("ref", references)):
        (tmp_path / name).write_text("\n".join(texts * 20) + "\n")
    scorer = norma.Scorer("ter", bootstrap=10**7)
    small = scorer.score(hypotheses[:9], references[:9])
    for call in (lambda: scorer.score(hypotheses * 20, references * 20),
                 lambda: scorer.score(tmp_path / "hyp", tmp_path / "ref"),
                 lambda: small.compare(small)):
        interrupted(call, KeyboardInterrupt)
        assert scorer.score(hypotheses[:9], references[:9]).segments == small.segments
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        small.interval()
    timer.join()
    few = norma.score("ter", hypotheses[:9], references[:9])
    assert few.interval().low <= few.value <= few.interval().high


def test_signal_without_exception_does_not_end_a_call(folder, texts):
    translator, signals = norma.Translator(folder / "run", threads=1), []
    before = signal.signal(signal.SIGINT, lambda *_: signals.append(len(signals)))
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        found = translator.translate(texts[:9] * 300)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert found == translator.translate(texts[:9]) * 300 and signals == [0]


def test_interrupt_in_the_main_thread_does_not_end_calls_of_others(folder, texts, interrupted):
    translator, found = norma.Translator(folder / "run", threads=1, min_length=50, max_length_b=50), []
    thread = threading.Thread(target=lambda: found.append(translator.translate(texts[:9] * 100)))
    thread.start()
    interrupted(lambda: translator.translate(texts[:9] * 3000), KeyboardInterrupt)
    thread.join()
    assert found == [translator.translate(texts[:9]) * 100]


def test_interrupt_while_a_training_is_freed(folder, tmp_path, monkeypatch):
    """The handler of SIGINT finds no training: its memory is free."""
    lib, stopped = library(), []
    free = lib.nm_training_close

    def close(handle):
        free(handle)
        os.kill(os.getpid(), signal.SIGINT)
    monkeypatch.setattr(lib, "nm_training_close", close)
    monkeypatch.setattr(lib, "nm_training_stop", lambda handle: stopped.append(handle.value))
    with pytest.raises(KeyboardInterrupt):
        norma.train(RECIPE.format(folder=folder), tmp_path / "run", {"train.updates": 2})
    assert stopped == [None]


def test_exit_during_the_call_of_a_daemon_thread(folder):
    """The memory of models is not freed when the interpreter exits."""
    code = """if True:
        import sys, threading, norma
        model, norm = norma.Translator(sys.argv[1], threads=1), norma.Norm("layer", 64, threads=1)
        begun = threading.Event()
        rows = __import__("numpy").ones((20000, 64), "float32")
        def work(call, *arguments):
            while True:
                call(*arguments)
                begun.set()
        for call in (lambda: model.translate(["haus rot hund ."] * 50), lambda: norm.forward(rows)):
            threading.Thread(target=work, args=(call,), daemon=True).start()
            begun.wait()
            begun.clear()"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code, str(folder / "run")], stderr=subprocess.PIPE,
                              text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_other_threads_run_during_a_training(folder, tmp_path):
    """The interpreter lock is released: a thread counts while the main thread trains."""
    counts, done = [0], threading.Event()

    def count():
        while not done.wait(0.001):
            counts[0] += 1
    thread = threading.Thread(target=count)
    thread.start()
    norma.train(RECIPE.format(folder=folder), tmp_path / "run",
                {"train.updates": 40, "train.validate_every": 1000})
    done.set()
    thread.join()
    assert counts[0] > 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_exception_of_a_signal_handler_stops_the_training(folder, tmp_path, number):
    """A handler runs anywhere in a callback, also where ctypes discards its exception."""
    def handler(*_):
        sys.exit(75)
    before = signal.signal(number, handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), number))
    try:
        timer.start()
        with pytest.raises(SystemExit, match="75"):
            norma.train(RECIPE.format(folder=folder), tmp_path / "run",
                        {"train.updates": 20000, "train.validate_every": 100000})
        assert signal.getsignal(number) is handler
    finally:
        timer.cancel()
        signal.signal(number, before)
    assert max(norma.Run(tmp_path / "run").log["train"].get("update", [0])) < 20000
    assert list((tmp_path / "run" / "checkpoints").glob("*.safetensors"))


def test_messages_of_training(folder, tmp_path):
    """Warnings are those of the module, without a prefix; notes are for the callback only."""
    recipe = RECIPE.format(folder=folder).replace("[train]\n", "[train]\nbest_by = score\n")
    recipe += "[size.1000]\ntrain.label_smoothing = 0\n"
    lines = []
    norma.train(recipe, tmp_path / "callback", {"train.updates": 1},
                callbacks=norma.Callbacks(message=lines.append))
    expected = [line[len("warning: "):] for line in lines if line.startswith("warning: ")]
    assert len(lines) > len(expected) > 0 and any(
        "the recipe sets train.label_smoothing = 0" in line for line in lines
    )
    with pytest.warns(UserWarning) as caught:
        norma.train(recipe, tmp_path / "module", {"train.updates": 1})
    assert [(str(one.message), one.filename) for one in caught] == [(line, __file__) for line in expected]
    plain, few = RECIPE.format(folder=folder), {"train.updates": 1, "train.validate_every": 1}
    for call, match in ((lambda: norma.train(plain, tmp_path / "t",
                                             {"train.updates": 1, "device.threads": 500}), "threads"),
                        (lambda: norma.compare(plain, tmp_path / "compared",
                                               "layer,same=layer:train.log_every=2", few),
                         "the trained weights are identical")):
        with pytest.warns(UserWarning, match=match) as caught:
            call()
        assert {one.filename for one in caught} == {__file__}, match


def test_lists_as_values(folder, tmp_path):
    """Only the last value would have an effect."""
    for call in (lambda: norma.prepare(train=[folder / "train", folder / "valid"], output=tmp_path / "x"),
                 lambda: norma.train(RECIPE.format(folder=folder), tmp_path / "x", {"train.seed": [1, 2]}),
                 lambda: norma.train(RECIPE.format(folder=folder), tmp_path / "x", {"train.seed": [1, 2]},
                                     process=True),
                 lambda: norma.compare(RECIPE.format(folder=folder), tmp_path / "x", "layer", seeds=[3, 7])):
        with pytest.raises(norma.UsageError, match=r"option \S+ = \[.*\]: expected a text, a number"):
            call()


@pytest.mark.parametrize("process", [False, True])
def test_errors_of_training(folder, tmp_path, process):
    with pytest.raises(norma.UsageError, match="train.updatse"):
        norma.train(RECIPE.format(folder=folder), tmp_path / "x", {"train.updatse": 4}, process=process)
    with pytest.raises(norma.FileError, match="no-such-recipe"):
        norma.train("no-such-recipe.ini", tmp_path / "x", process=process)
    for wrong in (print, {"progress": print}):
        with pytest.raises(norma.UsageError, match="callbacks = .*: expected norma.Callbacks"):
            norma.train(RECIPE.format(folder=folder), tmp_path / "x", callbacks=wrong, process=process)
    for arguments, message in (((None, tmp_path / "x"), "recipe = None: expected a path"),
                               (("translate", None), "folder = None"),
                               (("translate", ""), "folder: empty"), (("", tmp_path / "x"), "recipe: empty"),
                               (("translate", tmp_path / "x", [("a", "b")]), "expected a dict")):
        with pytest.raises(norma.UsageError, match=message):
            norma.train(*arguments, process=process)
    with pytest.raises(norma.UsageError, match="resume"):
        norma.train("no-such-recipe.ini", tmp_path / "x", resume="yes", process=process)
    with pytest.raises(norma.UsageError, match="run"):
        norma.train(RECIPE.format(folder=folder), folder / "run", process=process)


def test_recipes_by_name(folder, tmp_path):
    """The recipe is found, its data are not."""
    for recipe in ("multi30k-de-en", "multi30k-de-en.ini", "pn/table3-ptb-ln"):
        for process in (False, True):
            with pytest.raises(FileNotFoundError,
                               match="nowhere/data.ini: No such file: data.folder") as missing:
                norma.train(recipe, tmp_path / "x", {"data.folder": tmp_path / "nowhere"}, process=process)
            assert (
                missing.value.filename == f"{tmp_path}/nowhere/data.ini"
                and missing.value.errno == errno.ENOENT
            )
        with pytest.raises(norma.FileError, match="nowhere"):
            norma.compare(recipe, tmp_path / "x", "layer", {"data.folder": tmp_path / "nowhere"})
    for call in (norma.train, norma.compare):
        with pytest.raises(norma.MissingFileError,
                           match="no-such/recipe: No such file, and no recipe of this name"):
            call("no-such/recipe", tmp_path / "x")


def test_version_and_names():
    """As the program and tracebacks print them."""
    assert f"norma {norma.__version__}\n" == norma_program("--version").stdout
    with pytest.raises(AttributeError, match="module 'norma' has no attribute 'nothing'"):
        norma.nothing
    errors = [value for value in map(norma.__dict__.get, norma.__all__) if isinstance(value, type)
              and issubclass(value, norma.Error)]
    assert {kind.__module__ for kind in errors} == {"norma"} and norma.MissingFileError in errors
    for kind in errors:
        problem = pickle.loads(pickle.dumps(kind("nowhere: No such file or directory")))
        assert type(problem) is kind and str(problem) == "nowhere: No such file or directory"


# ---- data folders and scores ----

def test_files_of_an_editable_installation(tmp_path, monkeypatch):
    """The package has two folders: that of the sources, and that of what was built."""
    from norma._library import library_path
    from norma._runs import _recipe_file, program_path
    if os.path.exists(os.path.join(os.path.dirname(norma.__file__), "libnorma.so")):
        pytest.skip("the package has one folder")
    for name in ("NORMA_LIBRARY", "NORMA_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(norma, "__path__", [str(tmp_path), *norma.__path__])
    made = [tmp_path / name for name in ("libnorma.so", "bin/norma", "share/norma/recipes/of-test.ini")]
    for path in made:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    assert [library_path(), program_path(), _recipe_file("of-test")] == list(map(str, made))


def test_library_of_another_version():
    """As in an editable installation, when the library was not built again."""
    from norma._library import Library
    with pytest.raises(ImportError, match="is of another version, without nm_backend_create"):
        Library(next(line.split()[-1] for line in open("/proc/self/maps") if "/libc" in line
                     or "libm.so" in line))


def test_data_folders_are_those_of_the_program(folder, tmp_path):
    steps = []
    prepared = norma.prepare(train=folder / "train", valid=folder / "valid", test=folder / "test",
                             source_lang="de",
                             target_lang="en", output=tmp_path / "data", joint=True, tokenizer="moses",
                             bpe_merges=40,
                             progress=lambda step, lines: steps.append((step, lines)))
    files = sorted(path.name for path in (folder / "data").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "data").iterdir()) and len(files) > 10
    files.remove("checksums.xxh128")  # of data.ini, too, which has the name of the folder
    for name in files:
        expected = (
            (folder / "data" / name)
            .read_bytes()
            .replace(b"%s/data" % bytes(folder), b"%s/data" % bytes(tmp_path))
        )
        assert (tmp_path / "data" / name).read_bytes() == expected, name
    assert (
        prepared.splits["train"].kept == 150 and prepared.splits["valid"].lines == 8 and prepared.merges == 40
    )
    assert [side.name for side in prepared.sides] == ["source",
                                                      "target"] and prepared.folder == str(tmp_path / "data")
    assert steps[0] == ("train", 0) and ("train", 150) in steps and steps[-1] == ("ids", 0)
    again = norma.prepare(settings=tmp_path / "data" / "data.ini", output=tmp_path / "again")
    assert again._replace(folder="") == prepared._replace(folder="")


def test_preparation_ends_at_an_exception(folder, tmp_path):
    options = {"train": folder / "train", "source_lang": "de", "target_lang": "en",
               "output": tmp_path / "data"}

    def fail(step, lines):
        raise RuntimeError(step)
    with pytest.raises(RuntimeError, match="train"):
        norma.prepare(options, progress=fail)
    assert not (tmp_path / "data").exists()
    with pytest.raises(KeyboardInterrupt):
        norma.prepare(options, progress=lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with pytest.warns(UserWarning, match="% of the training pairs were dropped"):
        norma.prepare(options, max_length=5)
    with pytest.raises(norma.UsageError, match="bpe_merge"):
        norma.prepare(options, bpe_merge=3)
    with pytest.raises(norma.FileError, match="nowhere"):
        norma.prepare(options, train=tmp_path / "nowhere")


def test_scores_are_those_of_the_program(folder, tmp_path):
    reference = (folder / "test.en").read_text(encoding="utf-8").splitlines()
    hypotheses = [line.replace("a", "e") if i % 2 else line for i, line in enumerate(reference)]
    (tmp_path / "hyp").write_text("".join(line + "\n" for line in hypotheses), encoding="utf-8")
    for metric, options in (("bleu", {}), ("bleu", {"metric_variant": "multi-bleu"}),
                            ("bleu", {"tokenize": "intl"}), ("chrf", {"word_order": 2}), ("ter", {})):
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        expected = json.loads(norma_program("score", metric, tmp_path / "hyp", "--reference",
                                            folder / "test.en", "--json",
                                            *words).stdout)
        scores = norma.score(metric, hypotheses, reference, **options)
        assert (scores.value, scores.line, scores.signature) == (
            expected["score"],
            expected["line"],
            expected["signature"],
        )
        assert scores.interval()._asdict() == expected["interval"] and len(scores) == len(
            scores.segments
        ) == len(reference)
        files = norma.score(metric, tmp_path / "hyp", folder / "test.en", **options)
        assert files.segments == scores.segments and float(files) == scores.value
        perfect = norma.Scorer(metric, options).score(reference, reference)
        assert perfect.compare(scores).p < 0.5 and perfect.compare(perfect).p == 1
        with pytest.raises(norma.MismatchError, match="different references"):
            perfect.compare(norma.score(metric, reference, hypotheses, **options))


def test_objects_cannot_be_copied(folder):
    """A copy would have the address of memory of this process."""
    scores = norma.score("bleu", ["a b c d"], ["a b c d"])
    for one in (scores, norma.Scorer("bleu"), norma.Translator(folder / "run")):
        for function in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=f"{type(one).__name__} cannot be copied or pickled; "):
                function(one)


def test_scores_of_labels_and_tags():
    assert norma.score("accuracy", ["a", "b"], ["a", "c"], bootstrap=0).value == 50
    assert norma.score("accuracy", ["a", "b"], ["a", "c"], bootstrap=0).interval() is None
    f1 = norma.score("f1", ["B-PER I-PER O", "O"], ["B-PER I-PER O", "B-LOC"])
    assert f1.segments == [100, 0] and "precision 100.00, recall 50.00" in f1.line
    for problem, match, arguments in (
            (norma.UsageError, "available: bleu", ("rouge", ["a"], ["a"])),
            (norma.MismatchError, "1 hypotheses, 2 references", ("bleu", ["a"], ["a", "b"])),
            (norma.UsageError, "all be files", ("bleu", ["a"], "file")),
            (norma.UsageError, "0 references", ("bleu", ["a"])),
            (norma.UsageError, "got a list of list; each reference is an argument", ("bleu", ["a"], [["a"]])),
            (norma.UsageError, "hypotheses = None: expected a list", ("bleu", None, ["a"])),
            (norma.UsageError, "hypothesis 0: expected str, got int", ("accuracy", [1, 2], [1, 3])),
            (norma.UsageError, "hypotheses: empty", ("bleu", "", "text")),
            (norma.UsageError, "metric = None", (None, ["a"], ["a"])),
            (norma.UsageError, "no segments", ("bleu", [], [])),
            (norma.FormatError, 'hypothesis 0: "Bad" is not a tag', ("f1", ["Bad"], ["O"])),
            (norma.FormatError, "reference 0: a line break", ("ter", ["B"], ["O\nO"])),
            (norma.FileError, "nowhere", ("bleu", "/nowhere", "/nowhere"))):
        with pytest.raises(problem, match=match):
            norma.score(*arguments)


def test_a_log_is_finite():
    log = norma.Log([{"type": "start"}, {"type": "train", "loss": 2.0}, {"type": "train", "loss": 1.0}])
    assert list(log) == log.keys() == ["start",
                                       "train"] and len(log) == 2 and "train" in log and "valid" not in log
    assert list(log["train"]["loss"]) == [2.0, 1.0] and set(dict(log)) == {"start", "train"}
    with pytest.raises(TypeError):
        log[0]


def test_device(monkeypatch, tmp_path):
    from norma._device import with_device
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cuda = {"beam": 2, "device.backend": "cuda", "device.cache": str(tmp_path / "norma")}
    assert with_device({"beam": 2, "device": "cuda"}) == cuda
    assert with_device({"device": "cuda:1", "beam": 2}) == {**cuda, "device.ordinal": "1"}
    assert with_device({"device": "cpu"}) == {"device.backend": "cpu"}
    assert with_device({"device.backend": "ref"}) == {"device.backend": "ref"}
    for wrong in ("gpu", "cuda:", "cuda:x", 1, "cuda:1 "):
        with pytest.raises(norma.UsageError, match="device = "):
            with_device({"device": wrong})
    with pytest.raises(norma.UsageError, match="expected one of them"):
        with_device({"device": "cuda", "device.backend": "cpu"})
