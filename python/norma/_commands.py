"""Commands as functions: reports, inspections, baselines, tokenization, conversion, recipes."""
from __future__ import annotations

import html
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Union)

from . import _datasets
from ._library import UsageError, error_of, file_error, warn
from ._models import _given
from ._runs import PathLike, Run, _Recipe, _recipe_file, _words, program_path

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import BaselineOptions, InspectOptions, ReportOptions, StudyOptions, TokenizeOptions



def _run(command: str, words: Sequence[str], options: Optional[Mapping[str, Any]], more: Mapping[str, Any],
         given: str = "") -> str:
    """What a command of the program writes to standard output. Its warnings are those of ``warnings``."""
    settings = _words({**_given(options), **more})
    done = subprocess.run([program_path(), command, *words, *settings], input=given.encode("utf-8"),
                          capture_output=True)
    lines = done.stderr.decode("utf-8", "replace").replace("\r", "\n").rstrip().split("\n")
    for line in lines:
        if line.startswith("norma: warning: "):
            warn(line[len("norma: warning: "):])
    if done.returncode:
        text = lines[-1].strip()
        raise error_of(done.returncode, text[len("norma: "):] if text.startswith("norma: ") else text)
    return done.stdout.decode("utf-8")


def _runs(runs: Union[PathLike, Iterable[PathLike]]) -> List[str]:
    found = [runs] if isinstance(runs, (str, os.PathLike)) else list(runs)
    if not found:
        raise UsageError("runs: empty")
    return [os.fspath(one) for one in found]


def table_html(rows: Sequence[Sequence[Any]]) -> str:
    """A table for notebooks; the first row is the header."""
    def line(row: Sequence[Any], tag: str) -> str:
        cells = (f"{one:.4g}" if isinstance(one, float) else str(one) for one in row)
        return "<tr>" + "".join(f"<{tag}>{html.escape(one)}</{tag}>" for one in cells) + "</tr>"
    head, *body = rows
    return (f"<table><thead>{line(head, 'th')}</thead><tbody>" + "".join(line(row, "td") for row in body)
            + "</tbody></table>")


class Rows(List[Dict[str, Any]]):
    """A list of dicts, which Jupyter shows as a table: one column for each key with a number, a text or a
    Boolean."""

    def _repr_html_(self) -> str:
        keys = [key for key in dict.fromkeys(key for row in self for key in row)
                if all(isinstance(row.get(key, 0), (int, float, str)) for row in self)]
        return table_html([keys, *([row.get(key, "") for key in keys] for row in self)])


class Recipe(NamedTuple):
    """A recipe that comes with Norma."""
    name: str  #: as in ``norma.train(name, ...)``
    description: str  #: one line


def recipes(*words: str) -> List[Recipe]:
    """The recipes that come with Norma, whose name or description contains every word: ``norma.recipes("lm",
    "wikitext")``. UsageError: there is none."""
    lines = _run("recipes", [_word(one) for one in words], None, {}).splitlines()
    return [Recipe(name, text.strip()) for name, _, text in (line.partition(" ") for line in lines) if text]


def _word(word: str) -> str:
    if word.startswith("-"):
        raise UsageError(f"{word!r}: expected a word, not an option")
    return word


def tokenize(lines: Iterable[str], options: Optional[TokenizeOptions] = None,
             **more: Unpack[TokenizeOptions]) -> List[str]:
    """Lines as ``norma tokenize`` writes them: ``norma.tokenize(["A house."], like="data/mine")``; undo=True:
    tokens to text. options: those of ``norma tokenize --help``. UsageError: a line with a newline."""
    given = list(lines)
    if any("\n" in line for line in given):
        raise UsageError("lines: a line contains a newline")
    text = _run("tokenize", [], options, more, "".join(line + "\n" for line in given))
    return text.split("\n")[:-1]


def convert(model: PathLike, output: PathLike, *, to: Optional[str] = None, from_: Optional[str] = None,
            options: Optional[Mapping[str, Any]] = None, **more: Any) -> Path:
    """Converts a model to (``to="huggingface"``) or from (``from_="fairseq"``) one of the formats of other
    toolkits that ``norma convert --help`` lists; returns the output.
    UnsupportedError: a part of the model that the other toolkit cannot compute."""
    if (to is None) == (from_ is None):
        raise UsageError("convert: expected one of to and from_")
    direction = {"to": to} if to is not None else {"from": from_}
    _run("convert", [os.fspath(model)], options, {**direction, "output": os.fspath(output), **more})
    return Path(output)


