#!/usr/bin/env python3
"""Mutation tests of a list: applies its deliberate bugs, one at a time, to a copy of the sources, builds it
incrementally and runs the tests that should find them.

    scripts/listed_mutants.py [--check] [--sample N] [--seed S] [--jobs N] [--build FOLDER]
                              [--timeout SECONDS] [PATTERN]

PATTERN: a regular expression on file and text. --sample: only N of these, drawn by the seed. --check: only
tests that every text occurs exactly once in its file, and that no condition or loop loses its only statement.
Results are kept in FOLDER/results (default build-mutants), so an interrupted run continues; a mutant is
tested again when its file, its tests or its entry have changed. Exit code: 0 no mutant survived, 1 some did,
2 a mutant cannot be applied.

tests/mutants/*.txt: entries of
    FILE TEST [TEST ...]         tests: programs (test_x, or test_x:ARGUMENT), scripts (e2e_x), or golden
    - text                       one or more lines; the indentation of the first one is not part of the text
    + replacement                the same; none: the text is removed
    = reason                     the mutant is equivalent: it is listed, but not run
"""

import argparse
import collections
import concurrent.futures
import glob
import hashlib
import os
import pathlib
import random
import re
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
ONLY_STATEMENT = re.compile(r"(?:\)|\belse|\bdo)\s*\Z")


class Mutant:
    def __init__(self, at, file, tests):
        self.at, self.file, self.tests = at, file, tests
        self.removed, self.added, self.reason = [], [], ""

    def finish(self):
        self.text = "\n".join(self.removed).lstrip()
        self.new = "\n".join(self.added).lstrip()
        parts = [source(self.file), self.text, self.new]
        for test in self.tests:
            parts += [test, *test_sources(test.partition(":")[0])]
        self.key = hashlib.md5("\0".join(parts).encode()).hexdigest()

    def trouble(self):
        """Why it cannot be applied, or an empty text."""
        found = source(self.file).count(self.text)
        if found != 1:
            return f"the text occurs {found} times in {self.file}"
        before = source(self.file).partition(self.text)[0]
        if not self.new and self.text.endswith(";") and ONLY_STATEMENT.search(before):
            return "without its only statement, the condition or loop has the next one: replace it by ;"
        return ""


_sources = {}


def source(file):
    if file not in _sources:
        _sources[file] = (ROOT / file).read_text(encoding="utf-8")
    return _sources[file]


def test_sources(name):
    """The sources of a test, without which it is another test."""
    paths = [f"tests/{kind}/{name}.c" for kind in ("unit", "kernel", "grad")] + [f"tests/e2e/{name}.sh"]
    return [source(path) for path in paths if (ROOT / path).exists()]


def read_lists():
    mutants = []
    for path in sorted(glob.glob(str(ROOT / "tests/mutants/*.txt"))):
        for number, line in enumerate(pathlib.Path(path).read_text(encoding="utf-8").split("\n"), 1):
            if line.startswith("#") or not line.strip():
                continue
            if line.startswith("- "):
                mutants[-1].removed.append(line[2:])
            elif line.startswith("+"):
                mutants[-1].added.append(line[1:].removeprefix(" "))
            elif line.startswith("= "):
                mutants[-1].reason = line[2:]
            else:
                file, *tests = line.split()
                mutants.append(Mutant(f"{os.path.relpath(path, ROOT)}:{number}", file, tests))
    for mutant in mutants:
        mutant.finish()
    return mutants


class Results:
    """The lines KEY RESULT PLACE of a file, which several jobs extend."""

    def __init__(self, path):
        self.path, self.lock, self.by_key = path, threading.Lock(), {}
        if path.exists():
            for line in path.read_text().splitlines():
                key, result = line.split()[:2]
                self.by_key[key] = result

    def add(self, mutant, result):
        with self.lock, open(self.path, "a", encoding="utf-8") as out:
            self.by_key[mutant.key] = result
            print(mutant.key, result, mutant.at, file=out)
        print(f"{mutant.at}: {result}: {mutant.file}: {mutant.text.partition(chr(10))[0]}", flush=True)


