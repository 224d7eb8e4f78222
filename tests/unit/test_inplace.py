"""Writing in place, statement by statement, against NumPy on plain arrays."""

from __future__ import annotations

import copy
import operator
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import (
    DTypeError,
    LeakedTracerError,
    MutationError,
    ShapeError,
    UnsupportedError,
)
from ftrans.ir import Tracer
from tests.helpers import assert_close

X = np.array([0.5, 1.5, 2.5, 3.5])
M = np.arange(1.0, 7.0).reshape(2, 3)


def check(f: Callable[[Any], Any], x: Any = X) -> None:
    """Compares a function that NumPy runs as well: value, both modes, batches, both roads."""
    x = np.asarray(x)
    expected = f(x.copy())
    step = 1e-6 * np.eye(x.size).reshape(x.size, *x.shape)
    slopes = np.array([(f(x + s) - f(x - s)) / 2e-6 for s in step]).reshape(x.shape)
    for _ in range(3):
        gradient, value = func.grad_and_value(f)(x)
        assert_close(value, expected, 1e-12)
        assert_close(gradient, slopes, 1e-6)
    assert_close(func.jvp(f, (x,), (np.cos(x),))[1], (slopes * np.cos(x)).sum(), 1e-6)
    assert_close(ftrans.jit(func.grad(f))(x), gradient, 1e-12)
    assert_close(func.vmap(func.grad(f))(np.stack([x, x]))[1], gradient, 1e-12)
    hessian = func.hessian(f)(x).reshape(x.size, x.size)
    assert_close(hessian, hessian.T, 1e-9)


# ------------------------------------------------------------------------------ names and views


class Holder:
    """Has attributes."""


def add_one(q: Any) -> None:
    q += 1


def test_an_alias_in_another_function() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        add_one(y)
        return (y * x).sum()

    check(f)


def test_a_slice() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        v = y[2:4]
        v *= 0
        v += x[:2] ** 2
        return (y * x).sum()

    check(f)


def test_rows_in_a_loop() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        for row in y:
            row *= 2
            for i, other in enumerate(y.T):
                other += i * row[0]
        return (y * x).sum()

    check(f, M)


def test_many_rows_at_once() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        rows = list(y)
        rows[0] += rows[1]
        rows[1] *= rows[0]
        return (y * y).sum() + (rows[0] * rows[1]).sum()

    check(f, M)


def test_a_transpose_and_what_is_viewed_of_it() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        t = y.T
        t += 1
        part = t[1:, None, ::-1]
        part *= x[0, 0]
        y[0] -= part[0, 0, 0]
        return (y * t.T).sum() + (part**2).sum()

    check(f, M)


def test_attributes_items_and_closures() -> None:
    def f(x: Any) -> Any:
        h = Holder()
        h.state = x * 1
        kept = [h.state[1:]]
        h.state += 1
        kept[0] *= x[0]

        def inner() -> None:
            nonlocal x
            x = x * 1
            h.state[:2] -= x[2:]

        inner()
        return (h.state * x).sum() + kept[0].sum()

    check(f)


def test_swaps_and_shifts_of_slices() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        y[:2], y[2:4] = y[2:4], y[:2]  # the second reads what the first has written
        z = x * 2
        z[:2], z[2:4] = z[2:4].copy(), z[:2].copy()
        z[1:] = z[:-1]
        z[0], z[1] = z[1], z[0]
        return (y * y * x).sum() + (z * z * np.arange(4)).sum()

    check(f)


def test_what_numpy_copies_is_a_copy() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        for part in (y[[0, 1]], y[np.arange(4) > 1], y.copy(), y.flatten(), y[np.array(0)], y * 1):
            part += 100
        s = y[0]
        s += 5
        total = y.sum()
        kept = total
        total += 1
        turned = x.reshape(2, 2).T
        line = turned.ravel()
        line *= 0
        line = turned.reshape(-1)
        line *= 0
        back = y[::-1].ravel()
        back *= 0
        return (y * x).sum() + s * x[1] + kept * total

    check(f)


def test_a_saved_value_keeps_what_it_saw() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        square = y * y
        before = copy.copy(y)
        y *= 0
        y += before
        return (square * y).sum()

    check(f)


