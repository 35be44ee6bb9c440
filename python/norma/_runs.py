"""Run folders, training, and the program that the package contains."""
from __future__ import annotations

import configparser
import errno
import json
import os
import subprocess
import sys
import tempfile
from ctypes import byref, c_void_p
from pathlib import Path
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Union)

from ._handle import close
from ._interrupt import Interruptible
from ._library import (FileError, FormatError, UsageError, check, encoded, encoded_path, error_of, file_error,
                       library, package_path, warn)
from ._models import _given, _option_list, _option_pairs
from ._records import (ErrorText, Progress, TrainingEvents, Validation, training_message, training_progress,
                       training_validated)

if TYPE_CHECKING:
    from .options import PrepareOptions, TrainOptions

PathLike = Union[str, "os.PathLike[str]"]
_here = os.path.dirname(os.path.abspath(__file__))


def program_path() -> str:
    """Path of the program ``norma``: that of the environment variable NORMA_PROGRAM if it is set, otherwise
    that of the package. FileError: there is no program."""
    path = os.environ.get("NORMA_PROGRAM") or package_path("bin", "norma")
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

    def __iter__(self) -> Iterator[str]:
        """The types, as ``types``: ``dict(log)`` has the columns of all types."""
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)

    def __contains__(self, type: object) -> bool:
        return type in self.types

    def keys(self) -> List[str]:
        """The same as ``types``."""
        return self.types

    def __getitem__(self, type: str) -> Dict[str, Any]:
        """Columns of the records of a type, such as ``update`` and ``loss``: NumPy arrays if NumPy is
        installed, otherwise lists, all of one length. Missing numbers and numbers that were not finite are
        NaN."""
        if not isinstance(type, str):
            raise TypeError(f"the type of records is a str such as 'train', not {type!r}")
        chosen = [record for record in self.records if record["type"] == type]
        names = dict.fromkeys(key for record in chosen for key in record if key != "type")
        return {name: _column([record.get(name) for record in chosen]) for name in names}

    def frame(self, type: str) -> Any:
        """The same as a DataFrame of pandas. ImportError: pandas is not installed."""
        import pandas  # type: ignore[import-untyped,unused-ignore]
        return pandas.DataFrame(self[type])

    def __repr__(self) -> str:
        return f"<norma.Log, {len(self.records)} records: {', '.join(self.types)}>"


def _column(values: List[Any]) -> Any:
    numbers = all(value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
                  for value in values)
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


class Run(os.PathLike[str]):
    """A run folder: ``Run("runs/x").log["valid"]["loss"]``. FileError: no such folder."""

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            reason = "not a folder" if self.path.exists() else os.strerror(errno.ENOENT)
            raise file_error(f"{self.path}: {reason}")

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
            raise file_error(f"{file}: {problem.strerror}") from None
        except configparser.Error as problem:
            raise FormatError(str(problem)) from None
        return {section: dict(parser[section]) for section in parser.sections()}

    @property
    def log(self) -> Log:
        """``log.jsonl`` as it is now; the last line may be incomplete while the run trains. FileError,
        FormatError."""
        file = self.path / "log.jsonl"
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as problem:
            raise file_error(f"{file}: {problem.strerror}") from None
        return Log(_records(file, text[:text.rfind("\n") + 1]))

    @property
    def best(self) -> Dict[str, Any]:
        """The record of the validation with the lowest loss, as in ``log.jsonl``: ``run.best["loss"]``,
        ``run.best["update"]``. UsageError: there is no validation yet."""
        found = [one for one in self.log.records if one["type"] == "valid"
                 and isinstance(one.get("loss"), (int, float))]
        if not found:
            raise UsageError(f"{self.path}: no validation in log.jsonl yet")
        return min(found, key=lambda one: one["loss"])

    def model(self, options: Optional[Mapping[str, Any]] = None, **more: Any) -> Any:
        """The trained model as the class of its task, as ``norma.load``:
        ``run.model(beam=4).translate([...])``."""
        from ._models import load
        return load(self.path, options, **more)

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
    for name, value in _option_pairs(settings):
        encoded(f"option {name}", value)  # UsageError
        words += ["--" + name, value]
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


