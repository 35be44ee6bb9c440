"""Norma: Transformers in which the normalization is a choice.

``norma.Norm`` is a normalization layer for NumPy arrays, and ``norma.torch`` has the same layers as PyTorch
modules. ``norma.Translator``, ``LanguageModel``, ``Tagger`` and ``Classifier`` use trained models.
``norma.prepare`` writes data folders, ``norma.train`` and ``norma.compare`` train models, ``norma.score``
computes scores, and ``norma.Run`` reads a run folder. Errors are subclasses of ``norma.Error``.
"""
import typing as _typing

from ._library import (DeviceError, DivergedError, Error, FileError, FormatError, MismatchError,
                       MissingFileError, OutOfMemoryError, UnsupportedError, UsageError,
                       library as _library_of_package)
from ._commands import (Recipe, Report, Rows, Study, baseline, convert, inspect, recipes, report, study,
                        tokenize)
from ._comparisons import Comparison, compare
from ._display import Display
from ._models import (Classification, Classifier, ImageClassifier, LanguageModel, LineScore, Perplexity, Span,
                      Tagged, Tagger, Translation, Translations, Translator, Word, load)
from ._norms import NormOption, NormType, norm_types
from ._numpy_norm import Norm
from ._prepare import Prepared, PreparedSide, PreparedSplit, prepare
from ._records import Progress, Validation
from ._runs import Callbacks, Log, Run, train
from ._scores import Interval, Paired, Scorer, Scores, score

__all__ = ["Callbacks", "Classification", "Classifier", "Comparison", "DeviceError", "Display",
           "DivergedError", "Error", "FileError", "FormatError", "ImageClassifier", "Interval",
           "LanguageModel", "LineScore", "Log", "MismatchError", "MissingFileError", "Norm", "NormOption",
           "NormType", "OutOfMemoryError", "Paired", "Perplexity", "Prepared", "PreparedSide",
           "PreparedSplit", "Progress", "Recipe", "Report", "Rows", "Run", "Scorer", "Scores", "Span",
           "Study", "Tagged", "Tagger", "Translation", "Translations", "Translator", "UnsupportedError",
           "UsageError", "Validation", "Word", "baseline", "compare", "convert", "inspect", "load",
           "norm_types", "prepare", "recipes", "report", "score", "study", "tokenize", "train"]

if _typing.TYPE_CHECKING:
    __version__: str
else:
    def __getattr__(name: str) -> _typing.Any:
        """``__version__``, that of the library, which is loaded when it is needed."""
        if name == "__version__":
            return _library_of_package().nm_version().decode()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
