"""Norma: Transformers in which the normalization is a choice.

``norma.Norm`` is a normalization layer for numpy arrays, ``norma.torch`` has the same layers as modules of
PyTorch. ``norma.Translator``, ``LanguageModel``, ``Tagger`` and ``Classifier`` use trained models, ``norma.train`` and
``norma.compare`` train, ``norma.Run`` reads a run folder. Errors are subclasses of ``norma.Error``.
"""
from ._library import (DivergedError, Error, FileError, FormatError, MismatchError, OutOfMemoryError,
                       UnsupportedError, UsageError)
from ._models import (Classification, Classifier, LanguageModel, LineScore, Span, Tagged, Tagger, Translation,
                      Translations, Translator, load)
from ._norms import NormOption, NormType, norm_types
from ._numpy_norm import Norm
from ._runs import Log, Run, compare, train

__all__ = ["Classification", "Classifier", "DivergedError", "Error", "FileError", "FormatError", "LanguageModel",
           "LineScore", "Log", "MismatchError", "Norm", "NormOption", "NormType", "OutOfMemoryError", "Run", "Span",
           "Tagged", "Tagger", "Translation", "Translations", "Translator", "UnsupportedError", "UsageError", "compare",
           "load", "norm_types", "train"]
