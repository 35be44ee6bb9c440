#!/usr/bin/env python3
"""Finds lines of C and Python above 110 columns, and comments that are banners: /* ---- name ---- */.

    scripts/check_columns.py FILE...

Prints one line per finding. Exit code: 0 none, 1 some."""
import re
import sys

COLUMNS = 110
found = 0
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as source:
        for number, line in enumerate(source, 1):
            columns = len(line.rstrip("\n").expandtabs(4))
            if columns > COLUMNS:
                print(f"{path}:{number}: {columns} columns, the limit is {COLUMNS}")
                found += 1
            if re.match(r"\s*/\* ?[-=*]{3,}", line):
                print(f"{path}:{number}: a banner: write what the following code does, or nothing")
                found += 1
sys.exit(found > 0)
