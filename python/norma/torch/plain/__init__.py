"""The norms in plain PyTorch, one page each: for every device and type, and for all that the kernels of Norma
cannot do.

    name of a type -> page; the pages have the formulas of src/core/norm/*.c
"""
from typing import Dict

from . import (ada, batch, derf, dyt, fix, group, group2d, layer, mabn, none, pnv, power, prms, progressive,
               rbn, renorm, repbn, rms, scale, seed, un, unit)
from ._call import Call, Page, Result, Rows

pages: Dict[str, Page] = {
    one.page.name: one.page
    for one in (
        none,
        layer,
        rms,
        scale,
        fix,
        group,
        group2d,
        batch,
        pnv,
        power,
        rbn,
        mabn,
        renorm,
        dyt,
        derf,
        unit,
        prms,
        ada,
        seed,
        repbn,
        progressive,
        un,
    )
}

__all__ = ["Call", "Page", "Result", "Rows", "pages"]
