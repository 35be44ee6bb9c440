"""Public reports of other tools, each with some lines of input of our own and what must hold."""
import io
import json
import os
import random
import shutil
import signal
import subprocess
import tarfile
import time

import pytest

from test_matrix import DEVICE, NORMA, RECIPES, norma, top  # noqa: F401  (top is a fixture)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_unknown_words_are_not_rewarded(tmp_path):
    """https://github.com/kpu/kenlm/issues/67: perplexities of different vocabularies."""
    words = [f"w{i:03d}" for i in range(300)]
    text = "\n".join(" ".join(words[(i * i * k + k) % (20 if k % 2 else 300)] for k in range(1, 9))
                     for i in range(1, 120)) + "\n"
    write(tmp_path / "train", text)
    bits = []
    for size in (20, 300):
        assert norma("prepare", "--format", "text", "--train", tmp_path / "train", "--valid",
                     tmp_path / "train", "--tokenizer", "none",
                     "--bpe-merges", "0", "--max-words", size, "--output", tmp_path / f"d{size}")[0] == 0
        assert norma("train", RECIPES / "demo-lm.ini", "--data.folder", tmp_path / f"d{size}",
                     "--train.updates", "40",
                     "--model.preset", "tiny", "--run.folder", tmp_path / f"r{size}", *DEVICE)[0] == 0
        got = json.loads(norma("perplexity", tmp_path / f"r{size}", tmp_path / "train", "--json", *DEVICE)[1])
        bits.append(got["bits_per_character"])
        if got["unknown"]:
            assert got["perplexity_without_unknown"] > got["perplexity"]
    assert bits[0] > bits[1], bits


def test_p_is_never_zero(tmp_path):
    """https://github.com/mjpost/sacrebleu/issues/70: the observed statistic counts."""
    write(tmp_path / "ref", "a small red house\nthe old tree is green\n" * 10)
    write(tmp_path / "bad", "x y z\nq r s\n" * 10)
    code, out, _ = norma("score", "bleu", tmp_path / "ref", "--reference", tmp_path / "ref", "--against",
                         tmp_path / "bad", "--json")
    assert code == 0 and json.loads(out)["p"] == pytest.approx(1 / 1001)


def test_comma_and_colon_in_paths(tmp_path):
    """Run folders are named after their options."""
    folder = tmp_path / "lr=0.1,wd=0"
    folder.mkdir()
    write(folder / "ref", "a small red house\n")
    assert norma("score", "bleu", folder / "ref", "--reference", folder / "ref", "--bootstrap", "0")[0] == 0
    for side in ("aa", "bb"):
        write(tmp_path / f"2026-11-28T10:00,x.{side}", "a house\n")
    assert norma("prepare", "--train", tmp_path / "2026-11-28T10:00,x", "--source-lang", "aa",
                 "--target-lang", "bb",
                 "--bpe-merges", "0", "--output", tmp_path / "data")[0] == 0


def test_comma_and_colon_in_archives(tmp_path):
    """A member of an archive can have such a name, too."""
    with tarfile.open(tmp_path / "ar.tar", "w") as tar:
        for name in ("p,q:r.aa", "p,q:r.bb", "s.aa", "s.bb"):
            write(tmp_path / name, "a house\n" * 9)
            tar.add(tmp_path / name, name)
            (tmp_path / name).unlink()
    archive = str(tmp_path / "ar.tar")
    for names in ("p,q:r", "p,q:r,ARCHIVE/s", "p,q:r.aa:ARCHIVE/p,q:r.bb,ARCHIVE/s.aa:ARCHIVE/s.bb"):
        code, _, err = norma("prepare", "--train", archive + "/" + names.replace("ARCHIVE", archive),
                             "--valid-every", "2",
                             "--source-lang", "aa", "--target-lang", "bb", "--bpe-merges", "0",
                             "--output", tmp_path / str(len(names)))
        assert code == 0, err
    assert norma("score", "bleu", archive + "/s.aa", "--reference", f"{archive}/p,q:r.aa,{archive}/s.bb",
                 "--bootstrap", "0")[0] == 0


