"""Trained models: translation, language modeling, tagging, classification."""
from __future__ import annotations

import ctypes
import os
import warnings
import weakref
from ctypes import byref, c_char_p, c_size_t, c_void_p
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union, overload

from ._library import ErrorText, FormatError, UnsupportedError, UsageError, check, library

PathLike = Union[str, "os.PathLike[str]"]


def _bytes(what: str, i: int, text: Any) -> bytes:
    """UTF-8 of a text for C."""
    if not isinstance(text, str):
        raise UsageError(f"{what} {i}: expected str, got {type(text).__name__}")
    try:
        encoded = text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise FormatError(f"{what} {i}: {problem.reason} at position {problem.start}") from None
    if b"\0" in encoded:
        raise FormatError(f"{what} {i}: the character NUL at position {text.index(chr(0))}")
    return encoded


def _texts(what: str, texts: Iterable[str]) -> Any:
    encoded = [_bytes(what, i, text) for i, text in enumerate(texts)]
    return (c_char_p * max(len(encoded), 1))(*encoded), len(encoded)


def _option_list(options: Mapping[str, Any]) -> Any:
    words: List[Optional[bytes]] = []
    for key, value in options.items():
        text = ("true" if value else "false") if isinstance(value, bool) else str(value)
        words += [key.encode(), text.encode()]
    return (c_char_p * (len(words) + 1))(*words, None)


def _list_of(texts: Any) -> List[str]:
    if isinstance(texts, (str, bytes)):
        raise UsageError("expected a list of texts, got one text")
    return list(texts)


class _Model:
    """A handle that is opened from a path and closed with the object."""

    _name = ""  # nm_NAME_open, nm_NAME_close

    def __init__(self, path: Union[PathLike, Sequence[PathLike]], options: Optional[Mapping[str, Any]] = None,
                 **more: Any) -> None:
        handle, err = c_void_p(), ErrorText()
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        self.path = ",".join(os.fspath(one) for one in paths)
        lib = library()
        check(getattr(lib, f"nm_{self._name}_open")(byref(handle), os.fsencode(self.path),
                                                    _option_list({**(options or {}), **more}), byref(err)), err)
        self._handle = handle.value
        weakref.finalize(self, getattr(lib, f"nm_{self._name}_close"), self._handle)

    def _call(self, function: str, *arguments: Any) -> int:
        """Address of the result of a call; the caller frees it."""
        result, err = c_void_p(), ErrorText()
        check(getattr(library(), function)(self._handle, *arguments, byref(result), byref(err)), err)
        return result.value or 0

    def __repr__(self) -> str:
        return f"norma.{type(self).__name__}({self.path!r})"

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled; open it again from its path")


# ---- translation ----

class Translation(NamedTuple):
    """One translation of a text."""
    text: str
    score: float  # sum of the log probabilities of the tokens, divided by the length penalty
    tokens: List[str]  # as in the dictionary, the end symbol included unless the length limit was reached
    token_scores: List[float]  # log probability of each token


class Translations(List[Translation]):
    """The translations of one text, best first. Empty for an empty text, and for one with ``too_long``: more tokens than
    the model has positions, or more than 1 MiB."""

    too_long = False


class Translator(_Model):
    """A translation model or an ensemble. It may be used by any number of threads at the same time.

    path: a model file, a run folder or ``norma.Run``, or a list of them, whose probabilities are averaged. options: those
    of ``norma translate --help`` in [decode] and [device], as ``Translator("runs/x", beam=4, nbest=2)`` or
    ``Translator("runs/x", {"device.threads": 1})``. device.threads is the number of threads of one call, 0 (default)
    one per core.

    UsageError: unknown option or value; FileError, FormatError: the file; UnsupportedError: a model of another task;
    MismatchError: models with different dictionaries.
    """

    _name = "translator"

    @property
    def max_tokens(self) -> int:
        """Maximum number of source tokens of a text, including the end symbol."""
        return library().nm_translator_max_tokens(self._handle)

    @property
    def nbest(self) -> int:
        """Number of translations per text, the option nbest."""
        return library().nm_translator_nbest(self._handle)

    @overload
    def translate(self, texts: str) -> str: ...

    @overload
    def translate(self, texts: Iterable[str]) -> List[str]: ...

    def translate(self, texts: Any) -> Any:
        """The best translation of a text, or of each text of a list, as ``norma translate`` writes it: empty for an
        empty text and, with a warning, for one that is too long. A list is faster than many calls.

        FormatError: a line break within a text; DivergedError: the model's probabilities are not finite.
        """
        one = isinstance(texts, str)
        best = []
        for i, found in enumerate(self.run([texts] if one else texts)):
            if found.too_long:
                warnings.warn(f"text {i} has more than {self.max_tokens} tokens and was not translated", stacklevel=2)
            best.append(found[0].text if found else "")
        return best[0] if one else best

    def stream(self, texts: Iterable[str], batch: int = 256) -> Iterator[str]:
        """The best translation of each text of an iterable, which is read ``batch`` texts ahead: for files."""
        waiting: List[str] = []
        for text in texts:
            waiting.append(text)
            if len(waiting) >= batch:
                yield from self.translate(waiting)
                waiting = []
        yield from self.translate(waiting)

    def run(self, texts: Iterable[str]) -> List[Translations]:
        """For each text its ``nbest`` translations with scores and tokens. Errors as ``translate``."""
        array, n = _texts("text", _list_of(texts))
        lib, result = library(), self._call("nm_translator_run", array, n)
        try:
            return [self._read(lib, result, text) for text in range(n)]
        finally:
            lib.nm_translations_free(result)

    @staticmethod
    def _read(lib: Any, result: int, text: int) -> Translations:
        found = Translations()
        found.too_long = lib.nm_translations_too_long(result, text)
        for rank in range(lib.nm_translations_count(result, text)):
            n = lib.nm_translations_n_tokens(result, text, rank)
            tokens = [lib.nm_translations_token(result, text, rank, i).decode() for i in range(n)]
            scores = lib.nm_translations_token_scores(result, text, rank)
            found.append(Translation(lib.nm_translations_text(result, text, rank).decode(),
                                     lib.nm_translations_score(result, text, rank), tokens, scores[:n] if n else []))
        return found
