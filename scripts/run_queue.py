#!/usr/bin/env python3
"""Runs the rows of results/queue, and archives them for scripts/ledger.py.

    scripts/run_queue.py --runs FOLDER [--jobs 2] [--nice 19] [--only GROUP,...] [--until HH:MM]
                                                      runs what is missing
    scripts/run_queue.py --runs FOLDER --score        BLEU of the test set for the translation runs without it
    scripts/run_queue.py --runs FOLDER --pack         writes results/logs/ledger-GROUP.tar.xz
    scripts/run_queue.py --study FOLDER               writes results/logs/NAME.tar.xz of a study's folder
    scripts/run_queue.py --check                      checks the queue: columns, claims, order

A row of the queue is a variant: group, variant, seeds, core-seconds of one run, claims, measurements,
arguments of norma train. Its runs are FOLDER/GROUP/VARIANT-SEED. The variants of a group are interleaved:
all run with seed 1 before the first runs with seed 2, so that load and machine vary over variants alike. A
finished run is never repeated, and a failed one is not replaced by another seed. The groups are sorted by
claims decided per core-hour. BLEU is that of multi-bleu.perl over tokens, of the model with the best
validation loss, beam 5; its resamples draw the same sentences for all runs. NORMA is the program, default
build/norma; data folders are relative to the current folder. Exit code: 0, 1 malformed queue, 2 wrong use."""

import argparse
import collections
import concurrent.futures
import datetime
import io
import json
import lzma
import math
import os
import random
import re
import subprocess
import sys
import tarfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
UNSCORED = re.compile(r"-select$|^tears-(g|g-long|depth)$")  # their claims are not about test BLEU
TIMED = "tears-speed"  # measures the time of updates: its rate may stay in the warm-up
COLUMNS = ["group", "variant", "seeds", "core_seconds", "claims", "measure", "arguments"]
MACHINE = re.compile(r"(?<![\w.])/(?:[\w.@+-]+/)+(?=recipes/|data/|runs/)")  # folders of the machine


def read_table(path):
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#")]
    return [dict(zip(lines[0], line)) for line in lines[1:]], lines


def recipe_settings(path):
    """{section.key: value} of a recipe and what it includes; a profile's keys are NAME:section.key."""
    values, section = {}, ""
    with open(path, encoding="utf-8") as recipe:
        for line in recipe:
            key, equals, value = re.sub(r"\s*(^#|\s[#;]|^;).*", "", line).partition("=")
            if line.startswith("["):
                section = line[1 : line.index("]")]
            elif key.strip() == "include":
                values |= recipe_settings(os.path.join(os.path.dirname(path), value.strip()))
            elif equals:
                profile = section.startswith("profile.")
                prefix = f"{section[8:]}:" if profile else f"{section}."
                values[prefix + key.strip()] = value.strip()
    return values


def row_settings(row):
    """The settings of a row: its recipe, the profile, its arguments."""
    recipe, *words = [w for w in row["arguments"].split() if w != "|" and not w.startswith("best(")]
    options, rest = {}, iter(words)
    for word in rest:
        key, equals, value = word[2:].partition("=")
        options[key] = value if equals else next(rest)
    values = recipe_settings(os.path.join(ROOT, "recipes", recipe + ".ini"))
    profile = options.get("run.profile", "") + ":"
    return values | {k[len(profile) :]: v for k, v in values.items() if k.startswith(profile)} | options


def warmup_ends(settings, updates):
    """Whether a run reaches its learning rate. The default warm-up is 4,000 updates, also where
    schedule.warmup_fraction is 0."""
    if float(settings.get("schedule.warmup_fraction", 0)):
        return True
    warmup = int(settings.get("schedule.warmup", 4000))
    return settings.get("schedule.name") in ("constant", "no-warmup") or warmup == 0 or warmup < updates


