"""Every file that Norma reads, with every contamination that files of other programs have: the result is that
of the clean file, or an error that names the file (and, for a bad byte, the line); as many records come out
as went in."""
import gzip
import lzma
import os
import pathlib
import re
import subprocess

import pytest

NORMA = os.environ["NORMA"]
RECIPES = pathlib.Path(os.environ["SOURCE"]) / "recipes"
WORDS = ["red", "house", "green", "tree", "old", "new", "car", "dog"]
LINES = [" ".join(WORDS[(i * k) % 8] for k in range(1, 3 + i % 4)) for i in range(1, 41)]
DEVICE = ["--device.threads", "1"]


def norma(*arguments, stdin=None):
    done = subprocess.run([NORMA, *map(str, arguments)], input=stdin, capture_output=True, timeout=120)
    return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """One small model of each task, trained for two updates."""
    top = tmp_path_factory.mktemp("models")
    text = "\n".join(LINES) + "\n"
    (top / "t.aa").write_text(text)
    (top / "t.bb").write_text(text)
    (top / "labels.tsv").write_text("".join(f"{'pos' if i % 2 else 'neg'}\t{line}\n" for i,
                                            line in enumerate(LINES)))
    (top / "tags.txt").write_text("".join("".join(f"{w}\t{'B-X' if w == 'dog' else 'O'}\n"
                                                  for w in line.split()) + "\n"
                                          for line in LINES))
    assert norma("prepare", "--train", top / "t", "--valid", top / "t", "--source-lang", "aa",
                 "--target-lang", "bb",
                 "--bpe-merges", "20", "--output", top / "pairs")[0] == 0
    assert norma("prepare", "--format", "text", "--train", top / "t.aa", "--valid", top / "t.aa",
                 "--bpe-merges", "20",
                 "--output", top / "text")[0] == 0
    small = ["--train.updates", "2", "--model.preset", "tiny", *DEVICE]
    for recipe, folder, data in [("demo", "translate", ["--data.folder", top / "pairs"]),
                                 ("demo-lm", "lm", ["--data.folder", top / "text"]),
                                 ("classify", "classify",
                                  ["--data.train", top / "labels.tsv", "--data.valid", top / "labels.tsv"]),
                                 ("demo-tag", "tag", ["--data.train", top / "tags.txt", "--data.valid",
                                                      top / "tags.txt",
                                                      "--data.test="])]:
        code, _, err = norma("train", RECIPES / f"{recipe}.ini", "--run.folder", top / folder, *data, *small)
        assert code == 0, err
    return top


# ---- contaminations: bytes -> bytes. SAME: the result must be that of the clean file ----

def insert(text):
    """Puts the bytes into the middle of the third line, between two words."""
    def change(clean):
        lines = clean.split(b"\n")
        lines[2] = lines[2].replace(b" ", b" " + text, 1) if b" " in lines[2] else lines[2] + text
        return b"\n".join(lines)
    return change


SAME = {
    "bom": lambda clean: b"\xef\xbb\xbf" + clean,
    "crlf": lambda clean: clean.replace(b"\n", b"\r\n"),
    "no-final-newline": lambda clean: clean[:-1],
    "gz": lambda clean: gzip.compress(clean),
    "xz": lambda clean: lzma.compress(clean),
}
LIKE = {  # another text: the number of records stays
    "cr": insert(b"\r"),
    "nbsp": insert("\u00a0".encode()),
    "u2028": insert("\u2028".encode()),
    "u0085": insert("\u0085".encode()),
    "zero-width": insert("\u200b".encode()),
    "long-line": insert(b"x" * (1 << 20) + b" "),
}
BAD = {"nul": insert(b"\0"), "invalid": insert(b"\xff")}  # an error with file and line


def lines_of(data):
    return len(data.splitlines())


def text(models):
    return ("\n".join(LINES[:12]) + "\n").encode()


def table(models):
    return ("label\ttext\n" + "".join(f"{'pos' if i % 2 else 'neg'}\t{line}\n" for i,
                                      line in enumerate(LINES[:12]))).encode()


def columns(models):
    return b"".join(b"".join(w.encode() + b"\n" for w in line.split()) + b"\n" for line in LINES[:12])


def codes(models):
    return (models / "pairs" / "codes.bpe").read_bytes()


