"""Jacobians and Hessians: dense, `jacrev`, `jacfwd`, `hessian`; or times a vector, `hvp`, `vhp`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.errors import ArgumentError, DTypeError
from ftrans.func.arguments import Arguments, is_differentiable, match_leaves, match_structure
from ftrans.func.derivative import array_outputs, jvp, stage_value, vjp
from ftrans.func.grad import gradient_value_aux
from ftrans.func.proven import proven
from ftrans.func.staging import (
    apply,
    check_chunk_size,
    check_randomness,
    known_inputs,
    name_of,
    named,
    split_aux,
    wants_jax,
)
from ftrans.func.vmap import vmap
from ftrans.interpreters import jacobian_forward, jacobian_reverse
from ftrans.ir import Program, type_of
from ftrans.ir.dtype import is_complex, is_float
from ftrans.ir.stack import state
from ftrans.numpy.elementwise import imag, real
from ftrans.numpy.promotion import as_array
from ftrans.numpy.shaping import moveaxis, reshape, stack
from ftrans.primitives import complex_p
from ftrans.pytree import leaf_names, split
from ftrans.traceback import boundary, bounded


def _jacobian(
    transform: str,
    build: Callable[..., Program],
    func: Callable[..., Any],
    argnums: int | Sequence[int],
    has_aux: bool,
    chunk_size: int | None,
    holomorphic: bool | None,
    title: str | None = None,
) -> Callable[..., Any]:
    """Returns the function that `jacrev` and `jacfwd` return; errors call it `title`."""
    name = f"{title or transform}({name_of(func)})"
    check_chunk_size(name, chunk_size)

    @bounded(func)
    @proven(name, func, transform, build, argnums, has_aux, chunk_size, holomorphic)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        arguments = Arguments(name, func, args, argnums)
        if holomorphic is not None:
            point = _ComplexPoint(name, func, arguments, kwargs, has_aux, holomorphic)
            options = tuple(range(len(point.parts))), True, chunk_size, None, title or transform
            function = named(lambda *parts: point.real(*parts), name_of(func))
            return point.joined(_jacobian(transform, build, function, *options)(*point.parts))
        declared = known_inputs(arguments.values)
        for number, (t, _, _) in enumerate(declared):
            if not is_float(t.dtype):
                raise _not_real(name, arguments.name(number), t)
        staged, value_outputs = stage_value(name, func, arguments, declared, kwargs, has_aux)
        count = value_outputs.arrays
        for number, t in enumerate(staged.program.output_types[:count]):
            if not t.is_inexact or (transform == "jacrev" and is_complex(t.dtype)):
                label = leaf_names("result", value_outputs.structure)[number]
                raise _not_real(name, label, t)
        inputs = len(declared)
        active = (True,) * inputs + (False,) * len(staged.captured)
        program = build(staged.program, active, count, chunk_size)
        operands = staged.operands(declared)
        weak = [*staged.weak[count:], *[w for _, _, w in declared] * count]
        found = apply(program, operands, wants_jax(args, kwargs), weak=weak)
        aux_count = staged.outputs.arrays - count
        blocks = found[aux_count:]
        jacobians = [arguments.build(blocks[i * inputs : (i + 1) * inputs]) for i in range(count)]
        result = value_outputs.build(jacobians)
        if not has_aux:
            return result
        values = [None] * count + list(found[:aux_count])
        return result, staged.outputs.build(values)[1]

    return named(jacobian, name) if title is None else jacobian


def _not_real(name: str, label: str, t: Any) -> DTypeError:
    hint = (
        "Pass holomorphic=True for the complex derivative, False for that of pairs of reals."
        if is_complex(t.dtype)
        else "Integers and booleans have no derivative: return them as aux, with has_aux=True."
    )
    return DTypeError(
        f"{name}: Jacobians are taken of real functions of real arguments.\n"
        f"  {label}: {t}\n  {hint}"
    )


def _not_complex(name: str, label: str, t: Any) -> DTypeError:
    return DTypeError(
        f"{name}: with holomorphic=True arguments and results are complex.\n"
        f"  {label}: {t}\n"
        f"  Pass holomorphic=False for the derivative of pairs of reals."
    )


class _ComplexPoint:
    """Is a function of complex arguments, as one of real arrays, which is differentiated.

    A holomorphic function has the derivative that it has along the real axis: its argument is the
    real part, and its imaginary part is given. Any other is a function of pairs, the real and the
    imaginary part in a last axis. Complex results are pairs either way.

    Attributes:
        parts: the real arrays that `real` takes.
    """

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        arguments: Arguments,
        kwargs: dict[str, Any],
        has_aux: bool,
        holomorphic: bool,
    ):
        self._name, self._func, self._arguments = name, func, arguments
        self._kwargs, self._has_aux, self._holomorphic = kwargs, has_aux, holomorphic
        self.parts = []
        for number, z in enumerate(arguments.values):
            if holomorphic and not _is_complex(z):
                raise _not_complex(name, arguments.name(number), type_of(as_array(z)))
            self.parts.append(real(z) if holomorphic else _pairs(z))

    def real(self, *parts: Any) -> tuple[list[Any], Any]:
        """Returns the results as real arrays, and aux if there is any."""
        values = []
        for z, part in zip(self._arguments.values, parts, strict=True):
            if self._holomorphic:
                values.append(complex_p(part, imag(z)))
            else:
                values.append(complex_p(part[..., 0], part[..., 1]) if _is_complex(z) else part)
        value = self._arguments.call(self._func, values, self._kwargs)
        value, aux = split_aux(self._name, value) if self._has_aux else (value, None)
        outs, self._outputs = split(array_outputs(self._name, value))
        for number, out in enumerate(outs):
            if self._holomorphic and not _is_complex(out):
                label = leaf_names("result", self._outputs.structure)[number]
                raise _not_complex(self._name, label, type_of(out))
        return [_pairs(out) for out in outs], aux

    def joined(self, found: tuple[list[tuple[Any, ...]], Any]) -> Any:
        """Returns the Jacobian, of the blocks of `real`, and aux if there is any."""
        rows, aux = found
        if self._holomorphic:
            axes = [-part.ndim - 1 for part in self.parts]  # of the pairs, before those of the part
            rows = [
                [complex_p(*moveaxis(x, axis, 0)) for x, axis in zip(row, axes, strict=True)]
                for row in rows
            ]
        result = self._outputs.build([self._arguments.build(row) for row in rows])
        return (result, aux) if self._has_aux else result


def _is_complex(x: Any) -> bool:
    return is_complex(type_of(as_array(x)).dtype)


def _pairs(x: Any) -> Any:
    """Returns a complex array as pairs in a last axis; a real one as it is."""
    return stack([real(x), imag(x)], -1) if _is_complex(x) else x


@boundary
def jacrev(
    func: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    holomorphic: bool | None = None,
) -> Callable[..., Any]:
    """Returns a function that computes the Jacobian of `func` by reverse mode, row by row.

    Args:
        func: returns a pytree of real arrays, or `(value, aux)` with `has_aux`.
        argnums: which positional arguments to differentiate.
        has_aux: whether `func` returns something besides, of any type.
        chunk_size: the most rows computed at once; None for all.
        holomorphic: what the derivative of complex arrays is. True is the complex derivative of a
            function that is holomorphic, which is not checked: shape `(*output, *input)`. False
            takes each complex array for pairs of reals, in a last axis: `(*output, 2, *input, 2)`,
            without the 2 of what is real. None refuses complex arrays.

    Returns:
        A function whose result has the structure of the value; in the place of each array there
        is the structure of the argument, with arrays of shape `(*output, *input)`.

    Example:
        >>> import numpy as np
        >>> jacrev(lambda x: x**2)(np.array([1.0, 3.0]))
        array([[2., 0.],
               [0., 6.]])
        >>> jacrev(lambda z: z**2, holomorphic=True)(np.array(1.0 + 1.0j))
        array(2.+2.j)
        >>> jacrev(lambda z: z**2, holomorphic=False)(np.array(1.0 + 1.0j))
        array([[ 2., -2.],
               [ 2.,  2.]])
    """
    return _jacobian("jacrev", jacobian_reverse, func, argnums, has_aux, chunk_size, holomorphic)


@boundary
def jacfwd(
    func: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
    chunk_size: int | None = None,
    holomorphic: bool | None = None,
) -> Callable[..., Any]:
    """Returns a function that computes the Jacobian of `func` by forward mode, column by column.

    Args:
        func: as for `jacrev`.
        argnums: which positional arguments to differentiate.
        has_aux: whether `func` returns something besides, of any type.
        randomness: what a draw of a generator is in `func`: "error" forbids it, "same" draws once,
            for all columns, "different" draws anew for each of them, and runs all of `func` for
            each. Functions that take a key draw what that key says.
        chunk_size: the most columns computed at once; None for all.
        holomorphic: as for `jacrev`; None lets complex results of real arguments through.

    Returns:
        A function as `jacrev` returns.

    Example:
        >>> import numpy as np
        >>> jacfwd(lambda x: x[0] * x)(np.array([2.0, 3.0]))
        array([[4., 0.],
               [3., 2.]])
    """
    name = f"jacfwd({name_of(func)})"
    check_randomness(name, randomness)
    if randomness == "different":
        if holomorphic is not None:
            raise ArgumentError(
                f"{name}: randomness='different' is for real functions.\n"
                f"  holomorphic: {holomorphic}\n  Draw outside, and pass what is drawn."
            )
        return _columns_apart(name, func, argnums, has_aux, chunk_size)

    @functools.wraps(func)
    def told(*args: Any, **kwargs: Any) -> Any:
        if state.stack:
            state.stack[-1].lanes = randomness, None
        return func(*args, **kwargs)

    told = named(told, name_of(func))
    return _jacobian("jacfwd", jacobian_forward, told, argnums, has_aux, chunk_size, holomorphic)


def _columns_apart(
    name: str,
    func: Callable[..., Any],
    argnums: int | Sequence[int],
    has_aux: bool,
    chunk_size: int | None,
) -> Callable[..., Any]:
    """Returns `jacfwd` of a function that is to draw anew for each column: a `vmap` of `jvp`."""

    @bounded(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        arguments = Arguments(name, func, args, argnums)
        values = [as_array(x) for x in arguments.values]
        sizes = [type_of(x).size for x in values]
        ends = np.cumsum(sizes)
        unit = np.eye(sum(sizes))
        basis = [
            unit[:, end - n : end].reshape(-1, *type_of(x).shape).astype(type_of(x).dtype)
            for x, n, end in zip(values, sizes, ends, strict=True)
        ]

        def flat(*parts: Any) -> Any:
            return arguments.call(func, list(parts), kwargs)

        def column(*tangents: Any) -> Any:
            return jvp(named(flat, name_of(func)), tuple(values), tangents, has_aux=has_aux)[1:]

        column = named(column, name_of(func))
        dots, *aux = vmap(column, randomness="different", chunk_size=chunk_size)(*basis)

        def blocks(dot: Any) -> Any:
            last = moveaxis(dot, 0, -1)
            return arguments.build(
                [
                    reshape(last[..., end - n : end], (*last.shape[:-1], *type_of(x).shape))
                    for x, n, end in zip(values, sizes, ends, strict=True)
                ]
            )

        result = tree.tree_map(blocks, dots)
        return (result, tree.tree_map(lambda x: x[0], aux[0])) if has_aux else result

    return named(jacobian, name)


@boundary
def hessian(
    func: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    holomorphic: bool | None = None,
) -> Callable[..., Any]:
    """Returns a function that computes the Hessian of `func`, forward over reverse.

    Args:
        func: returns a pytree of real arrays, most often a scalar, or `(value, aux)`.
        argnums: which positional arguments to differentiate, twice.
        has_aux: whether `func` returns something besides, of any type.
        chunk_size: the most columns computed at once; None for all.
        holomorphic: as for `jacrev`.

    Returns:
        A function whose result nests the structure of the argument twice in that of the value,
        with arrays of shape `(*output, *input, *input)`.

    Example:
        >>> import numpy as np
        >>> hessian(lambda x: (x**3).sum())(np.array([1.0, 2.0]))
        array([[ 6.,  0.],
               [ 0., 12.]])
    """
    options = argnums, has_aux, chunk_size, holomorphic, "hessian"
    inner = _jacobian("jacrev", jacobian_reverse, func, *options)
    outer = _jacobian("jacfwd", jacobian_forward, inner, *options)
    return named(outer, f"hessian({name_of(func)})")


# ------------------------------------------------------------------------ products with the Hessian


def _gradient(
    name: str, func: Callable[..., Any], inputs: Any, v: Any
) -> tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]:
    """Returns the function for gradient and value, primals and vectors, which are checked."""
    values, skeleton = split(inputs, is_differentiable)
    vectors = match_structure(name, "v", "inputs", skeleton.structure, v)
    types = [type_of(as_array(value)) for value in values]
    match_leaves(name, "v", "inputs", skeleton, types, vectors)

    @functools.wraps(func)
    def gradient(*inputs: Any) -> tuple[Any, Any]:
        found, value, _ = gradient_value_aux(name, func, None, False, inputs, {})
        return found, value

    return (gradient, inputs, v) if isinstance(inputs, tuple) else (gradient, (inputs,), (v,))


@boundary
def hvp(func: Callable[..., Any], inputs: Any, v: Any) -> tuple[Any, Any]:
    """Computes the product of the Hessian of `func` with a vector, forward over reverse.

    Args:
        func: returns a real scalar.
        inputs: the argument, a pytree, or a tuple of the positional arguments.
        v: the vector, in the structure of `inputs`.

    Returns:
        `(func(*inputs), product)`, with the product in the structure of `inputs`.

    Example:
        >>> import numpy as np
        >>> value, product = hvp(lambda x: (x**3).sum(), np.array([1.0, 2.0]), np.array([1.0, 1.0]))
        >>> product
        array([ 6., 12.])
    """
    name = f"hvp({name_of(func)})"

    @proven(name, func, "hvp")
    def along(inputs: Any, v: Any) -> tuple[Any, Any]:
        gradient, primals, vectors = _gradient(name, func, inputs, v)
        _, product, value = jvp(gradient, primals, vectors, has_aux=True)
        return value, product if primals is inputs else product[0]

    return along(inputs, v)


@boundary
def vhp(func: Callable[..., Any], inputs: Any, v: Any) -> tuple[Any, Any]:
    """Computes the product of a vector with the Hessian of `func`, reverse over reverse.

    Args:
        func: returns a real scalar.
        inputs: the argument, a pytree, or a tuple of the positional arguments.
        v: the vector, in the structure of `inputs`.

    Returns:
        `(func(*inputs), product)`, with the product in the structure of `inputs`.

    Example:
        >>> import numpy as np
        >>> value, product = vhp(lambda x: (x**3).sum(), np.array([1.0, 2.0]), np.array([1.0, 1.0]))
        >>> product
        array([ 6., 12.])
    """
    gradient, primals, vectors = _gradient(f"vhp({name_of(func)})", func, inputs, v)
    _, pull, value = vjp(gradient, *primals, has_aux=True)
    product = pull(vectors)
    return value, product if primals is inputs else product[0]