def read_queue(path=None):
    path = path or os.path.join(ROOT, "results/queue")
    rows, lines = read_table(path)
    errors = [
        f"{path}: row {i}: {len(line)} columns instead of {len(COLUMNS)}"
        for i, line in enumerate(lines, 1)
        if len(line) != len(COLUMNS)
    ]
    if lines[0] != COLUMNS:
        errors.append(f"{path}: the columns are {' '.join(COLUMNS)}")
    if not errors:
        claims = {row["id"] for row in read_table(os.path.join(ROOT, "results/claims"))[0]}
        for row in rows:
            errors += [
                f"{path}: {row['group']}: unknown claim {claim}"
                for claim in row["claims"].split(",")
                if claim not in claims
            ]
        for row in rows:
            before = groups(rows)[: groups(rows).index(row["group"])]
            errors += [
                f"{path}: {row['group']} comes before {chosen}, whose best settings it takes"
                for chosen in re.findall(r"best\(([^)]+)\)", row["arguments"])
                if chosen not in before
            ]
        for row in rows:
            settings = row_settings(row)
            if row["group"] != TIMED and not warmup_ends(settings, int(settings.get("train.updates", 0))):
                errors.append(
                    f"{path}: {row['group']}/{row['variant']}: the warm-up does not end within "
                    "train.updates; with epochs instead, give schedule.warmup_fraction"
                )
        rates = [claims_per_core_hour([r for r in rows if r["group"] == group]) for group in groups(rows)]
        if rates != sorted(rates, reverse=True):
            errors.append(
                f"{path}: the groups are not sorted by claims per core-hour: "
                + ", ".join(f"{group} {rate:.1f}" for group, rate in zip(groups(rows), rates))
            )
    return rows, errors


def seeds(row):
    """The seeds of a row: "4" is 1 to 4, "101-103" is 101 to 103."""
    first, _, last = row["seeds"].rpartition("-")
    return range(int(first or 1), int(last) + 1)


def groups(rows):
    return list(dict.fromkeys(row["group"] for row in rows))


def claims_per_core_hour(rows):
    claims = {claim for row in rows for claim in row["claims"].split(",")}
    return len(claims) / sum(len(seeds(row)) * float(row["core_seconds"]) / 3600 for row in rows)


def runs_in_order(rows):
    """(row, seed) by group, then seed, then variant."""
    for group in groups(rows):
        members = [row for row in rows if row["group"] == group]
        for seed in sorted({seed for row in members for seed in seeds(row)}):
            for row in members:
                if seed in seeds(row):
                    yield row, seed


def run_folder(runs, row, seed):
    return os.path.join(runs, row["group"], f"{row['variant']}-{seed}")


def last_validation(folder):
    """The last validation of a run, or None."""
    last = None
    with open(os.path.join(folder, "log.jsonl"), encoding="utf-8") as log:
        for line in log:
            if line.startswith('{"type":"valid"'):
                last = json.loads(line)
    return last


def resolve(arguments, runs, rows):
    """The words of the arguments. best(GROUP): the words after "|" of the variant of GROUP with the lowest
    validation loss."""
    words = []
    for word in arguments.split():
        best = re.fullmatch(r"best\((.+)\)", word)
        if best:
            scores = []
            for row in rows:
                for seed in seeds(row) if row["group"] == best[1] else ():
                    validation = last_validation(run_folder(runs, row, seed))
                    scores.append(
                        (validation["nll"] if validation else math.inf, row["arguments"].split("|")[1])
                    )
            words += min(scores)[1].split()
        elif word != "|":
            words.append(word)
    return words


