"""Scores of system outputs: BLEU, chrF, TER, accuracy, F1 of spans."""
from __future__ import annotations

import functools
import os
from ctypes import byref, c_char_p, c_void_p
from typing import TYPE_CHECKING, Any, Iterable, List, NamedTuple, Optional, Sequence, Union

from ._handle import Closeable, Handle
from ._interrupt import interruptible
from ._library import MismatchError, UsageError, check, encoded, encoded_path, library
from ._models import PathLike, _list_of, _options, _texts
from ._records import ErrorText, IntervalStruct, PairedStruct

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import ScoreOptions


Segments = Union[PathLike, Iterable[str]]


class Interval(NamedTuple):
    """Mean and 95 % interval of the scores of bootstrap resamples."""
    mean: float  #: of the scores of the resamples
    low: float  #: lower end of the interval
    high: float  #: upper end of the interval


class Paired(NamedTuple):
    """A paired bootstrap test of two systems; differences are a - b."""
    score_a: float  #: on the whole test set
    score_b: float  #: on the whole test set
    a: Interval  #: bootstrap interval of the first system
    b: Interval  #: bootstrap interval of the second system
    difference: Interval  #: bootstrap interval of the difference
    #: one-sided: the fraction of resamples in which the better system is not better (Koehn 2004); or of
    #: ``centered``
    p: float


def _interval(struct: Any) -> Interval:
    return Interval(struct.mean, struct.low, struct.high)


class Scores(Closeable):
    """The scores of one system on one test set."""

    _instead_of_pickle = "use its value, line, segments and interval()"

    def __init__(self, handle: int) -> None:
        lib = library()
        self._owned = Handle(handle, lib.nm_scores_free)
        self.value: float = lib.nm_scores_value(handle)  #: of all segments together, in percent
        self.line: str = lib.nm_scores_line(handle).decode()  #: as the reference implementation prints it
        self.signature: str = lib.nm_scores_signature(handle).decode()  #: ``nrefs:1|case:mixed|...``

    def __len__(self) -> int:
        """Number of segments."""
        return int(library().nm_scores_n(self._handle))

    def __float__(self) -> float:
        return self.value

    @property
    def segments(self) -> List[float]:
        """The score of each segment; for sacreBLEU's sentence score set the option ``sentence``."""
        lib = library()
        return [lib.nm_scores_segment(self._handle, i) for i in range(len(self))]

    def interval(self) -> Optional[Interval]:
        """Bootstrap interval over the segments; None with ``bootstrap=0``."""
        struct, lib = IntervalStruct(), library()
        with interruptible(self._handle, lib.nm_scores_set_proceed):
            found = lib.nm_scores_interval(self._handle, byref(struct))
        return _interval(struct) if found else None

    def compare(self, other: "Scores") -> Paired:
        """Paired bootstrap test against another system, scored with the same options and references.

        UsageError: different metrics or options, or ``bootstrap=0``; MismatchError: references with another
        number of segments or another text.
        """
        if not isinstance(other, Scores):
            raise UsageError(f"expected norma.Scores, got {type(other).__name__}")
        struct, err, lib = PairedStruct(), ErrorText(), library()
        with interruptible(self._handle, lib.nm_scores_set_proceed):
            status = lib.nm_scores_compare(self._handle, other._handle, byref(struct), byref(err))
        check(status, err)
        return Paired(struct.score_a, struct.score_b, _interval(struct.a), _interval(struct.b),
                      _interval(struct.difference), struct.p)

    def __repr__(self) -> str:
        return f"<norma.Scores {self.line}>"


def _is_path(segments: Any) -> bool:
    return isinstance(segments, (str, os.PathLike))


class Scorer(Closeable):
    """A metric with its options. It may be used by any number of threads at the same time.

    metric: ``bleu``, ``chrf``, ``ter``, ``accuracy`` (a segment is a label) or ``f1`` (a segment is a
    sentence of space-separated tags such as ``B-PER``). options: those of ``norma score --help``:
    ``Scorer("bleu", tokenize="zh")``, ``Scorer("chrf", word_order=2, bootstrap=0)``.

    UsageError: unknown metric, option or value, or an option of another metric; UnsupportedError: MeCab is
    missing. Ctrl-C and any other exception of a signal handler end a call, also of ``Scores.interval`` and
    ``Scores.compare``.
    """

    def __init__(self, metric: str, options: Optional[ScoreOptions] = None,
                 **more: Unpack[ScoreOptions]) -> None:
        handle, err = c_void_p(), ErrorText()
        lib = library()
        check(lib.nm_scorer_open(byref(handle), encoded("metric", metric), _options(options, more),
                                 byref(err)), err)
        self.metric, self._owned = metric, Handle(handle.value or 0, lib.nm_scorer_close)

    def score(self, hypotheses: Segments, *references: Segments) -> Scores:
        """Scores of hypotheses against one or several references: each a list of segments, or the path of a
        file with one segment per line, but not both in one call.

        FormatError with the index of the segment or with file and line; MismatchError: different numbers of
        segments; FileError: a file cannot be read.
        """
        kinds = {_is_path(segments) for segments in (hypotheses, *references)}
        if len(kinds) > 1:
            raise UsageError("hypotheses and references must all be files, or all be lists")
        handle, err, lib = c_void_p(), ErrorText(), library()
        if kinds == {True}:
            hypotheses_path = encoded_path("hypotheses", hypotheses)
            paths = (c_char_p * max(len(references), 1))(*(encoded_path("references", path)
                                                           for path in references))
            call = functools.partial(lib.nm_scorer_run_files, self._handle, hypotheses_path, paths,
                                     len(references))
        else:
            lists: Sequence[List[str]] = [_list_of(what, segments, "segments") for what, segments in
                                          (("hypotheses", hypotheses),
                                           *(("references", one) for one in references))]
            n = len(lists[0])
            for one in lists:
                if one and isinstance(one[0], (list, tuple)):
                    raise UsageError(
                        f"expected a list of segments, got a list of {type(one[0]).__name__}; each "
                        "reference is an "
                        "argument: score(hypotheses, first, second)"
                    )
                if len(one) != n:
                    raise MismatchError(f"{n} hypotheses, {len(one)} references")
            texts, _ = _texts("hypothesis", lists[0])
            gold, _ = _texts("reference", (text for one in lists[1:] for text in one))
            call = functools.partial(lib.nm_scorer_run, self._handle, texts, n, gold, len(references))
        try:
            with interruptible(self._handle, lib.nm_scorer_set_proceed):
                status = call(byref(handle), byref(err))
        except BaseException:  # of a signal handler, perhaps after the end of the call
            lib.nm_scores_free(handle)
            raise
        check(status, err)
        return Scores(handle.value or 0)

    def __repr__(self) -> str:
        return f"norma.Scorer({self.metric!r})"


def score(metric: str, hypotheses: Segments, *references: Segments,
          options: Optional[ScoreOptions] = None, **more: Unpack[ScoreOptions]) -> Scores:
    """Scores of a system as ``norma score``: ``norma.score("bleu", outputs, references).value``.

    Arguments and errors: ``Scorer``, ``Scorer.score``.
    """
    return Scorer(metric, options, **more).score(hypotheses, *references)