def test_comma_in_a_model_of_an_ensemble(top, tmp_path):  # noqa: F811
    """Each path of a list can contain commas, not only a path that is the whole list."""
    (tmp_path / "lr=0.1,wd=0").symlink_to(top / "translate")
    write(tmp_path / "s", "red house\n")
    one, two = tmp_path / "lr=0.1,wd=0", top / "translate"
    results = {norma("translate", f"{a},{b}", tmp_path / "s", *DEVICE)[:2] for a in (one, two)
               for b in (one, two)}
    assert len(results) == 1 and results.pop()[0] == 0


def test_repetitions_of_a_language_model(top):  # noqa: F811
    """As no_repeat_ngram_size of transformers: the prompt counts, too."""
    def lines(*options):
        return [json.loads(norma("generate", top / "lm", "--prompt", "red house", "--tokens", "30", "--seed",
                                 seed, "--json", *options, *DEVICE)[1]) for seed in range(1, 5)]
    def words(one):
        return [*one["prompt"].split(), *one["text"].split()]
    def repeats(one):
        return len(set(words(one))) < len(words(one))
    assert any(map(repeats, lines()))
    assert not any(map(repeats, lines("--no-repeat-ngram-size", "1")))


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGALRM,
                                    signal.SIGPROF, signal.SIGIO, signal.SIGPWR, signal.SIGRTMAX])
def test_batch_systems_signal(top, tmp_path, number):  # noqa: F811
    """https://github.com/facebookincubator/submitit/issues/1697: a checkpoint before the end."""
    run = subprocess.Popen([NORMA, "train", str(RECIPES / "demo.ini"), "--data.folder", str(top / "pairs"),
                            "--run.folder",
                            str(tmp_path / "r"), "--model.preset", "tiny", "--train.updates", "1000000",
                            "--train.epochs", "1000000",
                            "--train.score", "false", *DEVICE], stderr=subprocess.DEVNULL)
    log = tmp_path / "r" / "log.jsonl"
    while run.poll() is None and not (log.exists() and log.stat().st_size):
        time.sleep(0.05)
    time.sleep(0.3)
    run.send_signal(number)
    assert run.wait(60) == 9
    assert list((tmp_path / "r" / "checkpoints").iterdir())


def test_quoted_empty_row(top, tmp_path):  # noqa: F811
    """https://github.com/pandas-dev/pandas/issues/12443: a column of one quoted empty value."""
    write(tmp_path / "one.csv", 'text\ngood film\n""\n\nbad film\n')
    assert norma("classify", top / "classify", tmp_path / "one.csv", *DEVICE)[1].count(b"\n") == 4


def test_links_in_archives(tmp_path):
    """GNU tar stores the second name of a hard-linked file as a link."""
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, kind, target in [("a/b", tarfile.LNKTYPE, "a/t"), ("a/t", tarfile.REGTYPE, ""),
                                   ("a/s", tarfile.SYMTYPE, "../a/t"),
                                   ("a/out", tarfile.SYMTYPE, "/etc/passwd"),
                                   ("a/pipe", tarfile.FIFOTYPE, "")]:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, target, 6 if kind == tarfile.REGTYPE else 0
            tar.addfile(entry, io.BytesIO(b"hello\n"))
    for name in ("a/b", "a/t", "a/s"):
        assert norma("tokenize", tmp_path / "x.tar" / name)[1] == b"hello\n"
    for name in ("a/out", "a/pipe"):
        code, _, err = norma("tokenize", tmp_path / "x.tar" / name)
        assert code == 7 and name in err


