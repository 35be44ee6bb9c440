#!/usr/bin/env python3
"""Checks links and tables of all Markdown files. A linked file must exist, and so must the heading of an
anchor. All rows of a table have as many cells as its header: a | in a formula is written as \\|.

    scripts/check_links.py [FILE...]

Links to other hosts are not followed. Exit code: 0 no page is broken, 1 some are.
"""
import pathlib
import re
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[1]


def anchors_of(page):
    """Anchors as GitHub and GitLab derive them from headings, and those written in HTML."""
    text = page.read_text(encoding="utf-8")
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    count = {}
    for heading in re.findall(r"^#+ +(.*?) *#*$", re.sub(r"(?ms)^```.*?^```", "", text), re.M):
        heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{slug}-{count[slug]}" if slug in count else slug)
        count[slug] = count.get(slug, 0) + 1
    return found


def broken_links(page):
    text = page.read_text(encoding="utf-8")
    for code in r"(?ms)^```.*?^```", r"`[^`]*`":
        text = re.sub(code, lambda found: "code" + "\n" * found.group().count("\n"), text)
    for link in re.finditer(r"\]\(([^()\s]+)\)", text):
        target, _, anchor = urllib.parse.unquote(link.group(1)).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        other = (page.parent / target).resolve() if target else page
        line = text.count("\n", 0, link.start()) + 1
        if not other.exists():
            yield line, f"{link.group(1)}: no such file"
        elif anchor and other.suffix == ".md" and anchor not in anchors_of(other):
            yield line, f"{link.group(1)}: no such heading"


def broken_tables(page):
    cells, code = 0, False
    for line, text in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        code ^= text.lstrip().startswith("```")
        is_row = text.lstrip().startswith("|") and not code
        count = len(re.findall(r"(?<!\\)\|", text)) if is_row else 0
        if is_row and cells and count != cells:
            yield line, f"{count - 1} cells in a table of {cells - 1} columns"
        cells = cells or count if is_row else 0


names = sys.argv[1:] or subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
    cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
broken = [f"{name}:{line}: {text}" for name in names for check in (broken_links, broken_tables)
          for line, text in check(ROOT / name)]
print("\n".join(broken), end="\n" if broken else "")
sys.exit(1 if broken else 0)
