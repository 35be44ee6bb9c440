#!/usr/bin/env python3
"""Writes results/README.md, the verdicts on the claims of results/claims, from the archived runs
(results/logs), and their most informative rows into README.md.

    scripts/ledger.py --write      writes the pages
    scripts/ledger.py --check      exit code 1 if a page differs from the archives
    scripts/ledger.py --show ID    prints one claim

Only the standard library is needed. Which runs bear on which claim is in scripts/ledger_evidence.py, the
statistics are in scripts/ledger_statistics.py. The same archives give the same bytes.
"""

import argparse
import os
import sys
import textwrap

import ledger_archives as archives
import ledger_evidence as evidence
import run_queue

PAGE = os.path.join(archives.ROOT, "results/README.md")
NAMES = {
    "pn": "PowerNorm",
    "tears": "Transformers without Tears",
    "rbn": "Regularized BatchNorm",
    "con": "PowerNorm against Regularized BatchNorm",
}


def wrapped(text, indent=""):
    return textwrap.fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def queued(claim):
    """The runs of the queue for a claim: (runs, core-hours)."""
    rows = [row for row in run_queue.read_queue()[0] if claim in row["claims"].split(",")]
    runs = sum(len(run_queue.seeds(row)) for row in rows)
    return runs, sum(len(run_queue.seeds(row)) * float(row["core_seconds"]) for row in rows) / 3600


def finding_of(row):
    if row["not testable because"]:
        return archives.Finding(archives.NOT_TESTABLE, decide=row["not testable because"])
    finding = evidence.RULES[row["id"]]() if row["id"] in evidence.RULES else None
    if finding:
        counts = archives.unfinished(finding.archive)
        if counts:  # the number of runs was fixed before the first one, and no verdict is taken earlier
            finding.verdict = archives.UNDECIDED
            finding.effect += f" (interim: {counts[0]} of the {counts[1]} runs of the group)"
            finding.decide = "the runs of results/queue that are not finished"
        return finding
    runs, hours = queued(row["id"])
    waiting = (
        f"queued: {runs} runs, {hours:.2f} core-hours"
        if runs
        else "not queued; the estimate is in the reduced protocol"
    )
    return archives.Finding(archives.UNDECIDED, "no run of the paper's protocol", decide=waiting)


def others(claim):
    """Lines on comparisons of other protocols, with the difference over seeds and test items."""
    lines = []
    for claims, words, archive, a, b in evidence.OTHERS:
        if claim not in claims.split(","):
            continue
        effect = archives.score_difference(archive, a, b)
        test = next(iter(archives.Archive.open(archive).variant(a).values())).json("test.json")
        lines.append(
            f"{words}: {a.split('/')[0]} - {b.split('/')[0]} {effect.text()} {test['title']}, "
            f"{effect.n} seeds (`{archive}`)"
        )
    return lines


