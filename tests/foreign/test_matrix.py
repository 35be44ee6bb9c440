"""Every text file that Norma reads, with every contamination that files of other programs have. The result
is that of the clean file, or an error that names the file (for a bad byte: the line); as many records come
out as went in. A row of READERS is a file, a member of KINDS a contamination."""
import collections
import gzip
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess

import pytest

NORMA = os.environ["NORMA"]
SOURCE = pathlib.Path(os.environ["SOURCE"])
RECIPES = SOURCE / "recipes"
WORDS = ["red", "house", "green", "tree", "old", "new", "car", "dog"]
LINES = [" ".join(WORDS[(i * k) % 8] for k in range(1, 3 + i % 4)) for i in range(1, 41)]
TWELVE = "\n".join(LINES[:12]) + "\n"
DEVICE = ["--device.threads", "1"]
SMALL = ["--train.updates", "1", "--model.preset", "tiny", *DEVICE]


def norma(*arguments, stdin=None):
    done = subprocess.run([NORMA, *map(str, arguments)], input=stdin, capture_output=True, timeout=120)
    return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")


def succeeds(*arguments):
    code, out, err = norma(*arguments)
    assert code == 0, err
    return out


@pytest.fixture(scope="session")
def top(tmp_path_factory):
    """Corpora, a small model of each task, and what is made of them."""
    top = tmp_path_factory.mktemp("matrix")
    text = "\n".join(LINES) + "\n"
    (top / "t.aa").write_text(text)
    (top / "t.bb").write_text(text)
    (top / "twelve").write_text(TWELVE)
    (top / "labels.tsv").write_text(table("\t", LINES))
    (top / "tags.txt").write_text(columns(LINES, True))
    (top / "links").write_text("".join("0-0\n" for _ in LINES))
    pairs = ["--source-lang", "aa", "--target-lang", "bb", "--bpe-merges", "20"]
    succeeds("prepare", "--train", top / "t", "--valid", top / "t", *pairs, "--output", top / "pairs")
    succeeds("prepare", "--format", "text", "--train", top / "t.aa", "--valid", top / "t.aa", "--bpe-merges",
             "20", "--output", top / "text")
    succeeds("prepare", "--format", "text", "--train", top / "t.aa", "--tokenizer", "byte_level",
             "--bpe-merges", "20", "--output", top / "bytes")
    for recipe, folder, data in [("demo", "translate", ["--data.folder", top / "pairs"]),
                                 ("demo-lm", "lm", ["--data.folder", top / "text"]),
                                 ("classify", "classify", of_table(top / "labels.tsv", top)),
                                 ("demo-tag", "tag", of_columns(top / "tags.txt", top))]:
        succeeds("train", RECIPES / f"{recipe}.ini", "--run.folder", top / folder, *data, *SMALL)
    succeeds("convert", top / "lm", "--to", "huggingface", "-o", top / "huggingface")
    succeeds("convert", top / "translate", "--to", "ctranslate2", "-o", top / "ctranslate2")
    succeeds("shortlist", top / "pairs", "--output", top / "shortlist")
    return top


def table(delimiter, lines):
    rows = [("label", "text")] + [("pos" if i % 2 else "neg", line) for i, line in enumerate(lines)]
    return "".join(delimiter.join(row) + "\n" for row in rows)


def objects(lines):
    return [{"label": "pos" if i % 2 else "neg", "text": line} for i, line in enumerate(lines)]


def columns(lines, tags):
    return "".join("".join(w + (f"\t{'B-X' if w == 'dog' else 'O'}" if tags else "") + "\n"
                           for w in line.split()) + "\n" for line in lines)


def of_table(path, top):
    return ["--data.train", path, "--data.valid", top / "labels.tsv"]


def of_columns(path, top):
    return ["--data.train", path, "--data.valid", top / "tags.txt", "--data.test="]


# ---- contaminations: bytes -> bytes ----

def insert(text):
    """Puts the bytes into the middle of the third line, between two words."""
    def change(clean):
        lines = clean.split(b"\n")
        at = min(2, len(lines) - 1)
        lines[at] = lines[at].replace(b" ", b" " + text, 1) if b" " in lines[at] else lines[at] + text
        return b"\n".join(lines)
    return change