def test_complex_parts_are_views() -> None:
    def f(x: Any) -> Any:
        y = x * (1 + 2j)
        y.imag = y.real
        y.real *= 3
        part = y[1:].real
        part += y.imag[:-1]
        y.imag[0] = 7
        return (y * y).real.sum() + (y * part[0]).imag.sum()

    check(f)


def test_arrays_of_rank_zero() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        cell = y[0, ...]
        cell += 1
        same = cell
        same *= x[1]
        return (y * y).sum() + cell * cell

    check(f)

    def g(x: Any) -> Any:
        y = x
        y += 1
        return y * x

    assert func.grad(g)(2.0) == 5.0  # numbers cannot be changed: of (x + 1) x
    assert func.grad(g)(np.float64(2.0)) == 5.0
    assert func.grad(g)(np.array(2.0)) == 6.0  # of (x + 1)^2


# ------------------------------------------------------------------------------------ operators

OPERATORS = ["+=", "-=", "*=", "/=", "//=", "%=", "**=", "@=", "&=", "|=", "^=", "<<=", ">>="]


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "?", "c16"])
def test_operators_keep_the_dtype_as_numpy_does(sign: str, dtype: str) -> None:
    x = np.array([[1, 4], [3, 2]]).astype(dtype)
    for other in (2, 0.5, True, x, np.array([[1, 1], [2, 3]], "i8"), x.real.astype("f4"), x[0]):

        def f(x: Any, other: Any = other) -> Any:
            y = x.copy()
            view = y.T
            names = {"y": y, "v": other}
            exec(f"y {sign} v", names)
            assert names["y"] is y
            return y, view.T.copy()

        try:
            with np.errstate(all="ignore"):
                expected = f(x)[0]
        except (TypeError, ValueError):
            with pytest.raises((TypeError, ValueError)):
                func.vjp(f, x)
            continue
        out = func.vjp(f, x)[0]
        for found in out:
            assert found.dtype == x.dtype
            assert_close(found, expected)


def test_a_result_that_does_not_fit_changes_nothing() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        view = y[1:]
        n = fnp.argsort(x)
        for act, error in [
            (lambda: operator.iadd(y, np.ones((2, 4))), ShapeError),
            (lambda: operator.itruediv(n, 2), DTypeError),
            (lambda: operator.iadd(y, 1j), DTypeError),
            (lambda: y.__setitem__(slice(2), np.ones(3)), ShapeError),
            (lambda: np.add(y, 1, out=view), ShapeError),
            (lambda: np.copyto(n, 0.5), DTypeError),
            (lambda: np.broadcast_to(y, (2, 4)).fill(1.0), MutationError),
        ]:
            with pytest.raises(error):
                act()
        return (y * x).sum() + view.sum() + n.sum()

    assert_close(func.grad(f)(X), 2 * X + [0, 1, 1, 1])


