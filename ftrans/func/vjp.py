"""Reverse mode: `vjp`, and the pullback that it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ftrans.errors import StructureError
from ftrans.func.derivative import Derivative, evaluate
from ftrans.func.staging import apply, name_of, wants_jax
from ftrans.interpreters import Linearized as Split
from ftrans.interpreters import pullback
from ftrans.ir import Program
from ftrans.primitives.axes import zeros
from ftrans.pytree import (
    Skeleton,
    leaf_names,
    match_leaf,
    match_structure,
    shown,
)
from ftrans.traceback import boundary


class Pullback(Derivative):
    """Maps cotangents of a function's outputs to cotangents of its inputs.

    It can be called any number of times, and is a pytree whose leaves are the residuals.

    Attributes:
        residuals: the values saved by the forward pass, arrays.
        program: the backward program, from residuals and cotangents to cotangents.
    """

    title = "pullback"

    @staticmethod
    def program_of(program: Program, mask: tuple[bool, ...], part: Split) -> Program:
        """Returns the backward program."""
        return pullback(program, mask)

    @property
    def nbytes(self) -> int:
        """The bytes that the residuals hold."""
        return sum(t.nbytes for t in self.program.inputs[: len(self.residuals)])

    @boundary
    def __call__(self, *cotangents: Any) -> Any:
        """Returns the cotangents of the inputs.

        Args:
            cotangents: the cotangent of the output, in its structure; where the output is a tuple,
                its elements may be passed one by one. None stands for zero.

        Returns:
            A tuple with one entry per primal.

        Raises:
            StructureError: where the structure does not fit the output.
            ShapeError: where a shape does not.
            DTypeError: where a dtype does not.
        """
        structure = self._outputs.structure
        given = cotangents[0] if len(cotangents) == 1 else tuple(cotangents)
        if not cotangents and structure.num_leaves:
            raise StructureError(
                f"{self.name}: the pullback takes the cotangent of the output.\n"
                f"  output: {shown(structure, self._output_types)}\n"
                f"  Write pullback(ftrans.numpy.ones_like(value)) for the gradient of its sum."
            )
        matched = match_cotangents(self.name, given, self._outputs, self._output_types)
        operands = [ct for ct, active in zip(matched, self._active, strict=True) if active]
        as_jax = True if self._as_jax or wants_jax(given) else self._as_jax
        found = apply(self.program, [*self.residuals, *operands], as_jax, traced=False)
        return self._arguments.alone(found)


def match_cotangents(name: str, given: Any, outputs: Skeleton, types: Sequence[Any]) -> list[Any]:
    """Returns one cotangent per array that a function returned, of exactly its type.

    Args:
        name: of the function, for errors.
        given: the cotangents, in the structure of the outputs; None stands for zero.
        outputs: how the function's outputs make its result.
        types: the types of the outputs.
    """
    structure = outputs.structure
    leaves = match_structure(name, "cotangent", "the output", structure, given)
    found = []
    for leaf, t, path in zip(leaves, types, leaf_names("", structure), strict=True):
        if leaf is None:
            found.append(zeros(t.update()))
        else:
            like = f"output{path}" if path else "the output"
            found.append(match_leaf(name, f"cotangent{path}", t, leaf, like))
    return found


@boundary
def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False, **kwargs: Any) -> Any:
    """Evaluates `func` and returns its value together with its pullback.

    Args:
        func: returns a pytree of arrays, or `(value, aux)` with `has_aux`.
        primals: the positional arguments, pytrees; integer leaves are held fixed.
        has_aux: whether `func` returns something besides, of any type.
        kwargs: passed to `func` as they are.

    Returns:
        `(value, pullback)`, or `(value, pullback, aux)`. `pullback(cotangent)` is a tuple with one
        entry per primal.

    Example:
        >>> value, pullback = vjp(lambda x, y: x * y, 2.0, 3.0)
        >>> [float(ct) for ct in pullback(1.0)]
        [3.0, 2.0]
    """
    return evaluate(Pullback, f"vjp({name_of(func)})", func, primals, kwargs, has_aux)
