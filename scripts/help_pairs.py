#!/usr/bin/env python3
"""Parallel text from the help pages of LibreOffice: one page exists per language under the same name, and its
headings and paragraphs have the same ids in the same order.

    help_pairs.py HELP/de HELP/en-US > pairs.tsv

Prints one "source<TAB>target" line per sentence where both sides have the same number of sentences, and per
paragraph otherwise."""
import pathlib
import re
import sys
import unicodedata

CHARACTERS = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " "}
SPACE = r"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\u200b\ufeff]+"
ABBREVIATIONS = "".join(rf"(?<!\b{a})" for a in
                        ("z", "B", "[A-Z]", "ca", "Nr", "bzw", "usw", "etc", "sog", r"e\.g", r"i\.e"))
SENTENCE_END = re.compile(ABBREVIATIONS + r'([.!?]["”“)]?) (?=["„“(]?(.))')


def pages_below(root):
    """Pages below a folder, as names relative to it, folder by folder in byte order."""
    for path in sorted(root.iterdir(), key=lambda p: p.name.encode()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from (f"{path.name}/{page}" for page in pages_below(path))
        elif path.name.endswith(".html"):
            yield path.name


def read_page(path):
    """The whole page; empty if it cannot be read or is not UTF-8."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return ""


def without_mac(html):
    """Keys and menus have variants for two systems; the macOS variant is hidden on the page."""
    at = 0
    while begin := re.compile(r'<span[^>]*class="MAC"[^>]*>').search(html, at):
        depth, at = 1, begin.end()
        for tag in re.compile(r"<(/?)span\b[^>]*>").finditer(html, begin.end()):
            depth += -1 if tag[1] else 1
            if not depth:
                html, at = html[:begin.start()] + html[tag.end():], begin.start()
                break
    return html


def plain_text(html):
    html = re.sub(r"<br[^>]*>", " ", without_mac(html))
    html = re.sub(r"<[^>]*>", "", html)
    html = re.sub(r"&#(\d{1,6});", lambda m: chr(int(m[1])), html)
    html = re.sub(r"&([a-z]+);", lambda m: CHARACTERS.get(m[1], m[0]), html)
    html = re.sub(SPACE, " ", html)
    return html.removeprefix(" ").removesuffix(" ")


def blocks_of(html):
    """Headings and paragraphs in the order of the page, as (id, text). The text is empty if it is program
    code or one of several alternatives (Writer, Calc, ...), which is not a sentence."""
    html = re.sub(r"(?s)<footer\b.*", "", html, count=1)
    for _, attributes, inside in re.findall(r"(?s)<(p|h[1-6])\b([^>]*)>(.*?)</\1>", html):
        name = re.search(r'\bid="([^"]*)"', attributes)
        unfit = re.search(r'class="[^"]*code', attributes) or re.search(
            r'class="(?:WRITER|CALC|IMPRESS|DRAW|CHART|MATH|BASE|BASIC|UNIX|WIN)"', inside)
        yield name[1] if name else "", "" if unfit else plain_text(inside)


def sentences_of(text):
    text = SENTENCE_END.sub(lambda m: f"{m[1]}\n" if unicodedata.category(m[2]) == "Lu" else m[0], text)
    return text.rstrip("\n").split("\n")


def print_pair(source, target):
    sources, targets = sentences_of(source), sentences_of(target)
    if not source or not target:
        return
    if len(sources) != len(targets):
        sources, targets = [source], [target]
    for pair in zip(sources, targets):
        print("\t".join(pair))


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: help_pairs.py SOURCE_PAGES TARGET_PAGES > pairs.tsv")
    roots = [pathlib.Path(root) for root in sys.argv[1:]]
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogatepass")
    n_pages = n_alone = 0
    try:
        for page in pages_below(roots[0]):
            source, target = (list(blocks_of(read_page(root / page))) for root in roots)
            n_pages += 1
            if not source or [name for name, _ in source] != [name for name, _ in target]:
                n_alone += 1
                continue
            for (_, a), (_, b) in zip(source, target):
                print_pair(a, b)
        sys.stdout.flush()
    except OSError as error:
        sys.exit(f"help_pairs.py: {error}")
    print(f"read {n_pages} pages, left out {n_alone} whose two sides differ in structure", file=sys.stderr)


main()
