#!/usr/bin/env python3
"""Adds runs of fuzz targets to the table between "<!-- totals -->" and "<!-- end -->" of a Markdown file.

    scripts/fuzz_totals.py FILE < RUNS

RUNS: lines of TARGET, CPU seconds, executions, covered edges, number of inputs, separated by whitespace. CPU
time and executions are added; edges and inputs are replaced.
"""
import os
import re
import sys

path = sys.argv[1]
with open(path, encoding="utf-8") as file:
    parts = re.fullmatch(r"(.*<!-- totals -->\n)(.*?)(<!-- end -->.*)", file.read(), re.S)
if not parts:
    sys.exit(f"{path}: no table of totals")
before, table, after = parts.groups()

rows = {}  # target: CPU minutes, executions, edges, inputs
for line in table.splitlines():
    target, *numbers = [cell.strip().replace(",", "") for cell in line.split("|")[1:-1]]
    if len(numbers) == 4 and numbers[0][:1].isdigit() and target != "all":
        rows[target] = [float(number) for number in numbers]
for line in sys.stdin:
    target, seconds, executions, edges, inputs = line.split()
    minutes, executed = rows.get(target, [0, 0])[:2]
    rows[target] = [minutes + float(seconds) / 60, executed + int(executions), int(edges), int(inputs)]

lines = [(target, rows[target]) for target in sorted(rows)]
lines.append(("all", [sum(column) for column in zip(*rows.values())] or [0] * 4))
with open(f"{path}.new", "w", encoding="utf-8") as file:
    file.write(before + "| target | CPU minutes | executions | edges | inputs |\n|---|--:|--:|--:|--:|\n")
    for target, (minutes, executions, edges, inputs) in lines:
        file.write(f"| {target} | {minutes:.1f} | {executions:,.0f} | {edges:,.0f} | {inputs:,.0f} |\n")
    file.write(after)
os.replace(f"{path}.new", path)
