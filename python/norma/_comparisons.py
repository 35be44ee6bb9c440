"""Comparisons of variants of a recipe, and their tables."""
from __future__ import annotations

import functools
import json
import os
import time
from ctypes import byref, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from . import _datasets
from ._commands import table_html
from ._handle import close
from ._interrupt import Interruptible
from ._library import UsageError, check, encoded_path, file_error, library, warn
from ._models import _given, _list_of, _option_list
from ._records import (ComparisonEvents, ErrorText, comparison_finished, comparison_message,
                       comparison_progress, comparison_scored, comparison_trained)
from ._runs import PathLike, Run, _LogReader, _recipe_file, program_path

if TYPE_CHECKING:
    from .options import CompareOptions, PrepareOptions

_FORMATS = ("text", "markdown", "latex", "csv")


class Comparison(Dict[str, Any]):
    """The object of ``norma compare --format json``, which docs/json.md describes: ``variants`` has one dict
    per row of the table (``norm``, ``n``, ``score_mean``, ``interval_low``, ``p_holm``, ...), ``runs`` one
    per run. With several seeds, p is that of a two-sided t test; with one seed it is one-sided: the fraction
    of resamples in which the better system is not better. ``print`` and Jupyter show the table."""

    _texts: Dict[str, str]

    @classmethod
    def open(cls, folder: PathLike, *, margin: float = 0) -> "Comparison":
        """The results in the folder of a comparison, without recipe, data and models. margin: of the
        equivalence tests, in units of the score; 0: none. FileError: no comparison.json, or a log that cannot
        be read; FormatError: a malformed file."""
        lib, handle, err = library(), c_void_p(), ErrorText()
        options = _option_list({"margin": margin, "samples": False})
        check(lib.nm_comparison_open_results(byref(handle), encoded_path("folder", folder), options, None,
                                             byref(err)), err)
        try:
            check(lib.nm_comparison_run(handle, byref(err)), err)
            return _read(handle)
        finally:
            close(handle, lib.nm_comparison_close)

    def text(self, format: str = "text") -> str:
        """The table as ``text``, ``markdown``, ``latex``, or ``csv`` with all digits. UsageError: another
        format."""
        if format not in _FORMATS:
            raise UsageError(f"format = {format!r}: expected one of {', '.join(_FORMATS)}")
        return self._texts[format]

    @property
    def table(self) -> Any:
        """The variants: a DataFrame if pandas is installed, otherwise a list of dicts."""
        return _frame(self["variants"])

    @property
    def runs(self) -> Any:
        """The runs: a DataFrame if pandas is installed, otherwise a list of dicts."""
        return _frame(self["runs"])

    def __str__(self) -> str:
        return self.text()

    def _repr_markdown_(self) -> str:
        return self.text("markdown")

    def _repr_html_(self) -> str:
        lines = [[cell.strip() for cell in line.strip("|").split("|")]
                 for line in self.text("markdown").splitlines() if line.startswith("|")]
        return table_html([lines[0], *lines[2:]])


def _frame(rows: List[Dict[str, Any]]) -> Any:
    try:
        import pandas  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def _read(handle: c_void_p) -> Comparison:
    """The tables of a comparison that has been run."""
    lib = library()
    result = Comparison(json.loads(lib.nm_comparison_text(handle, b"json")))
    result._texts = {}
    for name in _FORMATS:
        grid = lib.nm_comparison_grid_text(handle, name.encode()).decode()
        result._texts[name] = grid + lib.nm_comparison_text(handle, name.encode()).decode()
    return result


class _LogsReader:
    """Passes new records of the logs of all runs in a folder to a function, with their run."""

    def __init__(self, folder: Path, callback: Optional[Callable[[Run, Dict[str, Any]], Any]],
                 interval: float) -> None:
        self.folder, self.callback, self.interval, self.last = folder, callback, interval, 0.0
        self.readers: Dict[Path, _LogReader] = {}
        self._add(True)

    def _add(self, resume: bool) -> None:
        if self.callback is None:
            return
        for log in sorted(self.folder.glob("*/log.jsonl")):
            if log.parent not in self.readers:
                self.readers[log.parent] = _LogReader(log.parent,
                                                      functools.partial(self.callback, Run(log.parent)),
                                                      resume)

    def follow(self) -> None:
        self._add(False)
        for reader in self.readers.values():
            reader.follow()

    def follow_if_due(self) -> None:
        """Follows the logs every ``interval`` seconds."""
        now = time.monotonic()
        if now - self.last >= self.interval:
            self.last = now
            self.follow()


