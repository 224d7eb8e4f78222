"""Derivatives at a point: `jvp`; `vjp` and `linearize`, which keep what the point determined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import jax.tree_util as tree

from ftrans.errors import ArgumentError, DTypeError, StructureError
from ftrans.func.arguments import Arguments, match_cotangents, match_tangents
from ftrans.func.proven import proven
from ftrans.func.residuals import Residuals, kept
from ftrans.func.staging import (
    Staged,
    apply,
    known_inputs,
    name_of,
    named,
    split_aux,
    stage,
    wants_jax,
)
from ftrans.interpreters import attach_outputs, detach_outputs, pullback
from ftrans.interpreters import jvp as push_forward
from ftrans.interpreters import linearize as split_linear
from ftrans.ir import ArrayType, Program, Tracer, is_tracing, type_of
from ftrans.ir.stack import FORWARD
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.primitives.axes import zeros
from ftrans.pytree import (
    Skeleton,
    argument_name,
    describe,
    leaf_name,
    leaf_names,
    ordered_like,
    shown,
)
from ftrans.runtime.jaxlink import is_jax, to_jax, x64
from ftrans.traceback import OnTape, boundary, bounded

_AUX = "To return something besides, write return value, aux and pass has_aux=True."


def array_outputs(name: str, value: Any, hint: str = _AUX) -> Any:
    """Returns a function's result with every leaf made an array.

    Raises:
        DTypeError: where a leaf cannot be one, naming it.
    """
    if type(value) is Tracer:
        return value
    value = OnTape.returned(value)

    def convert(path: Sequence[Any], leaf: Any) -> Any:
        if is_array(leaf) or is_scalar(leaf):
            return as_array(leaf)
        raise DTypeError(
            f"{name}: the function must return arrays, or a pytree of them.\n"
            f"  {leaf_name('result', path)}: {describe(leaf)}\n"
            f"  {hint}"
        )

    return ordered_like(value, tree.tree_map_with_path(convert, value))


def stage_value(
    name: str,
    func: Callable[..., Any],
    arguments: Arguments,
    inputs: Sequence[Any],
    kwargs: dict[str, Any],
    has_aux: bool,
    folds: bool = True,
) -> tuple[Staged, Skeleton]:
    """Traces a function at arguments, to be differentiated.

    Returns:
        The traced function, and how the first of its outputs make the value; the others are aux.
    """

    def run(*tracers: Any) -> Any:
        result = arguments.call(func, tracers, kwargs)
        if not has_aux:
            return array_outputs(name, result)
        value, aux = split_aux(name, result)
        return array_outputs(name, value), aux

    staged = stage(name, run, inputs, order=FORWARD, folds=folds, has_aux=has_aux)
    if not has_aux:
        return staged, staged.outputs
    structure, _ = staged.outputs.structure.children()
    leaves, orders = staged.outputs.leaves[: structure.num_leaves], staged.outputs.orders
    return staged, Skeleton(structure, leaves, orders=orders and orders[0])


@boundary
def jvp(
    func: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """Evaluates `func` together with its derivative along `tangents`.

    Args:
        func: returns a pytree of arrays, or `(value, aux)` with `has_aux`.
        primals: the positional arguments.
        tangents: one tangent per primal, of the same structure, shapes and dtypes; None stands
            for zero, and tangents of integers are ignored.
        strict: whether to raise where an output does not depend on the inputs, rather than to
            return a zero tangent.
        has_aux: whether `func` returns something besides, of any type.

    Returns:
        `(value, tangent)`, or `(value, tangent, aux)`.

    Example:
        >>> value, tangent = jvp(lambda x: x**3, (2.0,), (1.0,))
        >>> float(value), float(tangent)
        (8.0, 12.0)
    """
    name = f"jvp({name_of(func)})"
    for what, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise StructureError(
                f"{name}: {what} must be a tuple with one entry per argument.\n"
                f"  {what}: {describe(given)}\n  Write {what}=({what.rstrip('s')},)."
            )

    @proven(name, func, "jvp", strict, has_aux)
    def along(primals: Any, tangents: Any) -> Any:
        return _push_forward(name, func, primals, tangents, strict, has_aux)

    return along(primals, tangents)


def _push_forward(
    name: str,
    func: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    strict: bool,
    has_aux: bool,
) -> Any:
    arguments = Arguments(name, func, primals, None, integers=True)
    inputs = known_inputs(arguments.values)
    types = [t for t, _, _ in inputs]
    dots = match_tangents(name, arguments.skeleton, types, tangents)
    staged, value_outputs = stage_value(name, func, arguments, inputs, {}, has_aux)
    mask = tuple([dot is not None for dot in dots]) + (False,) * len(staged.captured)
    count = value_outputs.arrays
    program, out_active = push_forward(detach_outputs(staged.program, count), mask)
    program = attach_outputs(program, count, staged.outputs.arrays)
    operands = staged.operands(inputs) + [dot for dot in dots if dot is not None]
    weak = staged.weak + [w for w, a in zip(staged.weak, out_active, strict=False) if a]
    found = apply(program, operands, wants_jax(primals, tangents), weak=weak)
    if strict and not all(out_active[:count]):
        number = out_active.index(False)
        label = leaf_names("result", value_outputs.structure)[number]
        raise ArgumentError(
            f"{name}: with strict=True every output must depend on the inputs.\n"
            f"  {label}: {staged.program.output_types[number]} does not\n"
            f"  Leave strict out to get a tangent of zeros."
        )
    total = staged.outputs.arrays
    result = staged.outputs.build(found[:total])
    moving = found[total:]
    if len(moving) < count:
        given, output_types = iter(moving), staged.program.output_types
        moving = [
            next(given) if a else _zeros(t, is_jax(out))
            for a, t, out in zip(out_active[:count], output_types, found, strict=False)
        ]
    tangent = value_outputs.build(moving)
    return (result[0], tangent, result[1]) if has_aux else (result, tangent)


def _zeros(t: ArrayType, as_jax: bool | None) -> Any:
    """Returns zeros of a type, as a `jax.Array` where it is asked for."""
    array = zeros(t.update())
    if not as_jax or is_tracing():
        return array
    with x64():
        return to_jax(array)


# ------------------------------------------------------------------------------ what can be called


@dataclass(eq=False, repr=False)
class Derivative:
    """Is the derivative of a function at a point, a pytree whose leaves are the residuals.

    Attributes:
        title: names the kind.
        program: is called with the residuals and with tangents or cotangents.
        residuals: the values that the point determined, arrays.
    """

    title: ClassVar[str]

    name: str
    program: Program
    residuals: Sequence[Any]
    _outputs: Skeleton
    _output_types: tuple[ArrayType, ...]
    _active: tuple[bool, ...]
    _arguments: Skeleton
    _as_jax: bool | None
    _source: tuple[Program, tuple[bool, ...]]

    def __init_subclass__(cls) -> None:
        names = [field.name for field in fields(Derivative)]
        names.remove("residuals")
        tree.register_dataclass(cls, data_fields=["residuals"], meta_fields=names)

    @property
    def nbytes(self) -> int:
        """The bytes that the residuals hold."""
        return sum([type_of(x).nbytes for x in self.residuals])

    @property
    def saved(self) -> Residuals:
        """What is kept, as `residuals` tells it: a table by the user's lines."""
        return kept(*self._source, leaf_names("primals", self._arguments.structure))

    def __repr__(self) -> str:
        return f"<{self.title} of {self.name} with {len(self.residuals)} residuals>"