def test_data_starts_no_program(tmp_path):
    """libarchive's filter_all runs lrzip from PATH for a file that begins with LRZI."""
    fake = tmp_path / "bin"
    fake.mkdir()
    write(fake / "lrzip", f"#!/bin/sh\ntouch {tmp_path}/started\n").chmod(0o755)
    (tmp_path / "a.tgz").write_bytes(b"LRZI\x00\x06" + b"x" * 40)
    code = subprocess.run([NORMA, "tokenize", tmp_path / "a.tgz" / "x"], capture_output=True,
                          env={**os.environ, "PATH": f"{fake}:{os.environ['PATH']}"}).returncode
    assert code == 4 and not (tmp_path / "started").exists()


def test_crlf_of_exact_documents(tmp_path):
    """https://github.com/huggingface/tokenizers/issues/231: nothing is trimmed."""
    (tmp_path / "t").write_bytes(b"a\r\nb\r\n" * 20)
    assert norma("prepare", "--format", "text", "--train", tmp_path / "t", "--valid", tmp_path / "t",
                 "--tokenizer", "byte_level",
                 "--documents", "file", "--bpe-merges", "0", "--output", tmp_path / "d")[0] == 0
    assert norma("train", RECIPES / "demo-lm.ini", "--data.folder", tmp_path / "d", "--train.updates", "1",
                 "--model.preset", "tiny",
                 "--run.folder", tmp_path / "r", *DEVICE)[0] == 0
    (tmp_path / "t").write_bytes(b"a\r\nb\r\n")
    out = norma("perplexity", tmp_path / "r", tmp_path / "t", "--documents", "file", "--tokens", *DEVICE)[1]
    assert json.loads(out)["tokens"] == ["a", "č", "Ċ", "b", "č", "Ċ", "</s>"]


def test_repetitions(top, tmp_path):  # noqa: F811
    """https://github.com/OpenNMT/CTranslate2/issues/601: no n-gram twice."""
    write(tmp_path / "s", "red house green tree old car\n" * 3)
    forced = ["--min-length", "12", "--max-length-b", "14", "--max-length-a", "0", "--output-format",
              "subword", *DEVICE]
    plain = norma("translate", top / "translate", tmp_path / "s", *forced)[1].decode().splitlines()
    assert any(len(set(line.split())) < len(line.split()) for line in plain)
    for line in norma("translate", top / "translate", tmp_path / "s", "--no-repeat-ngram-size", "2",
                      *forced)[1].decode().splitlines():
        pairs = list(zip(line.split(), line.split()[1:]))
        assert len(pairs) == len(set(pairs)) and len(pairs) >= 11


# ---- tags without marks or labels ----

NOUNS, VERBS, PLACES = ["cat", "dog", "tree", "house"], ["sat", "ran", "saw"], ["China", "Peru", "Chad"]
SEGMENTS = ["我", "喜欢", "北京", "天安门"]


def tagged(kind, n, seed):
    """Sentences of (token, tag): parts of speech, word segmentation, labels without marks."""
    chance = random.Random(seed)
    for _ in range(n):
        if kind == "pos":
            yield [("the", "DT"), (chance.choice(NOUNS), "NN"), (chance.choice(VERBS), "VBD"), (".", ".")]
        elif kind == "bmes":
            yield [(c, "S" if len(w) == 1 else "BME"[(i > 0) + (i == len(w) - 1)])
                   for w in chance.choices(SEGMENTS, k=4) for i, c in enumerate(w)]
        else:
            more = [("and", "O"), ("New", "City"), ("York", "City")] if chance.random() < 0.5 else []
            yield [("live", "O"), ("in", "O"), (chance.choice(PLACES), "Country"), *more]


def columns_of(sentences):
    return "".join("".join(f"{w} {t}\n" for w, t in s) + "\n" for s in sentences)


