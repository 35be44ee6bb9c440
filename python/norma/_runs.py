"""Run folders, and training and comparison through the program that the package contains."""
from __future__ import annotations

import configparser
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Union

from ._library import FileError, FormatError, UsageError, error_of

PathLike = Union[str, "os.PathLike[str]"]
_here = os.path.dirname(os.path.abspath(__file__))


def program_path() -> str:
    """The program of the package; the environment variable NORMA_PROGRAM replaces it. FileError: there is none."""
    path = os.environ.get("NORMA_PROGRAM") or os.path.join(_here, "bin", "norma")
    if not os.access(path, os.X_OK):
        raise FileError(f"{path}: not a program; install the package, or set NORMA_PROGRAM")
    return path


# ---- run folders ----

class Log:
    """``log.jsonl``: the records of one type by name, ``log["train"]``, each column as an array."""

    def __init__(self, records: List[Dict[str, Any]]) -> None:
        self.records = records

    @property
    def types(self) -> List[str]:
        """The types of the records in order of appearance, such as ``start``, ``train``, ``valid``."""
        return list(dict.fromkeys(record["type"] for record in self.records))

    def __getitem__(self, type: str) -> Dict[str, Any]:
        """Columns of the records of a type, such as ``update`` and ``loss``: NumPy arrays if NumPy is installed,
        otherwise lists, all of one length. Missing numbers and numbers that were not finite are NaN."""
        chosen = [record for record in self.records if record["type"] == type]
        names = dict.fromkeys(key for record in chosen for key in record if key != "type")
        return {name: _column([record.get(name) for record in chosen]) for name in names}

    def frame(self, type: str) -> Any:
        """The same as a DataFrame of pandas, which must be installed."""
        import pandas
        return pandas.DataFrame(self[type])


def _column(values: List[Any]) -> Any:
    numbers = all(value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)) for value in values)
    if numbers and None in values:
        values = [float("nan") if value is None else float(value) for value in values]
    try:
        import numpy
    except ImportError:
        return values
    if numbers or all(isinstance(value, (bool, str)) for value in values):
        return numpy.array(values)
    column = numpy.empty(len(values), object)
    column[:] = values
    return column


class Run(os.PathLike):
    """A run folder: ``Run("runs/x").log["valid"]["loss"]``. FileError: no such folder."""

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise FileError(f"{self.path}: not a folder")

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def config(self) -> Dict[str, Dict[str, str]]:
        """``config.ini``: section, key, value as text. FileError, FormatError."""
        parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#", ";"),
                                           inline_comment_prefixes=(";",), strict=True)
        parser.optionxform = str  # type: ignore[method-assign,assignment]
        file = self.path / "config.ini"
        try:
            parser.read_string(file.read_text(encoding="utf-8"), str(file))
        except OSError as problem:
            raise FileError(f"{file}: {problem.strerror}") from None
        except configparser.Error as problem:
            raise FormatError(str(problem)) from None
        return {section: dict(parser[section]) for section in parser.sections()}

    @property
    def log(self) -> Log:
        """``log.jsonl`` as it is now; the last line may be incomplete while the run trains. FileError, FormatError."""
        file = self.path / "log.jsonl"
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as problem:
            raise FileError(f"{file}: {problem.strerror}") from None
        return Log(_records(file, text[:text.rfind("\n") + 1]))

    def __repr__(self) -> str:
        return f"norma.Run({str(self.path)!r})"


def _records(file: Path, text: str) -> List[Dict[str, Any]]:
    records = []
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            record = json.loads(line)
            if not isinstance(record.get("type"), str):
                raise ValueError("no type")
        except (ValueError, AttributeError) as problem:
            raise FormatError(f"{file}:{number}: {problem}") from None
        records.append(record)
    return records


# ---- commands ----

def _words(settings: Mapping[str, Any]) -> List[str]:
    words = []
    for key, value in settings.items():
        words += ["--" + key, ("true" if value else "false") if isinstance(value, bool) else str(value)]
    return words


class _Recipe:
    """The path of a recipe; a text with a line break is written to a temporary file."""

    def __init__(self, recipe: PathLike) -> None:
        self.file: Optional[str] = None
        self.path = os.fspath(recipe)
        if "\n" in self.path:
            handle, self.file = tempfile.mkstemp(suffix=".ini", prefix="norma-")
            with open(handle, "w", encoding="utf-8") as out:
                out.write(self.path)
            self.path = self.file

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *_: Any) -> None:
        if self.file:
            os.unlink(self.file)