def _recipe_path(recipe: PathLike, folder: Path) -> str:
    """The file of a recipe; a text with a line break becomes ``recipe.ini`` in the folder, which the runs
    read."""
    name = _recipe_file(recipe)
    if "\n" not in name:
        return name
    path = folder / "recipe.ini"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    except OSError as problem:
        raise file_error(f"{path}: {problem.strerror}") from None
    return str(path)


def _norms(norms: Any) -> List[str]:
    names = _list_of("norms", norms, "variants")
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f"norms = {names!r}: expected a list of texts")
    return names


def compare(recipe: PathLike, folder: PathLike, norms: Union[str, Iterable[str], None] = None,
            settings: Optional[CompareOptions] = None, *, seeds: int = 1,
            data: Optional[Mapping[str, Any]] = None, columns: Optional[Sequence[str]] = None,
            preparation: Optional[PrepareOptions] = None,
            callback: Optional[Callable[[Run, Dict[str, Any]], Any]] = None,
            message: Optional[Callable[[str], Any]] = None, interval: float = 0.5) -> Comparison:
    """Trains and scores variants like ``norma compare RECIPE --folder FOLDER --norms NORMS --seeds SEEDS``,
    and returns the table, with the same numbers as the program.

    recipe: as for ``train``; a text is saved as ``recipe.ini`` in the folder. norms: variants, ``["layer",
    "power", "scale+fix"]``, with braces around values that contain commas,
    ``"layer:norm.at={enc.0=batch,enc.1=rms}"``; None: five that suit the task. settings: further options,
    ``{"train.updates": 1000, "margin": 0.3}``; a list is an option that is given several times, ``{"grid":
    ["schedule.lr=0.001,0.002"]}``. data, columns, preparation: lists or Hugging Face datasets, as for
    ``train``; ``test`` is scored. callback: called within ``interval`` seconds with a run and each new
    record of its log, a dict with ``type`` (``train``, ``valid``, ...). message: called with notes, such as
    the number of a Slurm job, and warnings as ``"warning: ..."``; without it, the warnings are those of
    ``warnings``.

    The comparison runs in this process, without the interpreter lock: it starts and awaits the runs, each a
    process of the program with its own memory and threads, and scores the models. Ctrl-C, and an exception in
    a function, stop the runs with checkpoints, and the exception is then raised; the same call continues, and
    finished runs are neither trained nor scored again. If this process is killed, its runs end, too.

    UsageError: unknown option or value, options of a variant that ``train`` would reject before it reads
    data, no test set, two variants with the same configuration, another comparison that uses the folder;
    otherwise as ``train``. The error of the first run if all runs failed; otherwise a failed run has
    ``exit_code`` and ``error``.
    """
    lib, handle, err = library(), c_void_p(), ErrorText()
    folder, recipe = (os.fsdecode(encoded_path(what, path)) for what,
                      path in (("folder", folder), ("recipe", recipe)))
    given = _given(settings)
    if data is not None:
        given = {**_datasets.write(data, folder, recipe, given, columns, preparation), **given}
    options: Dict[str, Any] = {**given, "compare.folder": folder, "compare.seeds": seeds}
    if norms is not None:
        options["compare.norms"] = norms if isinstance(norms, str) else ",".join(_norms(norms))
    logs = _LogsReader(Path(folder), callback, interval)
    path = _recipe_path(recipe, Path(folder))
    with Interruptible(lambda: lib.nm_comparison_stop(handle)) as calls:
        def on_progress(*_: Any) -> None:
            calls.call(logs.follow_if_due)

        def on_message(_: Any, text: bytes) -> None:
            line = text.decode("utf-8", "replace")
            if message is not None:
                calls.call(message, line)
            elif line.startswith("warning: "):
                calls.call(warn, line[len("warning: "):])

        events = ComparisonEvents(None, comparison_progress(on_progress), comparison_finished(),
                                  comparison_scored(),
                                  comparison_trained(), comparison_message(on_message))
        status = lib.nm_comparison_open(byref(handle), os.fsencode(program_path()), os.fsencode(path),
                                        _option_list(options), byref(events), byref(err))
        try:
            if not status and calls.problem is None:
                status = lib.nm_comparison_run(handle, byref(err))
            if not status and calls.problem is None:
                result = _read(handle)
        finally:
            close(handle, lib.nm_comparison_close)
    if calls.problem is not None:
        raise calls.problem
    check(status, err)
    logs.follow()
    return result