def spans_of(kind, tags):
    """What the score counts, computed from the tags as the file has them."""
    if kind == "pos":
        return {(i, i + 1, t) for i, t in enumerate(tags)}
    starts = [i for i, t in enumerate(tags)
              if (t in "BS" if kind == "bmes" else t != "O" and (not i or tags[i - 1] != t))]
    spans = set()
    for i in starts:
        end = i + 1
        while end < len(tags) and (tags[end] not in "BS" if kind == "bmes" else tags[end] == tags[i]):
            end += 1
        spans.add((i, end, "" if kind == "bmes" else tags[i]))
    return spans


@pytest.mark.parametrize("kind", ["pos", "bmes", "io"])
def test_tags_without_prefix(tmp_path, kind):
    """https://github.com/fastnlp/TENER/issues/25, https://github.com/chakki-works/seqeval/issues/46"""
    write(tmp_path / "train", columns_of(tagged(kind, 200, 1)))
    valid = list(tagged(kind, 30, 2))
    if kind == "pos":
        valid[0][1] = ("ox", "XX")  # an unseen word with an unseen class
    write(tmp_path / "valid", columns_of(valid))
    code, _, err = norma("train", RECIPES / "demo-tag.ini", "--data.train", tmp_path / "train",
                         "--data.valid", tmp_path / "valid", "--data.test=", "--train.updates", "90",
                         "--model.preset", "tiny", "--run.folder", tmp_path / "r", *DEVICE)
    assert code == 0, err
    assert {"pos": "(data.file_scheme = none)", "bmes": "the scheme bmeso",
            "io": "(data.file_scheme = io)"}[kind] in err
    model = (tmp_path / "r" / "best.safetensors").read_bytes()
    header = json.loads(model[8:8 + int.from_bytes(model[:8], "little")])["__metadata__"]
    assert header["file_scheme"] == {"pos": "none", "bmes": "bmeso", "io": "io"}[kind]
    assert ("O" in header["tags.txt"].split()) == (kind == "io")
    code, out, err = norma("tag", tmp_path / "r", tmp_path / "valid", *DEVICE)
    assert code == 0, err
    found = [[line.split() for line in part.split("\n")]
             for part in out.decode().strip("\n").split("\n\n")]
    seen = {t for s in tagged(kind, 200, 1) for _, t in s}
    assert len(found) == len(valid)
    gold_spans, found_spans, correct = 0, 0, 0
    for rows, sentence in zip(found, valid):
        assert [row[:2] for row in rows] == [list(pair) for pair in sentence]
        assert {row[2] for row in rows} <= seen  # in the user's own encoding
        gold, predicted = spans_of(kind, [row[1] for row in rows]), spans_of(kind, [row[2] for row in rows])
        gold_spans, found_spans = gold_spans + len(gold), found_spans + len(predicted)
        correct += len(gold & predicted)
    assert correct > gold_spans / 3
    for line, rows in zip(norma("tag", tmp_path / "r", tmp_path / "valid", "--json",
                                *DEVICE)[1].decode().splitlines(), found):
        one = json.loads(line)
        assert one["tags"] == [row[2] for row in rows]
        assert {(s["begin"], s["end"], s["label"]) for s in one["spans"]} == (
            set() if kind == "pos" else spans_of(kind, one["tags"]))
    scores = json.loads(norma("tag", tmp_path / "r", tmp_path / "valid", "--evaluate", "--json", *DEVICE)[1])
    assert (scores["gold"], scores["predicted"], scores["correct"]) == (gold_spans, found_spans, correct)
    assert scores["unknown_tags"] == (kind == "pos")
    assert (scores["accuracy"] is None) == (kind != "pos")
    text = "\n".join(" ".join(w for w, _ in s) for s in valid) + "\n"
    assert norma("tag", tmp_path / "r", *DEVICE, stdin=text.encode())[1].decode().split() == [
        word for rows in found for row in rows for word in (row[0], row[2])]
    other = "bio" if kind == "pos" else "none"
    code, _, err = norma("tag", tmp_path / "r", tmp_path / "valid", "--scheme", other, *DEVICE)
    assert code == 5 and "tag.scheme" in err
    write(tmp_path / "gold", "\n".join(" ".join(t for _, t in s) for s in valid) + "\n")
    write(tmp_path / "found", "\n".join(" ".join(row[2] for row in rows) for rows in found) + "\n")
    scheme = {"pos": "none", "bmes": "marks", "io": "io"}[kind]
    line = norma("score", "f1", tmp_path / "found", "--reference", tmp_path / "gold", "--tag-scheme", scheme,
                 "--bootstrap", "0")[1].decode()
    value = 200 * correct / (gold_spans + found_spans)
    assert line.startswith(f"{'accuracy' if kind == 'pos' else 'F1'} = {value:.2f} "), line
    if kind != "bmes":
        code, _, err = norma("score", "f1", tmp_path / "found", "--reference", tmp_path / "gold")
        assert code == 4 and "--tag-scheme" in err


