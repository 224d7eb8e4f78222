"""The public base for interpreters of one's own: rules by primitive or by class tag.

A value of an interpreter is whatever its rules make of it: an interval, a count, an array. The base
goes through the program that `trace` shows, looks up rules, and descends into `call`, `switch`,
`scan` and `while`. Rules that work with traced values make results that can be transformed again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax.tree_util as tree
import numpy as np

from ftrans.errors import ArgumentError, ConcretizationError, FtransError, MissingRuleError
from ftrans.func.trace import stage_call
from ftrans.interpreters import inline, simplify
from ftrans.interpreters.base import memoised, walk
from ftrans.ir import ArrayType, Equation, Literal, Location, Params, Program, Tracer, bind
from ftrans.numpy.promotion import is_array, is_scalar
from ftrans.primitives import (
    broadcast_p,
    call_p,
    checkpoint_p,
    concatenate_p,
    custom_p,
    registry,
    reshape_p,
    scan_p,
    slice_p,
    switch_p,
    while_p,
)
from ftrans.primitives.record import Cost, Primitive, scalar

F = TypeVar("F", bound=Callable[..., Any])


class Operation(NamedTuple):
    """Is one application of a primitive, as rules see it.

    Attributes:
        primitive: the primitive.
        params: its static part.
        inputs: the types of the operands.
        outputs: the types of the results.
        location: the line of the user that it comes from, or None.
    """

    primitive: Primitive
    params: Params
    inputs: tuple[ArrayType, ...]
    outputs: tuple[ArrayType, ...]
    location: Location | None

    @property
    def name(self) -> str:
        """The name of the primitive."""
        return self.primitive.name

    @property
    def cost(self) -> Cost:
        """The floating-point operations and the bytes moved."""
        return self.primitive.cost(self.inputs, self.outputs, self.params)

    def evaluate(self, *values: Any) -> Any:
        """Applies the primitive to arrays, traced values and Python scalars.

        Returns:
            The result, or the list of results where there are several. It is traced where
            something traces.
        """
        operands = list(map(self._operand, values, self.inputs))
        found = bind(self.primitive, operands, self.params)
        return list(found) if self.primitive.multiple else found[0]

    def _operand(self, value: Any, declared: ArrayType) -> Any:
        """Returns a value as a strict operand: where a constant stood, it may have rank zero."""
        if is_scalar(value):
            return scalar(value, declared.dtype)
        if not declared.weak or value.shape:
            return value
        if not isinstance(value, Tracer):
            return scalar(value.item(), declared.dtype)
        shape = self.outputs[0].shape if "elementwise" in self.primitive.tags else ()
        return broadcast_p(value, shape=shape, axes=()) if shape else value


@memoised
def _operations(program: Program) -> list[Operation]:
    return [
        Operation(
            e.primitive, e.params, tuple(program.type_of(a) for a in e.operands), e.types, location
        )
        for e, location in zip(program.equations, program.locations, strict=True)
    ]


def _is_typed(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _is_value(x: Any) -> bool:
    """Tells whether an argument is a value of an interpretation, and no array."""
    return _is_typed(x) and not is_array(x)


class Interpreter:
    """Interprets programs by rules that a subclass registers.

    Override what the interpretation needs of `lift`, `default`, `known`, `join`, `widen` and
    `same`; the rest has a meaning already.

    A `switch` whose index is known runs one branch, else all. A `scan` is taken step by step, its
    elements sliced and its results stacked by the rules of the primitives that do so. A `while` is
    taken step by step for as long as its condition is known, and then to a fixpoint. To treat one
    otherwise, register a rule for it; the rule can call `descend` to get what is described here.

    Example:
        >>> import numpy as np, ftrans, ftrans.numpy as fnp
        >>> class Depth(ftrans.Interpreter):
        ...     def lift(self, value):
        ...         return 0
        ...
        ...     def default(self, operation, *depths):
        ...         return 1 + max(depths, default=0)
        >>> Depth()(lambda x: fnp.sin(x) * fnp.cos(x) + x)(np.ones(3))
        3
        >>> @Depth.rule("structural")
        ... def _(self, operation, *depths):  # moving data about is free
        ...     return max(depths, default=0)
        >>> Depth()(lambda x: fnp.sin(x).reshape(3, 1))(np.ones(3))
        1
    """

    patience: ClassVar[int] = 20
    max_fixpoint_steps: ClassVar[int] = 1000
    _rules: ClassVar[dict[Any, Callable[..., Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._rules = {}
        for function in list(vars(cls).values()):
            if keys := getattr(function, "_rule_keys", ()):
                cls._register(keys, function)

    @classmethod
    def rule(cls, *keys: Any) -> Callable[[F], F]:
        """Registers `(self, operation, *values) -> value` for primitives or class tags.

        In the body of the class write `@ftrans.Interpreter.rule(...)`, and give each rule a name of
        its own; later, from anywhere, `@TheClass.rule(...)`. For a primitive of several results the
        rule returns a list with one value for each, or something else, which then stands for each.

        Args:
            keys: primitives, names of primitives such as "sin", or class tags such as
                "elementwise", "linear", "structural", "reduction", "contraction", "cumulative",
                "control". The rules of a subclass come before those of its base; then one for the
                primitive before one for a tag; then, of two tags, the one registered last.

        Raises:
            ValueError: for a name that is neither.
        """
        tags = {tag for primitive in registry.values() for tag in primitive.tags}
        resolved = []
        for key in keys:
            if isinstance(key, Primitive) or (key in tags and key not in registry):
                resolved.append(key)
            elif key in registry:
                resolved.append(registry[key])
            else:
                raise ArgumentError(
                    f"{cls.__name__}.rule: no primitive or tag is called {key!r}.\n"
                    f"  The tags are {', '.join(sorted(tags))}; "
                    f"the primitives, print(list(ftrans.primitives.registry))."
                )

        def register(function: F) -> F:
            if cls is Interpreter:
                function._rule_keys = resolved  # type: ignore[attr-defined]
            else:
                cls._register(resolved, function)
            return function

        return register

    @classmethod
    def _register(cls, keys: Sequence[Any], function: Callable[..., Any]) -> None:
        for key in keys:
            cls._rules.pop(key, None)  # the last one registered is the last in the dict
            cls._rules[key] = function

    def lift(self, value: Any) -> Any:
        """Returns the value of an argument (an array) or a constant (a NumPy scalar): itself."""
        return value

    def default(self, operation: Operation, *values: Any) -> Any:
        """Returns the value of a result that no rule gives; raises `MissingRuleError`."""
        name = type(self).__name__
        raise MissingRuleError(
            f"{name}: there is no rule for {operation.name}.\n"
            f"  at {operation.location or 'an unknown place'}\n"
            f"  Register one, @{name}.rule({operation.name!r}), or override {name}.default."
        )

    def known(self, value: Any) -> Any:
        """Returns the concrete value of a branch's index or a loop's condition; None if unknown.

        A traced value that has no number, as under `vmap`, counts as None, and so does all here.
        """
        return None

    def join(self, x: Any, y: Any) -> Any:
        """Returns one value for two that are possible, as no branch or number of steps is known."""
        raise NotImplementedError

    def widen(self, x: Any, y: Any) -> Any:
        """Is `join` for a loop that has not settled after `patience` steps, so that it does."""
        return self.join(x, y)

    def same(self, x: Any, y: Any) -> bool:
        """Tells whether a loop's value has stopped changing: pytrees are compared leaf by leaf."""
        equal = tree.tree_map(lambda a, b: bool(np.all(a == b)), x, y)
        return all(tree.tree_leaves(equal))

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that traces `func` and interprets the program that `trace` shows.

        Arguments that are arrays are lifted, and so is what `func` captures. Anything else with a
        `shape` and a `dtype` is a value of the interpretation already, a pytree or not. It stands
        for an array of which no more is known, so that Python cannot branch on it. The result has
        the structure of that of `func`.
        """

        @functools.wraps(func)
        def interpreted(*args: Any, **kwargs: Any) -> Any:
            leaves, structure = tree.tree_flatten((args, kwargs), is_leaf=_is_typed)
            given = [x for x in leaves if _is_typed(x) or is_scalar(x)]
            typed = [ArrayType(x.shape, x.dtype) if _is_value(x) else x for x in leaves]
            staged, arrays = stage_call(func, *tree.tree_unflatten(structure, typed))
            lifted = map(self.lift, arrays)
            values = [x if _is_value(x) else next(lifted) for x in given]
            captured = map(self.lift, staged.captured)
            program = simplify(inline(staged.program))
            return staged.outputs.build(self.run(program, *values, *captured))

        return interpreted

    def run(self, program: Program, *values: Any) -> list[Any]:
        """Returns the values of the outputs of `program` for values of its inputs."""
        operations = iter(_operations(program))

        def step(equation: Equation, operands: list[Any]) -> Sequence[Any]:
            return self.apply(next(operations), *operands)

        def lift(literal: Literal) -> Any:
            return self.lift(literal.array[()])

        return walk(program, values, step, lift)

    def apply(self, operation: Operation, *values: Any) -> list[Any]:
        """Returns the values of the results of one operation."""
        rule = self._find(operation.primitive)
        if rule is not None:
            found = rule(self, operation, *values)
        elif operation.primitive.is_higher_order:
            found = self.descend(operation, *values)
        else:
            found = self.default(operation, *values)
        if operation.primitive.multiple and isinstance(found, list):
            return found
        return [found] * len(operation.outputs)

    def descend(self, operation: Operation, *values: Any) -> list[Any]:
        """Interprets the programs of a `call`, `switch`, `scan`, `while` or custom rule.

        Of a custom rule that is what it computes, its `forward`.
        """
        return _DESCENTS.get(operation.primitive, Interpreter.default)(self, operation, *values)

    def _find(self, primitive: Primitive) -> Callable[..., Any] | None:
        for cls in type(self).__mro__:
            rules = vars(cls).get("_rules", {})
            if primitive in rules:
                return rules[primitive]
            for key in reversed(rules):
                if key in primitive.tags:
                    return rules[key]
        return None

    def _known(self, value: Any) -> int | None:
        """Returns a branch's index or a loop's condition as a number, where it is known."""
        try:
            found = self.known(value)
            return None if found is None else int(found)
        except ConcretizationError:
            return None

    def _merge(
        self, operation: Operation, merge: Callable[..., Any], xs: list[Any], ys: list[Any]
    ) -> list[Any]:
        """Joins or widens, value by value."""
        name = type(self).__name__
        if type(self).join is Interpreter.join:
            branches = operation.primitive is switch_p
            what = "which branch runs" if branches else "how often a loop runs"
            raise MissingRuleError(
                f"{name}: {what} is not known, and there is no way to cover all that can be.\n"
                f"  at {operation.location or 'an unknown place'}\n"
                f"  Override {name}.known(value), or {name}.join(x, y)."
            )
        return [merge(x, y) for x, y in zip(xs, ys, strict=True)]

    def _switch(self, operation: Operation, index: Any, *values: Any) -> list[Any]:
        branches = operation.params["branches"]
        chosen = self._known(index)
        if chosen is not None:
            return self.run(branches[min(max(chosen, 0), len(branches) - 1)], *values)
        outs = self.run(branches[0], *values)
        for branch in branches[1:]:
            outs = self._merge(operation, self.join, outs, self.run(branch, *values))
        return outs

    def _scan(self, operation: Operation, *values: Any) -> list[Any]:
        params = operation.params
        consts, carry, length = params["consts"], params["carry"], params["length"]
        fixed = values[:consts]
        state = list(values[consts : consts + carry])
        xs = list(zip(values[consts + carry :], operation.inputs[consts + carry :], strict=True))
        steps = range(length)
        rows: dict[int, list[Any]] = {}
        for i in reversed(steps) if params["reverse"] else steps:
            elements = [self._element(operation, x, t, i) for x, t in xs]
            outs = self.run(params["body"], *fixed, *state, *elements)
            state, rows[i] = outs[:carry], outs[carry:]
        types = operation.outputs[carry:]
        stacked = [
            self._stack(operation, [rows[i][j] for i in steps], t) for j, t in enumerate(types)
        ]
        return [*state, *stacked]

    def _element(self, operation: Operation, x: Any, t: ArrayType, i: int) -> Any:
        zeros = (0,) * (t.ndim - 1)
        row = t.update(shape=(1, *t.shape[1:]))
        bounds = {
            "start": (i, *zeros),
            "stop": (i + 1, *t.shape[1:]),
            "step": (1,) * t.ndim,
        }
        cut = self._derived(operation, slice_p, bounds, [t], row, x)
        element = t.update(shape=t.shape[1:])
        return self._derived(operation, reshape_p, {"shape": element.shape}, [row], element, cut)

    def _stack(self, operation: Operation, values: list[Any], t: ArrayType) -> Any:
        element = t.update(shape=t.shape[1:])
        row = t.update(shape=(1, *t.shape[1:]))
        if not values:
            fill = ArrayType((), t.dtype, weak=True)
            params = {"shape": t.shape, "axes": ()}
            zero = self.lift(scalar(0, t.dtype).array[()])
            return self._derived(operation, broadcast_p, params, [fill], t, zero)
        rows = [
            self._derived(operation, reshape_p, {"shape": row.shape}, [element], row, v)
            for v in values
        ]
        return self._derived(operation, concatenate_p, {"axis": 0}, [row] * len(rows), t, *rows)

    def _derived(
        self,
        operation: Operation,
        primitive: Primitive,
        params: dict[str, Any],
        inputs: Sequence[ArrayType],
        output: ArrayType,
        *values: Any,
    ) -> Any:
        """Applies a structural primitive that is part of what a loop does."""
        derived = Operation(primitive, Params(params), tuple(inputs), (output,), operation.location)
        return self.apply(derived, *values)[0]

    def _while(self, operation: Operation, *values: Any) -> list[Any]:
        params = operation.params
        tests, fixed = params["cond_consts"], params["body_consts"]
        cond_consts, body_consts = values[:tests], values[tests : tests + fixed]
        state = list(values[tests + fixed :])
        bound = params["bound"]
        steps = joined = 0
        while bound is None or steps < bound:
            (answer,) = self.run(params["cond"], *cond_consts, *state)
            going = self._known(answer)
            if going is not None and not going:
                break
            after = self.run(params["body"], *body_consts, *state)
            steps += 1
            if going is not None and not joined:
                state = after
                continue
            # From here on the state covers all that the loop may have left with.
            merge = self.join if joined < self.patience else self.widen
            covering = self._merge(operation, merge, state, after)
            if all(self.same(x, y) for x, y in zip(state, covering, strict=True)):
                break
            state = covering
            joined += 1
            if joined > self.max_fixpoint_steps:
                name = type(self).__name__
                raise FtransError(
                    f"{name}: a loop's value does not settle after {joined} steps.\n"
                    f"  at {operation.location or 'an unknown place'}\n"
                    f"  Override {name}.widen(x, y) so that it jumps to a value that covers all, "
                    f"or pass max_steps=n to while_loop."
                )
        return state


def _through(param: str) -> Callable[..., list[Any]]:
    """Returns the descent into the program that gives the results, and may give more."""

    def descend(self: Interpreter, operation: Operation, *values: Any) -> list[Any]:
        program = operation.params[param]
        return self.run(program, *values[: len(program.inputs)])[: len(operation.outputs)]

    return descend


_DESCENTS = {
    call_p: _through("program"),
    checkpoint_p: _through("program"),
    custom_p: _through("forward"),
    switch_p: Interpreter._switch,
    scan_p: Interpreter._scan,
    while_p: Interpreter._while,
}
