#!/usr/bin/env python3
"""Compares lines of src/ and include/, and words of docs/*.md, with the budgets in docs/notes/size.md.

    scripts/check_size.py           exit code 1 if a part is above its budget, or a file belongs to no part
    scripts/check_size.py --print   prints the lines of every part
"""
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/notes/size.md"
KINDS = {".c", ".h", ".inc", ".js", ".css"}


def budgets():
    """(part, paths, lines) of each row of the table."""
    text = (SOURCE / PAGE).read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| (`[^|]+`) \| ([\d,]+) \|", text, flags=re.M)
    return [(part, paths.strip("`").split(), int(lines.replace(",", ""))) for part, paths, lines in rows]


def words():
    """Words of docs/*.md without generated tables and the bars of tables."""
    count = 0
    for page in SOURCE.glob("docs/*.md"):
        text = re.sub(r"(?ms)^<!-- (?!end).*?^<!-- end.*?$", "", page.read_text(encoding="utf-8"))
        count += sum(re.fullmatch(r"[|:-]+", word) is None for word in text.split())
    return count


def main():
    files = subprocess.run(["git", "ls-files", "src", "include"], cwd=SOURCE, capture_output=True, text=True,
                           check=True).stdout.split("\n")
    files = [name for name in files if pathlib.Path(name).suffix in KINDS]
    parts = budgets()
    lines = {part: 0 for part, _, _ in parts}
    failed = not parts
    for name in files:
        with open(SOURCE / name, encoding="utf-8") as file:
            count = sum(1 for _ in file)
        matches = [(len(path), part) for part, paths, _ in parts for path in paths if name.startswith(path)]
        found = max(matches, default=None)  # the most specific path
        if found is None:
            print(f"check_size: {name} belongs to no part of {PAGE}", file=sys.stderr)
            failed = True
        else:
            lines[found[1]] += count
    for part, _, allowed in parts:
        if "--print" in sys.argv[1:]:
            print(f"{lines[part]:7} of {allowed:7}  {part}")
        if lines[part] > allowed:
            print(f"check_size: {part} has {lines[part]} lines, {PAGE} allows {allowed}: make it smaller, or "
                  "change the budget with the reason", file=sys.stderr)
            failed = True
    budget = re.search(r"([\d,]+) words", (SOURCE / PAGE).read_text(encoding="utf-8"))[1]
    allowed = int(budget.replace(",", ""))
    if words() > allowed:
        print(f"check_size: docs/*.md have {words()} words, {PAGE} allows {allowed}", file=sys.stderr)
        failed = True
    print(f"check_size: {sum(lines.values())} lines in src and include, {words()} words in docs")
    sys.exit(1 if failed else 0)


main()
