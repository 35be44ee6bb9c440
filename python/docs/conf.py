"""Sphinx pages of the Python package: make python-docs."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

project = "norma"
copyright = "the authors of Norma"
extensions = ["sphinx.ext.autodoc"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True
html_theme = "alabaster"
html_show_sourcelink = False
# Types of other packages are not linked.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(os\.)?PathLike|torch\..*|np\..*")]
