"""Inputs and runs for fault_matrix.py, made with the program in the folder of make_library_runs
(tests/e2e/library_models.sh)."""

import json
import pathlib
import shlex
import shutil
import struct
import subprocess

TESTS = pathlib.Path(__file__).resolve().parent.parent
IMAGES = """[run]
task = image
[data]
train = records
valid = records
size = 8
batch = 6
crop = 1
[model]
preset = tiny
norm = batch
[train]
epochs = 2
log_every = 1
[optim]
name = sgd
[schedule]
name = constant
lr = 0.05
warmup = 0
[device]
threads = 1
"""


def write(path, text):
    pathlib.Path(path).write_text(text, encoding="utf-8")


def lines(path):
    return pathlib.Path(path).read_text(encoding="utf-8").splitlines()


def first_lines(path, to, n):
    write(to, "".join(line + "\n" for line in lines(path)[:n]))


def write_texts():
    for path, to, n in (
        ("train.de", "few.de", 8),
        ("train.en", "few.en", 8),
        ("names.txt", "names.few", 6),
        ("tags.txt", "tags.few", 30),
        ("reviews.txt", "reviews.few", 6),
        ("lm.txt", "lm.few", 6),
    ):
        first_lines(path, to, n)
    subprocess.run(["gzip", "-kf", "few.de"], check=True)
    source, target = lines("train.de"), lines("train.en")
    write("links", "".join(" ".join(f"{i}-{i}" for i in range(len(s.split()))) + "\n" for s in source))
    pairs = [json.dumps({"de": s, "en": t}, ensure_ascii=False) for s, t in zip(source[:40], target)]
    write("pairs.jsonl", "".join(pair + "\n" for pair in pairs))
    pathlib.Path("pairs").mkdir(exist_ok=True)
    for side in ("de", "en"):
        shutil.copy(f"train.{side}", "pairs")
    subprocess.run(["tar", "czf", "pairs.tgz", "pairs"], check=True)
    stories = [
        f"Story {i}\n  Once a cat\thad {i % 7} lives.\n" + "The end.\n" * (i % 2) for i in range(1, 41)
    ]
    write("docs.txt", "\n".join(stories))
    first_lines("docs.txt", "docs.few", 7)
    write("few.prefix", "".join(line.split()[0] + "\n" for line in target[:8]))
    write("few.phrases", "".join("tree\n" if i % 2 else "blue dog\tred\n" for i in range(8)))
    write("vectors.txt", "".join(f"{w} 0.1 -0.2 0.3 0.5\n" for w in ("anna", "lives", "in", "wien", ".")))
    reviews = [f'{i},"{text}"\n' for i, text in enumerate(lines("reviews.few"))]
    write("reviews.csv", "id,text\n" + "".join(reviews))
    write("labels.few", "good\nbad\ngood\n")
    write("spans.few", "B-PER O O B-LOC O\nO O\n")
    if not pathlib.Path("png").is_dir():
        subprocess.run([TESTS / "support/make_images.py", "12", "6"], check=True)
    write("images.ini", IMAGES)


class Maker:
    """Makes inputs with the program."""

    def __init__(self, norma):
        self.norma = norma

    def make(self, path, arguments):
        """Runs a command that writes the path, unless it is there. Returns its output. An input that needs a
        library or program that is not installed is left out."""
        if pathlib.Path(path).exists():
            return ""
        done = subprocess.run(
            [self.norma, *shlex.split(arguments)], capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 7):
            raise SystemExit(f"norma {arguments}: exit code {done.returncode}: {done.stderr}")
        return done.stdout

    def train(self, folder, recipe, arguments=""):
        self.make(folder, f"train {recipe} --run.quiet --run.folder {folder} {arguments}")

    def convert(self, name, run, form):
        self.make(f"fixture/{name}", f"convert {run} --to {form} -o fixture/{name}")


