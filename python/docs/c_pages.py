"""A page for each public header of the documentation site: declarations with their comments, as entries of
Sphinx's C domain, which the search and the links find. conf.py calls ``write`` before each build; the pages
are no part of the repository."""
import glob
import os
import re

SKIPPED = re.compile(r"#(include|ifndef \w+_H$|define \w+_H$|undef|endif$)")
FOR_CPP = re.compile(r'#ifdef __cplusplus\n(extern "C" \{|\})\n#endif\n')
ITEM = re.compile(r"""(?P<comment>/\*.*?\*/)|(?P<macro>\#define\ (?:[^\n]*\\\n)*[^\n]*)
                  |(?P<directive>\#[^\n]*)|(?P<blank>\n[ ]*(?=\n))|(?P<code>[^\s/\#])
                  |(?P<other>.)""", re.S | re.X)


def declaration_end(text, start):
    """After the semicolon or the closing brace of a function that ends a declaration."""
    depth, place = 0, start
    record = re.compile(r"NM_[A-Z_]+\(\w+, \w+\)(?=\n)").match(text, start)
    if record:
        return record.end()
    while place < len(text):
        if text.startswith("/*", place):
            place = text.index("*/", place) + 1
        elif text[place] in "{(":
            depth += 1
        elif text[place] in "})":
            depth -= 1
            if not depth and text[place] == "}" and text[start:].startswith("static inline"):
                return place + 1
        elif text[place] == ";" and not depth:
            return place + 1
        place += 1
    raise ValueError(f"no end: {text[start:start + 60]}")


def items(text):
    """(kind, text): comment, macro, declaration, blank, of a header without its guard."""
    lines = [line for line in FOR_CPP.sub("", text).splitlines() if not SKIPPED.match(line)]
    text, place = "\n".join([*lines, ""]), 0
    while place < len(text):
        found = ITEM.match(text, place)
        kind, place = found.lastgroup, found.end()
        if kind == "code":
            end = declaration_end(text, found.start())
            kind, whole, place = "declaration", text[found.start():end], end
            trailing = re.match(r" */\*[^\n]*\*/(?=\n)", text[place:])
            if trailing:
                whole, place = whole + trailing[0], place + trailing.end()
        else:
            whole = found[0]
        if kind not in ("other", "directive"):
            yield kind, whole


def escaped(text):
    """Text as reStructuredText, names and what is between backquotes as literals."""
    return re.sub(r"`([^`]+)`|(?<![^\s(])((?:nm|NM)_\w+)(?=[ .,;:)]|$)|([\\*_|`<>])",
                  lambda found: "\\" + found[3] if found[3] else f"``{found[1] or found[2]}``", text)


def paragraphs(comment):
    """The text of a comment: paragraphs, formulas as they are, a list of errors."""
    lines = [re.sub(r"^ ?\*? ?", "", line) if i else line for i, line in
             enumerate(comment[2:-2].strip().splitlines())]
    result, plain = [], []

    def flush():
        if plain:
            result.extend([escaped(" ".join(plain)), ""])
            plain.clear()
    previous = ""
    for line in lines:
        kind = ("blank" if not line.strip() else "formula" if line.startswith("   ") else
                "error" if re.match(r"NM_[A-Z]+(:|$)", line) else "text")
        if kind == "text":
            if previous == "error":  # continued
                result[-1] += " " + escaped(line)
                continue
            plain.append(line)
        else:
            flush()
        if kind == "formula":
            result += (["", "::", ""] if previous != "formula" else []) + ["   " + line]
        elif kind == "error":
            result += ([""] if previous != "error" else []) + ["- " + escaped(line)]
        elif kind == "blank" or previous == "formula":
            result.append("")
        previous = kind
    flush()
    return [*result, ""]


def indented(lines, by="   "):
    return [by + line if line else "" for line in lines]


def code(text):
    return [".. code-block:: c", "", *indented(text.splitlines()), ""]


def entry(kind, text, seen):
    """The directive of a declaration, and its text if that says more; seen: names that have an entry."""
    plain = re.sub(r"/\*.*?\*/", "", text, flags=re.S).strip()
    if kind == "macro":
        name = re.match(r"#define (\w+)", text)[1]
        directive, shown = f".. c:macro:: {name}", text
    elif re.match(r"typedef (struct|enum|union) \w+ \{|(struct|enum|union) \w+ \{", plain):
        found = re.match(r"(?:typedef )?(struct|enum|union) (\w+)", plain)
        name, directive, shown = found[2], f".. c:{found[1]}:: {found[2]}", text
    elif plain.startswith(("NM_RECORD(", "NM_CHOICES(")):
        name, shown = re.match(r"\w+\((\w+)", plain)[1], text
        directive = f".. c:{'struct' if plain.startswith('NM_R') else 'enum'}:: {name}"
    elif re.match(r"typedef struct \w+ \w+;", plain):
        name, shown = plain.split()[-1].rstrip(";"), text if "/*" in text else None
        directive = f".. c:struct:: {name}"
    elif plain.startswith("typedef"):
        name = re.search(r"\(\*(\w+)\)|(\w+)(?:\[[^]]*\])?;$", plain)
        name, shown = name[1] or name[2], text
        directive = f".. c:type:: {name}"
    elif "(" in plain and not plain.startswith(("enum", "extern", "NM_API extern")):
        head = re.sub(r"\s+", " ", re.split(r"\)\s*(?:__attribute__|\{|;)", plain)[0] + ")")
        head = re.sub(r"^(NM_API|static inline) ", "", head)
        name = re.search(r"(\w+)\(", head)[1]
        directive, after = f".. c:function:: {head}", re.search(r";\s*(/\*.*\*/)$", text)
        seen.add(name)
        return [directive, "", *(indented(paragraphs(after[1])) if after else [])]
    else:
        return code(text)
    if name in seen:
        return code(text)
    seen.add(name)
    return [directive, "", *(indented(code(shown)) if shown else [])]


def page(name, text, seen):
    lines, pending = [f"norma/{name}", "=" * (6 + len(name)), ""], []
    for kind, whole in items(text):
        if kind == "comment":
            lines += pending
            pending = paragraphs(whole)
        elif kind == "blank":
            lines += pending
            pending = []
        else:
            found = entry(kind, whole, seen)
            if found[0].startswith(".. c:") and pending:
                found += indented(pending)
            else:
                lines += pending
            lines += [*found, ""]
            pending = []
    return "\n".join([*lines, *pending, ""])


def write(root):
    """The pages, in python/docs/c of the repository."""
    folder = os.path.join(root, "python", "docs", "c")
    os.makedirs(folder, exist_ok=True)
    seen = set()
    for path in sorted(glob.glob(os.path.join(root, "include", "norma", "*.h"))):
        with open(path, encoding="utf-8") as file:
            text = page(os.path.basename(path), file.read(), seen)
        with open(os.path.join(folder, os.path.basename(path)[:-2] + ".rst"), "w", encoding="utf-8") as file:
            file.write(text)
