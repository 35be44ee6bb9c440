"""Data folders from raw text."""
from __future__ import annotations

import os
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ._interrupt import Interruptible
from ._library import check, encoded_path, library, warn
from ._models import PathLike, _options
from ._records import (ErrorText, PreparedDropStruct, PreparedSideStruct, PreparedSplitStruct, PrepareEvents,
                       prepare_message, prepare_progress)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import PrepareOptions



class PreparedSplit(NamedTuple):
    """A split of a data folder. Tuples have one number per side."""
    lines: int  #: lines, or pairs of lines
    kept: int  #: those that were written
    held_out: int  #: of the training pairs, for validation
    dropped: Dict[str, int]  #: by reason
    words: Tuple[int, ...]  #: of the kept lines, before BPE
    tokens: Tuple[int, ...]  #: after BPE, without the EOS token
    unknown: Tuple[int, ...]  #: tokens that are not in the dictionary
    links: int  #: of the training pairs: word alignments, as links of subwords
    repeated: int  #: validation or test pairs, or lines of 5 words or more, also in the training text


class PreparedSide(NamedTuple):
    """A side of the text."""
    name: str  #: "source", "target"; "text"
    word_types: int  #: number of different words
    dictionary: int  #: number of entries
    pieces: int  #: of the SentencePiece model; 0 without one


class Prepared(NamedTuple):
    """What ``norma.prepare`` read and wrote."""
    folder: str  #: path of the data folder
    splits: Dict[str, PreparedSplit]  #: "train", "valid", "test", those that were given
    sides: List[PreparedSide]  #: the text, or source and target
    merges: int  #: number of BPE merges


def prepare(options: Optional[PrepareOptions] = None, *, settings: Optional[PathLike] = None,
            progress: Optional[Callable[[str, int], Any]] = None, 
            **more: Unpack[PrepareOptions]) -> Prepared:
    """Prepares a data folder as ``norma prepare``; its files are bitwise identical to those of the program.

    options: those of ``norma prepare --help``, as ``norma.prepare(train="corpus/train", valid="corpus/valid",
    source_lang="de", target_lang="en", output="data/de-en", bpe_merges=8000)``. settings: the path of an INI
    file with a section [prepare], such as data.ini of a data folder, or its text. progress: called with the
    name of the step and the number of lines read. Warnings are those of ``warnings``.

    Ctrl-C and an exception in ``progress`` end the preparation; the data folder is then as before.
    UsageError: unknown option or value; FormatError with file, line and byte: text that is not UTF-8;
    MismatchError: files with different numbers of lines, or filters that leave nothing; FileError: a file or
    folder; UnsupportedError: spm_train is missing.
    """
    prepared, err, lib = c_void_p(), ErrorText(), library()
    ended: List[bool] = []
    with Interruptible(lambda: ended.append(True)) as calls:
        def on_progress(_: Any, step: Any) -> bool:
            calls.call(progress, step.contents.step.decode(), step.contents.lines)
            return not ended

        def on_message(_: Any, text: bytes) -> None:
            calls.call(warn, text.decode("utf-8", "replace"))

        events = PrepareEvents(None, prepare_progress(on_progress), prepare_message(on_message))
        status = lib.nm_prepare_folder(byref(prepared), encoded_path("settings", settings) if settings
                                       is not None else None,
                                       _options(options, more), byref(events), byref(err))
    try:
        if calls.problem is not None:
            raise calls.problem
        check(status, err)
        return _read(lib, prepared.value)
    finally:
        lib.nm_prepared_free(prepared)


def _read(lib: Any, handle: Any) -> Prepared:
    n = lib.nm_prepared_n_sides(handle)
    side, split, drop = PreparedSideStruct(), PreparedSplitStruct(), PreparedDropStruct()
    sides, splits = [], {}
    for i in range(n):
        lib.nm_prepared_get_side(handle, i, byref(side))
        sides.append(PreparedSide(side.name.decode(), side.word_types, side.dictionary, side.pieces))
    for i in range(3):
        if not lib.nm_prepared_get_split(handle, i, byref(split)):
            continue
        dropped: Dict[str, int] = {}
        while lib.nm_prepared_get_drop(handle, i, len(dropped), byref(drop)):
            dropped[drop.reason.decode()] = drop.lines
        splits[split.name.decode()] = PreparedSplit(split.lines, split.kept, split.held_out, dropped,
                                                    tuple(split.words[:n]),
                                                    tuple(split.tokens[:n]), tuple(split.unknown[:n]),
                                                    split.links, split.repeated)
    return Prepared(os.fsdecode(lib.nm_prepared_folder(handle)), splits, sides,
                    lib.nm_prepared_merges(handle))
