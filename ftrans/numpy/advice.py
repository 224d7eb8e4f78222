"""What to write in the place of what cannot be done, or is not there.

Where a traced value was about to become a plain array, or an index of one, the user's own
expression says what was meant: the text of the instruction that is running, in the innermost frame
that no installed package holds. Of functions that are not there, JAX has most.
"""

from __future__ import annotations

import ast
import dis
import linecache
from collections.abc import Callable
from itertools import islice
from types import FrameType, ModuleType
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.errors import MissingAttributeError, MutationError
from ftrans.ir import Tracer
from ftrans.ir.location import user_frame
from ftrans.traceback import boundary

_CONVERSIONS = {"array", "asarray", "asanyarray", "ascontiguousarray", "float64", "float32"}
_JOINS = {"r_": "hstack", "c_": "column_stack"}
_SIZED = {"arange", "empty", "eye", "identity", "ones", "tri", "zeros"}
"""Functions whose arguments say how large the result is."""

_CONSTANT = (
    "  Write np.asarray(x.detach()) for a constant, ftrans.numpy.stack(values) for a list of\n"
    "  values, and else ftrans.numpy in the place of what needs a plain array."
)
_RANDOM = (
    "  Draw by a generator that takes it: ftrans.random.default_rng(seed).normal(mean, scale, n);\n"
    "  or transform what does not depend on it: mean + scale * numbers."
)
_KNOWN = (
    "  Keep it an array, and compute with functions of ftrans.numpy. What a shape depends on must\n"
    "  be known: pass it unmapped under vmap (None in in_dims), static under jit (static_argnums)."
)


def is_storing() -> bool:
    """Tells whether the user's code is at `array[i] = x`."""
    frame = user_frame()
    if frame is None:
        return False
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("STORE_S")


def stored(x: Tracer) -> MutationError:
    """Returns the error for `array[i] = x` where the array is a plain one, or i is traced."""
    return MutationError(
        f"array[i] = x: a plain array takes neither a traced value nor a traced index.\n"
        f"  traced: {x.type}, {x.origin}\n"
        f"  Create it by ftrans.numpy.zeros(shape), write\n"
        f"  array = ftrans.numpy.at(array)[i].set(x), or collect the values in a list and write\n"
        f"  ftrans.numpy.stack(values)."
    )


def meant(default: str) -> tuple[str, str]:
    """Returns what the user's code does with a traced value, and the advice for an error.

    Args:
        default: what it does, where its text does not say so.
    """
    inner = user_frame()
    frame = inner
    while frame is not None and "-packages" in frame.f_code.co_filename:
        frame = frame.f_back
    frame = frame or inner
    node = None if frame is None else _expression(frame)
    if isinstance(node, ast.Subscript):
        return _of_index(default, node)
    known = default.startswith("use")
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        return f"{default} of a traced value", _KNOWN if known else _CONSTANT
    name = ast.unparse(node.func)
    last = name.rpartition(".")[2]
    literal = bool(node.args) and isinstance(node.args[0], (ast.List, ast.Tuple, ast.ListComp))
    if known or last in _SIZED:
        advice = _KNOWN
    elif last in fnp.__all__ and (literal or last not in _CONVERSIONS):
        advice = f"  Write ftrans.numpy.{last}(...), with the same arguments."
    elif isinstance(node.func, ast.Attribute) and hasattr(np.random.Generator, last):
        advice = _RANDOM
    elif last in _CONVERSIONS or frame is inner:
        advice = _CONSTANT
    elif callable(_found(_place(frame))):
        advice = f"  Write ftrans.{_place(frame)}(...), with the same arguments."
    elif _place(inner).startswith("jax."):
        advice = f"  {name} is written for JAX: call it by ftrans.from_jax({name})(...)."
    else:
        advice = (
            f"  {name} needs plain arrays: call it by ftrans.external, with a rule for its\n"
            f"  derivative; for a constant, give it np.asarray(x.detach())."
        )
    return f"{name}() of a traced value", advice


def _of_index(default: str, node: ast.Subscript) -> tuple[str, str]:
    table = ast.unparse(node.value)
    index = ast.unparse(node)[len(table) :]
    last = table.rpartition(".")[2]
    if last in _JOINS:
        return f"{table} of a traced value", f"  Write ftrans.numpy.{_JOINS[last]}([...])."
    bounds = [
        bound
        for part in ast.walk(node.slice)
        if isinstance(part, ast.Slice)
        for bound in (part.lower, part.upper, part.step)
    ]
    if not all(bound is None or isinstance(bound, ast.Constant) for bound in bounds):
        return f"{default} of a traced value", (
            "  The size of a slice must be known: write x[start + np.arange(size)], where x is\n"
            "  traced, or ftrans.numpy.asarray(x)."
        )
    if len(table) + len(index) > 60:
        table, index = "table", "[t]"
    return f"indexing {table} by a traced value", (
        f"  Write ftrans.numpy.asarray({table}){index}; "
        f"arguments of vmap and jit need no asarray.\n"
        f"  To choose between computations: ftrans.cond(c, f, g, *operands), or ftrans.switch."
    )