# ---------------------------------------------------------------------- functions and out=

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "fill": lambda y, x: y.fill(x[0]),
    "fill number": lambda y, x: y.fill(3),
    "sort": lambda y, x: y.sort(),
    "sort down": lambda y, x: y[::-1].sort(),
    "partition": lambda y, x: y.partition(2),
    "copyto": lambda y, x: np.copyto(y, x[0] * x),
    "copyto number": lambda y, x: np.copyto(y, 0.1),
    "copyto where": lambda y, x: np.copyto(y, 1 / x, where=[True, False, True, False]),
    "copyto part": lambda y, x: np.copyto(y[1:], x[:1]),
    "put": lambda y, x: np.put(y, [3, 0], x * 2),
    "put method": lambda y, x: y.put([[1, 2], [0, 3]], x[:2]),
    "put wrap": lambda y, x: np.put(y, [5, -7], 0.1, mode="wrap"),
    "put clip": lambda y, x: np.put(y, [9, -9], x[0], mode="clip"),
    "put nothing": lambda y, x: np.put(y, [], []),
    "put nothing clip": lambda y, x: np.put(y, [], 0.5, mode="clip"),
    "putmask": lambda y, x: np.putmask(y, [True, False, True, True], x[:3]),
    "putmask cycles": lambda y, x: np.putmask(y, y == y, x[:2]),
    "place": lambda y, x: np.place(y, [False, True, False, True], x[2:]),
    "place cycles": lambda y, x: np.place(y, y == y, [0.1, 0.2, 0.3]),
    "add.at": lambda y, x: np.add.at(y, [0, 0, 3], x[:3]),
    "subtract.at": lambda y, x: np.subtract.at(y, [1, 1], 0.1),
    "multiply.at": lambda y, x: np.multiply.at(y, [2, 2], x[:2]),
    "divide.at": lambda y, x: np.divide.at(y, [2, 2], x[:2]),
    "minimum.at": lambda y, x: np.minimum.at(y, [0, 3], x[0] * 0.7),
    "maximum.at": lambda y, x: np.maximum.at(y, slice(1, 3), x[1] * 2.1),
    "add.at of a part": lambda y, x: np.add.at(y[1:], [0, 0], x[0]),
    "put_along_axis": lambda y, x: np.put_along_axis(y, np.array([1, 3]), x[:2], 0),
    "nan_to_num": lambda y, x: np.nan_to_num(y, copy=False),
    "add out": lambda y, x: np.add(y, x, out=y),
    "add out part": lambda y, x: np.multiply(x[:2], x[2:], out=y[1:3]),
    "add out tuple": lambda y, x: np.add(y, x, out=(y,)),
    "add out broadcasts": lambda y, x: np.add(x[0], x[1], out=y),
    "add out where": lambda y, x: np.add(y, x, out=y, where=[True, False, True, False]),
    "sin out": lambda y, x: np.sin(y, y[::-1]) if False else np.sin(y, out=y[::-1]),
    "cumsum out": lambda y, x: np.cumsum(y, out=y),
    "sum out": lambda y, x: np.sum(x.reshape(2, 2), axis=0, out=y[2:]),
    "method out": lambda y, x: x.reshape(2, 2).max(axis=1, out=y[:2]),
    "reduce out": lambda y, x: np.add.reduce(x.reshape(2, 2), out=y[:2]),
    "clip out": lambda y, x: np.clip(y, 1.0, 3.0, out=y),
    "round out": lambda y, x: np.round(y, out=y),
    "matmul out": lambda y, x: np.matmul(x.reshape(2, 2), x[:2], out=y[:2]),
    "maximum out": lambda y, x: np.maximum(y, 2, out=y),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str) -> None:
    def f(x: Any) -> Any:
        y = x * 1.1
        view = y[::2]
        WRITES[name](y, x)
        return (y * np.arange(1, 5) * x).sum() + (view**2).sum()

    check(f)


def test_diagonals() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        np.fill_diagonal(y, x[0, :2])
        line = np.diagonal(y)
        y[0] *= 2
        corner = np.einsum("ii->i", y[:, :2])
        corner += 1
        return (y * y).sum() + (line * x[0, :2]).sum()

    check(f, M)


def test_out_returns_what_was_written_to() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        assert np.add(y, 1, out=y) is y
        assert fnp.cumsum(y, out=y) is y
        return y.sum()

    assert_close(func.grad(f)(X), [4.0, 3.0, 2.0, 1.0])
    plain = np.ones(4)
    assert fnp.add(plain, 1, out=plain) is plain
    assert_close(plain, np.full(4, 2.0))


# ------------------------------------------------------------------- which functions return views


def contiguous(m: Any, x: Any) -> Any:
    """Calls ours on what is traced, which NumPy's does not hand over."""
    return (np if m is np and isinstance(x, np.ndarray) else fnp).ascontiguousarray(x)


VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "reshape": lambda m, x: m.reshape(x, (3, 2)),
    "reshape of a transpose": lambda m, x: m.reshape(x.T, (2, 3)),
    "reshape by columns": lambda m, x: m.reshape(x, (3, 2), order="F"),
    "reshape of a transpose by columns": lambda m, x: m.reshape(x.T, (2, 3), order="F"),
    "ravel": lambda m, x: m.ravel(x),
    "ravel of a part": lambda m, x: m.ravel(x[:, :2]),
    "ravel of rows": lambda m, x: m.ravel(x[1:]),
    "ravel of every other": lambda m, x: m.ravel(x[0, ::2]),
    "ravel by columns": lambda m, x: m.ravel(x.T, order="F"),
    "reshape of every other": lambda m, x: m.reshape(x[0, ::2], -1),
    "transpose": lambda m, x: m.transpose(x),
    "flip": lambda m, x: m.flip(x, 0),
    "rot90": lambda m, x: m.rot90(x),
    "swapaxes": lambda m, x: m.swapaxes(x, 0, 1),
    "moveaxis": lambda m, x: m.moveaxis(x, 0, 1),
    "squeeze": lambda m, x: m.squeeze(x),
    "expand_dims": lambda m, x: m.expand_dims(x, 0),
    "split": lambda m, x: m.split(x, 2)[0],
    "array_split": lambda m, x: m.array_split(x, 2)[0],
    "hsplit": lambda m, x: m.hsplit(x, 3)[0],
    "unstack": lambda m, x: m.unstack(x)[0] if hasattr(m, "unstack") else x[0],
    "atleast_1d": lambda m, x: m.atleast_1d(x),
    "atleast_3d": lambda m, x: m.atleast_3d(x),
    "einsum": lambda m, x: m.einsum("ij->ji", x),
    "einsum sum": lambda m, x: m.einsum("ij->i", x[:, :1]),
    "einsum diagonal": lambda m, x: m.einsum("ii->i", x[:, :2]),
    "real": lambda m, x: m.real(x),
    "real of complex": lambda m, x: m.real(x + 1j),
    "copy": lambda m, x: m.copy(x),
    "ascontiguousarray": lambda m, x: contiguous(m, x),
    "ascontiguousarray of a transpose": lambda m, x: contiguous(m, x.T),
    "positive": lambda m, x: m.positive(x),
    "conj": lambda m, x: m.conj(x),
    "nan_to_num": lambda m, x: m.nan_to_num(x),
    "nan_to_num without a copy": lambda m, x: m.nan_to_num(x, copy=False),
    "round": lambda m, x: m.round(x),
    "roll": lambda m, x: m.roll(x, 0),
    "tile": lambda m, x: m.tile(x, 1),
    "repeat": lambda m, x: m.repeat(x, 1, 0),
    "concatenate": lambda m, x: m.concatenate([x]),
    "stack": lambda m, x: m.stack([x]),
    "vstack": lambda m, x: m.vstack([x]),
    "column_stack": lambda m, x: m.column_stack([x]),
    "pad": lambda m, x: m.pad(x, 0),
    "take": lambda m, x: m.take(x, [0, 1], 0),
    "take one": lambda m, x: m.take(x, 1, 0),
    "sort": lambda m, x: m.sort(x[:1], 0),
    "tril": lambda m, x: m.tril(x, 5),
    "where": lambda m, x: m.where(True, x, x),
    "clip": lambda m, x: m.clip(x, -9.0, None),
    "sum of nothing": lambda m, x: m.sum(x, ()),
    "power": lambda m, x: m.power(x, 1),
    "method copy": lambda m, x: x.copy(),
    "method flatten": lambda m, x: x.flatten(),
    "method T": lambda m, x: x.T,
    "method real": lambda m, x: x.real,
    "method astype": lambda m, x: x.astype("float64"),
    "colon": lambda m, x: x[:],
    "dots": lambda m, x: x[...],
    "new axis": lambda m, x: x[None],
    "row": lambda m, x: x[0],
    "row by a NumPy number": lambda m, x: x[np.int64(0)],
    "row by an array": lambda m, x: x[np.array(0)],
    "list": lambda m, x: x[[0, 1]],
    "mask": lambda m, x: x[np.array([True, True])],
    "true": lambda m, x: x[True],
    "cell": lambda m, x: x[0, 0, ...],
    "row of an iterator": lambda m, x: next(iter(x)),
    "unary plus": lambda m, x: +x,
    "operator": lambda m, x: x + 0,
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_those_of_numpy(name: str) -> None:
    """A result is written to, to see whether that reaches the argument."""

    def f(x: Any, m: Any) -> Any:
        y = x * 1
        VIEWS[name](m, y)[...] = 7.0
        return y

    expected = f(M, np)
    assert_close(f(M, fnp), expected)
    for _ in range(2):
        assert_close(func.vjp(lambda x: f(x, np), M)[0], expected)
        assert_close(func.vjp(lambda x: f(x, fnp), M)[0], expected)


