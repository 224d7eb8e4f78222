"""A function with the arguments that it is differentiated at, for one call of a transform."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ftrans.errors import ArgumentError, ShapeError
from ftrans.func.arguments import Arguments, is_differentiable
from ftrans.func.derivative import linearize
from ftrans.func.grad import grad
from ftrans.func.staging import name_of
from ftrans.ir import type_of
from ftrans.numpy import reshape
from ftrans.numpy.promotion import as_array
from ftrans.pytree import leaf_names, split

Function = Callable[..., Any]


class Point:
    """Is a function and the arguments that it is differentiated at, one or a tuple of `several`."""

    def __init__(self, transform: str, func: Function, inputs: Any):
        self.name, self.func = f"{transform}({name_of(func)})", func
        self.several = isinstance(inputs, tuple)
        self.args: tuple[Any, ...] = inputs if self.several else (inputs,)
        self.argnums: Any = tuple(range(len(self.args))) if self.several else 0
        self.shape: tuple[int, ...] = ()
        Arguments(self.name, func, self.args, None)  # raises where one has no derivatives

    @functools.cached_property
    def scalar(self) -> Function:
        """The function, whose value of one element is a scalar; `shape` is that which it had."""

        @functools.wraps(self.func)
        def scalar(*args: Any) -> Any:
            value = self.func(*args)
            arrays = [as_array(leaf) for leaf in split(value, is_differentiable)[0]]
            if [type_of(x).size for x in arrays] != [1]:
                raise ShapeError(
                    f"{self.name}: the function must return one element.\n"
                    f"  it returned: {_shown(split(value)[0])}\n"
                    f"  Return its sum, or ask for the jacobian of its gradient."
                )
            self.shape = arrays[0].shape
            return reshape(arrays[0], ())

        return scalar

    def vector(self, v: Any, like: Any, what: str, whose: str) -> Any:
        """Returns a vector; 1 where it is None and what it is like is one element."""
        if v is not None:  # as in PyTorch, one may be an array, the other the tuple of one alone
            if isinstance(v, tuple) and not isinstance(like, tuple):
                return v[0] if len(v) == 1 else v
            alone = isinstance(like, tuple) and len(like) == 1
            return (v,) if alone and not isinstance(v, tuple) else v
        leaves, skeleton = split(like, is_differentiable)
        arrays = [as_array(leaf) for leaf in leaves]
        if [type_of(x).size for x in arrays] != [1]:
            raise ArgumentError(
                f"{self.name}: v can be left out where {whose} one element alone.\n"
                f"  {what}: {_shown(arrays)}\n"
                f"  Pass v, with the structure and shapes of {what}."
            )
        return skeleton.build([np.ones(arrays[0].shape, arrays[0].dtype)])

    def vectors(self, v: Any) -> tuple[Any, ...]:
        """Returns one vector for each argument."""
        inputs = self.args if self.several else self.args[0]
        v = self.vector(v, inputs, "inputs", "inputs are")
        return v if self.several else (v,)

    def hessian_product(self, transform: Function, v: Any, strict: bool) -> tuple[Any, Any]:
        """Returns the value, of one element, and a product of the Hessian and a vector."""
        self.check_depends(strict, grad(self.scalar, self.argnums), pairwise=False)
        value, product = transform(self.scalar, self.args, self.vectors(v))
        value = reshape(value, self.shape) if self.shape else value
        return value, product if self.several else product[0]

    def chosen(self, label: str, strategy: str, known: Mapping[str, Function]) -> Function:
        """Returns the transform that a strategy names."""
        if strategy not in known:
            raise ArgumentError(
                f"{self.name}: {label} is none that there is.\n"
                f"  {label}: {strategy!r}\n  Write one of {', '.join(map(repr, known))}."
            )
        return known[strategy]

    def check_depends(self, strict: bool, function: Function, pairwise: bool) -> None:
        """Raises unless results depend on inputs: each on each, or on some, and some on each."""
        if not strict:
            return
        value, derivative = linearize(function, *self.args)
        rows = derivative.dependence()
        what = "result" if function is self.func else "gradient"
        results = leaf_names(what, split(value)[1].structure)
        inputs = Arguments(self.name, self.func, self.args, None, integers=True)
        missing = [
            (result, inputs.name(row.index(False)) if pairwise else "the inputs")
            for row, result in zip(rows, results, strict=True)
            if not (all(row) if pairwise else any(row))
        ] + [
            (f"the {what}", inputs.name(number))
            for number, column in enumerate(zip(*rows, strict=True))
            if not any(column)
        ]
        if missing:
            must = "every input" if pairwise else "some input, and some output on every input"
            raise ArgumentError(
                f"{self.name}: with strict=True every output must depend on {must}.\n"
                f"  {missing[0][0]} does not depend on {missing[0][1]}\n"
                f"  Leave strict out to get zeros."
            )


def _shown(arrays: list[Any]) -> str:
    return ", ".join(map(str, map(type_of, arrays))) or "no arrays"
