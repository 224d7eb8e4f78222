"""`gradcheck` and `gradgradcheck` of tensors: at their values, for those that require grad."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax.tree_util as tree

from ftrans import verify
from ftrans.autograd.dispatch import array_of, arrays_wanted
from ftrans.autograd.tensor import Tensor
from ftrans.errors import GradcheckInputError
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
        held = {i: array_of(given[i]) for i in fixed}

        @functools.wraps(func)
        def of_the_others(*xs: Any) -> Any:
            others = iter(xs)
            found = func(*[held[i] if i in held else next(others) for i in range(len(given))])
            return tree.tree_map(array_of, found)  # of a tensor that it closes over, or makes

        if len(fixed) == sum(type(x) is Tensor for x in tree.tree_leaves(given)):
            raise GradcheckInputError(
                f"{check.__name__}: none of the tensors that are given requires grad.\n"
                f"  Make those that are to be checked with requires_grad=True."
            )
        checked_at = tuple([x for i, x in enumerate(given) if i not in held])
        values, rest, named = tree.tree_map(array_of, (checked_at, args, kwargs))
        with arrays_wanted():
            return check(of_the_others, values, *rest, **named)

    return checked  # type: ignore[return-value]


gradcheck = _of_tensors(verify.gradcheck)
gradgradcheck = _of_tensors(verify.gradgradcheck)
