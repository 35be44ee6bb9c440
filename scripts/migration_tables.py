#!/usr/bin/env python3
"""Writes the tables of names of docs/migration.md from src/core/base/foreign_names.c, between the comments
<!-- foreign_names TABLE --> and <!-- end of table -->. With --check: exit code 1 if a table differs.

    scripts/migration_tables.py [--check]
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE, PAGE = "src/core/base/foreign_names.c", "docs/migration.md"
TEXT = r'"((?:[^"\\]|\\.)*)"'


def line_of(*cells):
    shown = [re.sub(r"\\(.)", r"\1", cell) for cell in cells]
    return "|" + "|".join(f" {cell} " if cell else " " for cell in shown) + "|\n"


rows, tables = {}, {}
source = (ROOT / SOURCE).read_text(encoding="utf-8").replace(",\n        ", ", ").replace('"\n        "', "")
for line in source.splitlines():
    if begin := re.match(r"static const nm_foreign_row (\w+)\[\]", line):
        array = rows.setdefault(begin[1], [])
    elif row := re.fullmatch(rf"    \{{\{{{TEXT}, {TEXT}, {TEXT}\}}, {TEXT}\}},", line):
        array.append(line_of(*row.groups()))
    elif table := re.fullmatch(rf"    \{{{TEXT}, \{{{TEXT}, {TEXT}, {TEXT}\}}, (\w+), \w+\}},", line):
        head = line_of(*table.groups()[1:4], "Norma") + "|---|---|---|---|\n"
        tables[table[1]] = head + "".join(rows[table[5]])
    elif line.startswith('    {{"'):
        sys.exit(f"{SOURCE}: a row in another form: {line}")
old = (ROOT / PAGE).read_text(encoding="utf-8")
form = re.compile(r"(<!-- foreign_names ([A-Za-z ]+) -->\n).*?(<!-- end of table -->\n)", re.S)
if sorted(name for _, name, _ in form.findall(old)) != sorted(tables):
    sys.exit(f"{PAGE} needs one place for each of the tables {', '.join(sorted(tables))}")
new = form.sub(lambda place: place[1] + tables[place[2]] + place[3], old)
if new != old and sys.argv[1:] == ["--check"]:
    sys.exit(f"{PAGE}: the tables are not those of {SOURCE}; run scripts/migration_tables.py")
(ROOT / PAGE).write_text(new, encoding="utf-8")