class Copy:
    """A copy of the sources with a build folder."""

    def __init__(self, folder):
        self.folder, self.build, self.log = folder, folder / "build", folder / "log"
        folder.mkdir(exist_ok=True)
        files = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        subprocess.run(
            ["xargs", "-0", "cp", "--parents", "-u", "-t", folder], cwd=ROOT, check=True, input=files.stdout
        )
        for file in _sources:  # a run that was killed has left its mutant, which is newer than its source
            if (copy := folder / file).exists() and copy.read_text(encoding="utf-8") != _sources[file]:
                copy.write_text(_sources[file], encoding="utf-8")
        options = ["-DNORMA_TESTS=ON", "-DNORMA_WERROR=OFF", "-DNORMA_BENCH=OFF"]
        if not self.succeeds(["cmake", "-S", folder, "-B", self.build, "-G", "Ninja", *options]):
            sys.exit(f"cmake failed: {self.log}")

    def succeeds(self, command, **options):
        with open(self.log, "a", encoding="utf-8") as log:
            return not subprocess.run(command, stdout=log, stderr=log, check=False, **options).returncode

    def command(self, test):
        """Command, working folder and variables of a test."""
        name, _, argument = test.partition(":")
        if name == "golden":
            return [self.build / "norma-golden", self.folder / "tests/golden/cases"], ROOT, {}
        if name.startswith("e2e"):
            variables = {"NORMA": self.build / "norma", "SOURCE": self.folder, "BUILD": self.build}
            return ["bash", self.folder / f"tests/e2e/{name}.sh"], ROOT, variables
        return [self.build / "tests" / name, *argument.split()], self.folder / "tests", {}

    def passes(self, test, timeout):
        command, folder, variables = self.command(test)
        environment = os.environ | {"OMP_WAIT_POLICY": "passive"} | {k: str(v) for k, v in variables.items()}
        return self.succeeds(["timeout", str(timeout), *command], cwd=folder, env=environment)

    def builds(self, tests):
        names = [test.partition(":")[0] for test in tests]
        programs = {"golden": "norma-golden"} | {n: "norma_program" for n in names if n.startswith("e2e")}
        targets = [programs.get(name, name) for name in names]
        return self.succeeds(["cmake", "--build", self.build, "-j", "1", "--target", *targets])

    def result(self, mutant, timeout):
        self.log.write_text("")
        changed = self.folder / mutant.file
        changed.write_text(source(mutant.file).replace(mutant.text, mutant.new), encoding="utf-8")
        try:
            if not self.builds(mutant.tests):
                return "uncompiled"
            return "survived" if all(self.passes(test, timeout) for test in mutant.tests) else "killed"
        finally:
            changed.write_text(source(mutant.file), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-mutants")
    parser.add_argument("--timeout", type=int, default=300)
    parser.add_argument("pattern", nargs="?", default=".")
    options = parser.parse_args()
    mutants = read_lists()
    broken = [f"{m.at}: {m.trouble()}" for m in mutants if m.trouble()]
    if broken:
        print("\n".join(broken))
    print(f"{len(mutants)} mutants, {sum(bool(m.reason) for m in mutants)} of them equivalent")
    if options.check or broken:
        sys.exit(2 if broken else 0)

    folder = options.build.absolute()
    folder.mkdir(exist_ok=True)
    results = Results(folder / "results")
    chosen = [m for m in mutants if not m.reason and re.search(options.pattern, f"{m.file} {m.text}")]
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    waiting = [m for m in chosen if m.key not in results.by_key]

    def work(job):
        copy = Copy(folder / str(job))
        for mutant in waiting[job :: options.jobs]:
            results.add(mutant, copy.result(mutant, options.timeout))

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, range(options.jobs)))

    count = collections.Counter(results.by_key.get(m.key, "not run") for m in chosen)
    for mutant in chosen:
        if results.by_key.get(mutant.key) == "survived":
            print(f"{mutant.at} survived: {mutant.file}: {mutant.text}")
    print(f"{len(chosen)} run: " + ", ".join(f"{kind} {n}" for kind, n in sorted(count.items())))
    if count["survived"]:
        sys.exit(1)
    sys.exit(2 if count["uncompiled"] + count["not run"] else 0)


if __name__ == "__main__":
    main()
