"""Data of lists or Hugging Face datasets as files for training."""
from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._library import MismatchError, UsageError
from ._prepare import prepare
from ._runs import PathLike, _recipe_file

_SPLITS = {"train": "train", "valid": "valid", "validation": "valid", "dev": "valid", "test": "test"}
_NAMES = {"lm": (("text", "sentence", "content"),),
          "classification": (("text", "sentence", "review", "content"), ("label", "labels", "class")),
          "tagging": (("tokens", "words"), ("tags", "ner_tags", "pos_tags", "labels"))}


def task_of(recipe: PathLike, settings: Mapping[str, Any]) -> str:
    """The task of a recipe: translation, lm, classification or tagging."""
    path = _recipe_file(recipe)
    text = path if "\n" in path else Path(path).read_text(encoding="utf-8")
    found = re.search(r"(?m)^\s*task\s*=\s*([\w-]+)", text)
    return str(settings.get("run.task") or (found[1] if found else "translation"))


def _names_of(split: Any, column: str) -> Optional[Sequence[str]]:
    """Names of the classes of a column of a Hugging Face dataset, which stores numbers."""
    feature = (getattr(split, "features", None) or {}).get(column)
    feature = getattr(feature, "feature", feature)
    return getattr(feature, "names", None)


def _columns(split: Any, row: Mapping[str, Any], task: str, columns: Optional[Sequence[str]]) -> List[str]:
    if columns is not None:
        missing = [name for name in columns if name not in row]
        if missing:
            raise UsageError(f"no column {missing[0]!r}; the rows have {', '.join(row)}")
        return list(columns)
    found = [next((name for name in names if name in row), None) for names in _NAMES.get(task, ())]
    if not found or None in found:
        raise UsageError(f"columns of a {task} task: give columns=[...]; the rows have {', '.join(row)}")
    return [name for name in found if name is not None]


def _rows(split: Any, task: str, columns: Optional[Sequence[str]]) -> Iterator[Tuple[Any, ...]]:
    """Rows as tuples: (text,), (text, label), (tokens, tags), or (source, target)."""
    chosen: Optional[List[str]] = None
    convert: List[Callable[[Any], Any]] = []
    for row in split:
        if isinstance(row, str):
            yield (row,)
        elif isinstance(row, Mapping):
            row = row.get("translation", row) if task == "translation" else row
            if chosen is None:
                chosen = (list(columns or row) if task == "translation"
                          else _columns(split, row, task, columns))
                names = [_names_of(split, name) for name in chosen]
                convert = [_named(one) for one in names]
            yield tuple(change(row[name]) for change, name in zip(convert, chosen))
        else:
            yield tuple(row)


def _named(names: Optional[Sequence[str]]) -> Callable[[Any], Any]:
    if names is None:
        return lambda value: value
    known = names
    return lambda value: [known[one] for one in value] if isinstance(value, (list, tuple)) else known[value]


def _line(task: str, row: Tuple[Any, ...], languages: Sequence[str]) -> str:
    n = 1 if task == "lm" else 2
    if len(row) != n or not isinstance(row[0], (list, tuple) if task == "tagging" else str):
        raise UsageError(f"a row of a {task} task is {row!r:.80}, expected "
                         f"{('a text', 'two values: ' + ', '.join(languages or ['text', 'label']))[n - 1]}")
    if task == "tagging":
        if len(row[0]) != len(row[1]) or any(len(str(one).split()) != 1 for one in (*row[0], *row[1])):
            raise MismatchError(f"tokens and tags {row!r:.80}: expected one tag per token, without spaces")
        return "".join(f"{token}\t{tag}\n" for token, tag in zip(*row)) + "\n"
    fields = ("text",) if task == "lm" else ("text", "label") if task == "classification" else languages
    values = (row[0], str(row[1])) if task == "classification" else row
    return json.dumps(dict(zip(fields, values)), ensure_ascii=False) + "\n"


