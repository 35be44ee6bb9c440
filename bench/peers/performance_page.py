#!/usr/bin/env python3
"""The tables of results/performance/README.md between the marks `<!-- peers -->` and `<!-- end of peers -->`,
from results/performance/*.json (bench_peers.py): one table per CPU class.

    bench/peers/performance_page.py --write|--check

Exit code: 0 no difference, 1 some.
"""
import glob
import json
import os
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = f"{ROOT}/results/performance/README.md"
START, END = "<!-- peers -->\n", "<!-- end of peers -->\n"


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio(work, side, ours):
    quotient = ours["median"] / side["median"]
    return quotient if work["higher_is_better"] else 1 / quotient


def memory(side):
    return f"{side['mib']:,.0f}" if "mib" in side else ""


def rows_of(work):
    """One row per side; the ratios compare Norma's sides with it."""
    ours = [side for side in work["sides"] if side["side"].startswith("Norma")]
    for index, side in enumerate(work["sides"]):
        ratios = (
            ""
            if side in ours
            else ", ".join(
                f"{ratio(work, side, other):.2f}" + (f" ({other['side'][7:]})" if len(ours) > 1 else "")
                for other in ours
            )
        )
        yield (f"| {work['work'] if index == 0 else ''} | {side['side']} | {number(side['median'])} | "
               f"{number(side['min'])} to {number(side['max'])} | {memory(side)} | {ratios} |")


def dates(report):
    """The dates of the works: one, or the first and the last."""
    measured = sorted({work.get("date", report["date"]) for work in report["works"]} or {report["date"]})
    return measured[0] if len(measured) == 1 else f"{measured[0]} to {measured[-1]}"


def table(report):
    names = ", ".join(f"{name} {version}" for name, version in report["versions"].items() if name != "norma")
    about = (f"{', '.join(report['instructions'])}; measured {dates(report)}, "
             f"{report['rounds']} rounds. {names}.")
    lines = [f"### {report['cpu']}, {report['cores']} cores", "", *textwrap.wrap(about, 98), "",
             "| work | program | tokens/s, median | from, to | MiB | speedup of Norma |",
             "|---|---|--:|--:|--:|--:|"]
    for work in report["works"]:
        lines += [line.replace("|  |", "| |").replace("|  |", "| |") for line in rows_of(work)]
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:] not in (["--write"], ["--check"]):
        sys.exit("usage: performance_page.py --write|--check")
    tables = []
    for path in sorted(glob.glob(f"{ROOT}/results/performance/*.json")):
        with open(path, encoding="utf-8") as file:
            tables.append(table(json.load(file)))
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    before, rest = text.split(START)
    new = before + START + "\n" + "\n".join(tables) + "\n" + END + rest.split(END)[1]
    if new != text and sys.argv[1] == "--write":
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(new)
    elif new != text:
        sys.exit(
            f"{PAGE}: the tables differ from results/performance; run bench/peers/performance_page.py --write"
        )


if __name__ == "__main__":
    main()