SAME = {  # the same content: the same result, or an error that names the file
    "bom": lambda clean: b"\xef\xbb\xbf" + clean,
    "crlf": lambda clean: clean.replace(b"\n", b"\r\n"),
    "no-final-newline": lambda clean: clean.removesuffix(b"\n"),
    "gz": gzip.compress,
    "xz": lzma.compress,
}
OTHER = {  # another content in as many lines
    "cr": insert(b"\r"),
    "nbsp": insert("\u00a0".encode()),
    "u2028": insert("\u2028".encode()),
    "u0085": insert("\u0085".encode()),
    "zero-width": insert("\u200b".encode()),
    "long-line": insert(b"x" * (1 << 20) + b" "),
}
BLANK = {"blank-first": lambda clean: b"\n" + clean, "blank-last": lambda clean: clean + b"\n"}
BAD = {"nul": insert(b"\0"), "invalid": insert(b"\xff")}  # an error with file and line
KINDS = {**SAME, **OTHER, **BLANK, **BAD}

# ---- readers ----

# make(top): the clean text. command(top, path, output): arguments. kind: "text" of a user, in which every
# character is allowed; "pair" if it has as many lines as another text; "score" if a byte order mark is a part
# of the text, too, as for sacreBLEU; "file" if it has a format. records: lines of the result. name: of the
# file.
Reader = collections.namedtuple("Reader", "make command kind records name", defaults=("text", 0, "input"))


def twelve(top):
    return TWELVE


def many(top):
    return (top / "t.aa").read_text()


def file(*names):
    return lambda top: top.joinpath(*names).read_text()


def run_of(name):
    """A copy of a folder, in which the file is replaced: its command names the folder."""
    def command(*before):
        def arguments(top, path, output):
            shutil.copytree(top / name, output / "copy", symlinks=True, dirs_exist_ok=True)
            shutil.copyfile(path, output / "copy" / path.name)
            return [*before, output / "copy"]
        return arguments
    return command


def prepare(*arguments):
    return lambda t, p, o: ["prepare", *(a(t, p) if callable(a) else a for a in arguments), "--bpe-merges",
                            "20", "--output", o / "data"]


def path_of(t, p):
    return p


def codes_of(clean):
    """The same merges as fastBPE writes them: without a header, with counts."""
    return lambda top: "".join(f"{line} 7\n" for line in clean(top).splitlines()
                               if not line.startswith("#version"))


def convert(kind):
    return lambda t, p, o: [*run_of(kind)("convert")(t, p, o), "--from", kind, "-o", o / "model"]


def report(t, p, o):
    return [*run_of("lm")("report")(t, p, o), "-o", o / "page.html"]


def recipe(name, *arguments):
    return lambda t, p, o: ["train", p, "--run.folder", o / "run", *(a(t) for a in arguments), *SMALL]


