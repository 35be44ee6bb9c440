"""Reading archived runs (results/logs), and the rules of results/claims.md that all claims share."""

import io
import json
import lzma
import math
import os
import tarfile

import ledger_statistics as st
import run_queue

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(ROOT, "results/logs")
CONFIRMED, REFUTED, UNDECIDED, NOT_TESTABLE = "confirmed", "refuted", "undecided", "not testable here"

# Cross-entropy in nats per token of the validation targets under the unigram frequencies of the training
# targets, add-one smoothing: a run whose last validation is not below it has failed (results/claims.md).
UNIGRAM = {
    "iwslt15-en-vi-table2": 6.459,
    "ledger-tears-depth": 6.554,
    "ledger-tears-rates": 6.554,
    "ledger-iwslt14-4k": 6.118,
}


class Run:
    """An archived run: its files by name, and what they contain."""

    def __init__(self, files):
        self.files = files

    def json(self, name):
        return json.loads(self.files[name]) if name in self.files else None

    def config(self):
        values, section = {}, ""
        for line in self.files["config.ini"].splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            elif " =" in line:
                key, _, value = line.partition(" =")
                values[f"{section}.{key}"] = value.split(" ; ")[0].strip()
        return values

    def log(self, kind):
        return [
            json.loads(line)
            for line in self.files["log.jsonl"].splitlines()
            if line.startswith('{"type":"' + kind + '"')
        ]

    def score(self):
        return self.json("test.json")["value"]

    def draws(self):
        return self.json("test.json").get("draws", [])

    def nll(self):
        """Of the last validation; infinite if there is none, because the run failed before."""
        validations = self.log("valid")
        return validations[-1]["nll"] if validations else math.inf


class Archive:
    opened = {}

    def __init__(self, name):
        self.name, self.runs_by_folder = name, {}
        with (
            lzma.open(os.path.join(LOGS, name + ".tar.xz")) as xz,
            tarfile.open(fileobj=io.BytesIO(xz.read())) as tar,
        ):
            for member in tar.getmembers():
                folder, _, file = member.name.partition("/")[2].rpartition("/")
                if member.isfile() and folder and file != "comparison.json":
                    text = tar.extractfile(member).read().decode("utf-8")
                    self.runs_by_folder.setdefault(folder, {})[file] = text

    @classmethod
    def open(cls, name):
        if name not in cls.opened:
            cls.opened[name] = cls(name)
        return cls.opened[name]

    @staticmethod
    def exists(name):
        return os.path.exists(os.path.join(LOGS, name + ".tar.xz"))

    def variant(self, name):
        """The runs of a variant by seed."""
        found = {}
        for folder, files in self.runs_by_folder.items():
            stem, _, seed = folder.rpartition("-")
            if stem == name:
                found[int(seed)] = Run(files)
        return dict(sorted(found.items()))


def group(weight, runs, score=Run.score, draws=True):
    runs = list(runs.values())
    return (weight, [score(run) for run in runs], [run.draws() for run in runs] if draws else [])


def log_score(run):
    return math.log(run.score())


def score_difference(archive, a, b):
    """a - b over seeds and test items; None with fewer than two seeds."""
    runs = Archive.open(archive)
    groups = [group(1, runs.variant(a)), group(-1, runs.variant(b))]
    return st.contrast(groups) if min(len(g[1]) for g in groups) > 1 else None


class Finding:
    def __init__(self, verdict, effect="", runs=0, archive="", decide="", conditions=""):
        self.verdict, self.effect, self.runs, self.archive = verdict, effect, runs, archive
        self.decide, self.conditions = decide, conditions


def require(archive, variants, **settings):
    """Runs of the paper's protocol have these settings; section.key is written section__key."""
    for variant in variants:
        for seed, run in Archive.open(archive).variant(variant).items():
            config = run.config()
            for key, value in settings.items():
                actual = config.get(key.replace("__", "."))
                if actual not in (value if isinstance(value, tuple) else (value,)):
                    raise SystemExit(f"{archive}/{variant}-{seed}: {key} is {actual} instead of {value}")