def execute(norma, runs, rows, row, seed, nice):
    folder = run_folder(runs, row, seed)
    if os.path.exists(os.path.join(folder, "finished.json")):
        return
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    words = resolve(row["arguments"], runs, rows)
    recipe = os.path.join(ROOT, "recipes", words[0] + ".ini")
    command = [
        norma,
        "train",
        recipe,
        *words[1:],
        "--train.seed",
        str(seed),
        "--run.folder",
        folder,
        "--run.resume",
        "yes",
        "--run.quiet",
        "true",
        "--device.threads",
        "1",
    ]
    with open(folder + ".out", "a", encoding="utf-8") as out:
        child = subprocess.Popen(["nice", "-n", str(nice), *command], stdout=out, stderr=out)
        _, status, usage = os.wait4(child.pid, 0)
        code = child.returncode = os.waitstatus_to_exitcode(status)
        if code == 0 and row["measure"] != "-":
            with open(os.path.join(folder, "inspection.json"), "w", encoding="utf-8") as inspection:
                subprocess.call(
                    [
                        "nice",
                        "-n",
                        str(nice),
                        norma,
                        "inspect",
                        folder,
                        *row["measure"].split(),
                        "--json",
                        "--device.threads",
                        "1",
                    ],
                    stdout=inspection,
                    stderr=out,
                )
    if os.path.isdir(folder) and code >= 0:  # a run that a signal ended is resumed by the next call
        with open(os.path.join(folder, "finished.json"), "w", encoding="utf-8") as done:
            json.dump({"exit": code, "core_seconds": round(usage.ru_utime + usage.ru_stime, 1)}, done)
    print(
        f"{datetime.datetime.now():%H:%M:%S} {row['group']}/{row['variant']}-{seed}: exit {code}", flush=True
    )


RESAMPLES = 200


def ngrams(words, n):
    return collections.Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def bleu_counts(hypothesis, reference):
    """Of a sentence: lengths, then matches and n-grams of the hypothesis for n 1 to 4."""
    h, r = hypothesis.split(), reference.split()
    counts = [len(h), len(r)]
    for n in range(1, 5):
        counts += [(ngrams(h, n) & ngrams(r, n)).total(), max(0, len(h) - n + 1)]
    return counts


def bleu(rows):
    """Corpus BLEU without smoothing (Papineni et al. 2002), in percent."""
    length, reference, *pairs = map(sum, zip(*rows))
    if not all(pairs):
        return 0.0
    mean = sum(math.log(pairs[i] / pairs[i + 1]) for i in range(0, 8, 2)) / 4
    return 100 * math.exp(min(0.0, 1 - reference / length) + mean)


def score(norma, folder):
    """test.json of a finished translation run: BLEU of the test set and of RESAMPLES resamples."""
    with open(os.path.join(folder, "config.ini"), encoding="utf-8") as config:
        data = re.search(r"^folder = (data/\S+)", config.read(), re.MULTILINE)[1]
    output = subprocess.run(
        [norma, "translate", folder, f"{data}/test.source.words", "--input-format", "tokenized"]
        + ["--beam", "5", "--device.threads", "1"],
        stdout=subprocess.PIPE,
        check=True,
        encoding="utf-8",
    ).stdout
    with open(f"{data}/test.target.words", encoding="utf-8") as references:
        rows = list(map(bleu_counts, output.splitlines(), references.read().splitlines()))
    choice = random.Random(1)
    draws = [round(bleu(choice.choices(rows, k=len(rows))), 4) for _ in range(RESAMPLES)]
    result = {"title": "test BLEU", "value": bleu(rows), "sentences": len(rows), "draws": draws}
    with open(os.path.join(folder, "test.json"), "w", encoding="utf-8") as file:
        json.dump(result, file)
    print(f"{folder}: BLEU {result['value']:.2f}", flush=True)


def score_all(norma, runs, rows):
    for row, seed in runs_in_order(rows):
        folder = run_folder(runs, row, seed)
        done = os.path.exists(os.path.join(folder, "finished.json"))
        scored = os.path.exists(os.path.join(folder, "test.json"))
        translation = re.search(r"data/(iwslt|tears)", row["arguments"])
        if done and translation and not scored and not UNSCORED.search(row["group"]):
            score(norma, folder)