def damage_newest(folder):
    """Of two checkpoints the newer one, of update 6, is damaged."""
    for path in pathlib.Path(folder, "checkpoints").glob("*6.safetensors"):
        path.write_bytes(path.read_bytes()[:100])


def write_fairseq():
    """A fairseq model: the names of M2M100 without their prefix."""
    folder = pathlib.Path("fixture/fairseq")
    if folder.is_dir():
        return
    folder.mkdir()
    for name in ("dict.source.txt", "dict.target.txt", "data.ini"):
        shutil.copy(f"data/{name}", folder)
    model = pathlib.Path("fixture/huggingface-untied/model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", model)
    header = model[8 : 8 + length].replace(b"model.", b"")
    header = header.replace(b"lm_head.weight", b"decoder.output_projection.weight", 1)
    header = header.replace(b'"xxh3"', b'"sums"', 1)
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(header)) + header + model[8 + length :]
    )


def make_inputs(norma):
    """Everything that COMMANDS read, in the current folder."""
    maker = Maker(norma)
    pathlib.Path("fixture").mkdir(exist_ok=True)
    write_texts()
    maker.train("fixture/run", "translate.ini", "--train.updates 6")
    if not pathlib.Path("fixture/damaged").is_dir():
        maker.train(
            "fixture/damaged",
            "translate.ini",
            "--train.updates 6 --train.validate_every 3 --train.keep_last 2",
        )
        damage_newest("fixture/damaged")
    maker.train(
        "run-batch",
        "translate.ini",
        "--model.norm batch --train.updates 6 --train.save_every 3 --train.keep_last 2",
    )
    maker.train("run-untied", "translate.ini", "--model.share_embeddings none --train.updates 2")
    maker.train("run-images", "images.ini")
    maker.make(
        "aligned",
        "prepare --train train --valid valid --source-lang de --target-lang en --alignments links "
        "--bpe-merges 20 --joint true --subword-sampling true --output aligned",
    )
    maker.make(
        "bytes",
        "prepare --format text --documents separated --train docs.txt --tokenizer byte_level "
        "--bpe-merges 20 --output bytes",
    )
    small = "--data.folder bytes --model.width 16 --model.ff 32 --model.heads 2 --model.layers 1"
    maker.train("run-bytes", "lm.ini", "--model.preset llama " + small)
    maker.train("run-gpt2", "lm.ini", "--model.preset gpt2 " + small)
    maker.make(
        "lm-split",
        "prepare --format text --train lm.txt --valid-every 5 --test lm.few --bpe-merges 10 "
        "--output lm-split",
    )
    maker.make(
        "pieces",
        "prepare --train train --valid valid --source-lang de --target-lang en --tokenizer sentencepiece "
        "--spm-vocab-size 320 --output pieces",
    )
    if pathlib.Path("pieces").is_dir():
        maker.train("run-pieces", "translate.ini", "--data.folder pieces")
    maker.make("list", "shortlist data --threads 1 --output list")
    maker.convert("ctranslate2", "run-translate", "ctranslate2")
    maker.convert("huggingface", "run-translate", "huggingface")
    maker.convert("huggingface-untied", "run-untied", "huggingface")
    maker.convert("ctranslate2-lm", "run-lm", "ctranslate2")
    maker.convert("huggingface-gpt2", "run-gpt2", "huggingface")
    maker.convert("huggingface-llama", "run-bytes", "huggingface")
    write_fairseq()
    shutil.copytree(TESTS / "interchange/marian", "marian", dirs_exist_ok=True)
    maker.make(
        "runs/comparison.json",
        "compare classify.ini --norms layer,rms --compare.folder runs --train.epochs 1 --jobs 1 "
        "--data.test reviews.tsv",
    )
    if not pathlib.Path("inspected.json").exists():
        inspect = "inspect runs/layer-1 runs/rms-1 --json --batches 1 --gradient-batches 1"
        write("inspected.json", maker.make("inspected.json", inspect))