@pytest.mark.parametrize("tag", ["Country", "``"])
def test_columns_that_begin_with_a_tag_are_no_text(tmp_path, tag):
    """A label of the scheme io, and punctuation that is its own tag, in the first line of the input."""
    first = [("Peru" if tag == "Country" else tag, tag)]
    sentences = [first + sentence for sentence in tagged("io" if tag == "Country" else "pos", 40, 1)]
    write(tmp_path / "t", columns_of(sentences))
    assert norma("train", RECIPES / "demo-tag.ini", "--data.train", tmp_path / "t", "--data.valid",
                 tmp_path / "t", "--data.test=", "--train.updates", "1", "--model.preset", "tiny",
                 "--run.folder", tmp_path / "r", *DEVICE)[0] == 0
    out = norma("tag", tmp_path / "r", tmp_path / "t", *DEVICE)[1].decode()
    assert len(out.strip("\n").split("\n\n")) == 40


@pytest.mark.parametrize("tags", ["O B- I-", "O B_PER O", "O PER-B PER-I", "O B-PER I-PER OO O",
                                  "o b-per i-per o"])
def test_other_notations_are_no_labels(tmp_path, tags):
    """A mistake in a file with marks does not make another kind of tagger."""
    write(tmp_path / "t", "".join(f"w{i} {t}\n" for i, t in enumerate(tags.split())))
    code, _, err = norma("train", RECIPES / "demo-tag.ini", "--data.train", tmp_path / "t", "--data.valid",
                         tmp_path / "t", "--data.test=", "--run.folder", tmp_path / "r", *DEVICE)
    assert code == 4 and "is not a tag" in err and "/t:" in err


def test_spans_are_those_of_seqeval(tmp_path):
    """In the scheme IOBES, whose S conlleval.pl does not know: the signature names the one that agrees."""
    write(tmp_path / "gold", "S-A S-A\n")
    write(tmp_path / "found", "S-A O\n")
    out = norma("score", "f1", tmp_path / "found", "--reference", tmp_path / "gold", "--json")[1].decode()
    got = json.loads(out)
    assert got["score"] == pytest.approx(200 / 3) and "spans:seqeval" in got["signature"]


@pytest.mark.parametrize("recipe,row", [("classify", "{label}\t{text}\n"),
                                        ("demo-tag", "{text}\t{label}\n\n")])
