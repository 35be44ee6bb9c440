#!/usr/bin/env python3
"""The tables of docs/migration.md: every name of another toolkit, given to the commands that could have it,
is answered by an option of its row, and by no option that no row with this name has; and the page is that of
the table in the program. MANY_COMMANDS: tests/support/many_commands.c."""
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["SOURCE"])
COMMANDS = [["train", "translate"], ["train", "lm"], ["translate", "model"], ["generate", "model"],
            ["prepare"]]
failures = []


def names(cell):
    return [re.sub(r"[^\w.].*", "", re.sub("-", "_", re.sub("^-+", "", word))) for word in
            re.findall("`([^`]+)`", cell)]


def rows():
    """name -> options of its rows; the names for which Norma has no option."""
    options, unavailable, table = collections.defaultdict(list), set(), None
    for line in (SOURCE / "docs/migration.md").read_text(encoding="utf-8").split("\n"):
        begin = re.match("<!-- foreign_names (.*) -->", line)
        table = begin[1] if begin else None if line.startswith("<!-- end of table -->") else table
        if table and line.startswith("| ") and not line.endswith(" Norma |"):
            cells = re.split(r"(?<!\\)\|", line)[1:]
            for name in (n for cell in cells[:3] for n in names(cell) if re.match(r"\w", n)):
                options[name] += [] if table == "unavailable" else names(cells[3])
                if table == "unavailable":
                    unavailable.add(name)
    return options, unavailable


def answers(lines):
    """What the program prints to stderr, for every line."""
    with tempfile.TemporaryDirectory() as folder:  # without OMP_WAIT_POLICY the program starts itself again
        done = subprocess.run([os.environ["MANY_COMMANDS"]], input="\n".join(lines) + "\n", text=True,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive"}, cwd=folder,
                              stdout=subprocess.PIPE, check=True)
    return re.split(r"^exit code -?\d+\n", done.stdout, flags=re.M)[:-1]


def is_found(command, name, options, answer):
    suggested = re.search(r"; the most similar one is ([a-z_.0-9]*)$", answer, re.M)
    section = re.search(r" is a section of options, such as ([a-z_.0-9]*)$", answer, re.M)
    if "unknown option" not in answer:
        return any(name in (o, o.rpartition(".")[2]) for o in options)
    if not suggested or not suggested[1]:
        return bool(section) and section[1] in options
    if suggested[1] in options or suggested[1].rpartition(".")[2] in options:
        return True
    if suggested[1].rpartition(".")[2] not in (name, name + "s"):
        failures.append(f"{command} --{name}: suggests {suggested[1]}, the page has {options}")
    return False


def main():
    subprocess.run([SOURCE / "scripts/migration_tables.py", "--check"], check=True)
    options, unavailable = rows()
    cases = [(name, command) for name in sorted(options) for command in COMMANDS]
    found = set()
    texts = answers(["\t".join([*command, f"--{name}", "1"]) for name, command in cases])
    if len(options) < 150 or len(texts) != len(cases):
        failures.append(f"{len(options)} names, {len(texts)} answers to {len(cases)} commands")
    for (name, command), text in zip(cases, texts):
        if name in unavailable:
            if re.search(rf"unknown option [a-z]*\.{re.escape(name)}: ", text):
                found.add(name)
            if "; the most similar one is " in text:
                failures.append(f"{command} --{name}: {text}, but the page says that there is no such option")
        elif is_found(command, name, options[name], text):
            found.add(name)
    failures.extend(f"--{name}: no command suggests one of {options[name]}" for name in sorted(options)
                    if name not in found)
    print("\n".join(failures) or f"{len(cases)} cases")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
