"""The documentation site, of the program, C and Python: make docs."""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "python"), HERE]

project = "norma"
copyright = "the authors of Norma"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "python/docs/site"
include_patterns = ["python/docs/*.rst", "python/docs/norms/*.rst", "python/docs/c/*.rst", "docs/*.md",
                    "results/*.md"]
exclude_patterns = ["python/docs/build", "docs/notes"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px", "sidebar_width": "240px"}
html_show_sourcelink = False
# Types of other packages are not linked.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(os\.)?PathLike|pathlib\.Path|torch\..*|np\..*"),
                        ("py:.*", r"Unpack|\w+Options|Segments"),
                        ("c:.*", r"(?!nm_).*")]


def outside(app, docname, source):
    """Links to files that are no pages become the path as text."""
    folder = os.path.dirname(docname)

    def link(found):
        target = os.path.normpath(os.path.join(folder, found[2].split("#")[0]))
        page = re.fullmatch(r"(docs|results)/[\w.-]+\.md", target)
        return found[0] if found[2].startswith(("http", "#")) or page else found[1]
    if docname.startswith(("docs/", "results/")):
        source[0] = re.sub(r"\[([^][]*)\]\(([^()\s]+)\)", link, source[0])


def setup(app):
    import c_pages
    import norm_pages
    c_pages.write(ROOT)
    norm_pages.write(ROOT)
    app.connect("source-read", outside)
