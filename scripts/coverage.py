#!/usr/bin/env python3
"""Merges the counts of gcov over all objects of a build, because kernels are compiled once per CPU level, and
prints the lines of src/ that were run, by folder. Writes coverage.txt to the build folder: the other lines,
by file.

    scripts/coverage.py [--minimum FOLDER=PERCENT]... BUILD

Exit code: 0 if every folder reaches its minimum, 1 if one does not, 2 wrong use."""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys


def counts_of(build):
    """{file: {line: calls, the largest number over the objects}}"""
    counts = collections.defaultdict(dict)
    for note in build.rglob("*.gcno"):
        if re.search("/(tests|examples)/", str(note)):
            continue
        command = [os.environ.get("GCOV", "gcov"), "--json-format", "--stdout", note]
        report = subprocess.run(command, cwd=build, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        for file in json.loads(report)["files"] if report else []:
            if path := re.search("(?:^|/)(src/.+)$", file["file"]):
                lines = counts[path[1]]
                for line in file["lines"]:
                    number = line["line_number"]
                    lines[number] = max(lines.get(number, 0), line["count"])
    return counts


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--minimum", action="append", default=[], type=lambda text: text.split("="))
    arguments.add_argument("build", type=lambda text: pathlib.Path(text).resolve(strict=True))
    options = arguments.parse_args()
    minimum = {folder: float(percent) for folder, percent in options.minimum}
    counts = counts_of(options.build)
    if not counts:
        sys.exit(f"{options.build}: no counts; was it built with --coverage?")
    n_lines, n_missed = collections.Counter(), collections.Counter()
    with open(options.build / "coverage.txt", "w") as listed:
        for path, lines in sorted(counts.items()):
            missed = sorted(number for number, count in lines.items() if not count)
            for group in ("src", "/".join(path.split("/")[:3])):
                n_lines[group] += len(lines)
                n_missed[group] += len(missed)
            if missed:
                print(f"{path}: {len(missed)} of {len(lines)}:", *missed, file=listed)
    below = False
    print(f"{'folder':<20} {'lines':>7} {'missed':>7} {'%':>7}")
    for group, n in sorted(n_lines.items()):
        percent = 100 * (n - n_missed[group]) / n
        low = percent < minimum.get(group, 0)
        below |= low
        print(f"{group:<20} {n:7} {n_missed[group]:7} {percent:7.2f}"
              + (f"  below {minimum[group]:g}" if low else ""))
    sys.exit(1 if below else 0)


main()