def baseline(recipe: PathLike, settings: Optional[BaselineOptions] = None,
             **more: Unpack[BaselineOptions]) -> Dict[str, Any]:
    """Scores of simple models on the data of a recipe: the object of ``norma baseline RECIPE --json``.
    settings: options by name, ``{"data.train": "reviews.csv"}``, as for ``norma.train``."""
    with _Recipe(_recipe_file(recipe)) as path:
        found: Dict[str, Any] = json.loads(_run("baseline", [path], settings, {**more, "json": True}))
    return found


def inspect(runs: Union[PathLike, Iterable[PathLike]], options: Optional[InspectOptions] = None,
            **more: Unpack[InspectOptions]) -> Rows:
    """Measurements of trained models: the array of ``norma inspect RUN... --json``, one dict for each model
    and measurement. options: those of ``norma inspect --help``, such as ``measure="tid"``."""
    return Rows(json.loads(_run("inspect", _runs(runs), options, {**more, "json": True})))


class Report(os.PathLike[str]):
    """The page of ``norma.report``, which Jupyter shows."""

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)

    def __fspath__(self) -> str:
        return str(self.path)

    def _repr_html_(self) -> str:
        page = html.escape(self.path.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" width="100%" height="700" style="border: 0"></iframe>'

    def __repr__(self) -> str:
        return f"norma.Report({str(self.path)!r})"


def report(runs: Union[PathLike, Iterable[PathLike]], output: PathLike = "report.html",
           options: Optional[ReportOptions] = None, **more: Unpack[ReportOptions]) -> Report:
    """Writes one page with the figures of several runs, as ``norma report``. UnsupportedError: gnuplot is not
    installed."""
    _run("report", _runs(runs), options, {**more, "output": os.fspath(output)})
    return Report(output)


class Study(Dict[str, Any]):
    """The object of ``answer.json`` (docs/formats.md). ``print`` and Jupyter show the answer."""

    folder: Path  #: of the study

    @staticmethod
    def open(folder: PathLike) -> "Study":
        """The answer in the folder of a study. FileError: there is none."""
        path = Path(folder)
        try:
            found = Study(json.loads((path / "answer.json").read_text(encoding="utf-8")))
        except OSError as problem:
            raise file_error(f"{path / 'answer.json'}: {problem.strerror}") from None
        found.folder = path
        return found

    @property
    def winner(self) -> Run:
        """The run of the best model: ``study.winner.model()``."""
        return Run(self.folder / "winner")

    @property
    def report(self) -> Report:
        """The page with the figures of the confirmed runs."""
        return Report(self.folder / "report.html")

    def __str__(self) -> str:
        return (self.folder / "answer.md").read_text(encoding="utf-8")

    def _repr_markdown_(self) -> str:
        return str(self)


def study(data: Union[PathLike, Iterable[Any]], folder: PathLike,
          options: Optional[StudyOptions] = None, *, task: Optional[str] = None,
          columns: Optional[Sequence[str]] = None, message: Optional[Callable[[str], Any]] = None,
          **more: Unpack[StudyOptions]) -> Study:
    """Finds the best normalization for data within a time budget, as ``norma study DATA --folder FOLDER``:
    ``norma.study("corpus.txt", "studies/corpus", budget="2h")``.

    data: a path, or those of two parallel texts; or rows, as for ``train``: a list or a Hugging Face dataset,
    or a dict of splits. They are written to ``rows`` in the folder; without validation or test rows, every
    twentieth row is held out for each. task: "translation", "lm", "classification" or "tagging", where the
    rows do not tell; columns: of the rows, of translations the languages. options: those of ``norma study
    --help``. message: called with each line on a run or a decision; ``norma.Display()`` shows them. Ctrl-C
    stops the study, and the same call continues it. UsageError: an unknown option; otherwise as ``train``.
    """
    paths: Any = data
    if not isinstance(data, (str, os.PathLike)):
        are_paths = isinstance(data, (list, tuple)) and 0 < len(data) < 3 and all(
            isinstance(one, (str, os.PathLike)) for one in data)
        paths = data if are_paths else _datasets.write_study(data, folder, task, columns)
    words = ["study", *_runs(paths), *_words({**_given(options), **more, "folder": os.fspath(folder)})]
    environment = {**os.environ, "NORMA_PARENT": str(os.getpid())}  # it ends when this process does
    last = ""
    with tempfile.TemporaryFile() as out, subprocess.Popen(
            [program_path(), *words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE,
            env=environment, start_new_session=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                last = line.decode("utf-8", "replace").strip() or last
                if last.startswith("norma: warning: "):
                    warn(last[len("norma: warning: "):])
                elif message is not None:
                    message(last)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise error_of(process.returncode, last[len("norma: "):] if last.startswith("norma: ") else last)
    return Study.open(folder)
