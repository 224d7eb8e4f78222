"""`func.residuals`, and what `vjp` and `linearize` tell of their own: what is kept, and why."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from tests.helpers import assert_close

W, X = np.eye(3), np.ones((50, 3))
PARAMS = {"w": W, "n": 2, "b": np.zeros(3)}


def product(x: Any) -> Any:
    y = fnp.sin(x)
    z: Any = fnp.exp(x)
    return (y @ z).sum()


def loss(params: Any, x: Any, scale: float) -> Any:
    h = fnp.tanh(x @ params["w"] + params["b"])
    for _ in range(params["n"]):
        h = fnp.exp(h) * scale
    return (h**2).mean()


def test_it_tells_name_type_bytes_line_and_reason() -> None:
    table = func.residuals(loss, (0, 1))({"w": W, "b": PARAMS["b"], "n": 0}, X, 2.0)
    rows = {(row.name, str(row.type), row.line and row.line.source) for row in table}
    assert ("params['w']", "f64[3,3]", None) in rows
    assert ("x", "f64[50,3]", None) in rows
    assert ("slope", "f64[50,3]", "return (h**2).mean()") in rows
    assert [row.nbytes for row in table] == sorted([row.nbytes for row in table], reverse=True)
    assert table.nbytes == sum(row.nbytes for row in table)
    line = loss.__code__.co_firstlineno + 1
    whys = {row.name: row.why for row in table}
    assert whys["x"] == whys["params['w']"] == f"dot at line {line}"
    first = product.__code__.co_firstlineno
    found = {(row.name, row.line.line - first, row.why) for row in func.residuals(product)(W)}
    assert found >= {(n, i, f"dot at line {first + 3}") for i, n in ((1, "y"), (2, "z"))}


def test_what_is_not_differentiated_has_its_name_too() -> None:
    names = [row.name for row in func.residuals(loss)(PARAMS, X, 2.0)]
    assert "params['w']" in names
    only = [row.name for row in func.residuals(loss, 0)(PARAMS, X, 2.0)]
    assert "x" in only
    closed = [row.name for row in func.residuals(lambda w: (X @ w).sum() ** 2)(W)]
    assert "captured" in closed


def test_what_is_kept_inside_of_loops_and_parts_has_its_own_name_and_line() -> None:
    saves = func.checkpoint_policies.save_only_these_names("square")

    def layer(x: Any) -> Any:
        h: Any = func.checkpoint_name(x * x, "square")
        return fnp.sin(h) * fnp.exp(h)

    def step(c: Any, _: Any) -> Any:
        s = fnp.exp(c @ W)
        return s @ s.T @ c, None

    def part(x: Any) -> Any:
        e: Any = fnp.exp(x)
        return e @ e.T

    mesh, spec = jax.make_mesh((1,), ("d",)), jax.sharding.PartitionSpec("d")
    looped = lambda x: ftrans.scan(step, x, None, length=2)[0]  # noqa: E731
    for function, inner, kept in (
        (func.checkpoint(layer, policy=saves), layer, "h"),
        (looped, step, "s"),
        (ftrans.shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec), part, "e"),
    ):
        line = inner.__code__.co_firstlineno + 1
        made = func.residuals(lambda x, f=function: f(x).sum())(W)
        found = [(row.name, row.line and row.line.line) for row in made]
        assert (kept, line) in found


def test_what_a_loop_carries_is_made_where_a_step_makes_it() -> None:
    def step(c: Any, _: Any) -> Any:
        a, b, _ = c
        s: Any = fnp.sin(b)
        p: Any = a * b
        return (p, s, a), None  # the last is carried on from the first

    def turn(_: Any, c: Any) -> Any:
        d: Any = c @ c
        return d

    table = func.residuals(
        lambda x: (
            sum(ftrans.scan(step, (x, x, x), None, length=4)[0]).sum()
            + ftrans.fori_loop(0, 3, turn, x).sum()
        )
    )(W)
    first, last = step.__code__.co_firstlineno, turn.__code__.co_firstlineno
    found = {(row.name, row.line and row.line.line) for row in table}
    assert found >= {("s", first + 2), ("p", first + 3), ("d", last + 1)}
    assert "scan" not in {name for name, _ in found}


def test_derivatives_tell_their_own() -> None:
    for transform in (func.vjp, func.linearize):
        _, derivative = transform(lambda p: loss(p, X, 2.0), PARAMS)
        assert derivative.saved.nbytes == derivative.nbytes
        assert sorted(r.nbytes for r in derivative.saved) == sorted(
            x.nbytes for x in derivative.residuals
        )
        again = jax.tree.map(lambda x: x, derivative)
        assert str(again.saved) == str(derivative.saved)
    _, pullback = func.vjp(lambda x, n: x * n, X, 3)
    assert pullback.saved == ()
    assert_close(pullback(X)[0], 3 * X)


def test_it_prints_as_a_table() -> None:
    table = func.residuals(lambda x: fnp.sin(x).sum())(np.ones(500))
    head, row, total = str(table).splitlines()
    assert head.split() == ["bytes", "name", "type", "made", "at", "needed", "by"]
    assert row.startswith("4 kB ")
    assert "f64[500]" in row
    assert "sum at line" in row
    assert total.split() == ["4", "kB", "total"]
    markup = table._repr_html_()
    assert markup.count("<tr>") == 3
    assert "&lt;lambda&gt;" in markup
    assert str(func.residuals(lambda x: 3 * x)(X)).splitlines()[1].split() == ["0", "B", "total"]


def test_checkpoints_are_seen() -> None:
    kept = func.residuals(func.checkpoint(lambda w, x: loss({**PARAMS, "w": w}, x, 2.0)))(W, X)
    assert {row.name for row in kept} == {"w", "x", "captured"}
    assert all("checkpoint at line" in row.why for row in kept)
    assert kept.nbytes < func.residuals(loss)(PARAMS, X, 2.0).nbytes
