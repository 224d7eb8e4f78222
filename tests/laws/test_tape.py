"""Tensors mean what traced values mean: random programs, by value and by gradient.

The same source runs on plain arrays by NumPy, on traced values by `func.grad`, and on tensors,
which go backward in several ways; and on the tensors of PyTorch, where that is installed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans.autograd import graph
from tests.helpers import sampled

PROGRAMS = 200
"""By hand: `python -m tests.laws.test_tape 2000`."""

POINT = (
    np.array([0.3, -0.7, 1.1, 0.4]),
    np.array([0.9, 0.2, -0.5, 1.3]),
    np.array([[0.2, 0.6], [-0.4, 0.8]]),
)
VIEWS = {
    (4,): [("[1:3]", (2,)), ("[::2]", (2,)), (".reshape(2, 2)", (2, 2)), ("[:]", (4,))],
    (2, 2): [(".T", (2, 2)), ("[1]", (2,)), ("[:, 0]", (2,)), (".reshape(4)", (4,))],
    (2,): [("[:]", (2,)), ("[1:]", (1,))],
    (1,): [("[:]", (1,))],
}
PLACES = {
    (4,): ["1:3", "0", "2:", "[0, 3]", "::2"],
    (2, 2): ["0", "1, 1", ":, 1"],
    (2,): ["0", "1:"],
    (1,): ["0"],
}


class Writer:
    """Writes one program."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.shapes: dict[str, tuple[int, ...]] = {"p": (4,), "q": (4,), "m": (2, 2)}
        self.lines = ["p, q, m = p * 1.0, q * 1.0, m * 1.0"]
        kinds = [self.unary, self.binary, self.binary, self.view, self.view, self.write, self.write]
        kinds += [
            self.store,
            self.store,
            self.quietly,
            self.look,
            self.constant,
            self.detached,
            self.hooked,
        ]
        for _ in range(self.random.randrange(4, 16)):
            self.pick(kinds)()
        terms = [f"({name} * {0.5 + 0.13 * i:.2f}).sum()" for i, name in enumerate(self.shapes)]
        half = len(terms) // 2
        self.lines.append(f"first = {' + '.join(terms[:half])}")
        self.lines.append(f"rest = {' + '.join(terms[half:])} + p.sum()")
        self.lines.append("return first, rest")

    @property
    def source(self) -> str:
        return "def f(p, q, m):\n" + "".join(f"    {line}\n" for line in self.lines)

    def pick(self, options: Any) -> Any:
        return self.random.choice(list(options))

    def like(self, name: str) -> str:
        return self.pick([n for n, shape in self.shapes.items() if shape == self.shapes[name]])

    def new(self, text: str, shape: tuple[int, ...]) -> None:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.shapes[name] = shape

    def unary(self) -> None:
        a = self.pick(self.shapes)
        self.new(f"{self.pick(['sin', 'tanh', 'exp', 'cos'])}({a} * 0.3)", self.shapes[a])

    def binary(self) -> None:
        a = self.pick(self.shapes)
        self.new(f"{a} {self.pick('+-*')} {self.like(a)}", self.shapes[a])

    def view(self) -> None:
        a = self.pick(self.shapes)
        index, shape = self.pick(VIEWS[self.shapes[a]])
        self.new(a + index, shape)

    def write(self) -> None:
        a = self.pick(self.shapes)
        b = self.like(a)
        self.lines.append(
            f"{a} {self.pick(['+=', '*=', '-='])} {self.pick([b, '0.5', f'{b} * 0.1'])}"
        )

    def quietly(self) -> None:
        self.lines.append("with no_grad():")
        self.write()
        self.lines[-1] = f"    {self.lines[-1]}"

    def store(self) -> None:
        a = self.pick(self.shapes)
        value = self.pick(["0.7", "p.sum() * 0.1", "q.sum()"])
        self.lines.append(f"{a}[{self.pick(PLACES[self.shapes[a]])}] = {value}")

    def look(self) -> None:
        self.lines.append(f"look({self.pick(self.shapes)})")

    def constant(self) -> None:
        a = self.pick(self.shapes)
        self.lines.append("with no_grad():")
        self.new(f"{a} * {self.like(a)}", self.shapes[a])
        self.lines[-1] = f"    {self.lines[-1]}"

    def detached(self) -> None:
        a = self.pick(self.shapes)
        self.new(f"detach({a}) * {self.like(a)}", self.shapes[a])

    def hooked(self) -> None:
        a = self.pick(self.shapes)
        self.new(f"doubled({a} * 1.0)", self.shapes[a])


@ftrans.custom_vjp
def _doubled(x: Any) -> Any:
    return x * 1.0


_doubled.defvjp(lambda x: (x * 1.0, None), lambda _, ct: (2.0 * ct,))


def _hooked(x: Any) -> Any:
    if x.requires_grad:
        x.register_hook(lambda g: g * 2.0)
    return x


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def _functions(of: Any) -> dict[str, Any]:
    return {name: getattr(of, name) for name in ("sin", "tanh", "exp", "cos")}