PAIRS = ["--source-lang", "aa", "--target-lang", "bb"]
VECTORS = "".join(f"{w} {' '.join(f'{(i + k) % 5 - 2}.5' for k in range(8))}\n" for i, w in enumerate(WORDS))
READERS = {
    "tokenize": Reader(twelve, lambda t, p, o: ["tokenize", p], "text", 12),
    "detokenize": Reader(twelve, lambda t, p, o: ["detokenize", p], "text", 12),
    "normalize": Reader(twelve, lambda t, p, o: ["normalize", p, "--form", "nfc"], "text", 12),
    "subword": Reader(twelve, lambda t, p, o: ["subword", "--like", t / "pairs", p], "text", 12),
    "subword-undo": Reader(twelve, lambda t, p, o: ["subword", "--like", t / "pairs", "--undo", p], "text",
                           12),
    "translate": Reader(twelve, lambda t, p, o: ["translate", t / "translate", p, *DEVICE], "text", 12),
    "rescore-source": Reader(twelve, lambda t, p, o: ["rescore", t / "translate", p, t / "twelve", *DEVICE],
                             "pair", 12),
    "rescore-target": Reader(twelve, lambda t, p, o: ["rescore", t / "translate", t / "twelve", p, *DEVICE],
                             "pair", 12),
    "perplexity": Reader(twelve, lambda t, p, o: ["perplexity", t / "lm", p, "--tokens", *DEVICE], "text",
                         12),
    "generate": Reader(twelve, lambda t, p, o: ["generate", t / "lm", p, "--tokens", "2", "--json", *DEVICE],
                       "text", 12),
    "classify": Reader(twelve, lambda t, p, o: ["classify", t / "classify", p, *DEVICE], "text", 12),
    "tag-text": Reader(twelve, lambda t, p, o: ["tag", t / "tag", p, "--input-format", "text", "--json",
                                                *DEVICE], "text", 12),
    "score-hypothesis": Reader(twelve, lambda t, p, o: [
        "score", "bleu", p, "--reference", t / "twelve"], "score"),
    "score-reference": Reader(twelve, lambda t, p, o: [
        "score", "chrf", t / "twelve", "--reference", p], "score"),
    "score-against": Reader(twelve, lambda t, p, o: ["score", "ter", t / "twelve", "--reference",
                                                     t / "twelve", "--against", p], "score"),
    "score-labels": Reader(twelve, lambda t, p, o: ["score", "accuracy", p, "--reference", t / "twelve",
                                                    "--bootstrap", "0"], "pair"),
    "score-tags": Reader(twelve, lambda t, p, o: ["score", "f1", p, "--reference", p, "--tag-scheme", "none",
                                                  "--bootstrap", "0"]),
    "prefix": Reader(twelve, lambda t, p, o: ["translate", t / "translate", t / "twelve", "--prefix", p,
                                              *DEVICE], "pair", 12),
    "constraints": Reader(twelve, lambda t, p, o: ["translate", t / "translate", t / "twelve",
                                                   "--constraints", p, *DEVICE], "file", 12),
    "prepare-source": Reader(many, prepare("--train", lambda t, p: f"{p}:{t / 't.bb'}", *PAIRS)),
    "prepare-target": Reader(many, prepare("--train", lambda t, p: f"{t / 't.aa'}:{p}", *PAIRS)),
    "prepare-valid": Reader(many, prepare("--train", lambda t, p: t / "t", "--valid",
                                          lambda t, p: f"{p}:{t / 't.bb'}", *PAIRS)),
    "prepare-text": Reader(many, prepare("--format", "text", "--train", path_of)),
    "prepare-table": Reader(lambda t: "".join(f"{line}\t{line}\n" for line in LINES),
                            prepare("--train", path_of, *PAIRS, "--source-field", "1", "--target-field", "2"),
                            "text", 0, "input.tsv"),
    "alignments": Reader(file("links"), prepare("--train", lambda t, p: t / "t", *PAIRS, "--alignments",
                                                path_of), "file"),
    "shortlist": Reader(file("shortlist"), lambda t, p, o: ["translate", t / "translate", t / "twelve",
                                                            "--shortlist", p, *DEVICE], "file", 12),
    "codes": Reader(file("pairs", "codes.bpe"), lambda t, p, o: ["subword", "--codes", p, t / "twelve"],
                    "file", 12),
    "codes-fastbpe": Reader(codes_of(file("pairs", "codes.bpe")),
                            lambda t, p, o: ["subword", "--codes", p, t / "twelve"], "file", 12),
    "codes-bytes": Reader(file("bytes", "codes.bpe"), lambda t, p, o: [
        "prepare", "--format", "text", "--train", t / "t.aa", "--tokenizer", "byte_level", "--codes", p,
        "--output", o / "data"], "file"),
    "dictionary": Reader(file("text", "dict.txt"), lambda t, p, o: [
        "prepare", "--format", "text", "--train", t / "t.aa", "--codes", t / "text" / "codes.bpe",
        "--dict-source", p, "--output", o / "data"], "file"),
    "abbreviations": Reader(lambda t: "# comment\nred\nhouse #NUMERIC_ONLY#\nnew\n", lambda t, p, o: [
        "tokenize", t / "twelve", "--nonbreaking-prefixes", p], "file", 12),
    "prepare-recipe": Reader(lambda t: f"[prepare]\nformat = text\ntrain = {t / 't.aa'}\nbpe_merges = 20\n",
                             lambda t, p, o: ["prepare", p, "--output", o / "data"], "file", 0, "input.ini"),
    "data.ini": Reader(file("text", "data.ini"), lambda t, p, o: [
        "subword", t / "twelve", *run_of("text")("--like")(t, p, o)], "file", 12, "data.ini"),
    "recipe": Reader(lambda t: f"[run]\ntask = lm\n\n[data]\nfolder = {t / 'text'}\n", recipe("lm"), "file",
                     0, "input.ini"),
    "classify-tsv": Reader(lambda t: table("\t", LINES[:12]), lambda t, p, o: [
        "classify", t / "classify", p, "--header", "yes", *DEVICE], "text", 12, "input.tsv"),
    "classify-csv": Reader(lambda t: table(",", LINES[:12]), lambda t, p, o: [
        "classify", t / "classify", p, "--header", "yes", *DEVICE], "text", 12, "input.csv"),
    "classify-jsonl": Reader(lambda t: "".join(json.dumps(o) + "\n" for o in objects(LINES[:12])),
                             lambda t, p, o: ["classify", t / "classify", p, *DEVICE], "file", 12,
                             "input.jsonl"),
    "train-table": Reader(lambda t: table("\t", LINES), lambda t, p, o: [
        "train", RECIPES / "classify.ini", "--run.folder", o / "run", *of_table(p, t), *SMALL], "text", 0,
        "input.tsv"),
    "tag-columns": Reader(lambda t: columns(LINES[:12], False), lambda t, p, o: [
        "tag", t / "tag", p, "--json", *DEVICE]),
    "train-columns": Reader(lambda t: columns(LINES, True), lambda t, p, o: [
        "train", RECIPES / "demo-tag.ini", "--run.folder", o / "run", *of_columns(p, t), *SMALL], "file"),
    "vectors": Reader(lambda t: VECTORS, lambda t, p, o: [
        "train", RECIPES / "demo-tag.ini", "--run.folder", o / "run", *of_columns(t / "tags.txt", t),
        "--data.vectors", p, "--model.word_dim", "8", *SMALL], "file"),
    "config.ini": Reader(file("lm", "config.ini"), report, "file", 0, "config.ini"),
    "log.jsonl": Reader(file("lm", "log.jsonl"), report, "file", 0, "log.jsonl"),
    "test.json": Reader(lambda t: '{"title": "BLEU",\n "value": 12.5,\n "p": 0.25}\n', report, "file", 0,
                        "test.json"),
    "huggingface-config": Reader(file("huggingface", "config.json"), convert("huggingface"), "file", 0,
                                 "config.json"),
    "huggingface-tokenizer": Reader(file("huggingface", "tokenizer.json"), convert("huggingface"), "file", 0,
                                    "tokenizer.json"),
    "ctranslate2-config": Reader(file("ctranslate2", "config.json"), convert("ctranslate2"), "file", 0,
                                 "config.json"),
    "ctranslate2-vocabulary": Reader(file("ctranslate2", "shared_vocabulary.json"), convert("ctranslate2"),
                                     "file", 0, "shared_vocabulary.json"),
}
PACKED = ("gz", "xz", "long-line")
ALLOWED = {"text": PACKED, "pair": [*PACKED, *BLANK], "score": [*PACKED, *BLANK], "file": KINDS}
RESULTS = {"data": "*.ids", "run": "last.safetensors", "model": "", "page.html": ""}


