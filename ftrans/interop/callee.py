"""Functions that JAX traces as callees: kernels of Pallas, of `jax.ffi`, functions of `jax.scipy`.

They run inside compiled programs. Rules that are not given are asked of JAX: tangents by `jax.jvp`,
cotangents by `jax.vjp`, batches by `jax.vmap`. Each gives another such function, whose rules are
asked of JAX again, so that all transforms work at every order that JAX has.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftrans.errors import AxisError, MissingRuleError, RuleError, TransposeError
from ftrans.ir import ArrayType, Program, type_of
from ftrans.ir.stack import state, untraced
from ftrans.primitives.control.common import Mask, merged, opposite, pick, present, spread, unknown
from ftrans.primitives.rules.external import Callee, Same, external_p
from ftrans.runtime import keep
from ftrans.runtime.choice import compiled
from ftrans.runtime.jaxlink import is_jax, is_traced_by_jax, on_cpu, run_jaxpr, x64

Function = Callable[..., Sequence[Any]]


def traced(
    name: str, function: Callable[..., Any], inputs: Sequence[ArrayType]
) -> tuple[Any, Function, Hashable, list[Any]]:
    """Has JAX trace a function.

    Args:
        name: how errors call it.
        function: takes arrays, returns a pytree of them.
        inputs: their types.

    Returns:
        The result, with shapes and dtypes in the place of arrays; a function that computes its
        leaves, of the arguments and the arrays that the original closes over; what is equal for
        functions that do the same; and these arrays, as they were.
    """
    specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in inputs]
    with x64(), untraced():  # it may call functions of ours on what JAX traces
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*specs)
    # others may write to arrays of NumPy later
    values = [np.array(x) if isinstance(x, np.ndarray) else x for x in closed.consts]
    passed = list(map(_is_movable, values))
    held = pick(values, opposite(passed))
    structure = key_of(closed.jaxpr)

    def call(*arrays: Any) -> Sequence[Any]:
        if key_of(closed.jaxpr) != structure:
            raise RuleError(
                f"{name}: an array that it closes over was written to after JAX has traced it.\n"
                "  Pass the array as an argument; or wrap the function where it is called, so "
                "that it\n  is traced anew: ftrans.external.jax(function)(...)."
            )
        given = arrays[len(inputs) :]
        return run_jaxpr(closed.jaxpr, merged(given, held, passed), arrays[: len(inputs)])

    key = structure, tuple(passed), tuple(map(content_key, held))
    # as results are, unless an argument is one of JAX's
    arrays = [x if is_traced_by_jax(x) else np.asarray(x) for x in pick(values, passed)]
    return shapes, call, key, arrays


def axes_here() -> tuple[tuple[Hashable, int], ...]:
    """Returns the named axes, with sizes, that what is traced now is mapped along."""
    return state.stack[-1].asks.axes if state.stack else ()


def jaxpr_over(name: str, axes: Any, function: Callable[..., Any], specs: Sequence[Any]) -> Any:
    """Has JAX trace a function that may go over named axes; `name` is how errors call it."""
    try:
        return jax.make_jaxpr(function, axis_env=list(axes) or None)(*specs)
    except NameError as error:
        if "unbound axis name" not in str(error):
            raise
        known = ", ".join(f"{axis!r} of size {size}" for axis, size in axes)
        raise AxisError(
            f"from_jax({name}): it goes over an axis that is not mapped here.\n"
            f"  JAX: {str(error).partition('. ')[0]}\n  axes here: {known or 'none'}\n"
            f"  Call it inside of vmap(f, axis_name=...), or of shard_map."
        ) from None


def _is_movable(array: Any) -> bool:
    """Tells whether an array may be an operand of ours, one that JAX traces included."""
    if jnp.issubdtype(array.dtype, jax.dtypes.extended):
        return False
    return not is_jax(array) or is_traced_by_jax(array) or on_cpu([array])


# ----------------------------------------------------------- what tells two functions apart
#
# A function that is made anew at each call is traced anew, so that nothing can have changed unseen;
# what is compiled is found by the structure of the jaxpr.


def key_of(jaxpr: Any) -> Hashable:
    """Returns what is equal for jaxprs that do the same the same way.

    What cannot be compared is like itself alone, as the rules are of `jax.custom_jvp`: they are
    functions that JAX makes for each trace.
    """
    numbers: dict[Any, int] = {}

    def atom(x: Any) -> Hashable:
        if hasattr(x, "val"):
            return static_key(x.val), x.aval
        return numbers.setdefault(x, len(numbers))

    def key(e: Any) -> Hashable:
        ins, outs = tuple(map(atom, e.invars)), tuple(map(atom, e.outvars))
        return e.primitive, ins, outs, static_key((e.params, e.ctx)), frozenset(e.effects)

    inputs = tuple([(atom(x), x.aval) for x in (*jaxpr.constvars, *jaxpr.invars)])
    return inputs, tuple(map(key, jaxpr.eqns)), tuple(map(atom, jaxpr.outvars))


_PLAIN = frozenset({bool, int, str, type(None)})


def static_key(value: Any) -> Hashable:
    """Returns what stands in a key for params, literals, and arrays inside of a jaxpr."""
    kind = type(value)
    if kind in _PLAIN:  # as most often
        return kind, value
    if hasattr(value, "eqns"):
        return kind, key_of(value), static_key(getattr(value, "consts", ()))
    if isinstance(value, dict):
        return kind, tuple([(name, static_key(value[name])) for name in sorted(value)])
    if isinstance(value, (tuple, list)):
        return kind, tuple(map(static_key, value))
    if isinstance(value, (float, complex)):
        return kind, repr(value)  # which tells zeros apart, and not NaN
    if isinstance(value, np.ndarray) and value.ndim:
        return Same(value), value.tobytes()  # since others may write to it
    if isinstance(value, (np.ndarray, np.generic)):
        return content_key(value)
    try:
        hash(value)
    except TypeError:
        return Same(value)
    return kind, value


def content_key(array: Any) -> Hashable:
    """Returns what stands in a key for an array that nobody writes to any more."""
    return Same(array) if is_jax(array) else (array.dtype, array.shape, array.tobytes())


# ------------------------------------------------------------------------------------ the callees


class JaxCallee(Callee):
    """Is a function that JAX traces.

    Args:
        name: how errors and the text of programs call it.
        function: takes arrays and returns a sequence of arrays.
        types: the types of the results.
        key: what stands for the function where two callees are compared.
    """

    calls_host = False
    _program: Any = None

    def __init__(self, name: str, function: Function, types: Sequence[ArrayType], key: Hashable):
        super().__init__(name, types, key)
        self.function = function

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Returns the results for arrays of NumPy or JAX, in the container of the arguments."""
        on_host = not any(map(is_jax, arrays))
        with jax.ensure_compile_time_eval():
            executable = compiled(self._alone(arrays), arrays, on_host)
            return executable.host(arrays, own=False) if on_host else executable.mixed(arrays)

    def _alone(self, arrays: Sequence[Any]) -> Program:
        """Returns the program that calls it, by which what is compiled is found and kept."""
        program = None if self._program is None else self._program()
        if program is None:
            program = self.program([type_of(array).update() for array in arrays])
            self._program = weakref.ref(program)  # which refers to the callee
        return keep(program)

    def lower(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Returns the results for values that JAX traces."""
        found = self.function(*arrays)
        # what JAX holds to be a Python scalar becomes an array
        return [jnp.asarray(x, t.dtype) for x, t in zip(found, self.types, strict=True)]

    def batch(
        self, size: int, operands: Sequence[Any], dims: Sequence[int | None]
    ) -> tuple[Sequence[Any], Sequence[int | None]]:
        """Records the function for many examples at once."""
        axes = tuple(dims)
        callee = JaxCallee(
            self.name,
            jax.vmap(self.function, axes, axis_size=size),
            [t.update(shape=(size, *t.shape)) for t in self.types],
            key=("vmap", size, axes, self.key),
        )
        outs = external_p(*operands, callee=callee)
        return outs, [0] * len(outs)

    def jvp(self, tangents: Sequence[Any], primals: Sequence[Any]) -> Sequence[Any]:
        """Records the tangents of the results; None where a tangent is zero."""
        active = present(tangents)
        moving = tuple(t.is_inexact for t in self.types)
        callee = Pushforward(self, active, moving)
        return spread(external_p(*primals, *pick(tangents, active), callee=callee), moving)

    def transpose(self, cts: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any]:
        """Records the cotangents of the operands that are `Linear`; None elsewhere."""
        linear, given = unknown(operands), present(cts)
        known = pick(operands, opposite(linear))
        types = [x.type.update() for x in pick(operands, linear)]

        def transposed(*arrays: Any) -> Sequence[Any]:
            return self.pull(types, linear, arrays[: len(known)], given, arrays[len(known) :])

        callee = JaxCallee(
            f"transpose({self.name})", transposed, types, ("transpose", given, linear, self.key)
        )
        return spread(external_p(*known, *pick(cts, given), callee=callee), linear)

    def pull(
        self, types: Sequence[ArrayType], linear: Mask, known: Any, given: Mask, cts: Any
    ) -> Sequence[Any]:
        """Returns the cotangents of linear operands, of these types, for values that JAX traces.

        `known` are the other operands, and `cts` the cotangents of those results that are `given`.
        """
        specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types]

        def function(*linears: Any) -> Sequence[Any]:
            return pick(self.function(*merged(linears, known, linear)), given)

        try:
            return jax.linear_transpose(function, *specs)(list(cts))
        except (TypeError, ValueError, NotImplementedError) as error:
            raise TransposeError(
                f"{self.name}: JAX cannot transpose it.\n  reason: {error}\n"
                f"  Where it is linear, give it transpose=."
            ) from error


class Pushforward(JaxCallee):
    """Is the function that maps primals and tangents of another one to its tangents.

    Its transpose is the pullback of that one, so that reverse mode needs no forward mode of JAX's;
    where there is none, as for what has `jax.custom_vjp`, forward mode transposes the pullback.

    Args:
        base: the other one.
        active: for each operand whether it has a tangent.
        moving: for each result whether its tangent is asked for.
    """

    def __init__(self, base: JaxCallee, active: Mask, moving: Mask):
        self.base, self.active, self.moving = base, active, moving
        self._reverse: bool | None = None
        super().__init__(
            f"jvp({base.name})",
            self._push,
            pick(base.types, moving),
            key=("jvp", active, moving, base.key),
        )

    def _chosen(self, primals: Sequence[Any]) -> tuple[Function, list[Any]]:
        """Returns the function of the active operands to the moving results, and the operands."""
        fixed = pick(primals, opposite(self.active))

        def function(*chosen: Any) -> list[Any]:
            outs = self.base.function(*merged(chosen, fixed, self.active))
            return pick(outs, self.moving)

        return function, pick(primals, self.active)

    def _push(self, *arrays: Any) -> Sequence[Any]:
        primals, tangents = arrays[: len(self.active)], arrays[len(self.active) :]
        function, chosen = self._chosen(primals)
        if self._reverse is None:
            self._reverse = _has_custom_vjp(jax.make_jaxpr(function)(*chosen))
        if not self._reverse:
            return self._asked(jax.jvp, function, tuple(chosen), tuple(tangents))[1]
        outs, pull = jax.vjp(function, *chosen)
        return jax.linear_transpose(pull, list(outs))(tuple(tangents))[0]

    def pull(
        self, types: Sequence[ArrayType], linear: Mask, known: Any, given: Mask, cts: Any
    ) -> Sequence[Any]:
        """Returns the pullback where the tangents are what is linear."""
        if linear != tuple(i >= len(self.active) for i in range(len(linear))):
            return super().pull(types, linear, known, given, cts)
        function, chosen = self._chosen(known)

        def pulled(*chosen: Any) -> Sequence[Any]:
            return jax.vjp(lambda *chosen: pick(function(*chosen), given), *chosen)[1](list(cts))

        return self._asked(pulled, *chosen)

    def _asked(self, derivative: Any, *args: Any) -> Any:
        try:
            return derivative(*args)
        except (NotImplementedError, ValueError) as error:
            reason = str(error)
            if type(error) is ValueError and not reason.startswith("Reverse-mode"):
                raise
            forward = " differentiate forward by func.jvp," * (type(error) is ValueError)
            raise MissingRuleError(
                f"{self.base.name}: JAX does not differentiate it.\n  JAX: {reason}\n"
                f"  Call it on x.detach(),{forward} or give it a rule by autograd.Function."
            ) from error


def _has_custom_vjp(jaxpr: Any) -> bool:
    """Tells whether JAX refuses forward mode, since somebody gave a rule for reverse mode."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name.startswith("custom_vjp_call"):
            return True
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(getattr(inner, "jaxpr", inner), "eqns") and _has_custom_vjp(inner):
                    return True
    return False