def _expression(frame: FrameType) -> ast.expr | None:
    """Returns the expression that a frame is at; None where its source is not to be had."""
    position = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if position is None or None in position:
        return None
    first, last, start, stop = position
    lines = [linecache.getline(frame.f_code.co_filename, i) for i in range(first, last + 1)]  # type: ignore[operator, arg-type]
    text = "".join(lines).encode()
    end = len(text) - len(lines[-1].encode()) + stop  # type: ignore[operator]
    try:
        return ast.parse(f"({text[start:end].decode()})", mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _place(frame: FrameType | None) -> str:
    """Returns what a frame calls: `jax.numpy.asarray` for `jnp.asarray(x)`."""
    node = None if frame is None else _expression(frame)
    if frame is None or not isinstance(node, ast.Call):
        return ""
    name, *rest = ast.unparse(node.func).split(".")
    found = frame.f_globals.get(name)
    if isinstance(found, ModuleType):
        return ".".join([found.__name__, *rest])
    home = str(getattr(found, "__module__", "")).split(".")[:2]  # without modules that are private
    return ".".join([*home, getattr(found, "__name__", ""), *rest])


# --------------------------------------------------------------------- functions that are not there

_SPELLED = {
    "as_tensor": "asarray", "asanyarray": "asarray", "asarray_chkfinite": "asarray",
    "asfortranarray": "asarray", "asmatrix": "asarray", "bmat": "block", "bmm": "matmul",
    "broadcast": "broadcast_arrays", "cat": "concatenate", "clamp": "clip",
    "common_type": "result_type", "from_numpy": "asarray", "frompyfunc": "vectorize",
    "in1d": "isin", "matrix": "array", "min_scalar_type": "result_type", "mm": "matmul",
    "mv": "matvec", "ndenumerate": "ndindex", "no_grad": "stop_gradient", "poly1d": "polyval",
    "product": "prod", "row_stack": "vstack", "tensor": "array", "trapz": "trapezoid",
    # less than a byte is not computed with
    **dict.fromkeys(("int1", "int2", "int4"), "int8"),
    **dict.fromkeys(("uint1", "uint2", "uint4"), "uint8"),
    **dict.fromkeys(("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"), "float8_e4m3"),
}  # fmt: skip
"""Other names, of PyTorch's and of NumPy's, for functions that are there."""


def instead_of(place: str) -> str:
    """Returns the code to write for a function that is not there.

    Args:
        place: where JAX would have it, "numpy.piecewise".
    """
    if callable(_found(place)):
        return f"Write ftrans.from_jax(jax.{place})(...)"
    return "Write it with functions of ftrans.numpy, or call it by ftrans.external"


def _found(place: str) -> Any:
    """Returns what JAX has at a place; None for nothing."""
    import jax
    import jax.scipy.special  # which takes its time

    return _at(jax, place)


def _at(root: Any, place: str) -> Any:
    for part in place.split("."):
        root = getattr(root, part, None)
    return root


def declining(module: str, fix: Callable[[str], str | None]) -> Callable[[str], Any]:
    """Makes the `__getattr__` of a module, by what says what to write for a name, if anything."""

    @boundary
    def missing(name: str) -> Any:
        found = fix(name)
        if found is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise MissingAttributeError(f"{module} has no attribute {name!r}.\n  {found}")

    return missing


def attributes_of(home: str) -> Callable[[str], Any]:
    """Makes the `__getattr__` of a module of NumPy's functions, "numpy" or "numpy.linalg"."""

    def fix(name: str) -> str | None:
        if name.startswith("_"):
            return None
        if name in _SPELLED:
            return f"Write ftrans.numpy.{_SPELLED[name]}(...)."
        if name.startswith("rand"):
            return "Draw numbers by a generator: ftrans.random.default_rng(seed).normal(size=n)."
        cousin = f"scipy.{home.rpartition('.')[2]}.{name}"
        if callable(_found(cousin)):
            return f"Write ftrans.{cousin}(...)."
        theirs = _at(np, f"{home}.{name}".removeprefix("numpy."))
        if theirs is not None and not callable(_found(f"{home}.{name}")):
            return f"Write {home}.{name}: it takes no traced values, so that NumPy's own is meant."
        return f"{instead_of(f'{home}.{name}')}."

    return declining(f"ftrans.{home}", fix)


# ------------------------------------------------------------------------------- methods of tensors

_OF_TENSORS = {
    **dict.fromkeys(
        ("data_ptr", "storage", "untyped_storage"),
        "It is not laid out in memory before it is asked for: see x.detach().numpy()",
    ),
    "resize": "Write x.data = ftrans.numpy.resize(x, shape)",
    "as_strided": "A value has no strides. Write x[...], x.expand, x.transpose, or x.diagonal",
    "set_": "Write x.data = value",
    "reinforce": "It was removed. Write (-log_prob * reward).sum().backward(), log_prob being the "
    "logarithm of the probability of x",
}
"""What to write in the place of methods of PyTorch's tensors."""


def of_tensors(name: str, kind: type) -> str:
    """Returns what to write in the place of a method that tensors, of that type, have not."""
    plain = name.removesuffix("_")
    if "sparse" in name:
        return "Tensors are dense"
    if fix := _OF_TENSORS.get(plain) or _OF_TENSORS.get(name):
        return fix
    if plain != name and hasattr(kind, plain):
        return f"Write x = x.{plain}(...)"
    return f"Write ftrans.numpy.{name}(x, ...)" if hasattr(fnp, name) else ""