def dictionary(models):
    return (
        (models / "text" / "dict.source.txt").read_bytes()
        if (models / "text" / "dict.source.txt").exists()
        else next((models / "text").glob("dict*.txt")).read_bytes()
    )


# name: (clean file, suffix, arguments around the path, records are lines of the output)
READERS = {
    "tokenize": (text, "", lambda m, p: ["tokenize", p], True),
    "translate": (text, "", lambda m, p: ["translate", m / "translate", p, *DEVICE], True),
    "classify": (text, "", lambda m, p: ["classify", m / "classify", p, *DEVICE], True),
    "classify-table": (table, ".tsv", lambda m, p: ["classify", m / "classify", p, "--header", "yes",
                                                    *DEVICE], True),
    "tag-text": (text, "", lambda m, p: ["tag", m / "tag", p, "--input-format", "text", "--json", *DEVICE],
                 True),
    "tag-columns": (columns, "", lambda m, p: ["tag", m / "tag", p, "--json", *DEVICE], False),
    "perplexity": (text, "", lambda m, p: ["perplexity", m / "lm", p, "--tokens", *DEVICE], True),
    "subword": (text, "", lambda m, p: ["subword", "--like", m / "pairs", p], True),
    "codes": (codes, "", lambda m, p: ["subword", "--codes", p, m / "t.aa"], True),
    "labels": (text, "", lambda m, p: ["score", "accuracy", p, "--reference", p, "--bootstrap", "0"], False),
    "prefix": (text, "", lambda m, p: ["translate", m / "translate", m / "twelve", "--prefix", p, *DEVICE],
               True),
    "constraints": (text, "", lambda m, p: ["translate", m / "translate", m / "twelve", "--constraints", p,
                                            *DEVICE], True),
    "dictionary": (dictionary, "", lambda m, p: ["prepare", "--format", "text", "--train", m / "t.aa",
                                                 "--codes",
                                                 m / "text" / "codes.bpe", "--dict-source", p, "--output",
                                                 p.parent / "out"], False),
}
HEADERS = {"classify-table": 1}


def run(models, folder, reader, change, name):
    make, suffix, arguments, by_line = READERS[reader]
    (models / "twelve").write_text("\n".join(LINES[:12]) + "\n")
    clean = make(models)
    path = folder / (name + suffix)
    path.write_bytes(change(clean))
    code, out, err = norma(*arguments(models, path))
    records = lines_of(clean) if reader not in ("codes", "prefix",
                                                "constraints") else (40 if reader == "codes" else 12)
    if code == 0 and by_line:
        assert len(out.split(b"\n")) - 1 == records - HEADERS.get(
            reader, 0
        ), f"{records} in: {out[-300:]!r} {err}"
    return code, re.sub(rb'"file":"[^"]*",', b"", out).replace(str(path).encode(), b"FILE"), err, path


def names_file(err, path):
    return path.name in err


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", SAME)
def test_same_result(models, tmp_path, reader, kind):
    code, clean, err, _ = run(models, tmp_path, reader, lambda data: data, "clean")
    assert code == 0, err
    code, out, err, path = run(models, tmp_path, reader, SAME[kind], "dirty")
    if code:  # a reader that does not decompress has a message
        assert kind in ("gz", "xz") and names_file(err, path), err
    else:
        assert out == clean


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", LIKE)
def test_as_many_records(models, tmp_path, reader, kind):
    code, _, err, path = run(models, tmp_path, reader, LIKE[kind], "dirty")
    assert code == 0 or (code in (2, 4, 5) and names_file(err, path)), err


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", BAD)
def test_bad_byte_names_the_line(models, tmp_path, reader, kind):
    code, _, err, path = run(models, tmp_path, reader, BAD[kind], "dirty")
    assert code == 4 and re.search(re.escape(path.name) + r":\d+", err), f"{code}: {err}"


@pytest.mark.parametrize("reader", ["tokenize", "translate", "classify", "tag-text", "subword", "perplexity"])
def test_blank_first_and_last_line(models, tmp_path, reader):
    arguments = READERS[reader][2]
    path = tmp_path / "blank"
    path.write_bytes(b"\n" + text(models) + b"\n")
    code, out, err = norma(*arguments(models, path))
    assert code == 0, err
    assert len(out.split(b"\n")) - 1 == 14, out
