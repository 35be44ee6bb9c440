#!/usr/bin/env python3
"""The false-positive rate of norma compare, with trained models: comparisons of two identical variants whose
runs differ only in the seed.

    scripts/false_positives.py RECIPE FOLDER [COMPARISONS [SEEDS [OPTION ...]]]

Trains 2 x COMPARISONS x SEEDS models (200 and 2) with seeds 1, 2, ... in FOLDER/pool and scores them on the
test set of the recipe; the options are for norma compare. Comparison i of two variants has separate models.
Prints how many comparisons have p < 0.05 in the test over seeds and test segments, and how many in the
paired bootstrap over segments for the first seed of each variant. An interrupted call continues. NORMA is
the program, by default build/norma.

Exit code: 0, or 1 if the number of the first test is outside the 95 % interval of the binomial distribution
for 5 %, 2 for an error.
"""
import json
import os
import pathlib
import subprocess
import sys


def fail(text):
    print(f"false_positives: {text}", file=sys.stderr)
    sys.exit(2)


def norma(*arguments):
    command = [os.environ.get("NORMA", "build/norma"), *map(str, arguments)]
    process = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if process.returncode:
        fail(f"norma {arguments[0]} failed")
    return process.stdout


def p_value(folder, settings, name, first, n, seeds):
    """p of a comparison of A and B, whose n models begin at `first` and `first` + seeds of the pool."""
    to = folder / name
    to.mkdir(exist_ok=True)
    for v, variant in enumerate("AB"):
        for s in range(n):
            link = to / f"{variant}-{s + 1}"
            if not link.is_symlink():
                link.symlink_to((folder / f"pool/L-{first + v * seeds + s}").resolve())
    variants = [dict(settings["variants"][0], name=name, origin=v) for v, name in enumerate("AB")]
    text = json.dumps(dict(settings, seeds=n, variants=variants))
    (to / "comparison.json").write_text(text, encoding="utf-8")
    p = json.loads(norma("compare", "--results", to, "--format", "json"))["variants"][1]["p"]
    return fail(f"{to}: no p") if p is None else p


def binomial_quantile(n, q):
    """Smallest k with P(X <= k) >= q for a binomial X of n trials at 5 %."""
    k, term = 0, 0.95**n
    total = term
    while total < q:
        term *= (n - k) / (k + 1) * 0.05 / 0.95
        total += term
        k += 1
    return k


def main(recipe, folder, comparisons="200", seeds="2", *options):
    if not (comparisons.isdigit() and seeds.isdigit() and int(comparisons) and int(seeds)):
        fail("not a number")
    folder, n, seeds = pathlib.Path(folder), int(comparisons), int(seeds)
    folder.mkdir(parents=True, exist_ok=True)
    norma("compare", recipe, "--norms", "L=layer", "--seeds", 2 * n * seeds, "--folder", folder / "pool",
          "--tid_batches", 1, "--format", "json", *options)
    settings = json.loads((folder / "pool/comparison.json").read_text(encoding="utf-8"))
    found = found_by_segments = 0
    for c in range(n):
        first = 1 + 2 * seeds * c
        found += seeds > 1 and p_value(folder, settings, f"c{c}", first, seeds, seeds) < 0.05
        found_by_segments += p_value(folder, settings, f"s{c}", first, 1, seeds) < 0.05
    low, high = binomial_quantile(n, 0.025), binomial_quantile(n, 0.975)
    print(f"{n} comparisons of identical variants with {seeds} seeds, p < 0.05: {found} "
          f"({100 * found / n:.1f} %) over seeds and segments; 95 % of the binomial distribution: {low} to "
          f"{high}; {found_by_segments} ({100 * found_by_segments / n:.1f} %) with one seed over segments")
    sys.exit(not low <= found <= high)


if len(sys.argv) < 3:
    fail("RECIPE FOLDER [COMPARISONS [SEEDS [OPTION ...]]]")
main(*sys.argv[1:])