READ_ONLY: dict[str, Callable[[Any, Any], Any]] = {
    "diagonal": lambda m, x: m.diagonal(x),
    "diagonal of a transpose": lambda m, x: m.diagonal(x.T, 1),
    "row of diagonals": lambda m, x: m.diagonal(x[None], 0, 1, 2)[0],
    "diag": lambda m, x: m.diag(x),
    "linalg.diagonal": lambda m, x: m.linalg.diagonal(x),
    "imag": lambda m, x: m.imag(x),
    "broadcast_to": lambda m, x: m.broadcast_to(x, (4, 2, 3)),
    "broadcast_to its own shape": lambda m, x: m.broadcast_to(x, (2, 3)),
}


@pytest.mark.parametrize("name", READ_ONLY)
def test_views_that_are_read_only_in_numpy(name: str) -> None:
    def write(x: Any, m: Any) -> Any:
        y = x * 1
        view = READ_ONLY[name](m, y)
        view[...] = 7.0
        return y

    def read(x: Any, m: Any) -> Any:
        y = x * 1
        view = READ_ONLY[name](m, y)
        y[0] *= 3.0
        return view

    for m in (np, fnp):
        with pytest.raises(ValueError, match="read-only"):
            write(M, m)
        with pytest.raises(ValueError, match=r"read-only, as in NumPy|x was broadcast"):
            func.vjp(lambda x, m=m: write(x, m), M)
        for _ in range(2):
            assert_close(func.vjp(lambda x, m=m: read(x, m), M)[0], read(M, np))
    assert_close(read(M, fnp), read(M, np))


def test_a_write_to_a_read_only_view_says_what_to_write() -> None:
    def f(x: Any) -> Any:
        line = np.diagonal(x)
        line += 1
        return line

    with pytest.raises(MutationError) as caught:
        func.jvp(f, (M,), (M,))
    assert str(caught.value) == (
        "x += v: x is a view that is read-only, as in NumPy.\n"
        f"  x: f64[2], made at {__file__}:{f.__code__.co_firstlineno + 1} ({f.__qualname__})\n"
        "  Copy it first: x = x.copy()."
    )


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("copy", [True, False])
def test_grids_are_views_where_no_copy_is_wanted(copy: bool, sparse: bool) -> None:
    def f(x: Any, m: Any) -> Any:
        line = x[0] * 1
        grid = m.meshgrid(line, x[1], copy=copy, sparse=sparse)[0]
        if sparse or copy:
            grid[...] = 7.0
        else:
            line[0] = 5.0
        return line, grid

    for a, b in zip(f(M, fnp), f(M, np), strict=True):
        assert_close(a, b)
    for m in (np, fnp):
        for a, b in zip(func.vjp(lambda x, m=m: f(x, m), M)[0], f(M, np), strict=True):
            assert_close(a, b)


# ------------------------------------------------------------------------------ order in memory

LAYOUTS = {
    "rows": M,
    "columns": np.asfortranarray(M),
    "part": np.arange(24.0).reshape(4, 6)[1:3, ::2],
    "three axes": np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ["A", "K"])
def test_elements_in_the_order_of_memory(layout: str, order: Any) -> None:
    x = LAYOUTS[layout]
    assert_close(fnp.ravel(x, order), np.ravel(x, order))
    assert_close(fnp.copy(x, order).strides, np.copy(x, order).strides)
    if order != "K":
        assert_close(fnp.reshape(x, -1, order), np.reshape(x, -1, order=order))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_elements_in_the_order_of_rows_or_columns(layout: str, order: Any) -> None:
    x = LAYOUTS[layout]

    def both(x: Any) -> Any:
        y = x * 1.0 if layout == "rows" else x
        return [
            *(z.flatten(order=order) for z in (y, y.T, y[::-1])),
            *(np.ravel(z, order) for z in (y, y.T, y[1:], y[..., ::-1])),
            *(np.reshape(z, -1, order=order) for z in (x, y.T)),
            *(z.flatten("C") for z in (np.copy(y, order), y.T)),
        ]

    expected = both(x)
    for _ in range(2):
        for a, b in zip(func.vjp(both, x)[0], expected, strict=True):
            assert_close(a, b)
    # the same call, traced with an array that lies otherwise
    for other in (x.copy(), np.asfortranarray(x))[: 1 if layout == "rows" else 2]:
        for a, b in zip(func.vjp(both, other)[0], both(other), strict=True):
            assert_close(a, b)
    assert_close(fnp.ravel(x, order), np.ravel(x, order))
    assert_close(fnp.copy(x, order).strides, np.copy(x, order).strides)
    assert_close(fnp.reshape(x, -1, order), np.reshape(x, -1, order=order))


