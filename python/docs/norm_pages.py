"""A page for each norm of the documentation site, from the table of the library and the costs in
docs/norms.md. conf.py calls ``write`` before each build; the pages are no part of the repository."""
import os
import re

import norma
from norma.torch import _classes

SCOPES = {True: "of the tokens of a batch in training, running statistics at inference",
          False: "of one token at most"}
COST = ("Memory traffic in bytes per element in float32, and the numbers that the forward pass stores "
        "for the backward pass with n tokens of d features; see :doc:`/docs/norms`.")


# The names of norms in the claims of papers and in tables of results, where they are not the title.
SHORT = {"layer": "LN|LayerNorm", "batch": "BN|BatchNorm", "power": "PN|PowerNorm", "pnv": "PN-V",
         "rbn": "RBN", "mabn": "MABN", "renorm": "BRN", "group": "GN|GroupNorm"}


def claims(root):
    """(id, claim, variants, verdict, effect) of all claims of the ledger's page; effect "": no runs."""
    with open(os.path.join(root, "results", "claims"), encoding="utf-8") as file:
        columns, *rows = (line.rstrip("\n").split("\t") for line in file)
    place = columns.index("variants compared")
    variants = {row[0]: row[place] for row in rows}
    with open(os.path.join(root, "results", "README.md"), encoding="utf-8") as file:
        page = file.read()
    found = re.findall(r"^\| \[([a-z]+-\d+)\]\S* \| (.*) \| ([a-z ]+) \| (.*) \| *(\d*) \|$", page, re.M)
    return [(name, claim, variants[name], verdict, effect if runs else "")
            for name, claim, verdict, effect, runs in found]


def results(root):
    """page name -> its text, of all pages of results but the ledger's."""
    folder, texts = os.path.join(root, "results"), {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".md") and file not in ("README.md", "claims.md"):
            with open(os.path.join(folder, file), encoding="utf-8") as page:
                texts[file[:-3]] = page.read()
    return texts


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text):
    """(name, titles, rows) of the tables of a page that are recomputed from archived runs."""
    for name, lines in re.findall(r"<!-- results: (\S+)[^>]*-->\n\n((?:\|.*\n)+)", text):
        titles, _, *rows = map(cells_of, lines.splitlines())
        yield name, titles, rows


def measurements(found, pages):
    """Lines on archived runs with the norm that are no test of a paper's claim. pages: results()."""
    label = re.compile(rf"{found.name}|{SHORT.get(found.name, re.escape(found.title))}")
    rows = []
    for page, text in pages.items():
        for name, titles, cells in tables(text):
            score, difference = titles.index("seeds") + 1, titles.index("difference")
            rows += [[f":doc:`/results/{page}`: {name}", row[1], f"{titles[score]} {row[score]}",
                      f"{row[difference]} ({cells[0][0]}: {cells[0][score]})"]
                     for row in cells[1:] if label.fullmatch(row[0])]
        study = re.search(r"^\| (\|.*)\|\n\|[-|:]+\n(?=\| layer )((?:\|.*\n)+)", text, re.M)
        if study:
            scores = {row[0]: row[1:] for row in map(cells_of, study[2].splitlines())}
            rows += [[f":doc:`/results/{page}`: {data}", "", score, f"layer: {layer}" * ("±" in layer)]
                     for data, score, layer in zip(cells_of(study[1]), scores.get(found.name, []),
                                                   scores["layer"]) if score != "dropped"]
    lines = heading("Measured", "-")
    if rows:
        return lines + ["Archived runs; the pages have data, conditions and tests.", "",
                        *table([["Runs", "Seeds", "Result", "Difference (95 %) to"], *rows])]
    names = re.compile(rf"\b({label.pattern.split('|', 1)[1]})\b")
    where = [f":doc:`/results/{page}`" for page, text in pages.items() if names.search(text)]
    return lines + [f"See {', '.join(where)}." if where else
                    "Not measured: no archived run has this norm.", ""]


def findings(found, ledger):
    names = re.compile(rf"(?<!\w)({SHORT.get(found.name, re.escape(found.title))})(?![\w-])")
    chosen = [row for row in ledger if names.search(row[1]) or names.search(row[2])]
    measured = [[name, claim, verdict, effect] for name, claim, _, verdict, effect in chosen if effect]
    others = ", ".join(row[0] for row in chosen if not row[4])
    lines = heading("Our findings", "-") + [
        "Claims of papers that we test with much smaller models; :doc:`/results/README` has the conditions.",
        ""]
    if measured:
        rows = [[re.sub(r"([*|`])", r"\\\1", cell) for cell in row] for row in measured]
        lines += table([["Claim", "", "Verdict", "Effect (95 %)"], *rows])
    return lines + [f"Not measured yet: {others}." * bool(others), ""] if chosen else []


def costs(path):
    """Rows of the table of costs by name, and its heading."""
    with open(path, encoding="utf-8") as file:
        text = file.read().split("<!-- norm_tables costs -->")[1].split("<!--")[0]
    rows = [[cell.replace("`", "") for cell in cells_of(line)]
            for line in text.splitlines() if line.startswith("|")]
    return rows[0], {name: [name, *row[1:]] for row in rows[2:] for name in row[0].split(", ")}


def heading(text, line):
    return [text, line * len(text), ""]


def table(rows):
    """A list-table without a heading."""
    lines = [".. list-table::", ""]
    for row in rows:
        lines += [("   * - " if i == 0 else "     - ") + (cell or "\\ ") for i, cell in enumerate(row)]
    return [*lines, ""]


def code(language, *lines):
    return [f".. code-block:: {language}", "", *("   " + line for line in lines), ""]


def page(found, titles, cost, ledger=(), pages=None):
    name = _classes.by_type[found.name].__name__
    lines = [*heading(found.title, "="), *code("text", found.formula)]
    gradient = "approximate by definition" if found.approximate_gradient else "exact"
    lines += table([["Statistics", SCOPES[found.uses_batch]], ["Source", found.source],
                    ["Backward pass", gradient]])
    lines += [*heading("How to enable it", "-"),
              *code("sh", f"norma train translate --data.folder data/mine --model.norm {found.name}"),
              *code("python", "import norma, norma.torch",
                    f'layer = norma.Norm("{found.name}", 512)        # NumPy',
                    f"layer = norma.torch.{name}(512)    # a PyTorch module",
                    f'norma.torch.replace_norms(model, "{found.name}")')]
    if found.options:
        lines += [*heading("Options", "-"),
                  *table([[f"``{key}``", f"``{one.default}``", one.help.replace("*", "\\*")]
                          for key, one in found.options.items()])]
    if cost:
        lines += [*heading("Cost", "-"), COST, "", *table(list(zip(titles[1:], cost[1:])))]
    lines += findings(found, ledger)
    if pages is not None and found.name != "none":
        lines += measurements(found, pages)
    return "\n".join(lines)


def write(root):
    """The pages, in python/docs/norms of the repository."""
    folder = os.path.join(root, "python", "docs", "norms")
    os.makedirs(folder, exist_ok=True)
    titles, rows = costs(os.path.join(root, "docs", "norms.md"))
    ledger, pages = claims(root), results(root)
    for name, found in norma.norm_types().items():
        with open(os.path.join(folder, name + ".rst"), "w", encoding="utf-8") as file:
            file.write(page(found, titles, rows.get(name), ledger, pages))
