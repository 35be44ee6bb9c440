#!/usr/bin/env python3
"""Measures Norma and other toolkits alternately, each at its best setting, and writes
results/performance/CPU-N-cores.json.

    bench/peers/bench_peers.py [--works train,lm,decode,norms] [--match TEXT] [--quick] [--rounds 5]
                               [--data FOLDER] [--images FOLDER] [--output FOLDER] [--any-load] [--compile]
                               [--lines 1000]

Run it by `make bench-peers`, which creates a virtual environment with the current PyTorch and CTranslate2
from PyPI. Each work is measured in rounds; in a round every side runs once, so that slow drifts of the
machine affect all sides. Before each measurement the program waits until other processes use less than 8 % of
the CPUs, and it records their share during the measurement. The JSON has every round. The table of
results/performance/README.md is generated from it by performance_page.py.

Translation is measured on real text: without --data on the corpus of the demo (scripts/demo_corpus.sh), with
10,000 BPE merges. Batches of language models are full, so only the size of their dictionary matters, and
their words are drawn at random. Images are measured with --images, a folder with train and test of CIFAR-10.
"""
import argparse
import datetime
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from data_folder import read_side

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NORMA = os.environ.get("NORMA", f"{ROOT}/build/norma")
BENCH = os.environ.get("BENCH", f"{ROOT}/build/norma-bench")
CORES = len(os.sched_getaffinity(0))
# Memory of freed tensors stays with the process: without this, PyTorch's figures contain page faults.
KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "8589934592",
               "MALLOC_TOP_PAD_": "268435456"}
COMPILED = {}  # the folder of torch.compile's results, which the rounds share
LM_SHAPES = {  # width, feed-forward, heads, layers, words
    "d256": (256, 1024, 4, 3, 10000),
    "gpt2": (768, 3072, 12, 12, 50257),
}
LM_NAMES = {"d256": "d 256", "gpt2": "GPT-2 124M"}


def fail(text):
    sys.exit(f"bench_peers: {text}")


def today():
    return datetime.date.today().isoformat()


# ---- the machine ----

def cpu_times():
    """Seconds of CPU time of all processes, steal included, and of everything."""
    with open("/proc/stat", encoding="ascii") as file:
        values = [int(word) / os.sysconf("SC_CLK_TCK") for word in file.readline().split()[1:9]]
    return sum(values) - values[3] - values[4], sum(values)


def process_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        user, system = file.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """CPU time of this process, of the children that have ended and of the PyTorch processes that are
    running."""
    times = os.times()
    return (times.user + times.system + times.children_user + times.children_system
            + sum(process_seconds(process.pid) for process in TorchSide.running))


class OtherShare:
    """Fraction of the CPU time that other processes and the hypervisor took since the object was made."""

    def __init__(self):
        self.busy, self.all = cpu_times()
        self.own = own_seconds()

    def percent(self):
        busy, everything = cpu_times()
        return (
            100 * max(0.0, busy - self.busy - (own_seconds() - self.own)) / max(everything - self.all, 0.01)
        )


def wait_until_quiet(limit=8.0):
    for attempt in range(900):
        share = OtherShare()
        time.sleep(1)
        if share.percent() < limit:
            return
        if attempt == 5:
            print("waiting until other processes use less than 8 % of the CPUs", file=sys.stderr)
    fail("the machine is not idle (--any-load measures anyway)")


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    name = re.search(r"^model name\s*: (.*)$", text, re.M)
    family = [re.search(rf"^{key}\s*: (\d+)$", text, re.M) for key in ("cpu family", "model")]
    flags = re.search(r"^flags\s*: (.*)$", text, re.M)
    known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
    numbers = f", family {family[0].group(1)}, model {family[1].group(1)}" if all(family) else ""
    return ((name.group(1) if name else platform.machine()) + numbers,
            [flag for flag in known if flags and flag in flags.group(1).split()])


# ---- running both sides ----