@pytest.mark.parametrize("name", ["ravel", "flatten", "reshape"])
@pytest.mark.parametrize("order", ["A", "K"])
def test_an_order_that_is_not_known(name: str, order: str) -> None:
    def f(x: Any) -> Any:
        if name == "reshape":
            return x.reshape(-1, order=order)
        return x.ravel(order) if name == "ravel" else x.flatten(order)

    if (name, order) == ("reshape", "K"):
        return
    taken = "reshape" if name == "reshape" else "ravel"
    for transformed, x in (
        (lambda x: func.vjp(f, x), M),
        (ftrans.jit(f), M),
        (func.vmap(f), np.stack([M, M])),
        (lambda x: func.vjp(lambda x: f(x @ x), x), np.eye(2)),
    ):
        with pytest.raises(UnsupportedError) as caught:
            transformed(x)
        assert str(caught.value).startswith(
            f"{taken}: order {order!r} is that in which the elements lie in memory, which is not "
            f"known of x.\n  x: f64["
        )
        assert str(caught.value).endswith(
            "\n  Write order='C' for the order of rows, or order='F' for that of columns."
        )
    line = np.arange(3.0)
    assert_close(ftrans.jit(f)(line), line)


def test_a_rule_does_the_same_however_its_argument_lies() -> None:
    class Lines(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.ravel()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct.reshape(2, 3)

    for x in (M, np.asfortranarray(M)):
        assert_close(func.vjp(Lines.apply, x)[0], x.ravel())


def test_whether_a_reshape_is_a_view_follows_the_argument() -> None:
    def f(x: Any) -> Any:
        y = x.ravel()
        y *= 2.0
        z = x.copy(order="C").ravel()
        z *= 3.0
        return x.sum() * 1.0

    for lay in (np.copy, np.asfortranarray, lambda x: np.stack([x, x], 2)[..., 0]):
        assert_close(func.grad_and_value(f)(lay(M))[1], f(lay(M)))
        assert_close(f(lay(M)), 42.0 if lay is np.copy else 21.0)


# --------------------------------------------------------------------------------- what is recorded


def equations(f: Callable[[Any], Any], x: Any) -> list[str]:
    return [e.primitive.name for e in ftrans.trace(f)(x).equations]


def test_a_write_at_an_index_is_recorded_once() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        y[1:] += 1
        y[0] *= 2
        return y

    assert equations(f, X).count("dynamic_update_slice") == 2
    assert equations(f, X).count("slice") == 2


def test_an_operator_records_what_it_would_without_the_write() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        y += 1
        y *= x
        y /= 2
        return y

    assert equations(f, X) == ["add", "mul", "div"]


def test_rows_that_do_not_overlap_are_left_alone() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        rows = [y[i : i + 1] for i in range(4)]
        for row in rows:
            row += 1
        return y

    assert equations(f, X).count("slice") == 4


# --------------------------------------------------------------- functions in functions, and rules


def test_arguments_of_a_transform_are_not_written_back() -> None:
    def f(x: Any) -> Any:
        x += 1
        x[0] = 0
        return (x * x).sum()

    def outer(x: Any) -> Any:
        y = x * 1
        inner = func.grad(f)(y)
        return (inner * y).sum()  # y as it was

    x = X.copy()
    assert_close(func.grad(f)(x), 2 * (X + 1) * [0, 1, 1, 1])
    twice = func.grad(lambda x, y: (x.fill(3.0), (x * y).sum())[1], (0, 1))(x, x)
    assert_close(twice, (np.zeros(4), np.full(4, 3.0)))
    for transform in (ftrans.jit(f), func.vmap(lambda x: f(x[None])), func.hessian(f)):
        transform(x)
    assert_close(x, X)
    expected = 2 * (2 * X + 1) * [0, 1, 1, 1]
    assert_close(func.grad(outer)(x), expected)
    assert_close(ftrans.jit(func.grad(outer))(x), expected)


def test_bodies_write_to_what_is_theirs() -> None:
    def f(x: Any) -> Any:
        def step(carry: Any, item: Any) -> Any:
            local = x.copy()
            view = local[1:]
            view *= item
            carry += local
            carry[0] -= 1
            return carry, view.sum()

        carry, sums = ftrans.scan(step, x * 0, x)
        total = ftrans.fori_loop(0, 3, lambda i, c: operator.iadd(c, x[0]), carry)
        branch = ftrans.cond(x[0] > 0, lambda v: operator.imul(v, v), lambda v: v, total)
        return (branch * x).sum() + sums.sum()

    def plain(x: Any) -> Any:
        carry, sums = x * 0, 0
        for item in x:
            local = x.copy()
            local[1:] *= item
            carry += local
            carry[0] -= 1
            sums += local[1:].sum()
        total = carry + 3 * x[0]
        return (total * total * x).sum() + sums

    slopes = [(plain(X + s) - plain(X - s)) / 2e-6 for s in 1e-6 * np.eye(4)]
    for _ in range(2):
        gradient, value = func.grad_and_value(f)(X)
        assert_close(value, plain(X), 1e-12)
        assert_close(gradient, slopes, 1e-6)
    assert_close(ftrans.jit(func.grad(f))(X), gradient, 1e-10)


def test_a_row_at_a_traced_index() -> None:
    def f(x: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            row = y[i]
            row *= 2
            row[0] += 1
            y[1 - i] += row
            return y

        return (ftrans.fori_loop(0, 2, step, x * 1) ** 2).sum()

    def plain(x: Any) -> Any:
        y = x * 1
        for i in range(2):
            row = y[i]
            row *= 2
            row[0] += 1
            y[1 - i] += row
        return (y**2).sum()

    step = 1e-6 * np.eye(6).reshape(6, 2, 3)
    slopes = np.array([(plain(M + s) - plain(M - s)) / 2e-6 for s in step]).reshape(2, 3)
    assert_close(func.grad(f)(M), slopes, 1e-6)
    assert_close(ftrans.jit(func.grad(f))(M), slopes, 1e-6)


@pytest.mark.parametrize("transform", [func.grad, ftrans.jit, func.vmap])
def test_a_body_cannot_write_outside(transform: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 1
        copied = y.copy()

        def inner(v: Any) -> Any:
            copied[0] += v
            return v * copied[0]

        if transform is func.grad:
            func.grad(inner)(x[0])
            return (copied * y).sum()  # the value is known, and so it is seen
        with pytest.raises(MutationError, match="made outside of"):
            transform(inner)(x if transform is func.vmap else x[0])
        return (copied * y).sum()

    first = 4 if transform is func.grad else 2
    for _ in range(2):
        assert_close(func.grad(f)(X), 2 * X * [first / 2, 1, 1, 1])


def test_a_value_that_outlives_its_function_is_written_to() -> None:
    left: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        left.extend([y, y])
        return y.sum()

    func.grad(f)(X)
    left[0] += 1
    left[1][0] = 0
    assert type(left[0]) is Tracer
    assert_close(left[0], (2 * X + 1) * [0, 1, 1, 1])


def test_leaked_values_are_refused() -> None:
    left: list[Any] = []
    func.vmap(lambda x: left.append(x[None] * 1) or x)(X)
    with pytest.raises(LeakedTracerError):
        left[0] += 1


class Tripled(Function):
    """Writes to its argument, and to what it has saved."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.kept = x[:1]
        x *= 3
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        x *= 0
        x += 3
        x *= ct
        return x


def test_a_rule_that_writes_to_a_view() -> None:
    def f(x: Any, triple: Any) -> Any:
        b = x * 1
        triple(b[:1])
        turned = b[::-1]
        triple(turned)
        return (b * b * x).sum() + turned[0]

    def by_numpy(v: Any) -> None:
        v *= 3

    slopes = [(f(X + s, by_numpy) - f(X - s, by_numpy)) / 2e-6 for s in 1e-6 * np.eye(4)]
    for _ in range(3):
        gradient, value = func.grad_and_value(f)(X, Tripled.apply)
        assert_close(value, f(X, by_numpy), 1e-12)
        assert_close(gradient, slopes, 1e-6)
    assert_close(ftrans.jit(f, static_argnums=1)(X, Tripled.apply), value, 1e-12)
    plain = X.copy()
    Tripled.apply(plain[:1])
    assert_close(plain, X * [3, 1, 1, 1])


def test_rules_may_write_to_what_they_are_given() -> None:
    @ftrans.custom_vjp
    def cube(x: Any) -> Any:
        return x**3

    def bwd(x: Any, ct: Any) -> Any:
        x *= x
        x *= 3
        ct *= x
        return (ct,)

    cube.defvjp(lambda x: (x**3, x), bwd)
    for _ in range(2):
        assert_close(func.grad(lambda x: cube(x).sum())(X), 3 * X**2)
        assert_close(np.diag(func.hessian(lambda x: cube(x).sum())(X)), 6 * X)


# ---------------------------------------------------------------------------------------- compiled

MOVED = {
    "reversed": "b[0] = b[0, ::-1]",
    "rolled": "b[0] = np.roll(b[0], 1)",
    "gathered": "b[0] = b[0, [5, 4, 3, 2, 1, 0]]",
    "shifted": "b[0] = b[0] + np.concatenate([np.zeros(1), b[0, :5]])",
    "transposed": "b[:2, :2] = b[:2, :2].T",
    "permuted": "b[:2] = b[[1, 0]]",
    "reshaped": "b[:2] = b[:2].reshape(6, 2).T",
    "in a loop": "for row in b:\n    row[...] = row[::-1]",
    "centred": "b[0] -= b[0].sum()",
    "added": "b[1:] += b[:-1]",
    "copied down": "b[1:] = b[:-1]",
    "swapped": "b[:1], b[1:2] = b[1:2].copy(), b[:1].copy()",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVED)
def test_what_is_written_where_it_is_read(name: str) -> None:
    """XLA's CPU compiler overwrites in place, before it has read what has moved."""
    names: dict[str, Any] = {"np": np}
    body = textwrap.indent(MOVED[name], "    ")
    exec(f"def f(x):\n    b = (x * 2 / 2 + x * 0).reshape(3, 6)\n{body}\n    return b", names)
    f, x = names["f"], np.arange(18.0)
    expected = f(x.copy())
    assert_close(ftrans.jit(f)(x), expected)
    assert_close(ftrans.jit(func.vmap(f))(np.stack([x, -x]))[0], expected)
    jacobian = np.stack([f(row) for row in np.eye(18)], -1)  # all of them are linear
    assert_close(ftrans.jit(func.jacrev(f))(x), jacobian)
    assert_close(ftrans.jit(func.jacfwd(f))(x), jacobian)


# -------------------------------------------------------------------- what is created while tracing


@pytest.mark.parametrize(
    "create",
    [
        lambda: fnp.zeros(4, "float64"),
        lambda: fnp.ones(4, float),
        lambda: fnp.empty(4, float),
        lambda: fnp.full(4, X),
        lambda: fnp.array(X),
        lambda: fnp.asarray(X.copy()),  # outside it is the array itself
        lambda: fnp.copy(X),
        lambda: fnp.zeros_like(X),
        lambda: fnp.full_like(X, X),
        lambda: fnp.arange(4, dtype=float),
        lambda: fnp.eye(4, dtype=float)[1],
    ],
)
def test_what_a_traced_function_creates_can_be_written_to(create: Callable[[], Any]) -> None:
    def f(x: Any) -> Any:
        total = create()
        total += x**2
        total[1:] *= x[0]
        return (total * x).sum()

    before = X.copy()
    check(f)
    assert_close(X, before)
    assert isinstance(create(), np.ndarray)  # outside it is a plain array, which is written to


def test_a_sum_that_begins_with_zeros_in_a_loop_and_in_a_nested_function() -> None:
    def norms(rows: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            total = fnp.zeros((), row.dtype)
            total = total + (row**2).sum()
            parts = fnp.zeros(3, row.dtype)
            parts += row
            return carry + total * parts.sum(), None

        return ftrans.scan(step, np.zeros(()), rows)[0]

    slopes = 2 * M * M.sum(1, keepdims=True) + (M**2).sum(1, keepdims=True)
    assert_close(func.grad(norms)(M), slopes, 1e-12)

    def outer(x: Any) -> Any:
        total = fnp.zeros(4, x.dtype)

        def inner(y: Any) -> Any:
            part = fnp.zeros(4, y.dtype)
            part += y**3
            return part.sum()

        total += func.grad(inner)(x)
        return total.sum()

    assert_close(func.grad(outer)(X), 6 * X, 1e-12)
