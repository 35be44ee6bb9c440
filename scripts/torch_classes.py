#!/usr/bin/env python3
"""Prints python/norma/torch/_classes.py: a class with typed options for every norm of the library.

    PYTHONPATH=python NORMA_LIBRARY=build/python/libnorma.so scripts/torch_classes.py \\
        > python/norma/torch/_classes.py
"""
import keyword
import textwrap

import norma

HEAD = '''"""A class for every norm, with typed options. scripts/torch_classes.py writes this file."""
from __future__ import annotations

from typing import Any, Dict, Optional, Type

import torch

from ._module import Norm


class _Fixed(Norm):
    """A norm of a fixed type. Options that are None have the default of the type or of its preset."""
    _shows_type = False
'''


def class_name(found):
    return "NoNorm" if found.name == "none" else found.title.replace(" ", "").replace("-", "")


def annotation(option):
    if option.choices:
        values = ", ".join(f'"{choice}"' for choice in option.choices.split("|"))
        return f"Literal[{values}]"
    return "Union[int, str]" if option.kind is str else option.kind.__name__


def own_options(found):
    """Without those of another parameter, and of models only (C header norm.h, nm_norm_site.sequences)."""
    return {name: option for name, option in found.options.items()
            if name not in ("groups", "count_padding") and not keyword.iskeyword(name)}


def parameters(found):
    for name, option in own_options(found).items():
        yield f"{name}: Optional[{annotation(option)}] = None"


def wrapped(text, indent):
    after = indent + 2 * text.startswith("- ")  # of an item
    return textwrap.fill(text, 108, initial_indent=" " * indent, subsequent_indent=" " * after,
                         break_long_words=False, break_on_hyphens=False)


def documentation(found):
    first = f'"""{found.title}: {found.formula}.'
    yield "    " + first if len(found.formula) < 80 else wrapped(first, 4)
    if found.source:
        yield "\n" + wrapped(f"Source: {found.source}.", 4)
    if found.options:
        yield "\n    Options:\n"
        for name, option in found.options.items():
            if name != "count_padding":
                yield wrapped(f"- {name} ({option.default}): {option.help}", 4)
    yield '    """'


def signature(found):
    given = ["self", "width: int", "*", "groups: int = 1", *parameters(found), "device: Any = None",
             "dtype: Optional[torch.dtype] = None", 'statistics: str = "process"',
             "process_group: Any = None", "**options: Any"]
    yield textwrap.fill(f"def __init__({', '.join(given)}) -> None:", 108, initial_indent="    ",
                        subsequent_indent=" " * 17, break_long_words=False, break_on_hyphens=False)
    own = ", ".join(f"{name}={name}" for name in own_options(found))
    yield textwrap.fill(f"given: Dict[str, Any] = dict({own})", 108, initial_indent=" " * 8,
                        subsequent_indent=" " * 37, break_long_words=False)
    yield (
        f'        self._create("{found.name}", width, groups, device, dtype, statistics, process_group, '
        "given, options)"
    )


def main():
    types = sorted(norma.norm_types().values(), key=class_name)
    used = sorted({word for one in types for parameter in parameters(one)
                   for word in ("Literal", "Union") if word in parameter})
    names = ", ".join(sorted(["Any", "Dict", "Optional", "Type", *used]))
    print(HEAD.replace("from typing import Any, Dict, Optional, Type", f"from typing import {names}"))
    print('''\
    def _create(self, type: str, width: int, groups: int, device: Any, dtype: Optional[torch.dtype],
                statistics: str, process_group: Any, given: Dict[str, Any], options: Dict[str, Any]) -> None:
        chosen = {name: value for name, value in given.items() if value is not None}
        Norm.__init__(self, type, width, groups=groups, device=device, dtype=dtype, statistics=statistics,
                      process_group=process_group, **chosen, **options)''')
    for found in types:
        print(f"\n\nclass {class_name(found)}(_Fixed):")
        print("\n".join(documentation(found)))
        print()
        print("\n".join(signature(found)))
    print("\n\nby_type: Dict[str, Type[Norm]] = {")
    print("\n".join(f'    "{found.name}": {class_name(found)},' for found in types))
    listed = ", ".join(f'"{class_name(found)}"' for found in types)
    print("}\n" + textwrap.fill(f"__all__ = [{listed}]", 108, subsequent_indent=" " * 11))
    print("for _kind in by_type.values():\n    _kind.__module__ = \"norma.torch\"")


if __name__ == "__main__":
    main()