WORLDS: dict[str, dict[str, Any]] = {
    "NumPy": {
        **_functions(np),
        "look": np.sum,
        "no_grad": _Nothing,
        "detach": lambda a: a,
        "doubled": lambda a: a,
    },
    "traced": {
        **_functions(np),
        "look": lambda a: float(a.detach().sum()),
        "no_grad": ftrans.no_grad,
        "detach": lambda a: a.detach(),
        "doubled": _doubled,
    },
    "tensors": {
        **_functions(ftrans.numpy),
        "look": lambda a: a.sum().item(),
        "no_grad": ftrans.no_grad,
        "detach": lambda a: a.detach(),
        "doubled": _hooked,
    },
}


def _together(first: Any, rest: Any) -> None:
    (first + rest).backward()


def _looked_at(first: Any, rest: Any) -> None:
    loss = first + rest
    assert isinstance(loss.item(), float)
    loss.backward()


def _apart(first: Any, rest: Any) -> None:
    first.backward(retain_graph=True)
    rest.backward()


def _again(first: Any, rest: Any) -> None:
    first.backward(retain_graph=True)
    ftrans.autograd.backward([rest, first], [ftrans.tensor(1.0), ftrans.tensor(0.0)])


def _by_nodes(first: Any, rest: Any) -> None:
    """Has all nodes run one by one, with hooks that double what comes and halve what goes."""
    loss = first + rest
    pending, seen = [loss.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        pending += [behind for behind, _ in node.next_functions]
        if node.next_functions:
            node.register_prehook(lambda gs: tuple(g if g is None else g * 2.0 for g in gs))
            node.register_hook(lambda gs, _: tuple(g if g is None else g * 0.5 for g in gs))
    loss.backward()


WAYS: list[Callable[[Any, Any], None]] = [_together, _looked_at, _apart, _again]


def _packed() -> Any:
    return graph.saved_tensors_hooks(lambda x: x.numpy().copy(), ftrans.tensor)


BLOCKS: list[tuple[Callable[[], Any], Callable[[Any, Any], None]]] = [
    *[(_Nothing, way) for way in WAYS * 2],
    (_Nothing, _by_nodes),
    *[(_packed, way) for way in (_together, _looked_at, _apart, _again, _by_nodes)],
]
"""In which block a program is run, and how it goes backward."""


def made(source: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Returns the function that a program is, in a world of these names."""
    space = dict(names)
    exec(compile(source, "<random program>", "exec"), space)
    return space["f"]  # type: ignore[no-any-return]


def check_program(seed: int) -> None:
    source = Writer(seed).source
    run = {world: made(source, names) for world, names in WORLDS.items()}
    with np.errstate(all="ignore"):
        values = run["NumPy"](*POINT)
    if not np.isfinite(sum(values)) or abs(sum(values)) > 1e8:
        return
    expected = func.grad(lambda *xs: sum(run["traced"](*xs)), argnums=(0, 1, 2))(*POINT)
    for block, way in BLOCKS:
        leaves = [ftrans.tensor(x, requires_grad=True) for x in POINT]
        with block():
            found = run["tensors"](*leaves)
        way(*found)
        for x, y in zip(found, values, strict=True):
            np.testing.assert_allclose(x.item(), y, rtol=1e-9, err_msg=f"{seed}\n{source}")
        for leaf, gradient in zip(leaves, expected, strict=True):
            grad = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad
            what = f"{seed}: {block.__name__} {way.__name__}\n{source}"
            np.testing.assert_allclose(grad, gradient, rtol=1e-8, atol=1e-9, err_msg=what)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("part", sampled(range(10), 3))
def test_programs_on_tensors(part: int) -> None:
    each = PROGRAMS // 10
    for seed in range(part * each, (part + 1) * each):
        check_program(seed)


def compare_with(torch: Any, seed: int) -> bool:
    """Compares a program on our tensors with itself on those of another; False if that refuses."""
    source = Writer(seed).source
    names = {"no_grad": torch.no_grad, "detach": lambda a: a.detach(), "doubled": _hooked}
    theirs = made(source, {**_functions(torch), "look": lambda a: a.sum().item(), **names})
    found = []
    for function, tensor in [
        (made(source, WORLDS["tensors"]), ftrans.tensor),
        (theirs, torch.tensor),
    ]:
        leaves = [tensor(x, requires_grad=True) for x in POINT]
        try:
            first, rest = function(*leaves)
            first.backward(retain_graph=True)
            (first * 0.5 + rest).backward()
        except RuntimeError as error:
            # it was saved, and written to since; or it overlaps itself
            if tensor is torch.tensor and re.search("inplace op|memory location", str(error)):
                return False
            raise
        grads = [x.grad if x.grad is None else np.asarray(x.grad.detach()) for x in leaves]
        found.append([first.item(), rest.item(), *grads])
    for ours, other in zip(*found, strict=True):
        assert (ours is None) == (other is None), f"{seed}\n{source}"
        if ours is not None:
            np.testing.assert_allclose(
                ours, other, rtol=1e-8, atol=1e-9, err_msg=f"{seed}\n{source}"
            )
    return True


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["torch", "ftrans.torch"])
def test_programs_on_tensors_of_pytorch(name: str) -> None:
    """Written for PyTorch they run there, and here, with one import changed."""
    torch = pytest.importorskip(name, reason="PyTorch is not among the requirements")
    compared = [compare_with(torch, seed) for seed in range(60)]
    assert sum(compared) > 30


if __name__ == "__main__":
    import sys

    for number in range(int(sys.argv[1])):
        check_program(number)
        if number % 250 == 0:
            print(number, flush=True)
