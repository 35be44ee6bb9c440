"""Trained models: translation, language modeling, tagging, classification."""
from __future__ import annotations

import contextlib
import math
import os
import re
from ctypes import byref, c_char_p, c_size_t, c_void_p
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
    overload,
)

from ._device import with_device
from ._handle import Closeable, Handle
from ._interrupt import interruptible
from ._library import (
    FormatError,
    UnsupportedError,
    UsageError,
    check,
    encoded,
    encoded_path,
    integer,
    library,
    warn,
)
from ._records import ErrorText, SpanStruct

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import ClassifierOptions, LanguageModelOptions, TaggerOptions, TranslatorOptions

PathLike = Union[str, "os.PathLike[str]"]


def _bytes(what: str, i: int, text: Any) -> bytes:
    """UTF-8 of a text for C. Positions in messages are those of bytes, from 1, as in messages of the
    library."""
    if not isinstance(text, str):
        raise UsageError(f"{what} {i}: expected str, got {type(text).__name__}")
    try:
        encoded = text.encode("utf-8")
    except UnicodeEncodeError as problem:
        before = len(text[:problem.start].encode("utf-8"))
        raise FormatError(f"{what} {i}: {problem.reason} at position {before + 1}") from None
    if b"\0" in encoded:
        raise FormatError(f"{what} {i}: the character NUL at position {encoded.index(0) + 1}")
    return encoded


def _texts(what: str, texts: Iterable[str]) -> Tuple[Any, int]:
    encoded = [_bytes(what, i, text) for i, text in enumerate(texts)]
    return (c_char_p * max(len(encoded), 1))(*encoded), len(encoded)


def _option_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if (
        isinstance(value, (str, int, float, os.PathLike))
        or hasattr(value, "__index__")
        or hasattr(value, "__float__")
    ):
        return str(value)
    raise UsageError(f"option {name} = {value!r}: expected a text, a number, a truth value or a path")


# Options that may be given several times, as a list.
_REPEATED = ("grid", "compare.grid", "stop", "sample.stop")


