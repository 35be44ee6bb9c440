#!/usr/bin/env python3
"""No two source files call each other, directly or through others: the files have an order, and each uses
only those below it.

    scripts/check_circles.py NM OBJECTS

NM: the program nm; OBJECTS: a file with the paths of the object files, one per line. Prints the calls of each
circle. Exit code: 0 no circle, 1 some, 2 bad usage."""
import re
import subprocess
import sys


def strip(graph):
    """Removes files that use no other remaining file, until only circles and the files above them remain."""
    graph = dict(graph)
    while unused := [file for file in graph if not any(other in graph for other in graph[file])]:
        for file in unused:
            del graph[file]
    return graph


def main():
    if len(sys.argv) != 3:
        sys.exit(print("usage: scripts/check_circles.py NM OBJECTS", file=sys.stderr) or 2)
    nm, listed = sys.argv[1:]
    with open(listed) as lines:
        objects = [line.strip() for line in lines if line.strip()]
    if not objects:
        sys.exit(print(f"{listed}: no objects", file=sys.stderr) or 2)
    file_of, uses = {}, {}
    for path in objects:
        file = re.sub(r"^.*\.dir/|\.o$", "", path)
        symbols = subprocess.run([nm, path], stdout=subprocess.PIPE, text=True, check=True).stdout
        for kind, symbol in re.findall(r"([A-Za-z]) (\S+)$", symbols, re.M):
            if kind == "U":
                uses.setdefault(file, []).append(symbol)
            elif kind in "TDRB":
                file_of[symbol] = file
    calls = {}  # file: file below it: symbols
    for file, symbols in uses.items():
        for symbol in symbols:
            if file_of.get(symbol, file) != file:
                calls.setdefault(file, {}).setdefault(file_of[symbol], []).append(symbol)
    rest = strip(calls)
    users = {}  # of the remaining files; those without a user are above all circles
    for file in rest:
        for other in calls[file]:
            if other in rest:
                users.setdefault(other, {})[file] = True
    circles = strip(users)
    print(f"{len(objects)} files, {len(circles)} in circles")
    for file in sorted(circles):
        for other in sorted(set(calls[file]) & set(circles)):
            print(f"{file} calls {other}: {' '.join(calls[file][other])}")
    sys.exit(1 if circles else 0)


main()
