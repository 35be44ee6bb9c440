"""Norma: Transformers in which the normalization is a choice.

``norma.Norm`` is a normalization layer for numpy arrays, ``norma.torch`` has the same layers as modules of
PyTorch. ``norma.Translator`` uses a trained model, ``norma.train`` and ``norma.compare`` train, ``norma.Run`` reads a run
folder. Errors are subclasses of ``norma.Error``.
"""
from ._library import (DivergedError, Error, FileError, FormatError, MismatchError, OutOfMemoryError,
                       UnsupportedError, UsageError)
from ._models import Translation, Translations, Translator
from ._norms import NormOption, NormType, norm_types
from ._numpy_norm import Norm
from ._runs import Log, Run, compare, train

__all__ = ["DivergedError", "Error", "FileError", "FormatError", "Log", "MismatchError", "Norm", "NormOption", "NormType",
           "OutOfMemoryError", "Run", "Translation", "Translations", "Translator", "UnsupportedError", "UsageError",
           "compare", "norm_types", "train"]
