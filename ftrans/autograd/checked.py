"""`gradcheck` and `gradgradcheck` of tensors: at their values, for those that require grad."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax.tree_util as tree
import numpy as np

from ftrans import verify
from ftrans.autograd.tape import settle
from ftrans.autograd.tensor import Tensor
from ftrans.traceback import boundary

F = TypeVar("F", bound=Callable[..., Any])


def _of_tensors(check: F) -> F:
    @boundary
    @functools.wraps(check)
    def checked(func: Callable[..., Any], inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not any(type(x) is Tensor for x in tree.tree_leaves((inputs, args, kwargs))):
            return check(func, inputs, *args, **kwargs)
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        fixed = [i for i, x in enumerate(given) if type(x) is Tensor and not x.requires_grad]
        held = {i: _value(given[i]) for i in fixed}

        @functools.wraps(func)
        def of_the_others(*xs: Any) -> Any:
            others = iter(xs)
            return func(*[held[i] if i in held else next(others) for i in range(len(given))])

        checked_at = tuple([x for i, x in enumerate(given) if i not in held])
        values, rest, named = tree.tree_map(_value, (checked_at, args, kwargs))
        return check(of_the_others, values, *rest, **named)

    return checked  # type: ignore[return-value]


def _value(x: Any) -> Any:
    return np.array(settle(x)) if type(x) is Tensor else x


gradcheck = _of_tensors(verify.gradcheck)
gradgradcheck = _of_tensors(verify.gradgradcheck)