class Pullback(Derivative):
    """Maps cotangents of a function's outputs to cotangents of its inputs.

    It can be called any number of times, and is a pytree whose leaves are the residuals.

    Attributes:
        residuals: the values saved by the forward pass, arrays.
        program: the backward program, from residuals and cotangents to cotangents.
    """

    title = "pullback"

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


class Linearized(Derivative):
    """Is the derivative of a function at a point: a linear function of tangents.

    It can be called any number of times, and is a pytree whose leaves are the residuals.

    Attributes:
        residuals: the values that the point determined, arrays.
        program: the linear program, from tangents and residuals to tangents.
    """

    title = "derivative"

    @boundary
    def __call__(self, *tangents: Any) -> Any:
        """Returns the tangent of the value for one tangent per primal; None stands for zero."""
        types = self.program.inputs[: self._arguments.arrays]
        dots = match_tangents(self.name, self._arguments, types, tangents)
        filled = [
            zeros(t.update()) if dot is None else dot for dot, t in zip(dots, types, strict=True)
        ]
        as_jax = True if self._as_jax or wants_jax(tangents) else self._as_jax
        found = iter(apply(self.program, [*filled, *self.residuals], as_jax, traced=False))
        return self._outputs.build(
            [
                next(found) if a else _zeros(t, as_jax)
                for a, t in zip(self._active, self._output_types, strict=True)
            ]
        )

    def dependence(self) -> list[list[bool]]:
        """Tells for each array of the value on which arrays of the primals it may depend.

        It does not where the derivative is zero whatever the values are, as that of `floor` is.

        Example:
            >>> _, derivative = linearize(lambda x, y: (x * y, y**2), 2.0, 3.0)
            >>> derivative.dependence()
            [[True, True], [False, True]]
        """
        program, count = self.program, self._arguments.arrays
        reached = [{i} if i < count else set[int]() for i in range(len(program.inputs))]
        for equation in program.equations:
            operands = [reached[a] for a in equation.operands if type(a) is int]
            reached += [set[int]().union(*operands)] * len(equation.types)
        found = iter([reached[a] if type(a) is int else set[int]() for a in program.outputs])
        rows = [next(found) if active else set[int]() for active in self._active]
        return [[i in row for i in range(count)] for row in rows]