def _given(options: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Options as a dict, which may be changed. UsageError: they are not a dict."""
    if options is not None and not isinstance(options, Mapping):
        raise UsageError(f"options = {options!r}: expected a dict")
    return {**(options or {})}


def _option_pairs(options: Mapping[str, Any]) -> Iterator[Tuple[str, str]]:
    """Names and values of options as texts."""
    for name, value in with_device(options).items():
        for one in value if name in _REPEATED and isinstance(value, (list, tuple)) else [value]:
            yield name, _option_text(name, one)


def _option_list(options: Mapping[str, Any]) -> Any:
    """Alternating names and values for C."""
    words: List[Optional[bytes]] = []
    for name, value in _option_pairs(options):
        words += [encoded("name of an option", name), encoded(f"option {name}", value)]
    return (c_char_p * (len(words) + 1))(*words, None)


def _options(options: Optional[Mapping[str, Any]], more: Mapping[str, Any]) -> Any:
    """The arguments ``options`` and ``**more`` for C."""
    return _option_list({**_given(options), **more})


def _list_of(what: str, items: Any, texts: str = "texts") -> List[Any]:
    """The items of an argument. what: its name; texts: its items."""
    if isinstance(items, (str, bytes)):
        raise UsageError(f"{what}: expected a list of {texts}, got one text")
    if not isinstance(items, Iterable):
        raise UsageError(f"{what} = {items!r}: expected a list of {texts}")
    return list(items)


def _paths(path: Any) -> List[Any]:
    """The paths of a model or an ensemble."""
    return [path] if isinstance(path, (str, bytes, os.PathLike)) else _list_of("path", path, "paths")


def _batches(what: str, items: Iterable[Any], size: int) -> Iterator[Tuple[int, List[Any]]]:
    """Lists of up to size items, with the number of the first one."""
    if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
        raise UsageError(f"{what} = {items!r}: expected a list, a file or an iterator")
    waiting: List[Any] = []
    first, size = 0, integer("batch", size, 1, 2**31 - 1)
    for item in items:
        waiting.append(item)
        if len(waiting) >= size:
            yield first, waiting
            first, waiting = first + len(waiting), []
    if waiting:
        yield first, waiting


@contextlib.contextmanager
def _numbered(first: int) -> Iterator[None]:
    """Numbers in messages about a batch of a stream count from the beginning of the stream."""
    try:
        yield
    except (FormatError, UsageError) as problem:
        if not first:
            raise
        raise type(problem)(re.sub(r"^(text|line|sentence) (\d+)",
                                   lambda found: f"{found[1]} {first + int(found[2])}",
                                   str(problem))) from None


class _Model(Closeable):
    """A handle that is opened from a path and closed with the object."""

    _name = ""  # nm_NAME_open, nm_NAME_close
    _ensembles = False  # of several paths

    def __init__(self, path: Union[PathLike, Sequence[PathLike]], options: Optional[Mapping[str, Any]] = None,
                 **more: Any) -> None:
        handle, err = c_void_p(), ErrorText()
        encoded_paths = [encoded_path("path", one) for one in _paths(path)]
        self.path = ",".join(map(os.fsdecode, encoded_paths))
        if not encoded_paths:
            raise UsageError("path: empty")
        if len(encoded_paths) > 1 and not self._ensembles:
            raise UsageError(f"path: {len(encoded_paths)} paths; only translation models form ensembles")
        if len(encoded_paths) > 1 and any(b"," in one for one in encoded_paths):
            raise UsageError(f"path = {self.path!r}: the paths of an ensemble must not contain commas")
        lib = library()
        check(getattr(lib, f"nm_{self._name}_open")(byref(handle), b",".join(encoded_paths),
                                                    _options(options, more), byref(err)),
              err)
        self._owned = Handle(handle.value or 0, getattr(lib, f"nm_{self._name}_close"))
        warning = getattr(lib, f"nm_{self._name}_warning")(self._handle)
        if warning:
            warn(warning.decode())

    def option(self, name: str) -> Optional[str]:
        """The value of an option of the (first) model as text, ``model.option("model.norm")``; None: there is
        no such option."""
        value = getattr(library(), f"nm_{self._name}_option")(self._handle, encoded("name", name))
        return None if value is None else value.decode()

    @contextlib.contextmanager
    def _call(self, function: str, free: str, *arguments: Any) -> Iterator[int]:
        """Address of the result of a call, which is freed at the end of the block. In the main thread, an
        exception of a signal handler, such as that of Ctrl-C, ends the call."""
        lib, handle, result, err = library(), self._handle, c_void_p(), ErrorText()
        try:
            with interruptible(handle, getattr(lib, f"nm_{self._name}_set_proceed")):
                status = getattr(lib, function)(handle, *arguments, byref(result), byref(err))
            check(status, err)
            yield result.value or 0
        finally:
            if result:
                getattr(lib, free)(result)

    def __repr__(self) -> str:
        return f"norma.{type(self).__name__}({self.path!r})"

    _instead_of_pickle = "open it again from its path"


# ---- translation ----

class Word(NamedTuple):
    """A word of a translation, separated from others by whitespace."""
    text: str  #: without whitespace
    begin: int  #: characters of the translation, text[begin:end]
    end: int  #: after its last character
    score: float  #: sum of the log probabilities of its tokens
    source: Optional[int]  #: index of the aligned source word, from 0; None: not aligned


class Translation(NamedTuple):
    """One translation of a text."""
    text: str  #: as ``norma translate`` writes it
    score: float  #: sum of the log probabilities of the tokens, divided by the length penalty
    #: as in the dictionary, the EOS token last (search="tears": not if the length limit was reached)
    tokens: List[str]
    token_scores: List[float]  #: log probability of each token
    words: Sequence[Word] = ()  #: with the option alignment=True


class Translations(List[Translation]):
    """The translations of one text, best first. Empty for an empty text, and if ``too_long`` is true: the
    text has more tokens than the model has positions, or more than 1 MiB."""

    too_long = False


class Translator(_Model):
    """A translation model or an ensemble. It may be used by any number of threads at the same time.

    path: a model file, a run folder or ``norma.Run``, or a list of them, whose probabilities are averaged.
    options: [decode] and [device] of ``norma translate --help``, the formats and ``shortlist``, as
    ``Translator("runs/x", beam=4, nbest=2)`` or ``Translator("runs/x", {"device.threads": 1})``.
    device.threads is the number of threads of one call; 0 (default): one per core. ``alignment=True`` adds
    the words of each translation and the source words to which they are aligned; ``search="sample"`` samples
    ``nbest`` translations. ``device="cuda"`` or ``"cuda:1"`` computes on a GPU, for all models.

    UsageError: unknown option or value; FileError, FormatError: the file; UnsupportedError: a model of
    another task; MismatchError: models with different dictionaries.
    """

    _name = "translator"
    _ensembles = True

    if TYPE_CHECKING:
        def __init__(self, path: Union[PathLike, Sequence[PathLike]],
                     options: Optional[TranslatorOptions] = None,
                     **more: Unpack[TranslatorOptions]) -> None: ...

    @property
    def max_tokens(self) -> int:
        """Maximum number of source tokens of a text, including the EOS token."""
        return int(library().nm_translator_max_tokens(self._handle))

    @property
    def nbest(self) -> int:
        """Number of translations per text, the option nbest."""
        return int(library().nm_translator_nbest(self._handle))

    @overload
    def translate(self, texts: str) -> str: ...  # type: ignore[overload-overlap]

    @overload
    def translate(self, texts: Iterable[str]) -> List[str]: ...

    def translate(self, texts: Union[str, Iterable[str]]) -> Union[str, List[str]]:
        """The best translation of a text, or of each text of a list, as ``norma translate`` writes it: empty
        for an empty text and, with a warning, for one that is too long. A list is faster than many calls.
        Ctrl-C, and any other exception of a signal handler, ends the call.

        FormatError: a line break within a text; DivergedError: the model's probabilities are not finite.
        """
        if isinstance(texts, str):
            return self._best([texts], 0)[0]
        return self._best(texts, 0)

    def _best(self, texts: Iterable[str], first: int) -> List[str]:
        """As ``translate``, of a list. first: number of the first text, for messages."""
        best = []
        with _numbered(first):
            results = self.run(texts)
        for i, found in enumerate(results, first):
            if found.too_long:
                warn(f"text {i} has more than {self.max_tokens} tokens and was not translated")
            best.append(found[0].text if found else "")
        return best

    def stream(self, texts: Iterable[str], batch: int = 256) -> Iterator[str]:
        """The best translation of each text of an iterable, which is read ``batch`` texts ahead: for files.
        Errors as ``translate``, when the text has been read."""
        for first, some in _batches("texts", texts, batch):
            yield from self._best(some, first)

    def stream_run(self, texts: Iterable[str], batch: int = 256) -> Iterator[Translations]:
        """``run`` of each text of an iterable, which is read ``batch`` texts ahead. Errors as
        ``translate``."""
        for first, some in _batches("texts", texts, batch):
            with _numbered(first):
                found = self.run(some)
            yield from found

    def run(self, texts: Iterable[str], prefixes: Optional[Iterable[str]] = None,
            constraints: Optional[Iterable[Sequence[str]]] = None) -> List[Translations]:
        """The ``nbest`` translations of each text, with scores and tokens. prefixes: the first words of each
        translation; an empty prefix has no effect. constraints: for each text, the phrases that its
        translation must contain. Text, tokens and scores include the tokens of prefixes and constraints.

        UsageError: lists of different lengths; others as ``translate``.
        """
        array, n = _texts("text", _list_of("texts", texts))
        lib = library()
        given, n_given = (
            _texts("prefix", _list_of("prefixes", prefixes)) if prefixes is not None else (None, n)
        )
        if n != n_given:
            raise UsageError(f"{n} texts and {n_given} prefixes")
        if constraints is not None:
            lists = [_list_of(f"constraints {i}", one, "phrases")
                     for i, one in enumerate(_list_of("constraints", constraints, "lists of phrases"))]
            for i, one in enumerate(lists):
                _texts(f"constraints {i}, phrase", one)
            phrases, n_given = _texts("constraints", ["\t".join(phrase.replace("\t", " ") for phrase in one)
                                                      for one in lists])
            if n != n_given:
                raise UsageError(f"{n} texts and {n_given} lists of constraints")
            call = self._call("nm_translator_run_constraints", "nm_translations_free", array, given, phrases,
                              n)
        elif given is not None:
            call = self._call("nm_translator_run_prefixes", "nm_translations_free", array, given, n)
        else:
            call = self._call("nm_translator_run", "nm_translations_free", array, n)
        with call as result:
            return [self._read(lib, result, text) for text in range(n)]

    def score(self, sources: Iterable[str], targets: Iterable[str]) -> List[Optional[Translation]]:
        """Log probabilities of given translations, one target for each source (forced decoding). The sum of
        ``token_scores`` is the log probability of the target. The result is None for an empty source, and for
        a pair with a side that is too long. A token that the model may not output has the score -inf.

        UsageError: lists of different lengths; others as ``translate``.
        """
        array, n = _texts("source", _list_of("sources", sources))
        given, n_given = _texts("target", _list_of("targets", targets))
        if n != n_given:
            raise UsageError(f"{n} sources and {n_given} targets")
        lib = library()
        with self._call("nm_translator_score", "nm_translations_free", array, given, n) as result:
            read = [self._read(lib, result, text) for text in range(n)]
            return [found[0] if found else None for found in read]

    @staticmethod
    def _words(lib: Any, result: int, text: int, rank: int) -> List[Word]:
        line = lib.nm_translations_text(result, text, rank)
        found, at, end = [], 0, 0  # at: bytes, end: characters
        words = lib.nm_translations_words(result, text, rank)
        for word in words[:lib.nm_translations_n_words(result, text, rank)] if words else []:
            begin = end + len(line[at:word.begin].decode())
            chars = line[word.begin:word.end].decode()
            at, end = word.end, begin + len(chars)
            found.append(Word(chars, begin, end, word.score, None if word.source < 0 else word.source))
        return found

    @classmethod
    def _read(cls, lib: Any, result: int, text: int) -> Translations:
        found = Translations()
        found.too_long = lib.nm_translations_too_long(result, text)
        for rank in range(lib.nm_translations_count(result, text)):
            n = lib.nm_translations_n_tokens(result, text, rank)
            tokens = [lib.nm_translations_token(result, text, rank, i).decode() for i in range(n)]
            scores = lib.nm_translations_token_scores(result, text, rank)
            found.append(Translation(lib.nm_translations_text(result, text, rank).decode(),
                                     lib.nm_translations_score(result, text, rank), tokens,
                                     scores[:n] if n else [],
                                     cls._words(lib, result, text, rank)))
        return found


# ---- language models ----

class LineScore(NamedTuple):
    """Log probabilities of a line, in nats."""
    log_probability: float  #: sum over the tokens
    tokens: List[str]  #: as in the dictionary, the EOS token last
    token_scores: List[float]  #: log probability of each token


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


class Perplexity(NamedTuple):
    """The perplexity of a text. For a non-causal model (option model.causal) the value is not a
    perplexity."""
    perplexity: float  #: exp(nll / tokens)
    #: as bits_per_character, per word: comparable between vocabularies and tokenizers; inf if too large
    per_word: float
    low: float  #: lower end of the 95 % bootstrap interval over blocks of 64 tokens
    high: float  #: upper end of the interval
    nll: float  #: sum of the negative log probabilities in nats
    tokens: int  #: scored, EOS tokens included
    words: int  #: words of the text that are separated by whitespace, and newlines
    unknown: int  #: tokens that are not in the dictionary
    left_out: int  #: tokens that were not scored: a last segment that is incomplete
    #: with newlines, and the cost of spelling unknown tokens uniformly over the alphabet
    bits_per_character: float
    #: exp of the mean nll of the tokens that are in the dictionary; nan without one
    perplexity_without_unknown: float
    #: distinct characters of the text without whitespace, and one for the end of an unknown token
    alphabet: int


class LanguageModel(_Model):
    """A language model. It may be used by any number of threads at the same time.

    path: a model file, a run folder or ``norma.Run``. options: [sample] and [device] of ``norma generate
    --help``, such as temperature, top_k, top_p, min_p, repetition_penalty, tokens and seed; ``stop`` is a
    stop string or a list of them. ``{"perplexity.context": N}`` scores with sliding windows.
    ``perplexity.documents`` and ``perplexity.document_separator`` specify the documents of a file. If
    documents have several lines, as in training or by this option, a "line" below is a document. Errors as
    ``Translator``; UnsupportedError also in the calls of a non-causal model.
    """

    _name = "language_model"

    if TYPE_CHECKING:
        def __init__(self, path: PathLike, options: Optional[LanguageModelOptions] = None,
                     **more: Unpack[LanguageModelOptions]) -> None: ...

    def score(self, lines: Iterable[str], text: bool = False) -> List[LineScore]:
        """Log probabilities of the tokens of each line, the EOS token included. text: the lines are one text,
        earlier lines are context, as in ``norma perplexity``; otherwise every line is a text. FormatError: a
        line break within a line, unless it is a document; MismatchError: an unknown token, for a model
        without ``<unk>``."""
        return self._score(lines, text)[0]

    def stream(self, lines: Iterable[str], batch: int = 256) -> Iterator[LineScore]:
        """``score`` of each line of an iterable, every line a text, which is read ``batch`` lines ahead.
        Errors as ``score``."""
        for first, some in _batches("lines", lines, batch):
            with _numbered(first):
                found = self.score(some)
            yield from found

    def perplexity(self, lines: Iterable[str], text: bool = True) -> float:
        """exp of the mean negative log probability of all tokens; by default of one text, as ``norma
        perplexity``, from which it differs by rounding (int8: docs/precision.md). Errors as ``score``."""
        return self._score(lines, text)[1]

    def perplexity_of_file(self, path: PathLike) -> Perplexity:
        """The perplexity of a text file as ``norma perplexity`` computes it, for texts of any size; the file
        may be compressed. FileError; FormatError: not UTF-8, or no text; MismatchError: no complete segment
        (non-causal models), or an unknown token, for a model without ``<unk>``."""
        lib = library()
        with self._call("nm_language_model_perplexity", "nm_perplexity_free",
                        encoded_path("path", path)) as result:
            sums, interval = lib.nm_perplexity_get_sums(result), lib.nm_perplexity_interval(result)
            return Perplexity(_exp(sums.nll / sums.tokens), _exp(sums.spelled_nll / sums.words), interval.low,
                              interval.high, sums.nll, sums.tokens, sums.words, sums.unknown, sums.left_out,
                              sums.spelled_nll / (math.log(2) * sums.characters),
                              _exp(sums.known_nll / sums.known_tokens) if sums.known_tokens else math.nan,
                              sums.alphabet)

    def _score(self, lines: Iterable[str], text: bool) -> Tuple[List[LineScore], float]:
        array, n = _texts("line", _list_of("lines", lines))
        lib = library()
        with self._call("nm_language_model_score", "nm_lm_scores_free", array, n, 1 if text else 0) as result:
            scores = []
            for line in range(n):
                count = lib.nm_lm_scores_n_tokens(result, line)
                tokens = [lib.nm_lm_scores_token(result, line, i).decode() for i in range(count)]
                values = lib.nm_lm_scores_tokens(result, line)
                scores.append(LineScore(lib.nm_lm_scores_line(result, line), tokens,
                                        values[:count] if count else []))
            return scores, lib.nm_lm_scores_perplexity(result)

    def generate(self, prompts: Iterable[str], first: int = 0) -> List[str]:
        """A continuation of each prompt, without the prompt, as ``norma generate``. A prompt may have several
        lines. The text of a model that was trained on documents ends with the document. Any text ends before
        the first of the stop strings (option ``stop``). first: number of the first prompt; a continuation
        depends on its prompt, its number and the option seed only. FormatError: the character NUL;
        MismatchError: an unknown token, for a model without ``<unk>``."""
        array, n = _texts("prompt", _list_of("prompts", prompts))
        first = integer("first", first, 0, 2**64 - 1)
        lib = library()
        with self._call("nm_language_model_generate", "nm_lm_texts_free", array, n, first) as result:
            return [lib.nm_lm_texts_get(result, i).decode("utf-8", "replace") for i in range(n)]


# ---- tagging ----

class Span(NamedTuple):
    """Tokens first .. end - 1 of a sentence."""
    first: int  #: index of the first token, from 0
    end: int  #: index after the last token
    label: str  #: type of the span, such as "PER"


class Tagged(NamedTuple):
    """A tagged sentence."""
    tags: List[str]  #: of each token, such as "B-PER"
    spans: List[Span]  #: in the order of their first tokens
    in_pieces: bool  #: more tokens than the model has positions


@contextlib.contextmanager
def _token_of_sentence(lists: Sequence[Sequence[Any]]) -> Iterator[None]:
    """The library counts the tokens of all sentences together; messages count those of a sentence."""
    try:
        yield
    except FormatError as problem:
        found = re.match(r"token (\d+)", str(problem))
        if not found:
            raise
        token, sentence = int(found[1]), 0
        while token >= len(lists[sentence]):
            token, sentence = token - len(lists[sentence]), sentence + 1
        raise FormatError(f"sentence {sentence}, token {token}{str(problem)[found.end():]}") from None


class Tagger(_Model):
    """A tagging model. It may be used by any number of threads at the same time.

    path: a model file, a run folder or ``norma.Run``. options: ``{"tag.scheme": "bio"}``, without which tags
    are those of the training file, and [device]. Errors as ``Translator``.
    """

    _name = "tagger"

    if TYPE_CHECKING:
        def __init__(self, path: PathLike, options: Optional[TaggerOptions] = None,
                     **more: Unpack[TaggerOptions]) -> None: ...

    @property
    def file_scheme(self) -> str:
        """The tagging scheme of the model's training file, such as "bio", or "none" for classes of tokens."""
        return str(library().nm_tagger_file_scheme(self._handle).decode())

    @property
    def tags(self) -> List[str]:
        """The tags of the model in its scheme."""
        lib, handle = library(), self._handle
        return [lib.nm_tagger_tag(handle, i).decode() for i in range(lib.nm_tagger_n_tags(handle))]

    def tag(self, sentences: Iterable[Sequence[str]]) -> List[Tagged]:
        """Tags and spans of each sentence, a list of tokens. FormatError with the numbers of the sentence and
        of the token in it, from 0: an empty token or one with a line break; or a sentence of more than 65536
        tokens."""
        lists = [_list_of(f"sentence {i}", sentence, "tokens")
                 for i, sentence in enumerate(_list_of("sentences", sentences, "sentences"))]
        encoded = [_bytes(f"sentence {s}, token", i, token) for s, tokens in enumerate(lists) for i,
                   token in enumerate(tokens)]
        array = (c_char_p * max(len(encoded), 1))(*encoded)
        lengths = (c_size_t * max(len(lists), 1))(*map(len, lists))
        lib = library()
        with _token_of_sentence(lists), self._call("nm_tagger_run", "nm_tagged_free", array, lengths,
                                                   len(lists)) as result:
            return [self._read(lib, result, i) for i in range(len(lists))]

    def stream(self, sentences: Iterable[Sequence[str]], batch: int = 256) -> Iterator[Tagged]:
        """``tag`` of each sentence of an iterable, which is read ``batch`` sentences ahead. Errors as
        ``tag``."""
        for first, some in _batches("sentences", sentences, batch):
            with _numbered(first):
                found = self.tag(some)
            yield from found

    @staticmethod
    def _read(lib: Any, result: int, sentence: int) -> Tagged:
        tags = [lib.nm_tagged_tag(result, sentence, i).decode()
                for i in range(lib.nm_tagged_length(result, sentence))]
        spans, span = [], SpanStruct()
        for i in range(lib.nm_tagged_n_spans(result, sentence)):
            lib.nm_tagged_get_span(result, sentence, i, byref(span))
            spans.append(Span(span.first, span.end, span.label.decode()))
        return Tagged(tags, spans, lib.nm_tagged_in_pieces(result, sentence))


# ---- classification ----

class Classification(NamedTuple):
    """The class of a text."""
    label: str  #: the most probable class
    probabilities: Dict[str, float]  #: of all classes
    truncated: bool  #: more than data.max_length tokens


class Classifier(_Model):
    """A classification model. It may be used by any number of threads at the same time.

    path: a model file, a run folder or ``norma.Run``. options: [device]. Errors as ``Translator``.
    """

    _name = "classifier"

    if TYPE_CHECKING:
        def __init__(self, path: PathLike, options: Optional[ClassifierOptions] = None,
                     **more: Unpack[ClassifierOptions]) -> None: ...

    @property
    def labels(self) -> List[str]:
        """The classes."""
        lib, handle = library(), self._handle
        return [lib.nm_classifier_class(handle, i).decode()
                for i in range(lib.nm_classifier_n_classes(handle))]

    def classify(self, texts: Iterable[str]) -> List[Classification]:
        """The most probable class of each text and the probabilities of all. Line breaks count as spaces.
        FormatError: the character NUL."""
        array, n = _texts("text", _list_of("texts", texts))
        labels = self.labels
        lib = library()
        with self._call("nm_classifier_run", "nm_classifications_free", array, n) as result:
            return [
                Classification(
                    lib.nm_classifications_label(result, i).decode(),
                    dict(zip(labels, lib.nm_classifications_probabilities(result, i)[: len(labels)])),
                    lib.nm_classifications_truncated(result, i),
                )
                for i in range(n)
            ]

    def stream(self, texts: Iterable[str], batch: int = 256) -> Iterator[Classification]:
        """``classify`` of each text of an iterable, which is read ``batch`` texts ahead. Errors as
        ``classify``."""
        for first, some in _batches("texts", texts, batch):
            with _numbered(first):
                found = self.classify(some)
            yield from found


class ImageClassifier(_Model):
    """A model of images. It may be used by any number of threads at the same time.

    path: a model file, a run folder or ``norma.Run``. options: [device]. Errors as ``Translator``.
    """

    _name = "image_classifier"

    if TYPE_CHECKING:
        def __init__(self, path: PathLike, options: Optional[ClassifierOptions] = None,
                     **more: Unpack[ClassifierOptions]) -> None: ...

    @property
    def labels(self) -> List[str]:
        """The classes."""
        lib, handle = library(), self._handle
        return [lib.nm_image_classifier_class(handle, i).decode()
                for i in range(lib.nm_image_classifier_n_classes(handle))]

    def classify(self, files: Iterable[PathLike]) -> List[Classification]:
        """The most probable class of each JPEG or PNG file and the probabilities of all. FormatError: a
        damaged file; FileError: a file cannot be read."""
        names = [encoded_path("files", one) for one in _list_of("files", files)]
        array = (c_char_p * len(names))(*names)
        labels = self.labels
        lib = library()
        with self._call("nm_image_classifier_run", "nm_classifications_free", array, len(names)) as result:
            return [
                Classification(
                    lib.nm_classifications_label(result, i).decode(),
                    dict(zip(labels, lib.nm_classifications_probabilities(result, i)[: len(labels)])),
                    False,
                )
                for i in range(len(names))
            ]


def load(path: Union[PathLike, Sequence[PathLike]], options: Optional[Mapping[str, Any]] = None,
         **more: Any) -> Any:
    """The model of a path as the class of its task: ``norma.load("runs/x").translate([...])``. Options and
    errors as ``Translator``, ``LanguageModel``, ``Tagger``, ``Classifier`` and ``ImageClassifier``."""
    problem: Optional[UnsupportedError] = None
    paths = _paths(path)
    for kind in (Translator, LanguageModel, Tagger, Classifier,
                 ImageClassifier) if len(paths) == 1 else (Translator,):
        try:
            model: Any = kind
            return model(paths, options, **more)
        except UnsupportedError as error:
            problem = problem or error
    raise problem  # type: ignore[misc]
