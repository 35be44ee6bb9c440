#!/usr/bin/env python3
"""Writes src/task/text/unicode_ranges.c from DerivedCoreProperties.txt of the Unicode Character Database,
whose comments have the categories (Debian has the file in the package unicode-data):

    scripts/unicode_ranges.py DerivedCoreProperties.txt > src/task/text/unicode_ranges.c
"""
import pathlib
import re
import sys


def ranges(name, text, categories):
    """Code points with the property, outside the categories (L& is a letter with case)."""
    rows = []
    for first, last, category in re.findall(rf"^(\w+)(?:\.\.(\w+))? *; {name.title()} # (..)", text, re.M):
        first, last = int(first, 16), int(last or first, 16)
        if category in categories:
            continue
        if rows and rows[-1][1] + 1 == first:
            first = rows.pop()[0]
        rows.append((first, last))
    print(f"const nm_unicode_range nm_unicode_other_{name}[] = {{")
    for i in range(0, len(rows), 5):
        print("    " + " ".join(f"{{0x{first:04X}, 0x{last:04X}}}," for first, last in rows[i:i + 5]))
    print(f"}};\nconst size_t nm_unicode_n_other_{name} =")
    print(f"    sizeof nm_unicode_other_{name} / sizeof nm_unicode_other_{name}[0];")


data = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
version = re.match(r"# DerivedCoreProperties-([\d.]+)\.txt", data)[1]
print("/* Alphabetic code points outside the categories L and Nl, lower case ones outside Ll: Unicode "
      f"{version}.\n * Written by scripts/unicode_ranges.py; do not edit. */")
print('#include "text/unicode_ranges.h"\n\n/* clang-format off */')
ranges("alphabetic", data, {"L&", "Lm", "Lo", "Nl"})
print()
ranges("lowercase", data, {"L&"})