def test_encodings_are_those_of_a_file(tmp_path, recipe, row):
    """Latin-1 of the training file does not decode a validation file in UTF-8, and the other way round."""
    text = "".join(row.format(label="B-é" if i % 2 else "O", text=f"caf\u00e9{i % 5}") for i in range(60))
    for encoding in ("latin1", "utf-8"):
        (tmp_path / encoding).write_bytes(text.encode(encoding))
    def train(data, valid, *options):
        return norma("train", RECIPES / f"{recipe}.ini", "--data.train", tmp_path / data, "--data.valid",
                     tmp_path / valid, "--data.test=", *options, "--train.updates", "1", "--model.preset",
                     "tiny", "--run.folder", tmp_path / "-".join(["r", data, valid, *options]), *DEVICE)
    code, _, err = train("latin1", "utf-8", "--data.encoding", "latin1")
    assert code == 2 and "add --data.valid_encoding utf-8" in err
    assert train("latin1", "utf-8", "--data.encoding", "latin1", "--data.valid_encoding", "utf-8")[0] == 0
    assert train("utf-8", "latin1", "--data.valid_encoding", "latin1")[0] == 0
    code, _, err = train("utf-8", "latin1")
    assert code == 4 and "latin1:" in err and "not UTF-8" in err


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGALRM])
def test_batch_systems_signal_a_comparison(top, tmp_path, number):  # noqa: F811
    """As a training, a comparison ends with checkpoints of its runs."""
    pairs = ["--source-lang", "aa", "--target-lang", "bb", "--bpe-merges", "20", "--output", tmp_path / "d"]
    assert norma("prepare", "--train", top / "t", "--valid", top / "t", "--test", top / "t", *pairs)[0] == 0
    run = subprocess.Popen([NORMA, "compare", str(RECIPES / "demo.ini"), "--norms", "layer,rms",
                            "--data.folder", str(tmp_path / "d"), "--compare.folder", str(tmp_path / "c"),
                            "--model.preset", "tiny", "--train.updates", "1000000", "--train.epochs",
                            "1000000", "--train.score", "false", *DEVICE], stderr=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL)
    while run.poll() is None and not any((tmp_path / "c").glob("*/log.jsonl")):
        time.sleep(0.05)
    time.sleep(1)
    run.send_signal(number)
    assert run.wait(60) == 9
    assert any((tmp_path / "c").glob("*/checkpoints/*"))


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU])
def test_batch_systems_signal_a_study(tmp_path, number):
    for side in "ab":
        (tmp_path / f"t.{side}").write_text("".join(f"{side}{i % 7} {side}{i % 5} .\n" for i in range(200)))
    run = subprocess.Popen([NORMA, "study", str(tmp_path / "t.a"), str(tmp_path / "t.b"), "--budget", "5m",
                            "--norms", "layer,rms", "--folder", str(tmp_path / "s")],
                           stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while run.poll() is None and not any((tmp_path / "s").glob("**/log.jsonl")):
        time.sleep(0.05)
    run.send_signal(number)
    run.send_signal(number)
    assert run.wait(60) == 9


def test_best_model_of_a_resumed_run(top, tmp_path):  # noqa: F811
    """best.safetensors lost or replaced, and an average, whose bytes no checkpoint has."""
    def train(*options):
        code, _, err = norma("train", *options, "--run.folder", tmp_path / "r", *DEVICE)
        return code, err
    recipe = [RECIPES / "demo-lm.ini", "--data.folder", top / "text", "--model.preset", "tiny",
              "--train.updates", "4"]
    assert train(*recipe)[0] == 0
    best = tmp_path / "r" / "best.safetensors"
    model = best.read_bytes()
    for change in (best.unlink, lambda: best.write_bytes(model[:-4] + b"else")):
        change()
        code, err = train("--resume")
        assert code == 0 and "best.safetensors was not the model of update" in err, err
        assert best.read_bytes() == model
    assert (tmp_path / "r" / "best.safetensors.other").exists()  # the other model
    best.unlink()
    assert b"best.safetensors: missing" in norma("verify", tmp_path / "r")[1]
    shutil.rmtree(tmp_path / "r" / "checkpoints")
    code, err = train("--resume")
    assert code == 0 and "the run starts anew" in err, err
    shutil.rmtree(tmp_path / "r")
    assert train(*recipe, "--train.ema_decay", "0.9")[0] == 0
    code, out, err = norma("verify", tmp_path / "r")
    assert code == 0 and b"not checked" not in out, err