def _follow(process: "subprocess.Popen[bytes]", logs: Any, interval: float) -> None:
    """Follows logs until the program ends. An exception, such as that of Ctrl-C, ends the program with a
    checkpoint: by SIGTERM, since a process that ignores SIGINT, such as a job of nohup, starts programs that
    ignore it, too."""
    try:
        while process.poll() is None:
            try:
                process.wait(interval)
            except subprocess.TimeoutExpired:
                pass
            logs.follow()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _finish(process: "subprocess.Popen[bytes]", messages: Any) -> None:
    """Waits for the end of a program whose stderr is `messages`; raises the error of its exit code."""
    code = process.wait()
    messages.seek(0)
    lines = messages.read().decode("utf-8", "replace").replace("\r", "\n").rstrip().split("\n")
    if code:
        text = lines[-1].strip()
        raise error_of(code, text[len("norma: "):] if text.startswith("norma: ") else text
                       or f"norma ended with {code}")


class Callbacks(NamedTuple):
    """Functions that ``norma.train`` calls, each optional. Without ``message``, warnings are those of
    ``warnings``, and notes are not shown."""
    progress: Optional[Callable[[Progress], Any]] = None  #: after every update
    validated: Optional[Callable[[Validation], Any]] = None  #: after every validation
    #: a note, such as a setting that the recipe adapts; or "warning: ..."
    message: Optional[Callable[[str], Any]] = None


_RESUME = {False: 0, True: 1, "override": 2}


def train(recipe: PathLike, folder: PathLike, settings: Optional[TrainOptions] = None, *,
          data: Optional[Mapping[str, Any]] = None, columns: Optional[Sequence[str]] = None,
          preparation: Optional[PrepareOptions] = None, resume: Union[bool, str] = False,
          callbacks: Optional[Callbacks] = None,
          callback: Optional[Callable[[Dict[str, Any]], None]] = None, process: bool = False,
          interval: float = 0.5) -> Run:
    """Trains a model like ``norma train RECIPE --run.folder FOLDER``, and returns its run. The tensors are
    bitwise identical to those of the program.

    recipe: path of a recipe, the name of one that comes with Norma, or the text of one. settings: options by
    name, ``{"train.updates": 1000, "model.norm": "power"}``,
    or ``{"device": "cuda"}`` to train on a GPU. data: the splits ``train``, and perhaps
    ``validation`` and ``test``, each a list or a Hugging Face dataset: of texts, pairs (text, label),
    (source, target) or (tokens, tags), or of dicts, from which ``columns`` chooses; for translation,
    ``columns`` are the languages. They are written to the folder; preparation: options of ``norma.prepare``.
    resume: continue the run of the folder; "override": settings replace those of the run. callbacks:
    ``norma.Callbacks(progress=..., validated=..., message=...)``. callback: called with each new record of
    ``log.jsonl``, a dict with ``type`` (``train``, ``valid``, ...).

    The training runs in this process, without the interpreter lock, and calls the functions in the thread
    that called ``train``. process: run the program in a separate process instead, whose memory and threads
    are its own; ``callback`` is then called within ``interval`` seconds, and ``callbacks`` are not available.

    Ctrl-C, and an exception in a function, end the training after the current update with a checkpoint, from
    which ``resume`` continues bitwise identically; the exception is then raised. UsageError: unknown option
    or value, a folder with a run; FileError, FormatError: a file; MismatchError: a checkpoint of another
    configuration; DivergedError: the loss is not finite.
    """
    if resume not in _RESUME:
        raise UsageError(f"resume = {resume!r}: expected False, True or 'override'")
    if callbacks is not None and not isinstance(callbacks, Callbacks):
        raise UsageError(f"callbacks = {callbacks!r}: expected norma.Callbacks")
    folder, recipe = (os.fsdecode(encoded_path(what, path)) for what,
                      path in (("folder", folder), ("recipe", recipe)))
    given = _given(settings)
    if data is not None:
        from ._datasets import write
        given = {**write(data, folder, recipe, given, columns, preparation), **given}
    reader = _LogReader(Path(folder), callback, bool(resume))
    if not process:
        return _train_here(recipe, Path(folder), given, _RESUME[resume], callbacks or Callbacks(),
                           reader)
    if callbacks is not None:
        raise UsageError("callbacks require training in this process; callback also follows a separate one")
    return _train_process(recipe, Path(folder), given, resume, reader, interval)


