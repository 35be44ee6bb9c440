#!/usr/bin/env python3
"""Recomputes figures in sentences of results/*.md from the archived runs. results/figures has sections

    [PAGE ARCHIVE...]
    text of the page with {expression:format} in place of each figure

An evaluated line must occur in results/PAGE.md, where a line break is a space. An expression has the names of
archive() for the first archive, and A[0].NAME, A[1].NAME for each. v(NORM) is a variant as norma compare
--format json prints it, seeds(NORM, KEY) a value of each run, nll(NORM[, SEED[, I]]) the loss of the I-th
validation (the last), or its mean over seeds; batch() the same with batch statistics. last(FILE) is the
number at the end of a text, welch(X, Y) a difference of means with interval (ledger_statistics.Effect).

    scripts/results_figures.py --check        prints the lines that do not occur in their page
    scripts/results_figures.py --uncovered    also prints sentences with decimals that no line recomputes"""
import functools
import json
import os
import re
import statistics
import sys
import tempfile
import types

import ledger_statistics
import results_tables as tables


def study(folder):
    """What the queue.jsonl and the runs of a study say: times in minutes, planned and real."""
    lines = [json.loads(line) for line in tables.read(folder / "queue.jsonl").splitlines()]
    answer = json.loads(tables.read(folder / "answer.json"))
    planned = {r["phase"]: r["seconds"] / 60 for r in lines if r["type"] == "part"}
    ended = [r for r in lines if r["type"] == "run" and r["state"] in ("finished", "dropped")]
    ends = {p: max(r["at"] for r in ended if r["phase"] == p) / 60 for p in planned}
    real = {p: end - before for (p, end), before in zip(ends.items(), [0, *ends.values()])}

    def values(phase, key, variant=None):
        return [r[key] for r in ended if r["phase"] == phase and variant in (None, r["variant"])]

    def score(norm):
        """Mean and deviation of the test scores of fresh seeds, or what became of the variant."""
        variant = next(v for v in answer["variants"] if v["variant"].split("+")[0] == norm)
        done = [r for r in ended if r["phase"] == "confirm" and r["state"] == "finished"]
        whole = set.intersection(*({r["seed"] for r in done if r["variant"] == v} for v in
                                   {r["variant"] for r in done}))  # the last seed may be cut
        tests = [json.loads(tables.read(folder / r["folder"] / "test.json"))["value"]
                 for r in done if r["seed"] in whole and r["variant"] == variant["variant"]]
        return f"{statistics.mean(tests):.2f} ± {statistics.stdev(tests):.2f}" if tests else variant["state"]

    return types.SimpleNamespace(
        answer=answer, score=score, count=lambda phase, key: len(set(values(phase, key))),
        runs=len([r for r in ended if r["state"] == "finished"]),
        time=lambda p: f"{planned[p]:.1f} / {real[p]:.1f}",
        all=f"{sum(planned.values()):.1f} / {ends['confirm']:.1f}",
        off=max(abs(real[p] / planned[p] - 1) for p in planned),
        all_off=abs(ends["confirm"] / sum(planned.values()) - 1))


def archive(name, temporary):
    folder = tables.unpack(name.split("/")[0], temporary).parent / name  # or a comparison in an archive
    compared = (json.loads(tables.comparison_table(folder, "json")) if (folder / "comparison.json").exists()
                else {"variants": [], "runs": []})
    variants = {v["norm"]: v for v in compared["variants"]}

    @functools.cache
    def records(run):
        return [json.loads(line) for line in tables.read(folder / run / "log.jsonl").splitlines()]

    def log(run, kind, update=None):
        return [r for r in records(run) if r["type"] == kind and update in (None, r["update"])]

    def seeds(norm, key):
        return [r[key] for r in sorted(compared["runs"], key=lambda r: r["seed"]) if r["norm"] == norm]

    def loss(key):
        return lambda norm, seed=None, i=-1: tables.mean(
            [log(f"{norm}-{s}", "valid")[i][key] for s in ([seed] if seed else seeds(norm, "seed"))])

    nll, batch = loss("nll"), loss("batch_nll")
    return dict(v=variants.__getitem__, norms=list(variants), seeds=seeds, log=log, nll=nll, batch=batch,
                gap=lambda *run: nll(*run) - batch(*run), mean=tables.mean, median=statistics.median,
                pct=lambda a, b: 100 * (a / b - 1),
                last=lambda file: float(tables.read(folder / file).split()[-1]),
                welch=lambda x, y: ledger_statistics.contrast([(1, x, []), (-1, y, [])]),
                data=lambda run, file: json.loads(tables.read(folder / run / file)),
                study=functools.cache(lambda: study(folder)),
                paper=lambda recipes, norm: float(tables.paper_number(recipes, norm)))


def uncovered(page, expected):
    """Sentences with decimals outside commands and tables that results_tables.py writes."""
    text = re.sub(r"^```.*?^```", "", tables.read(f"results/{page}.md"), flags=re.M | re.S)
    text = re.sub(r"\s+", " ", tables.MARKER.sub("", text))
    for line in expected:
        text = text.replace(line, "")
    return [s for s in re.split(r"(?<=[.:|]) ", text) if re.search(r"[0-9]\.[0-9]", s)]


def main():
    os.chdir(tables.SOURCE)
    wrong, found = 0, {}
    for line in tables.read("results/figures").splitlines():
        section = re.fullmatch(r"\[(\S+) (.+)\]", line)
        if section:
            page, archives = section[1], section[2].split()
            logs = tempfile.TemporaryDirectory()  # until the next section
            each = [archive(name, logs.name) for name in archives]
            names = each[0] | {"A": [types.SimpleNamespace(**a) for a in each]}
        elif line and line[0] != "#":
            expected = re.sub(r"\{([^{}]+):([^{}:]+)\}", lambda m: format(eval(m[1], names), m[2]), line)
            found.setdefault(page, []).append(expected)
            if expected not in re.sub(r"\s+", " ", tables.read(f"results/{page}.md")):
                wrong += 1
                print(f"results/{page}.md: the runs of {archives[0]} give: {expected}")
    if sys.argv[1:] == ["--uncovered"]:
        for page, expected in found.items():
            print(*(f"{page}: {s}" for s in uncovered(page, expected)), sep="\n")
    sys.exit(1 if wrong else 0)


main()