def result_of(output, out, path):
    """Standard output, or the files that the command wrote, without names of files."""
    shown = [re.sub(rb'"file":"[^"]*",', b"", out).replace(bytes(path), b"FILE")]
    for name, pattern in RESULTS.items():
        written = output / name
        for file in sorted(written.glob(pattern)) if written.is_dir() and pattern else []:
            shown.append(weights(file) if file.suffix == ".safetensors" else file.read_bytes())
    return b"\n".join(shown)


def weights(path):
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little"):]


def run(top, folder, name, kind):
    reader = READERS[name]
    folder.mkdir(parents=True)
    path = folder / reader.name
    clean = reader.make(top).encode()
    path.write_bytes(KINDS[kind](clean) if kind else clean)
    code, out, err = norma(*reader.command(top, path, folder))
    return code, out, err, path, result_of(folder, out, path) if code == 0 else b""


@pytest.fixture(scope="session")
def clean(top):
    results = {}

    def of(name):
        if name not in results:
            code, _, err, _, result = run(top, top / "clean" / name, name, "")
            assert code == 0, err
            results[name] = result
        return results[name]
    return of


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", READERS)
def test_matrix(top, tmp_path, clean, name, kind):
    reader = READERS[name]
    expected = clean(name)
    code, out, err, path, result = run(top, tmp_path / "one", name, kind)
    assert code in (0, 2, 4, 5), f"exit code {code}: {err}"
    if kind in BAD and name == "log.jsonl":  # a run may still write its log: the page counts the bad lines
        assert code == 0 and "log.jsonl cannot be read, the first is line 3." in page(tmp_path)
    elif kind in BAD:
        assert code and re.search(re.escape(path.name) + r":\d+", err), f"{code}: {err}"
    elif code:
        assert path.name in err, err
        assert kind in ALLOWED[reader.kind] or name.startswith(("prepare", "train")), err
    elif kind in SAME and not (kind == "bom" and reader.kind == "score"):
        assert result == expected
    if code == 0 and reader.records:
        blank = kind in BLANK and reader.kind == "text" and not reader.name.endswith((".tsv", ".csv"))
        assert out.count(b"\n") == reader.records + blank, f"{out[-300:]!r} {err}"


def page(tmp_path):
    return (tmp_path / "one" / "page.html").read_text()
