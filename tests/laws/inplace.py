"""Random programs that write in place, to be run by NumPy on plain arrays and by ftrans.

A program is the source of a function of a vector and of flags. Where a flag is set, one name more
is a copy: so the same equations are recorded with other relations between names. Results of
arithmetic are laid out in the order of rows (`C`), as NumPy itself does where the operands are.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

SIZE = 12
FLAGS = 2


class Holder:
    """Has attributes."""


def _add(q: Any, v: Any) -> None:
    q += v


def _scale(q: Any, v: Any) -> Any:
    q[...] = q * v
    return q


class Writer:
    """Writes one program, running it on plain arrays as it goes: so it knows every shape."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.flags = 0
        x = np.linspace(0.3, 1.7, SIZE) + 0.01 * np.cos(np.arange(SIZE) + seed)
        self.names: dict[str, Any] = namespace(lambda a: a.copy())
        self.names |= {"x": x, "flags": (False,) * FLAGS}
        self.arrays: list[str] = []
        self.scalars: list[str] = []
        self.write("a0 = C(x * 1.1)")
        self.arrays.append("a0")
        shape = self.pick([(3, 4), (4, 3), (2, 6), (2, 2, 3), (3, 2, 2)])
        self.write(f"a1 = C(np.sin(x).reshape({shape}))")
        self.arrays.append("a1")
        self.count = 2
        kinds = [self.view] * 5 + [self.store] * 7 + [self.fresh, self.alias, self.loop, self.drop]
        for _ in range(self.random.randrange(4, 14)):
            self.pick(kinds)()
        total = " + ".join(
            f"({1 + 0.3 * i:.1f} * {name} * {name}).sum()" for i, name in enumerate(self.arrays)
        )
        for name in self.scalars:
            total += f" + 0.7 * {name}"
        self.lines.append(f"return {total} + (x * x).sum()")

    @property
    def source(self) -> str:
        return "def f(x, flags):\n" + "".join(
            f"    {line}\n" for text in self.lines for line in text.split("\n")
        )

    def pick(self, options: Any) -> Any:
        return self.random.choice(list(options))

    def write(self, text: str) -> None:
        exec(text, self.names)
        self.lines.append(text)

    def name(self) -> str:
        self.count += 1
        return f"a{self.count}"

    def array(self, ndim: int = 1) -> tuple[str, tuple[int, ...]] | None:
        names = [n for n in self.arrays if self.names[n].ndim >= ndim]
        if not names:
            return None
        name = self.pick(names)
        return name, self.names[name].shape

    # ------------------------------------------------------------------------------ statements

    def index(self, shape: tuple[int, ...]) -> str:
        """Returns a plain index that selects something."""
        items = []
        for size in shape[: self.random.randrange(1, len(shape) + 1)]:
            kind = self.random.random()
            if kind < 0.25 and len(shape) > 1:
                items.append(str(self.random.randrange(-size, size)))
            elif kind < 0.4:
                items.append("::-1")
            elif kind < 0.55:
                items.append(f"{self.random.randrange(2)}::2" if size > 1 else ":")
            elif kind < 0.7:
                items.append(":")
            else:
                start = self.random.randrange(size)
                items.append(f"{start}:{self.random.randrange(start + 1, size + 1)}")
        if len(items) == len(shape) and all(i.lstrip("-").isdigit() for i in items):
            items[0] = ":"
        if self.random.random() < 0.1:
            items.insert(self.random.randrange(len(items) + 1), "None")
        if self.random.random() < 0.1 and len(items) < len(shape):
            items.append("...")
        return ", ".join(items)

    def value(self, shape: tuple[int, ...]) -> str:
        """Returns an expression that broadcasts to a shape, bounded so that nothing explodes."""
        options = [f"{self.random.uniform(-1, 1):.2f}", f"np.cos(x[{self.random.randrange(SIZE)}])"]
        for name in self.arrays:
            other = self.names[name].shape
            if other == shape:
                options += [f"np.sin({name})", name, f"{name}[::-1]"] * 2
            elif other and other == shape[len(shape) - len(other) :]:
                options.append(f"np.tanh({name})")
            elif other[::-1] == shape:
                options += [f"{name}.T", f"np.cos({name}.T)"]
        count = int(np.prod(shape))
        if count <= SIZE:
            options.append(f"np.sin(x[:{count}]).reshape({shape})")
        return self.pick(options)

    def view(self) -> None:
        found = self.array()
        if found is None:
            return
        base, shape = found
        size, ndim = int(np.prod(shape)), len(shape)
        options = [f"{base}[{self.index(shape)}]"] * 4
        options += [f"{base}.reshape(-1)", f"{base}.ravel()", f"{base}.T", f"{base}[None]"]
        options += [f"np.flip({base})", f"{base}[:]", f"{base}.squeeze()", f"np.ravel({base})"]
        for n in (2, 3, 4):
            if size % n == 0:
                options.append(f"{base}.reshape({n}, {size // n})")
        if ndim > 1:
            options += [f"{base}.swapaxes(0, 1)", f"np.moveaxis({base}, 0, -1)"]
            options += [f"np.split({base}, {shape[0]})[-1]", f"np.rot90({base})"]
            options += [f"{base}[{self.random.randrange(shape[0])}]", f"np.transpose({base})"]
        made = self.pick(options)
        name = self.name()
        if self.flags < FLAGS and self.random.random() < 0.3:
            self.write(f"{name} = {made}.copy() if flags[{self.flags}] else {made}")
            self.flags += 1
        else:
            self.write(f"{name} = {made}")
        self.arrays.append(name)

    def store(self) -> None:
        found = self.array()
        if found is None:
            return
        name, shape = found
        index = self.index(shape)
        part = self.names[name][eval(f"np.s_[{index}]", self.names)].shape
        value, inner = self.value(shape), self.value(part)
        sign = self.pick(["+=", "-=", "*=", "+=", "*="])
        size = int(np.prod(shape))
        places = [self.random.randrange(shape[0]) for _ in range(2)]
        options = [f"{name} {sign} {value}"] * 4 + [f"{name}[{index}] = {inner}"] * 4
        options += [f"{name}[{index}] {sign} {inner}"] * 3
        options += [
            f"{name} /= 1.5 + np.cos({value})",
            f"{name} **= 2\n{name} *= 0.5",
            f"{name}.fill({self.random.uniform(-1, 1):.2f})",
            f"np.add.at({name}, {places}, 0.3)",
            f"np.multiply.at({name}, {places}, np.cos(x[0]))",
            f"np.multiply({name}, {value}, out={name})",
            f"np.sin({name}, out={name})",
            f"np.add({name}[{index}], {inner}, out={name}[{index}])",
            f"np.copyto({name}, {value}, where=np.arange({size}).reshape({shape}) % 3 == 1)",
            f"np.put({name}, [0, {self.random.randrange(size)}], [x[1], x[2]])",
            f"np.putmask({name}, np.arange({size}).reshape({shape}) % 2 == 0, np.sin(x[:2]))",
            f"{name}[{places}] = {self.random.uniform(-1, 1):.2f} * x[3]",
            f"{name}[np.arange({shape[0]}) % 2 == 0] *= 0.8",
            f"{name}.sort()",
            f"add({name}, 0.2)",
            f"scale({name}, 0.9)",
            f"h = Holder()\nh.kept = {name}\nh.kept {sign} 0.6\nh.kept[{index}] += 0.1",
            f"kept = [{name}]\nkept[0] {sign} {value}",
        ]
        if shape[0] > 1:
            half = shape[0] // 2
            low, high = f"{name}[:{half}]", f"{name}[{half}:{2 * half}]"
            options += [
                f"{low}, {high} = {high}, {low}",
                f"{low}, {high} = {high}.copy(), {low}.copy()",
                f"{name}[1:] = {name}[:-1]",
                f"{name}[:-1] += {name}[1:]",
                f"{name}[0], {name}[1] = {name}[1], {name}[0]",
            ]
        if len(shape) == 2:
            options.append(f"np.fill_diagonal({name}, 0.4)")
        self.write(self.pick(options))

    def fresh(self) -> None:
        found = self.array()
        if found is None:
            return
        name, shape = found
        new = self.name()
        options = [
            f"C({name} * 0.7)",
            f"{name}.copy()",
            f"C({name}[[0, -1]])",
            f"C(np.tanh({name}))",
        ]
        options += [f"C(np.concatenate([{name}]))", f"C({name}[np.arange({shape[0]}) > 0])"]
        if len(shape) == 1:
            self.write(f"s{new} = {name}[0]\ns{new} += 0.5\ns{new} *= x[1]")
            self.scalars.append(f"s{new}")
        self.write(f"{new} = {self.pick(options)}")
        if self.names[new].size:
            self.arrays.append(new)

    def alias(self) -> None:
        found = self.array()
        if found is not None:
            new = self.name()
            self.write(f"{new} = {found[0]}")
            self.arrays.append(new)

    def loop(self) -> None:
        found = self.array(2)
        if found is None:
            return
        name, _ = found
        over = self.pick([name, f"{name}.T", f"{name}[::-1]"])
        options = [
            "row *= 0.7 + 0.1 * i",
            "row[0] += x[i]",
            "row -= row.sum() * 0.1",
            "row[:] = x[i]",
        ]
        options += ["row[...] = row[::-1]", "row += seen\nseen = row"]
        body = self.pick(options).replace("\n", "\n    ")
        self.write(f"seen = 0.1\nfor i, row in enumerate({over}):\n    {body}")

    def drop(self) -> None:
        if len(self.arrays) > 2:
            name = self.pick(self.arrays[1:])
            self.arrays.remove(name)
            self.write(f"del {name}")


def namespace(laid_out: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns what programs refer to; `laid_out` puts a result in the order of rows."""
    return {
        "np": np,
        "C": laid_out,
        "Holder": Holder,
        "add": _add,
        "scale": _scale,
        "__name__": "written_in_place",
    }


def program(seed: int) -> tuple[str, Any, Any, np.ndarray]:
    """Returns the source of a program, it for plain arrays, for traced values, and a point."""
    with np.errstate(all="ignore"):
        writer = Writer(seed)
    functions = []
    for laid_out in (lambda a: a.copy(), lambda a: a):
        names = namespace(laid_out)
        exec(compile(writer.source, f"<program {seed}>", "exec"), names)
        functions.append(names["f"])
    return writer.source, functions[0], functions[1], writer.names["x"]
