#!/usr/bin/env python3
"""Checks the links of all Markdown files: the file must exist, and so must the heading of an anchor.

    scripts/check_links.py [FILE...]

Links to other hosts are not followed. Exit code: 0 every link leads somewhere, 1 some do not.
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


names = sys.argv[1:] or subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
    cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
broken = [f"{name}:{line}: {text}" for name in names for line, text in broken_links(ROOT / name)]
print("\n".join(broken), end="\n" if broken else "")
sys.exit(1 if broken else 0)