def _evaluate(
    kind: type[Derivative],
    name: str,
    func: Callable[..., Any],
    primals: tuple[Any, ...],
    kwargs: dict[str, Any],
    has_aux: bool,
) -> tuple[Any, ...]:
    """Returns the value of a function, its derivative there, and aux if there is any."""
    arguments = Arguments(name, func, primals, None, integers=True)
    inputs = known_inputs(arguments.values)
    staged, value_outputs = stage_value(name, func, arguments, inputs, kwargs, has_aux)
    count = value_outputs.arrays
    mask = (True,) * len(inputs) + (False,) * len(staged.captured)
    # aux is not differentiated: the program that is has the outputs of the value alone
    program = detach_outputs(staged.program, count)
    part = split_linear(program, mask)
    operands = staged.operands(inputs)
    as_jax = wants_jax(primals, kwargs)
    total = staged.outputs.arrays
    found = apply(attach_outputs(part.forward, count, total), operands, as_jax, weak=staged.weak)
    derivative = kind(
        name,
        pullback(program, mask) if kind is Pullback else part.linear,
        found[total:],
        value_outputs,
        staged.program.output_types[:count],
        part.active[:count],
        arguments.skeleton.bare(),
        as_jax,
        (program, mask),
    )
    result = staged.outputs.build(found[:total])
    return (result[0], derivative, result[1]) if has_aux else (result, derivative)


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
    return _evaluate(Pullback, f"vjp({name_of(func)})", func, primals, kwargs, has_aux)


@boundary
def linearize(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Evaluates `func` and returns its value together with its derivative at that point.

    Args:
        func: returns a pytree of arrays, or `(value, aux)` with `has_aux`.
        primals: the positional arguments; leaves that are no floating-point arrays are held fixed.
        has_aux: whether `func` returns something besides, of any type.

    Returns:
        `(value, derivative)`, or `(value, derivative, aux)`; `derivative(*tangents)` can be called
        many times and does not compute again what the point alone determines.

    Example:
        >>> value, derivative = linearize(lambda x: x**2, 3.0)
        >>> float(derivative(1.0)), float(derivative(2.0))
        (6.0, 12.0)
    """
    return _evaluate(Linearized, f"linearize({name_of(func)})", func, primals, {}, has_aux)


def residuals(
    func: Callable[..., Any], argnums: int | Sequence[int] | None = None, has_aux: bool = False
) -> Callable[..., Residuals]:
    """Returns a function that tells what reverse mode keeps of a call of `func`.

    Args:
        func: returns a pytree of arrays, or `(value, aux)` with `has_aux`.
        argnums: which positional arguments are differentiated: an int, or a tuple of them; None
            for all.
        has_aux: whether `func` returns something besides.

    Returns:
        A function of the same arguments that returns `Residuals`: a tuple, the largest first, of
        name, type, bytes, the line that made it, and what needs it; it prints as a table. What
        `vjp` and `linearize` return has its own as `saved`.

    Example:
        >>> import numpy as np
        >>> import ftrans.numpy as fnp
        >>> def loss(w, x):
        ...     h = fnp.tanh(x @ w)
        ...     return (h**2).sum()
        >>> [
        ...     (r.name, str(r.type), r.nbytes)
        ...     for r in residuals(loss, 0)(np.eye(3), np.ones((9, 3)))
        ... ]
        [('x', 'f64[9,3]', 216), ('slope', 'f64[9,3]', 216)]
    """
    name = f"residuals({name_of(func)})"

    @bounded(func)
    def told(*args: Any, **kwargs: Any) -> Residuals:
        arguments = Arguments(name, func, args, argnums, integers=True)
        inputs = known_inputs(arguments.values)
        staged, outputs = stage_value(name, func, arguments, inputs, kwargs, has_aux, folds=False)
        mask = (True,) * len(inputs) + (False,) * len(staged.captured)
        labels = [arguments.name(i) for i in range(len(inputs))]
        given = {id(x): path for path, x in tree.tree_flatten_with_path(args)[0]}
        for value in staged.captured:  # an argument that is not differentiated, or closed over
            path = given.get(id(value))
            labels.append(argument_name(func, path) if path else "captured")
        return kept(detach_outputs(staged.program, outputs.arrays), mask, labels)

    return named(told, name)