def run(command, environment=None, cwd=None):
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False,
                          env={**os.environ, "OMP_NUM_THREADS": str(CORES), **(environment or {})})
    if done.returncode:
        fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


class TorchSide:
    """A PyTorch program with --rounds, which is started by its first round and runs until the work ends."""

    running = []

    def __init__(self, script, arguments):
        self.command = [sys.executable, f"{HERE}/{script}", *map(str, arguments), "--rounds"]
        self.process = self.threads = None

    def round_with(self, threads):
        self.process.stdin.write(f"{threads}\n")
        self.process.stdin.flush()
        found = re.search(r"([0-9]+) target tokens/s, peak ([0-9]+) MiB", self.process.stdout.readline())
        if not found:
            fail(f"{' '.join(self.command)}: no result")
        return {"value": float(found.group(1)), "mib": int(found.group(2)), "threads": threads}

    def start(self):
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(CORES), **KEPT_MEMORY, **COMPILED},
        )
        TorchSide.running.append(self.process)
        # Small models are faster with fewer threads than cores.
        choices = sorted({CORES, (CORES + 1) // 2, (CORES + 3) // 4} if CORES > 2 else {CORES})
        self.threads = (
            choices[0] if len(choices) == 1 else max(choices, key=lambda n: self.round_with(n)["value"])
        )

    def __call__(self):
        if not self.process:
            self.start()
        return self.round_with(self.threads)

    @classmethod
    def end_all(cls):
        while cls.running:
            process = cls.running.pop()
            process.stdin.close()
            process.wait()


def norma_speed(scratch, recipe, options):
    """Target tokens/s of the updates after the first, and the peak of resident memory."""
    folder = f"{scratch}/run"
    shutil.rmtree(folder, ignore_errors=True)
    process = subprocess.Popen([NORMA, "train", recipe, "--run.folder", folder, "--quiet", *options],
                               stderr=subprocess.PIPE, text=True)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        fail(f"norma train: {errors}")
    with open(f"{folder}/log.jsonl", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    updates = [record for record in records if record["type"] == "train"]
    tokens = [after["tokens"] - before["tokens"] for before, after in zip(updates, updates[1:])]
    seconds = sum(count / update["tokens_per_second"] for count, update in zip(tokens, updates[1:]))
    return {"value": sum(tokens) / seconds, "mib": usage.ru_maxrss >> 10}


class Work:
    """One comparison: sides in the order of the table, each a name and a function that measures once."""

    def __init__(self, name, unit, sides, higher_is_better=True):
        self.name, self.unit, self.sides, self.higher = name, unit, sides, higher_is_better

    def measure(self, rounds, any_load):
        kept = {name: [] for name, _ in self.sides}
        for number in range(rounds):
            for name, call in self.sides:
                if not any_load:
                    wait_until_quiet()
                share = OtherShare()
                result = call()
                result["others_percent"] = round(share.percent(), 1)
                kept[name].append(result)
                print(f"{self.name}, round {number + 1}, {name}: {result['value']:.6g} {self.unit}, "
                      f"others {result['others_percent']} %", file=sys.stderr)
        TorchSide.end_all()
        sides = []
        for name, _ in self.sides:
            values = [result["value"] for result in kept[name]]
            side = {"side": name, "median": statistics.median(values), "min": min(values), "max": max(values),
                    "rounds": kept[name]}
            if "mib" in kept[name][0]:
                side["mib"] = statistics.median(result["mib"] for result in kept[name])
            sides.append(side)
        return {"work": self.name, "date": today(), "unit": self.unit, "higher_is_better": self.higher,
                "sides": sides}


# ---- data ----

def random_lengths(count, seed, longest=60):
    generator = random.Random(seed)
    return [min(longest, max(3, int(generator.lognormvariate(3.0, 0.55)))) for _ in range(count)]


def write_corpus(path, lengths, words, seed):
    """Lines of words whose frequencies follow Zipf's law."""
    generator = random.Random(seed)
    weights = [1 / (rank + 3) for rank in range(words)]
    with open(path, "w", encoding="ascii") as file:
        for length in lengths:
            file.write(" ".join(f"w{i:x}" for i in generator.choices(range(words), weights, k=length)) + "\n")


def make_translation_data(scratch):
    """A data folder of the demo's corpus: German and English help pages of LibreOffice."""
    corpus = f"{os.path.dirname(NORMA)}/peers-corpus"
    run([f"{ROOT}/scripts/demo_corpus.sh", corpus])
    run([NORMA, "prepare", "--train", f"{corpus}/train", "--valid", f"{corpus}/valid",
         "--test", f"{corpus}/test", "--source-lang", "de", "--target-lang", "en", "--bpe-merges", "10000",
         "--output", f"{scratch}/data"])
    return f"{scratch}/data"


def write_units(data, path, lines):
    """Subwords of the first lines of the test set's source side."""
    with open(f"{data}/dict.source.txt", encoding="utf-8") as file:
        words = ["<s>", "<pad>", "</s>", "<unk>"] + [line.split()[0] for line in file]
    with open(path, "w", encoding="utf-8") as file:
        for ids in read_side(data, "source", "test")[:lines]:
            file.write(" ".join(words[i] for i in ids[:-1]) + "\n")


def without_validation(folder, scratch, name):
    """A data folder of links without validation data, with which a run would end with a validation, and
    without the list of checksums, which names that data."""
    copy = f"{scratch}/{name}"
    os.mkdir(copy)
    for file in os.listdir(folder):
        if "valid" not in file and not file.startswith("checksums."):
            os.symlink(os.path.realpath(f"{folder}/{file}"), f"{copy}/{file}")
    return copy


def write_recipe(path, **sections):
    with open(path, "w", encoding="ascii") as file:
        for section, values in sections.items():
            file.write(f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items()))


def has_bf16():
    return "bf16" in re.sub(r"\s", "", run([NORMA, "train", "--help",
                                            "all"]).split("--device.precision")[1][:600])


# ---- works ----

def norma_sides(scratch, recipe):
    sides = [("Norma, float", lambda: norma_speed(scratch, recipe, []))]
    if has_bf16():
        sides.append(("Norma, bf16", lambda: norma_speed(scratch, recipe, ["--device.precision", "bf16"])))
    return sides


def torch_sides(script, arguments, compiled):
    """The hand-written model in float and bf16, and the last one compiled by torch.compile if that is
    measured. On a CPU without bf16 instructions PyTorch's bf16 is left out: it took 28 times as long as its
    float (small, an AMD EPYC with AVX2)."""
    modes = [("float", [])]
    if {"avx512_bf16", "amx_bf16"} & set(cpu_model()[1]):
        modes.append(("bf16", ["--bf16"]))
    if compiled:
        name, more = modes[-1]
        modes.append((f"{name}, compiled", more + ["--compile"]))
    return [(f"PyTorch, hand-written, {name}", TorchSide(script, arguments + more)) for name, more in modes]


def train_work(scratch, data, training, preset, tokens, steps, compiled):
    recipe = f"{scratch}/{preset}.ini"
    write_recipe(recipe, data={"folder": training}, model={"preset": preset},
                 train={"max_tokens": tokens, "updates": steps + 1, "log_every": 1}, optim={"beta2": 0.98})
    arguments = [data, "--preset", preset, "--max-tokens", tokens, "--steps", steps, "--model"]
    return Work(f"training, {preset}, {tokens:,} tokens", "tokens/s", [
        ("PyTorch, nn.Transformer, float", TorchSide("torch_step.py", arguments + ["module"])),
        *torch_sides("torch_step.py", arguments + ["written"], compiled), *norma_sides(scratch, recipe)])


def image_work(scratch, folder, steps):
    """ResNet20 with BatchNorm; a round of PyTorch in each of its memory formats."""
    arguments = ["--train", f"{folder}/train", "--valid", f"{folder}/test", "--steps", steps]
    options = ["--data.train", f"{folder}/train", "--data.valid", "", "--data.test", "",
               "--run.profile", "small", "--train.epochs", "0", "--train.updates", str(steps + 1),
               "--train.log_every", "1", "--probe.every", "0"]
    return Work("training, ResNet20, 128 images, images/s", "images/s", [
        ("PyTorch, float", TorchSide("torch_images.py", arguments)),
        ("PyTorch, float, channels last", TorchSide("torch_images.py", [*arguments, "--channels-last"])),
        ("Norma, float", lambda: norma_speed(scratch, f"{ROOT}/recipes/pn/figure2-resnet20.ini", options))])


def lm_name(shape, length, tokens):
    return f"language model, {LM_NAMES[shape]}, context {length:,}, {tokens:,} tokens"


def lm_work(scratch, shape, length, tokens, steps, compiled):
    width, ff, heads, layers, words = LM_SHAPES[shape]
    folder = f"{scratch}/lm-{shape}"
    if not os.path.exists(folder):
        write_corpus(f"{folder}.txt", random_lengths(40000, 5), words, 5)
        with open(f"{folder}.txt", "a", encoding="ascii") as file:  # every word occurs
            file.write("".join(f"w{i:x}\n" for i in range(words)))
        run([NORMA, "prepare", "--format", "text", "--tokenizer", "none", "--bpe-merges", "0", "--train",
             f"{folder}.txt",
             "--output", folder])
    recipe = f"{scratch}/{shape}-{length}.ini"
    write_recipe(recipe, run={"task": "lm"}, data={"folder": folder},
                 model={"width": width, "ff": ff, "heads": heads, "layers": layers, "context": length,
                        "dropout": 0, "attention_dropout": 0, "relu_dropout": 0, "embedding_dropout": 0,
                        "hidden_dropout": 0, "share_embeddings": "true", "output_bias": "false",
                        "norm_position": "pre",
                        "positions": "learned"},
                 train={"max_tokens": tokens, "updates": steps + 1, "log_every": 1})
    arguments = ["--width", width, "--ff", ff, "--heads", heads, "--layers", layers, "--words", words,
                 "--length", length,
                 "--tokens", tokens, "--steps", steps]
    return Work(lm_name(shape, length, tokens), "tokens/s",
                torch_sides("torch_lm_step.py", arguments, compiled) + norma_sides(scratch, recipe))


def ct2_speed(model, units, out, kind, beam, length, batch, workers):
    text = run([sys.executable, f"{HERE}/ct2_decode.py", model, units, out, "--type", kind, "--beam",
                str(beam), "--length",
                str(length), "--batch", str(batch), "--workers", str(workers), "--threads",
                str(CORES // workers or 1)])
    return {"value": float(re.search(r"([0-9]+) tokens/s", text).group(1)), "batch": batch,
            "workers": workers}


def ct2_types():
    """Compute types that CTranslate2 has on this CPU."""
    return run([sys.executable, "-c",
                "import ctranslate2; print(*ctranslate2.get_supported_compute_types('cpu'))"]).split()


def best_ct2(model, units, out, kind, beam, length):
    """The batch size and number of workers with the highest throughput, from one run each: first the workers,
    then the batch size."""
    def fastest(choices):
        return max(choices, key=lambda choice: ct2_speed(model, units, out, kind, beam, length,
                                                         *choice)["value"])

    _, workers = fastest(
        [(64, workers) for workers in sorted({1, (CORES + 3) // 4, (CORES + 1) // 2, CORES})]
    )
    return fastest([(batch, workers) for batch in (32, 64, 80, 128)])


def norma_decode(run_folder, units, scratch, kind, beam, length):
    """tokens/s without loading, which is measured with empty input."""
    command = [NORMA, "translate", run_folder, "--decode.beam", str(beam), "--input-format", "subword",
               "--output-format",
               "subword", "--decode.max_length_a", "0", "--decode.max_length_b", str(length),
               "--decode.min_length",
               str(length), "--device.precision", {"float32": "float", "int8": "int8",
                                                   "bfloat16": "bf16"}[kind],
               "--output", f"{scratch}/norma.out"]
    start = time.monotonic()
    run(command + ["/dev/null"])
    middle = time.monotonic()
    run(command + [units])
    seconds = time.monotonic() - middle - (middle - start)
    with open(f"{scratch}/norma.out", encoding="utf-8") as file:
        tokens = sum(len(line.split()) + 1 for line in file)
    return {"value": tokens / seconds}


def decode_works(scratch, data, preset, lines, is_chosen):
    choices = [(beam, kind, name, f"translation in batches, {preset}, beam {beam}, {name}") for beam in (4, 1)
               for kind, name in (("float32", "float"), ("int8", "int8"), ("bfloat16", "bf16"))]
    choices = [choice for choice in choices if is_chosen(choice[3])
               and (choice[1] != "bfloat16" or has_bf16())]
    if not choices:
        return []
    recipe, folder, model, units = (f"{scratch}/{name}-{preset}"
                                    for name in ("decode.ini", "decode", "ct2", "units"))
    write_recipe(recipe, data={"folder": data}, model={"preset": preset},
                 train={"updates": 20, "max_tokens": 2048, "score": "false", "validate_every": 20})
    run([NORMA, "train", recipe, "--run.folder", folder, "--quiet"])
    os.mkdir(model)
    run([sys.executable, f"{HERE}/ct2_convert.py", f"{folder}/best.safetensors", model])
    write_units(data, units, lines)
    works, supported, best = [], ct2_types(), {}
    for beam, kind, name, title in choices:
        # Where CTranslate2 has no bf16, bf16 is compared with its float.
        theirs, their_name = (kind, name) if kind in supported else ("float32", "float")
        if (theirs, beam) not in best:
            best[theirs, beam] = best_ct2(model, units, f"{scratch}/ct2.out", theirs, beam, 25)
        batch, workers = best[theirs, beam]
        works.append(Work(title, "tokens/s", [
            (f"CTranslate2, {their_name}", lambda k=theirs, b=beam, n=batch, w=workers:
             ct2_speed(model, units, f"{scratch}/ct2.out", k, b, 25, n, w)),
            (f"Norma, {name}", lambda k=kind, b=beam: norma_decode(folder, units, scratch, k, b, 25))]))
    return works


def norm_rows(rounds, any_load):
    """Microseconds of norms, forward and backward: PyTorch with memory kept, and norma-bench."""
    times = {}
    for _ in range(rounds):
        if not any_load:
            wait_until_quiet()
        for line in run([sys.executable, f"{HERE}/torch_norms.py"], KEPT_MEMORY).splitlines():
            name, rows, width, forward, backward = line.split()
            for direction, value in (("forward", forward), ("backward", backward)):
                times.setdefault((f"{name} [{rows}, {width}] {direction}", "PyTorch"),
                                 []).append(float(value))
        for norm in json.loads(run([BENCH, "--threads", str(CORES), "--parts", "norms", "--json",
                                    "-"]))["norms"]:
            for direction in ("forward", "backward"):
                key = f"{norm['norm']} [{norm['shape'][0]}, {norm['shape'][1]}] {direction}"
                times.setdefault((key, "Norma"), []).append(norm[direction]["microseconds"])
    rows = []
    for key in sorted({key for key, _ in times}):
        sides = [{"side": side, "median": statistics.median(times[key, side]), "min": min(times[key, side]),
                  "max": max(times[key, side])} for side in ("PyTorch", "Norma") if (key, side) in times]
        if len(sides) == 2:
            rows.append({"work": f"norm {key}", "date": today(), "unit": "us", "higher_is_better": False,
                         "sides": sides})
    return rows


MODULE_VERSIONS = r"""
import json, re
found = {}
for name in ("torch", "ctranslate2", "numpy"):
    try:
        module = __import__(name)
    except ImportError:
        continue
    found[name] = module.__version__
    if name == "torch":
        libraries = r"(?:MKL-DNN|oneDNN|Math Kernel Library Version|MKL) v?[0-9.]+"
        found["torch libraries"] = ", ".join(re.findall(libraries, module.__config__.show()))
print(json.dumps(found))
"""


def versions():
    """In another process: the peak memory of a child includes that of this process when the child was
    started."""
    return {"norma": run([NORMA, "--version"]).split("\n")[0],
            **json.loads(run([sys.executable, "-c", MODULE_VERSIONS]))}


def open_report(folder, rounds):
    """The path and the contents of the CPU's file. Works that are not measured now stay if they were measured
    with the same versions."""
    os.makedirs(folder, exist_ok=True)
    model, flags = cpu_model()
    path = f"{folder}/{re.sub(r'[^A-Za-z0-9]+', '-', model).strip('-')}-{CORES}-cores.json"
    report = {"cpu": model, "cores": CORES, "instructions": flags, "date": today(),
              "versions": versions(), "rounds": rounds, "works": []}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            old = json.load(file)
        if old["versions"] == report["versions"]:
            report["works"] = [{"date": old["date"], **work} for work in old["works"]]
    return path, report


def add_rows(path, report, rows):
    """Written after each work, so that an interruption loses only the works that are not finished."""
    names = {row["work"] for row in rows}
    report["works"] = [row for row in report["works"] if row["work"] not in names] + rows
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    os.replace(f"{path}.new", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--works", default="train,lm,decode,norms")
    parser.add_argument("--match", default="", help="only works whose name contains this text")
    parser.add_argument("--quick", action="store_true",
                        help="the presets small and d 256 only, in at most half an hour")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="training steps of a round")
    parser.add_argument("--lines", type=int, default=1000, help="sentences to translate")
    parser.add_argument("--data", help="a data folder of norma prepare")
    parser.add_argument("--images", help="a folder with train and test of CIFAR-10, a folder per class")
    parser.add_argument("--output", default=f"{ROOT}/results/performance")
    parser.add_argument("--any-load", action="store_true", help="do not wait until the machine is idle")
    parser.add_argument("--compile", action="store_true",
                        help="also measure the PyTorch models with torch.compile")
    given = parser.parse_args()
    chosen = given.works.split(",")
    larger = not given.quick
    if not set(chosen) <= {"train", "lm", "decode", "norms"}:
        parser.error("--works: train, lm, decode, norms")
    path, report = open_report(given.output, given.rounds)
    with tempfile.TemporaryDirectory() as scratch:
        COMPILED["TORCHINDUCTOR_CACHE_DIR"] = f"{scratch}/compiled"
        if "train" in chosen or "decode" in chosen:
            data = given.data or make_translation_data(scratch)
        works = []
        if "train" in chosen:
            training = without_validation(data, scratch, "training")
            works += [train_work(scratch, data, training, preset, tokens, given.steps, given.compile)
                      for preset, tokens in (("small", 2048), ("iwslt", 4096))[: 1 + larger]]
        if "train" in chosen and given.images:
            works.append(image_work(scratch, given.images, given.steps))
        if "lm" in chosen:
            works += [lm_work(scratch, shape, length, tokens, given.steps, given.compile)
                      for shape, length, tokens in (("d256", 64, 4096), ("d256", 1024, 4096),
                                                    ("gpt2", 64, 1024),
                                                    ("gpt2", 1024, 1024))
                      if given.match in lm_name(shape, length, tokens) and (larger or shape == "d256")]
        if "decode" in chosen:
            for preset in ("small", "iwslt")[: 1 + larger]:
                works += decode_works(scratch, data, preset, given.lines, lambda name: given.match in name)
        for work in works:
            if given.match in work.name:
                add_rows(path, report, [work.measure(given.rounds, given.any_load)])
        if "norms" in chosen:
            add_rows(path, report, norm_rows(given.rounds, given.any_load))
    print(path)


if __name__ == "__main__":
    main()
