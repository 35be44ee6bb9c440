#!/usr/bin/env python3
"""Copies the published results from the comments of the recipes to docs/reproduce.md.

    scripts/paper_numbers.py --write|--check

A table after a line <!-- recipes: tears/ROW-COLUMN --> has one cell per recipe: ROW is the first `code` of a
row, COLUMN the `code` of a column. Rows and columns without code are not changed; a cell without a recipe is
empty. --write fills the cells, --check prints those that differ. Exit code: 0 no difference, 1 some, 2 wrong
use.
"""
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/reproduce.md"


def number_of(recipe):
    """The number in the comment of a recipe, as a table shows it; "" without that recipe."""
    path = SOURCE / "recipes" / f"{recipe}.ini"
    if not path.exists():
        return ""
    result = re.search(r"^# Published result: (.*)", path.read_text(encoding="utf-8"), re.M)
    text = result.group(1) if result else ""
    if text.startswith("training fails"):
        return "fails"
    both = re.match(r"perplexity (\S+) on the validation set, (\S+) on the test set", text)
    one = re.match(r"(?:perplexity )?([0-9.]+|infinite)\b", text)
    if not (both or one):
        sys.exit(f"{path}: no published result, or no number in it")
    return " / ".join(both.groups()) if both else one.group(1)


def code_of(cell):
    code = re.search(r"`([^`]+)`", cell)
    return code and code.group(1)


def main(mode):
    pattern, columns, out, cells, differences = None, None, [], 0, 0
    for number, line in enumerate((SOURCE / PAGE).read_text(encoding="utf-8").splitlines(), 1):
        begin = re.fullmatch(r"<!-- recipes: (\S+) -->", line)
        if begin:
            pattern, columns = begin.group(1), None
        elif pattern and line.startswith("|"):
            row = line.split("|")[1:-1]
            name = code_of(row[0])
            is_head, columns = columns is None, columns or [code_of(cell) for cell in row]
            for i in range(1, len(row)):
                if is_head or not name or not columns[i]:
                    continue
                recipe = pattern.replace("ROW", name, 1).replace("COLUMN", columns[i], 1)
                cell = f" {number_of(recipe)} ".replace("  ", " ")
                cells += 1
                if cell != row[i]:
                    differences += 1
                    if mode == "--check":
                        print(f"{PAGE}:{number}: {recipe}:{row[i]}should be{cell}")
                row[i] = cell
            line = "|" + "|".join(row) + "|"
        elif line.strip() and columns is not None:
            pattern = columns = None
        out.append(line + "\n")
    if not cells:
        sys.exit(f"{PAGE}: no table of numbers")
    if mode == "--write" and differences:
        (SOURCE / PAGE).write_text("".join(out), encoding="utf-8")
    sys.exit(mode == "--check" and differences > 0)


if len(sys.argv) != 2 or sys.argv[1] not in ("--write", "--check"):
    print("usage: scripts/paper_numbers.py --write|--check", file=sys.stderr)
    sys.exit(2)
main(sys.argv[1])