# Lines of a log and of test.json with texts of the corpus.
SAMPLES = ('{"type":"samples"', ' "samples":')


def without_texts(path):
    """A file of a run without lines with texts of the corpus, folders of the machine and its name."""
    with open(path, encoding="utf-8") as text:
        lines = [line for line in text if not line.startswith(SAMPLES)]
    return re.sub(r'"host":"[^"]*",', "", MACHINE.sub("", "".join(lines))).encode()


def write_archive(name, files):
    """results/logs/NAME.tar.xz of (member, bytes)."""
    path = os.path.join(ROOT, "results/logs", name + ".tar.xz")
    with (
        lzma.open(path, "wb", preset=9) as xz,
        tarfile.open(fileobj=xz, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for member, data in files:
            info = tarfile.TarInfo(f"{name}/{member}")
            info.size, info.mtime, info.mode = len(data), 946684800, 0o644
            tar.addfile(info, io.BytesIO(data))
    print(f"{path}: {len({os.path.dirname(member) for member, _ in files} - {''})} runs")


def pack(runs, group):
    """results/logs/ledger-GROUP.tar.xz: of each finished run config.ini, log.jsonl without texts,
    inspection.json, test.json, finished.json."""
    files = []
    for run in sorted(os.listdir(os.path.join(runs, group))):
        folder = os.path.join(runs, group, run)
        if not os.path.exists(os.path.join(folder, "finished.json")):
            continue
        for file in ("config.ini", "finished.json", "inspection.json", "log.jsonl", "test.json"):
            path = os.path.join(folder, file)
            if os.path.exists(path):
                files.append((f"{run}/{file}", without_texts(path)))
    if files:
        write_archive(f"ledger-{group}", files)


def pack_study(study):
    """results/logs/NAME.tar.xz of the folder NAME of norma study: queue, answer, and of each run config.ini,
    log.jsonl and test.json without texts."""
    files = []
    for folder, _, names in sorted(os.walk(study)):
        run = os.path.relpath(folder, study)
        kept = {"config.ini", "log.jsonl", "test.json"} if "config.ini" in names else set()
        kept |= {"answer.json", "answer.md", "queue.jsonl", "winner.ini"} if run == "." else set()
        for file in sorted(kept & set(names)):
            member = os.path.normpath(os.path.join(run, file))
            files.append((member, without_texts(os.path.join(folder, file))))
    write_archive(os.path.basename(os.path.normpath(study)), files)


def next_moment(clock):
    """Seconds of the epoch when the clock next shows HH:MM."""
    now = datetime.datetime.now()
    moment = datetime.datetime.combine(now, datetime.time.fromisoformat(clock))
    return (moment if moment > now else moment + datetime.timedelta(days=1)).timestamp()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--nice", type=int, default=19)
    parser.add_argument("--only", default="")
    parser.add_argument("--until", type=next_moment, default=math.inf)
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--pack", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--study")
    options = parser.parse_args()
    rows, errors = read_queue()
    if errors:
        sys.exit("\n".join(errors))
    if options.check:
        return
    if options.study:
        pack_study(options.study)
        return
    if not options.runs:
        parser.error("--runs FOLDER is required")
    every = rows
    if options.only:
        rows = [row for row in rows if row["group"] in options.only.split(",")]
    if options.pack:
        for group in groups(rows):
            if os.path.isdir(os.path.join(options.runs, group)):
                pack(options.runs, group)
        return
    norma = os.environ.get("NORMA", os.path.join(ROOT, "build/norma"))
    if options.score:
        score_all(norma, options.runs, rows)
        return
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:

        def task(row, seed):
            if time.time() < options.until:
                execute(norma, options.runs, every, row, seed, options.nice)

        for future in [pool.submit(task, row, seed) for row, seed in runs_in_order(rows)]:
            future.result()


if __name__ == "__main__":
    main()
