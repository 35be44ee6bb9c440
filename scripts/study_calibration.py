#!/usr/bin/env python3
"""Simulates norma study with the archived runs of results/logs: each run is the mean of its variant plus a
residual that is drawn from all runs of the comparison. Prints the error rates in docs/study.md.

    scripts/study_calibration.py build/tests/test_study [REPLICATIONS]
"""
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

LOGS = pathlib.Path(__file__).resolve().parent.parent / "results" / "logs"
MOST_VARIANTS = 8


def value_of(file, name):
    """Of a run, higher is better: its test score, or the last perplexity of validation data; None without."""
    if name == "test.json":
        test = json.load(file)
        lower = test.get("lower_is_better", test.get("score") == "ppl")
        value = test.get("value")  # none in those of an early version
    else:
        lines = [json.loads(line) for line in file if b'"type":"valid"' in line]
        lower, value = True, lines[-1].get("perplexity") if lines else None
    return -100 * math.log(value) if lower and value else value


def runs_of(path):
    """{variant: [value]} of an archive of one comparison."""
    runs = {"test.json": {}, "log.jsonl": {}}
    with tarfile.open(path) as archive:
        for member in archive:
            found = re.fullmatch(r"[^/]+/([^/]+)-\d+/(test\.json|log\.jsonl)", member.name)
            value = found and value_of(archive.extractfile(member), found[2])
            if value is not None:
                runs[found[2]].setdefault(found[1], []).append(value)
    runs = runs["test.json"] or runs["log.jsonl"]  # language models of the queue have no test score
    return {variant: values for variant, values in runs.items() if len(values) > 1}


def main():
    program, replications = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "2000"
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as out:
        for path in sorted(LOGS.glob("*.tar.xz")):
            runs = runs_of(path)
            if not 2 <= len(runs) <= MOST_VARIANTS:
                continue
            for variant, values in runs.items():
                for value in values:
                    name = path.name.split(".")[0]
                    print(name, re.sub(r"\s", "_", variant)[:60], value, file=out)
        out.flush()
        environment = {**os.environ, "STUDY_RUNS": out.name, "STUDY_REPLICATIONS": replications}
        sys.exit(subprocess.run([program, "test_resampled*"], env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