def _finish(process: "subprocess.Popen[bytes]", messages: Any) -> None:
    """Waits for the end of a program whose stderr is `messages`; raises the error of its exit code."""
    code = process.wait()
    messages.seek(0)
    lines = messages.read().decode("utf-8", "replace").replace("\r", "\n").rstrip().split("\n")
    if code:
        text = lines[-1].strip()
        raise error_of(code, text[len("norma: "):] if text.startswith("norma: ") else text or f"norma ended with {code}")


def train(recipe: PathLike, folder: PathLike, settings: Optional[Mapping[str, Any]] = None, *, resume: bool = False,
          callback: Optional[Callable[[Dict[str, Any]], None]] = None, interval: float = 0.5) -> Run:
    """Trains a model as ``norma train RECIPE --run.folder FOLDER``, and returns its run.

    recipe: path of a recipe, the name of one that comes with Norma, or the text of one. settings: options by name,
    ``{"train.updates": 1000, "model.norm": "power"}``. resume: continue the run of the folder. callback: called with each
    new record of ``log.jsonl``, a dict with ``type`` (``train``, ``valid``, ...), within ``interval`` seconds; an exception
    in it stops the training. Ctrl-C and such an exception write a checkpoint first, from which ``resume`` continues.

    The program runs in a separate process: a notebook and its training do not share memory and threads.
    Errors are those of the program, by its exit code: UsageError, FormatError, DivergedError, ...
    """
    folder = Path(folder)
    position = (folder / "log.jsonl").stat().st_size if resume and (folder / "log.jsonl").exists() else 0

    def forward(position: int) -> int:
        if not callback:
            return position
        try:
            with open(folder / "log.jsonl", "rb") as log:
                log.seek(position)
                text = log.read()
        except OSError:
            return position
        complete = text[:text.rfind(b"\n") + 1]
        for record in _records(folder / "log.jsonl", complete.decode("utf-8")):
            callback(record)
        return position + len(complete)

    with _Recipe(recipe) as path, tempfile.TemporaryFile() as messages:
        words = [program_path(), "train", path, "--run.folder", str(folder), "--run.quiet", *_words(settings or {})]
        if resume:
            words.append("--resume")
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=messages,
                                   start_new_session=True)
        try:
            while process.poll() is None:
                try:
                    process.wait(interval)
                except subprocess.TimeoutExpired:
                    pass
                position = forward(position)
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        _finish(process, messages)
        forward(position)
    return Run(folder)


def compare(recipe: PathLike, folder: PathLike, norms: Union[str, Iterable[str]],
            settings: Optional[Mapping[str, Any]] = None, *, seeds: int = 1) -> Dict[str, Any]:
    """Trains and scores variants as ``norma compare RECIPE --folder FOLDER --norms NORMS --seeds SEEDS --format json``.

    norms: variants, ``["layer", "power", "scale+fix"]``. settings: further options, ``{"train.updates": 1000}``. Returns
    the object that docs/formats.md describes: ``variants`` is a list with one dict per row of the table (``norm``, ``n``,
    ``score_mean``, ``interval_low``, ``p_holm``, ...; ``pandas.DataFrame(result["variants"])``), ``runs`` one per run. After
    an interruption the same call continues. Errors as ``train``.
    """
    chosen = norms if isinstance(norms, str) else ",".join(norms)
    with _Recipe(recipe) as path, tempfile.TemporaryFile() as messages, tempfile.TemporaryFile() as output:
        words = [program_path(), "compare", path, "--folder", os.fspath(folder), "--norms", chosen, "--seeds", str(seeds),
                 "--format", "json", *_words(settings or {})]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=messages,
                                   start_new_session=True)
        try:
            process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        _finish(process, messages)
        output.seek(0)
        result = json.load(output)
    if not isinstance(result, dict) or "variants" not in result:
        raise FormatError("norma compare: no table in its output")
    return result


def main() -> None:
    """The command ``norma``: replaces this process by the program."""
    os.execv(program_path(), ["norma", *sys.argv[1:]])