def write(data: Mapping[str, Any], folder: PathLike, recipe: PathLike, settings: Mapping[str, Any],
          columns: Optional[Sequence[str]], options: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Writes splits as files in ``folder``/data, and returns the settings that name them.

    UsageError: another split, columns that are not there; MismatchError: tokens without tags.
    """
    task, files = task_of(recipe, settings), {}
    if task not in ("translation", *_NAMES):
        raise UsageError(f"data of a {task} task cannot be given as rows")
    unknown = [name for name in data if name not in _SPLITS]
    if unknown or "train" not in data:
        raise UsageError(f"data has the splits {', '.join(data)}; expected train, validation and test")
    target = Path(os.fspath(folder)) / "data"
    target.mkdir(parents=True, exist_ok=True)
    languages = tuple(columns or ("source", "target")) if task == "translation" else ()
    first: Any = next(iter(data["train"]), None)
    if task == "translation" and isinstance(first, Mapping):
        languages = tuple(columns or first.get("translation", first))[:2]
    for name, split in data.items():
        path = target / (_SPLITS[name] + (".txt" if task == "tagging" else ".jsonl"))
        with open(path, "w", encoding="utf-8") as out:
            for row in _rows(split, task, columns):
                out.write(_line(task, row, languages))
        files[_SPLITS[name]] = str(path)
    if task in ("classification", "tagging"):
        return {f"data.{name}": path for name, path in files.items()}
    given: Dict[str, Any] = {**files, "output": str(target / "prepared"), **(options or {})}
    if task == "lm":
        given.update(format="text")
    else:
        given.update(source_lang=languages[0], target_lang=languages[1])
    chosen: Any = given
    return {"data.folder": prepare(chosen).folder}


# ---- studies, whose data are files of a folder ----

def _task_of_row(row: Any, columns: Optional[Sequence[str]]) -> str:
    """The task of rows that look like this one. UsageError: it is ambiguous."""
    if isinstance(row, Mapping):
        if "translation" in row:
            return "translation"
        for task in ("tagging", "classification", "lm") if columns is None else ():
            if all(any(name in row for name in names) for names in _NAMES[task]):
                return task
        row = tuple(row.get(name) for name in columns or row)
    if isinstance(row, str) or len(row) == 1:
        return "lm"
    if isinstance(row[0], (list, tuple)):
        return "tagging"
    if not isinstance(row[1], str):
        return "classification"
    if columns is not None:
        return "translation"
    raise UsageError(f"rows like {row!r:.80}: give task='translation' or task='classification'")


def _files_of(task: str, row: Tuple[Any, ...], languages: Sequence[str]) -> Dict[str, str]:
    """The text of a row in each file of a split, by ending."""
    _line(task, row, languages)  # checks it
    if task == "tagging":
        return {"txt": _line(task, row, languages)}
    if task == "classification":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow((row[1], row[0]))
        return {"csv": out.getvalue()}
    return {ending: " ".join(text.split("\n")) + "\n"
            for ending, text in zip(languages if task == "translation" else ("txt",), row)}


def write_study(data: Iterable[Any], folder: PathLike, task: Optional[str],
                columns: Optional[Sequence[str]]) -> Path:
    """Writes the files of ``norma study`` in ``folder``/rows, and returns that. data: splits, or the rows of
    one; without validation and test rows, every twentieth row each is held out."""
    if isinstance(data, Iterator):
        data = list(data)
    splits: Mapping[str, Any] = data if isinstance(data, Mapping) else {"train": data}
    named = {_SPLITS.get(name, name): split for name, split in splits.items()}
    if not {"train"} <= set(named) <= {"train", "valid", "test"} or len(named) != len(splits):
        raise UsageError(f"data has the splits {', '.join(splits)}; expected train, validation and test")
    first: Any = next(iter(named["train"]), None)
    if first is None:
        raise UsageError("data: no rows")
    task = task or _task_of_row(first, columns)
    if task not in ("translation", *_NAMES):
        raise UsageError(f"data of a {task} task cannot be given as rows")
    languages: Sequence[str] = ()
    if task == "translation":
        found = first.get("translation", first) if isinstance(first, Mapping) else ("source", "target")
        languages = tuple(columns or found)[:2]
    texts: Dict[Tuple[str, str], List[str]] = {}
    held_out = {place: name for name, place in (("valid", 7), ("test", 17)) if name not in named}
    for name, split in named.items():
        for i, row in enumerate(_rows(split, task, columns)):
            to = held_out.get(i % 20, name) if name == "train" else name
            for ending, text in _files_of(task, row, languages).items():
                texts.setdefault((to, ending), []).append(text)
    missing = [name for name in ("valid", "test") if not any(name == one for one, _ in texts)]
    if missing:
        raise UsageError(f"data: no rows for {' and '.join(missing)}; at least 20 are needed")
    target = Path(os.fspath(folder)) / "rows"
    target.mkdir(parents=True, exist_ok=True)
    for (name, ending), lines in texts.items():
        head = "label,text\n" if ending == "csv" else ""
        (target / f"{name}.{ending}").write_text(head + "".join(lines), encoding="utf-8", newline="")
    return target
