#!/usr/bin/env python3
"""The tables of results/*.md are recomputed from the logs of the runs, results/logs/NAME.tar.xz. Each follows
a line

    <!-- results: NAME [paper=RECIPES] [gap] [probes] -->

and has one row per variant of the comparison. paper=rbn/imdb-post adds the published results, from the
recipes rbn/imdb-post-VARIANT.ini; gap adds the negative log-likelihood of the last validation, and if norms
use running statistics how much it is above that with batch statistics; probes adds what the instruments
attention_entropy, residual_share and massive measured last. NAME/FOLDER is one comparison of an archive.

    <!-- effects: NAME -->

begins the table of main effects and interactions of a factorial comparison.

    <!-- recipe: NAME -->

begins a table of one recipe on several corpora, compared with the best baseline: one row per title, the mean
over runs with different seeds.

    <!-- pairs: NAME -->

begins a table of comparisons of two variants each, which differ in something other than the norm: one row per
comparison.

    scripts/results_tables.py --check [NAME]       prints the tables that differ from the logs
    scripts/results_tables.py --write [NAME]       writes them
    scripts/results_tables.py --show NAME          prints what norma compare prints, in Markdown
    scripts/results_tables.py --pack NAME FOLDER   archives a comparison: comparison.json, and log.jsonl,
                                                   config.ini and test.json of every run, without texts of the
                                                   corpus; of a folder without comparison.json, the runs of a
                                                   recipe, each with title.txt (data | size), baseline.json
                                                   (norma baseline --json) and test.json (norma score,
                                                   perplexity or classify --json); of a folder of comparisons,
                                                   all of them

NORMA is the program, default build/norma. Exit code: 0 no difference, 1 some, 2 wrong use or an error."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
MARKER = re.compile(
    r"^(<!-- (results|effects|recipe|pairs): (\S+)(?: paper=(\S+))?( gap)?( probes)? -->\n\n)((?:\|.*\n)*)",
    re.M)


def fail(text):
    print(f"results_tables: {text}", file=sys.stderr)
    sys.exit(2)


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8")


# Archives


def without_folders(text):
    """Folders of the machine are not part of a result."""
    return re.sub(r"(?<![\w.])/(?:[\w.@+-]+/)+(?=recipes/|data/|runs/)", "", text)


def pack_run(run, to, others):
    to.mkdir()
    log = "".join(line + "\n" for line in read(run / "log.jsonl").splitlines()
                  if not line.startswith('{"type":"samples"'))
    texts = {"config.ini": read(run / "config.ini"),
             "log.jsonl": re.sub(r'"host":"[^"]*",', "", log),
             "test.json": re.sub(r'^ "samples": .*\n', "", read(run / "test.json"), flags=re.M)}
    texts.update((name, read(run / name)) for name in others)
    for name, text in texts.items():
        (to / name).write_text(without_folders(text), encoding="utf-8")


def copy_runs(folder, to):
    """Copies a comparison, or the runs of a recipe."""
    to.mkdir()
    compared = (folder / "comparison.json").exists()
    if compared:
        text = without_folders(read(folder / "comparison.json"))
        (to / "comparison.json").write_text(text, encoding="utf-8")
    for test in sorted(folder.glob("*/test.json")):
        pack_run(test.parent, to / test.parent.name, [] if compared else ["title.txt", "baseline.json"])


def comparisons_in(folder):
    return sorted(path.parent for path in folder.glob("*/comparison.json"))


def pack(name, folder):
    with tempfile.TemporaryDirectory() as temporary:
        to = pathlib.Path(temporary, name)
        comparisons = comparisons_in(folder)
        if comparisons:
            to.mkdir()
            for comparison in comparisons:
                copy_runs(comparison, to / comparison.name)
        else:
            copy_runs(folder, to)
        os.makedirs("results/logs", exist_ok=True)
        subprocess.run(["tar", "--create", "--xz", "--sort=name", "--owner=0", "--group=0",
                        "--mtime=2000-01-01", "--file", f"results/logs/{name}.tar.xz", "--directory",
                        temporary, name], check=True)


def unpack(name, temporary):
    """The folder with the contents of an archive, or a folder in it."""
    archive = f"results/logs/{name.split('/')[0]}.tar.xz"
    if not os.path.exists(archive):
        fail(f"{archive}: no such archive")
    subprocess.run(["tar", "--extract", "--xz", "--file", archive, "--directory", temporary], check=True)
    return pathlib.Path(temporary, name)


def comparison_table(folder, form):
    """What norma compare prints of a finished comparison."""
    program = os.environ.get("NORMA", "build/norma")
    done = subprocess.run([program, "compare", "--results", str(folder), "--format", form],
                          capture_output=True, text=True)
    if done.returncode:
        fail(f"norma compare --results failed for {folder.name}: {done.stderr}")
    return done.stdout


# Tables


def paper_number(recipes, variant):
    """The published result of a variant, from the comment of its recipe; "" without that recipe."""
    for name in (variant.lower(), variant.lower().replace("-", "")):
        path = pathlib.Path(f"recipes/{recipes}-{name}.ini")
        if not path.exists():
            continue
        published = re.search(r"^# Published result: (.*)", read(path), re.M)
        published = published[1] if published else ""
        found = (re.search(r"(?<![\w.])([0-9.]+)(?: BLEU| F1)? on the test set", published)
                 or re.match(r"(?:perplexity )?([0-9.]+|infinite|0 BLEU)", published))
        return found[1] if found else fail(f"{path}: no line 'Published result'")
    return ""


def score_title(score):
    return score.upper() if score in ("bleu", "f1", "ter") else score


def number(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def interval(low, high, digits):
    return "" if low is None else f"{low:.{digits}f} to {high:.{digits}f}"


def p_value(p):
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def mean(values):
    return sum(values) / len(values)


def row(cells):
    return re.sub(" +\\|", " |", "| " + " | ".join(map(str, cells)) + " |")


def difference(variant):
    if variant.get("difference") is None:
        return ""
    between = interval(variant.get("difference_low"), variant.get("difference_high"), 2)
    return f"{variant['difference']:+.2f}" + (f" ({between})" if between else "")


def last_losses(folder, variant):
    """The last validation of each run of a variant: mean loss in nats with running statistics, and its mean
    difference to the loss with batch statistics ("" for norms without them)."""
    running, gaps = [], []
    for path in sorted(folder.glob("*/log.jsonl")):
        if re.fullmatch(re.escape(variant["norm"]) + "-[0-9]+", path.parent.name):
            last = json.loads([line for line in read(path).splitlines() if '"type":"valid"' in line][-1])
            running.append(last["nll"])
            if last.get("batch_nll") is not None:
                gaps.append(last["nll"] - last["batch_nll"])
    if len(running) != variant["n"]:
        fail(f"{folder}: {len(running)} logs of {variant['norm']}, {variant['n']} seeds")
    return number(mean(running), 3), f"{mean(gaps):+.3f}" if gaps else ""


def last_probes(folder, variant):
    """What the last probes of a variant measured, means over its seeds: entropy of attention in percent of
    the largest possible one, mean over sites; largest standard deviation of the residual stream before a
    sublayer; largest ratio of an activation to the median."""
    of_seed = []
    for path in sorted(folder.glob("*/log.jsonl")):
        if re.fullmatch(re.escape(variant["norm"]) + "-[0-9]+", path.parent.name):
            probes = [json.loads(line) for line in read(path).splitlines() if '"type":"probe"' in line]
            last = [p for p in probes if p["update"] == probes[-1]["update"]]
            by = {name: [p for p in last if p["instrument"] == name] for name in
                  ("attention_entropy", "residual_share", "massive")}
            of_seed.append((100 * mean([p["entropy"] / p["uniform"] for p in by["attention_entropy"]]),
                            max(p["stream"] ** 0.5 for p in by["residual_share"]),
                            max(p["ratio"] for p in by["massive"])))
    return [number(mean(values), digits) for values, digits in zip(zip(*of_seed), (1, 2, 0))]


def results_table(folder, paper, gap, probes):
    compared = json.loads(comparison_table(folder, "json"))
    variants = compared["variants"]
    losses = {v["norm"]: last_losses(folder, v) for v in variants} if gap else {}
    gaps = any(running[1] for running in losses.values())  # some norms use running statistics
    titles = ["norm", "seeds", score_title(compared["score"]), "±", "95 %", "difference", "p (Holm)",
              "TID mean %", "TID variance %"]
    titles += ["validation loss"] * bool(gap) + ["above batch statistics"] * gaps + ["paper"] * bool(paper)
    titles += ["attention entropy %", "stream", "massive"] * bool(probes)
    lines = [row(titles), "|---|" + "--:|" * (len(titles) - 1)]
    for v in variants:
        tid = [v.get(key) for key in ("tid_mean_mean", "tid_variance_mean")]
        cells = [v["norm"], v["n"], number(v.get("score_mean"), 2), number(v.get("score_deviation"), 2),
                 interval(v.get("interval_low"), v.get("interval_high"), 1), difference(v),
                 p_value(v.get("p_holm")), *(number(t and 100 * t, 1) for t in tid)]
        cells += losses[v["norm"]][:1 + gaps] if gap else ()
        cells += [paper_number(paper, v["norm"])] if paper else []
        cells += last_probes(folder, v) if probes else []
        lines.append(row(cells))
    return lines


def effects_table(folder):
    """One row per main effect or interaction of a factorial comparison."""
    lines = [row(["effect", "difference", "p (Holm)"]), "|---|--:|--:|"]
    for e in json.loads(comparison_table(folder, "json"))["effects"]:
        lines.append(row([f"{e['term']}: {e['contrast']}",
                          f"{e['effect']:+.2f} ({interval(e['low'], e['high'], 2)})", p_value(e["p_holm"])]))
    return lines


def score_with_interval(scored, within):
    """24.05 [22.30, 25.54]"""
    score = next(scored[key] for key in ("score", "bleu", "accuracy", "f1", "perplexity")
                 if scored.get(key) is not None)
    low, high = (within.get(end, within.get("accuracy_" + end)) for end in ("low", "high"))
    return number(score, 2) + ("" if low is None else f" [{low:.2f}, {high:.2f}]")


def recipe_run(run):
    """The last state of a run and its scores."""
    baseline, test = (json.loads(read(run / f"{name}.json")) for name in ("baseline", "test"))
    last = json.loads([line for line in read(run / "log.jsonl").splitlines()
                       if re.search('"type":"(train|valid)"', line)][-1])
    best = baseline["baselines"][-1]["test"]  # the last baseline is the strongest one
    return {"title": read(run / "title.txt").rstrip("\n"), "baseline": score_with_interval(best, best),
            "update": last["update"], "seconds": last["seconds"],
            "score": score_with_interval(test, test.get("interval") or test)}


def recipe_table(folder):
    """One row per title: a run, or the mean over the runs (seeds) and the score of each."""
    by_title = {}
    for test in sorted(folder.glob("*/test.json")):
        run = recipe_run(test.parent)
        by_title.setdefault(run["title"], []).append(run)
    lines = ["| data | size | baseline | recipe | updates | minutes |", "|---|--:|--:|--:|--:|--:|"]
    for title, runs in by_title.items():
        scores = [run["score"].split(" ")[0] for run in runs]
        score = (runs[0]["score"] if len(runs) == 1
                 else f"{mean([float(s) for s in scores]):.2f} ({', '.join(scores)})")
        updates, minutes = mean([r["update"] for r in runs]), mean([r["seconds"] / 60 for r in runs])
        lines.append(f"| {title} | {runs[0]['baseline']} | {score} | {updates:.0f} | {minutes:.1f} |")
    return lines


def losses_by_seed(compared, variant):
    runs = [run for run in compared["runs"] if run["norm"] == variant]
    return [run["valid_nll"] for run in sorted(runs, key=lambda run: run["seed"])]


def pairs_table(folder):
    """One row per comparison of two variants: scores, their difference, and the differences of the validation
    losses of runs with the same seed."""
    lines = []
    for comparison in comparisons_in(folder):
        compared = json.loads(comparison_table(comparison, "json"))
        first, second = compared["variants"]
        title = score_title(compared["score"])
        if not lines:
            a, b = first["norm"], second["norm"]
            lines = [row(["norm", "seeds", f"{title}, {a}", "±", f"{title}, {b}", "±", "difference", "p",
                          f"loss, {a}", f"loss, {b}", "differences by seed"]), "|---|" + "--:|" * 10]
        before, after = (losses_by_seed(compared, v["norm"]) for v in (first, second))
        scores = [number(v[key], 2) for v in (first, second) for key in ("score_mean", "score_deviation")]
        lines.append(row([comparison.name, second["n"], *scores, difference(second), p_value(second["p"]),
                          number(mean(before), 3), number(mean(after), 3),
                          ", ".join(f"{y - x:+.3f}" for x, y in zip(before, after))]))
    return lines


def table(kind, name, *options):
    with tempfile.TemporaryDirectory() as temporary:
        folder = unpack(name, temporary)
        plain = {"recipe": recipe_table, "pairs": pairs_table, "effects": effects_table}
        lines = plain[kind](folder) if kind in plain else results_table(folder, *options)
    return "".join(line + "\n" for line in lines)


def update_page(page, only, write):
    """Number of tables that differ."""
    differences = 0

    def replace(found):
        nonlocal differences
        marker, kind, name, *options, old = found.groups()
        if only not in (None, name):
            return found[0]
        new = table(kind, name, *options)
        if new != old:
            differences += 1
            if not write:
                print(f"{page}: {name} differs from its logs; it should be\n{new}")
        return marker + new + ("\n" if old == "" else "")

    text = read(page)
    new = MARKER.sub(replace, text)
    if write and differences:
        page.write_text(new, encoding="utf-8")
    return differences


def main():
    mode, *rest = sys.argv[1:] or [""]
    most = {"--check": 1, "--write": 1, "--show": 1, "--pack": 2}.get(mode, -1)
    if len(rest) > most or (mode in ("--show", "--pack") and len(rest) < most):
        fail("--check|--write [NAME], --show NAME, or --pack NAME FOLDER")
    if mode == "--pack":
        rest[1] = os.path.abspath(rest[1])
    os.chdir(SOURCE)
    if mode == "--pack":
        pack(rest[0], pathlib.Path(rest[1]))
    elif mode == "--show":
        with tempfile.TemporaryDirectory() as temporary:
            print(comparison_table(unpack(rest[0], temporary), "markdown"), end="")
    else:
        only = rest[0] if rest else None
        pages = sorted(pathlib.Path("results").glob("*.md"))
        changed = sum(update_page(page, only, mode == "--write") for page in pages)
        sys.exit(1 if mode == "--check" and changed else 0)


if __name__ == "__main__":
    main()
