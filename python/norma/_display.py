"""Progress of training in notebooks and terminals."""
from __future__ import annotations

import html
import sys
from typing import Any, Dict, List, Optional

from ._commands import table_html
from ._library import UsageError
from ._runs import Run

_COLUMNS = "update", "loss", "valid", "best", "tokens/s"


class Display:
    """Shows the progress of ``norma.train`` and ``norma.compare``: ``norma.train(..., callback=
    norma.Display())``, and of ``norma.study(..., message=norma.Display())``. In Jupyter it is a table with
    one row for each run, or the lines of the study, which is updated in place; elsewhere each validation, or
    line, is a line on standard error."""

    def __init__(self) -> None:
        self.rows: Dict[str, Dict[str, Any]] = {}  #: by run: what is shown
        self.lines: List[str] = []  #: of a study
        self._handle: Any = None

    def __call__(self, *given: Any) -> None:
        """With a record of a log, a run and a record, or a line of a study."""
        if len(given) == 1 and isinstance(given[0], str):
            self.lines.append(given[0])
            self._show(given[0], False)
            return
        if not given or not isinstance(given[-1], dict):
            raise UsageError("Display: expected a record, a run and a record, or a text")
        name = given[0].path.name if isinstance(given[0], Run) else "run"
        record, row = given[-1], self.rows.setdefault(name, {})
        if "update" in record:
            row["update"] = record["update"]
        if record["type"] == "train":
            row["loss"], row["tokens/s"] = record.get("loss"), record.get("tokens_per_second")
        elif record["type"] == "valid" and record.get("loss") is not None:
            row["valid"] = record["loss"]
            row["best"] = min(record["loss"], row.get("best", record["loss"]))
        self._show(name, record["type"] == "valid")

    def _show(self, name: str, validated: bool) -> None:
        notebook = _notebook()
        if notebook is None:
            if name not in self.rows:
                print(name, file=sys.stderr)
            elif validated:
                row = self.rows[name]
                print(f"{name}: update {row.get('update')}, validation loss {row['valid']:.4f}, best "
                      f"{row['best']:.4f}" if "valid" in row else f"{name}: validation", file=sys.stderr)
        elif self._handle is None:
            self._handle = notebook.display(self, display_id=True)
        else:
            self._handle.update(self)

    def _repr_html_(self) -> str:
        if self.lines:
            return f"<pre>{html.escape(chr(10).join(self.lines[-12:]))}</pre>"
        shown: List[List[Any]] = [["", *_COLUMNS]]
        for name, row in self.rows.items():
            shown.append([name, *("" if row.get(key) is None else row[key] for key in _COLUMNS)])
        return table_html(shown)


def _notebook() -> Optional[Any]:
    """``IPython.display`` in a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    import IPython.display  # type: ignore[import-not-found,unused-ignore]
    return IPython.display
