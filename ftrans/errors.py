"""Every error that ftrans raises by name, and what it warns of.

Each class derives from `FtransError`, a `RuntimeError`, and from the built-in that fits, so that
`except TypeError` keeps working for those who do not know the library.
"""

from __future__ import annotations

__all__ = [
    "AnomalyError",
    "ArgumentError",
    "AxisError",
    "CheckError",
    "ConcretizationError",
    "DTypeError",
    "FtransError",
    "GradcheckError",
    "GradcheckInputError",
    "GradcheckOutputError",
    "GradientCutWarning",
    "GraphError",
    "IndexingError",
    "KeyReuseWarning",
    "LeakedTracerError",
    "LinAlgError",
    "MissingAttributeError",
    "MissingRuleError",
    "MutationError",
    "RuleError",
    "ShapeError",
    "StaticArgumentError",
    "StructureError",
    "TracedArrayError",
    "TransposeError",
    "UnsupportedError",
]


class FtransError(RuntimeError):
    """Is the base of every error that ftrans raises by name.

    It is a `RuntimeError`, which is what code for PyTorch catches.
    """


class ArgumentError(FtransError, ValueError):
    """Says that an argument has a value that the function does not take."""


class ShapeError(FtransError, ValueError):
    """Says that the shapes of some arguments do not fit each other."""


class AxisError(FtransError, IndexError, ValueError):
    """Says that an axis is out of range for its array, or named twice."""


class IndexingError(FtransError, IndexError):
    """Says that an index is out of bounds, or no index at all."""


class DTypeError(FtransError, TypeError):
    """Says that an argument has a dtype that the operation does not take."""


class StructureError(FtransError, ValueError, TypeError):
    """Says that a pytree does not have the structure that it must have."""


class ConcretizationError(FtransError, TypeError):
    """Says that Python asked for the value of an array that has none while tracing."""


class TracedArrayError(FtransError, TypeError):
    """Says that a traced value was about to become a plain array, which would cut the gradient."""


class LeakedTracerError(FtransError):
    """Says that an unknown traced value was used after the function of it had returned."""


class LinAlgError(FtransError, ValueError):
    """Says that a matrix is singular, or not positive definite, where its values are at hand."""


class MissingRuleError(FtransError, NotImplementedError):
    """Says that a primitive does not have the rule that a transform asks for, and why."""


class RuleError(FtransError, TypeError):
    """Says that a custom rule does something other than it must."""


class MissingAttributeError(FtransError, AttributeError):
    """Says that traced values do not have a method or an attribute of this name."""


class UnsupportedError(FtransError, TypeError):
    """Says that an operation, or an option of it, does not exist for traced values."""


class TransposeError(FtransError, ValueError):
    """Says that a function is not linear in the inputs that it should be linear in."""


class MutationError(FtransError, TypeError, ValueError):
    """Says that an in-place write of or to a traced value cannot be honoured."""


class StaticArgumentError(FtransError, ValueError):
    """Says that a static argument cannot be hashed, and so cannot key a compiled program."""


class CheckError(FtransError, AssertionError):
    """Says that a program is ill-formed: a fault of the rule or the interpreter that made it."""


class GraphError(FtransError):
    """The graph of tensors does not have what is asked of it, or not any more."""


class AnomalyError(GraphError):
    """In anomaly mode, something has made a NaN."""


class GradcheckError(FtransError):
    """Says that a derivative is not what differences of the function say that it is."""


class GradcheckOutputError(GradcheckError, AssertionError):
    """Says that the outputs of a function have other types where its inputs are perturbed."""


class GradcheckInputError(ArgumentError, AssertionError):
    """Says that `gradcheck` was asked for what it cannot do; is each class that PyTorch raises."""


class GradientCutWarning(UserWarning):
    """Says that a value that is differentiated became a Python number, which has no gradient."""


class KeyReuseWarning(UserWarning):
    """Says that a key of random numbers was drawn by twice, which gives the same numbers twice."""