def sizes(archive, variant):
    """The conditions of a run, in words."""
    config = next(iter(Archive.open(archive).variant(variant).values())).config()
    start = next(iter(Archive.open(archive).variant(variant).values())).log("start")[0]
    layers = "+".join(
        config[key] for key in ("model.encoder_layers", "model.decoder_layers") if key in config
    )
    updates = (
        config["train.updates"] if config["train.updates"] != "0" else config["train.epochs"] + " epochs"
    )
    return (
        f"{layers or config.get('model.layers')} layers, d {config['model.width']}, "
        f"{start['data_size']:,} {start.get('size_unit', 'units')}, {updates}"
        f"{' updates' if updates.isdigit() else ''} of at most {int(config['train.max_tokens']):,} tokens, "
        f"{config['optim.name']}, {config['model.norm_position']}-norm"
    )


def failures(runs, unigram):
    return sum(1 for run in runs.values() if run.nll() >= unigram)


def seconds(runs):
    """Core-seconds per run: measured, or the duration of the last log line."""
    values = []
    for run in runs.values():
        finished = run.json("finished.json")
        lines = run.log("valid") or run.log("train")
        values.append(finished["core_seconds"] if finished else lines[-1]["seconds"])
    return st.mean(values)


def cost(n, arms, per_run):
    return f"{n} seeds per variant decide, {n * arms * per_run / 3600:.1f} core-hours"


def unfinished(archive):
    """(finished, queued) runs of a group of the queue, or None if all are finished or the archive is not of
    the queue."""
    rows = [row for row in run_queue.read_queue()[0] if archive == "ledger-" + row["group"]]
    expected = sum(len(run_queue.seeds(row)) for row in rows)
    finished = len(Archive.open(archive).runs_by_folder) if rows else 0
    return (finished, expected) if finished < expected else None


def largest(*names):
    """The first archive whose runs have all finished: larger models decide instead of smaller ones."""
    return next((name for name in names if Archive.exists(name) and not unfinished(name)), names[-1])


def missing(archive, variants, least=2):
    """Whether a group of the queue has not yet run with two seeds of each variant."""
    return not Archive.exists(archive) or any(len(Archive.open(archive).variant(v)) < least for v in variants)


def common(archive, variants):
    """The runs of the seeds that all variants have: [{variant: run}]."""
    runs = {variant: Archive.open(archive).variant(variant) for variant in variants}
    seeds = sorted(set.intersection(*(set(r) for r in runs.values())))
    return [{variant: runs[variant][seed] for variant in variants} for seed in seeds]


def decided(effect, sign, margin, paper):
    """The rule of evidence for a comparison. An effect with the claimed sign that is equivalent within the
    margin, too, decides nothing: it exists, but is smaller than what the claim is about."""
    value, equal = sign * effect.value, effect.equivalence(margin) < 0.05
    if effect.p < 0.05 and value > 0:
        size = " (size confirmed)" if effect.low <= paper <= effect.high else ""
        return UNDECIDED if equal else CONFIRMED + size
    return REFUTED if equal or effect.p < 0.05 else UNDECIDED


def part_refuted(*p_values):
    """Whether one of a claim's parts is refuted, with Holm's correction over the parts."""
    return min(p_values) * len(p_values) < 0.05


def against(effect, sign, margin):
    """p that an effect without the claimed sign, or equivalent within the margin, refutes a part."""
    return min(effect.equivalence(margin), effect.beyond(0, -sign))


def one_position(archive, *variants, **settings):
    """Runs of IWSLT14 with the same structure, or None before the runs."""
    if missing(archive, variants):
        return None
    require(archive, variants, optim__name="adam-fairseq", train__label_smoothing="0.1", **settings)
    return Archive.open(archive)


# Margins in BLEU are halves of differences near 35 BLEU. Where LayerNorm has less than this, no equivalence
# refutes a claim (results/claims.md, history).
EQUIVALENCE_BLEU = 10


def can_be_equivalent(archive, variant="ln"):
    runs = Archive.open(archive).variant(variant)
    return st.mean([run.score() for run in runs.values()]) >= EQUIVALENCE_BLEU


def bleu_verdict(archive, effect, sign, margin, paper):
    return decided(effect, sign, margin if can_be_equivalent(archive) else 0, paper)


def needs(effect, size, arms, archive, variant):
    """What decides an effect of the paper's size."""
    return cost(effect.seeds_for(size), arms, seconds(Archive.open(archive).variant(variant)))


def probes(run, instrument, site):
    """Lines of an instrument at a site, in order of updates."""
    return [
        line for line in run.log("probe") if line["instrument"] == instrument and line.get("site") == site
    ]