class _LogReader:
    """Passes new records of the log to a function."""

    def __init__(self, folder: Path, callback: Optional[Callable[[Dict[str, Any]], None]],
                 resume: bool) -> None:
        self.path, self.callback = folder / "log.jsonl", callback
        self.position = self.path.stat().st_size if resume and self.path.exists() else 0

    def follow(self) -> None:
        if not self.callback:
            return
        try:
            with open(self.path, "rb") as log:
                log.seek(self.position)
                text = log.read()
        except OSError:
            return
        complete = text[:text.rfind(b"\n") + 1]
        self.position += len(complete)
        for record in _records(self.path, complete.decode("utf-8")):
            self.callback(record)


def _recipe_file(recipe: PathLike) -> str:
    """The path of a recipe: of a file, or of a recipe that comes with Norma, such as ``lm`` or
    ``pn/table3-ptb-ln``. The text of a recipe is returned unchanged. FileError: there is none."""
    name = os.fspath(recipe)
    if "\n" in name or os.path.isfile(name) or os.path.isabs(name):
        return name
    for folder in (package_path("share", "norma", "recipes"), os.path.join(_here, "..", "..", "recipes")):
        path = os.path.join(folder, name if name.endswith(".ini") else name + ".ini")
        if os.path.isfile(path):
            return path
    if os.path.exists(name):
        return name
    raise file_error(
        f"{name}: No such file, and no recipe of this name; the command norma recipes lists the recipes"
    )


def _fields(kind: Any, struct: Any) -> Any:
    values = {name: getattr(struct, name) for name in kind._fields}
    return kind(**{name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
                   for name, value in values.items()})


def _train_here(recipe: PathLike, folder: Path, settings: Mapping[str, Any], resume: int,
                callbacks: Callbacks,
                log: _LogReader) -> Run:
    lib, training, err = library(), c_void_p(), ErrorText()
    with Interruptible(lambda: lib.nm_training_stop(training)) as calls:
        def on_progress(_: Any, progress: Any) -> None:
            calls.call(log.follow)
            if callbacks.progress:
                calls.call(callbacks.progress, _fields(Progress, progress.contents))

        def on_validated(_: Any, validation: Any) -> None:
            calls.call(log.follow)
            if callbacks.validated:
                calls.call(callbacks.validated, _fields(Validation, validation.contents))

        def on_message(_: Any, text: bytes) -> None:
            line = text.decode("utf-8", "replace")
            if callbacks.message:
                calls.call(callbacks.message, line)
            elif line.startswith("warning: "):
                calls.call(warn, line[len("warning: "):])

        events = TrainingEvents(None, training_progress(on_progress), training_validated(on_validated),
                                training_message(on_message), b"norma.train")
        status = lib.nm_training_open(byref(training), os.fsencode(_recipe_file(recipe)), os.fsencode(folder),
                                      _option_list(settings), resume, byref(events), byref(err))
        try:
            device = lib.nm_training_warning(training) if not status else None
            if device:
                on_message(None, b"warning: " + device)
            if not status and calls.problem is None:
                status = lib.nm_training_run(training, byref(err))
        finally:
            close(training, lib.nm_training_close)
    if calls.problem is not None:
        raise calls.problem
    check(status, err)
    log.follow()
    return Run(folder)


def _train_process(recipe: PathLike, folder: Path, settings: Mapping[str, Any], resume: Union[bool, str],
                   log: _LogReader, interval: float) -> Run:
    with _Recipe(_recipe_file(recipe)) as path, tempfile.TemporaryFile() as messages:
        words = [program_path(), "train", path, "--run.folder", str(folder), "--run.quiet", *_words(settings)]
        if resume:
            words.append("--resume" if resume is True else f"--resume={resume}")
        # The kernel ends the program, with a checkpoint, when this process ends for any reason.
        environment = {**os.environ, "NORMA_PARENT": str(os.getpid())}
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=messages, start_new_session=True, env=environment)
        _follow(process, log, interval)
        _finish(process, messages)
        log.follow()
    return Run(folder)


def main() -> None:
    """Entry point of the command ``norma``: replaces this process with the program."""
    os.execv(program_path(), ["norma", *sys.argv[1:]])
