"""Norma: Transformers in which the normalization is a choice.

``norma.Norm`` is a normalization layer for numpy arrays, ``norma.torch`` has the same layers as modules of
PyTorch. Errors are subclasses of ``norma.Error``.
"""
from ._library import (DivergedError, Error, FileError, FormatError, MismatchError, OutOfMemoryError,
                       UnsupportedError, UsageError)
from ._norms import NormOption, NormType, norm_types
from ._numpy_norm import Norm

__all__ = ["DivergedError", "Error", "FileError", "FormatError", "MismatchError", "Norm", "NormOption", "NormType",
           "OutOfMemoryError", "UnsupportedError", "UsageError", "norm_types"]