def page():
    rows, _ = run_queue.read_table(os.path.join(archives.ROOT, "results/claims"))
    findings = {row["id"]: finding_of(row) for row in rows}
    other = {row["id"]: others(row["id"]) for row in rows}
    counts = {}
    for finding in findings.values():
        kind = finding.verdict.split(" (")[0]
        counts[kind] = counts.get(kind, 0) + 1
    order = [archives.CONFIRMED, archives.REFUTED, archives.UNDECIDED, archives.NOT_TESTABLE]
    text = [
        "<!-- written by scripts/ledger.py --write from the archived runs; do not edit -->",
        "# Verdicts on the papers' claims",
        "",
    ]
    text += [
        wrapped(
            "`scripts/ledger.py --write` reads the [list of claims](claims.md) and the archived runs in "
            "[logs](logs), and writes this page. A verdict holds for the conditions that it names: models, "
            "data and training runs that are much smaller than the paper's, with 0 to 13 BLEU on IWSLT14. "
            f"So *refuted* says that the claim does not hold there. {len(rows)} claims: "
            + ", ".join(f"{kind} {counts.get(kind, 0)}" for kind in order)
            + "."
        )
    ]
    text += [
        "",
        wrapped(
            "*Confirmed*: the 95 % interval excludes 0 and has the claim's sign, or the condition in the "
            "list holds. *Refuted*: equivalence within the margin is shown, or the interval has the other "
            "sign. *Undecided*: neither. Only runs of the paper's own protocol count; other runs are "
            "listed and never refute. If none of the claims were true, about two verdicts would be wrong "
            "by chance."
        ),
    ]
    text += [
        "",
        wrapped(
            "Intervals of BLEU, accuracy, F1 and test perplexity are over seeds and test items "
            "(`scripts/ledger_statistics.py`). Those of validation losses, TID, condition numbers and g are "
            "over seeds, which are paired."
        ),
    ]
    for paper, title in NAMES.items():
        text += [
            "",
            f"## {title}",
            "",
            "| claim | | verdict | effect (95 %) | runs |",
            "|---|---|---|---|--:|",
        ]
        for row in (r for r in rows if r["id"].startswith(paper)):
            finding = findings[row["id"]]
            effect = "" if finding.verdict == archives.NOT_TESTABLE else finding.effect
            text.append(
                f"| [{row['id']}](#{row['id']}) | {row['claim']} | {finding.verdict} | {effect} "
                f"| {finding.runs or ''} |"
            )
    text += ["", "## Conditions, and what would decide"]
    for row in rows:
        finding = findings[row["id"]]
        text += [
            "",
            f"### {row['id']}",
            "",
            wrapped(f"- Claim ({row['place']}): {row['claim']} Published: {row['paper value']}.", "  "),
        ]
        text.append(
            wrapped(
                f"- Verdict: {finding.verdict}"
                + (f". {finding.effect[:1].upper()}{finding.effect[1:]}." if finding.effect else "."),
                "  ",
            )
        )
        if finding.conditions:
            text.append(
                wrapped(
                    f"- Conditions here: {finding.conditions} (`{finding.archive}`). "
                    f"The paper's: {row['protocol']}.",
                    "  ",
                )
            )
        if finding.verdict in (archives.UNDECIDED, archives.NOT_TESTABLE):
            text.append(
                wrapped(
                    f"- {'Reason' if finding.verdict == archives.NOT_TESTABLE else 'To decide'}: "
                    f"{finding.decide}.",
                    "  ",
                )
            )
        if other[row["id"]]:
            text.append("- Other protocols:")
            text += [wrapped(f"  - {line}", "    ") for line in other[row["id"]]]
    return "\n".join(text) + "\n"


BEGIN, END = "<!-- ledger: scripts/ledger.py --write -->\n", "<!-- ledger: end -->\n"
README_CLAIMS = "pn-03", "pn-06", "rbn-04", "rbn-11", "rbn-13", "tears-03"


def with_rows(readme):
    """README.md with its table: the verdict, or of a claim without runs of its protocol the clearest
    difference in another one."""
    rows, _ = run_queue.read_table(os.path.join(archives.ROOT, "results/claims"))
    rows = {row["id"]: row for row in rows}
    lines = ["| claim of the papers | verdict | measured (95 %) |", "|---|---|---|"]
    for name in README_CLAIMS:
        finding = finding_of(rows[name])
        effect = finding.effect
        found = [
            (archives.score_difference(archive, a, b), words, archive, a, b)
            for claims, words, archive, a, b in evidence.OTHERS
            if name in claims.split(",")
        ]
        if found and not finding.archive:
            best, words, archive, a, b = min(found, key=lambda f: f[0].p)
            title = next(iter(archives.Archive.open(archive).variant(a).values())).json("test.json")["title"]
            opposite = sum(1 for f in found if f[0].value * best.value < 0)
            more = f"; {len(found) - 1} more, {opposite} with the other sign" if len(found) > 1 else ""
            pair = f"{a.split('/')[0]} - {b.split('/')[0]}"
            effect = f"another protocol ({words}): {pair} {best.text()} {title}{more}"
        link = f"([{name}](results/README.md#{name}))"
        lines.append(f"| {rows[name]['claim']} {link} | {finding.verdict} | {effect} |")
    head, _, rest = readme.partition(BEGIN)
    if not rest:
        return readme
    return head + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + rest.partition(END)[2]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--show")
    options = parser.parse_args()
    if options.show:
        rows, _ = run_queue.read_table(os.path.join(archives.ROOT, "results/claims"))
        finding = finding_of({row["id"]: row for row in rows}[options.show])
        print(
            finding.verdict,
            finding.effect,
            finding.decide,
            finding.conditions,
            *others(options.show),
            sep="\n",
        )
        return
    if not (options.write or options.check):
        parser.error("--write, --check or --show ID is required")
    readme = os.path.join(archives.ROOT, "README.md")
    with open(readme, encoding="utf-8") as old:
        texts = {PAGE: page(), readme: with_rows(old.read())}
    for path, text in texts.items():
        if options.write:
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
        else:
            with open(path, encoding="utf-8") as old:
                if old.read() != text:
                    sys.exit(
                        f"{os.path.basename(os.path.dirname(path))}/{os.path.basename(path)} differs from "
                        "the archives; scripts/ledger.py --write writes it"
                    )


if __name__ == "__main__":
    main()
