"""What is known of a program, and the decision for a run: interpret, run what is compiled, compile.

A `Plan` hangs on a program object, a `State` on what equal programs share. Neither refers back to
its program, so that a program that the cache lets go of is freed at once. Compiling that fails is
no error: the program is interpreted from then on, with one warning. Nothing is kept of a
compilation that was interrupted.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

from ftrans.config import config
from ftrans.interpreters import runnable, simplify
from ftrans.ir import Program
from ftrans.ir.axes import names_in
from ftrans.runtime import background, disk
from ftrans.runtime.cache import count, make_room, track
from ftrans.runtime.executable import Executable, form_of
from ftrans.runtime.explain import Why
from ftrans.runtime.measured import PART, Times, learn_price, learnt
from ftrans.runtime.policy import Family, Price, family_of, gain_of_jax
from ftrans.runtime.segments import Segmented, is_split, price_of


class State:
    """Is what equal programs share: how to run them, and what speaks for compiling.

    Args:
        is_mapped: whether they go over axes that JAX maps, so that JAX is under way, with its
            precision, where they are run.

    Attributes:
        evidence: the seconds that compiled runs would have saved so far.
        executable: what was compiled, or None.
        ready: what a thread has compiled that is not to be run yet, or None.
        failure: the error that compiling ended in, or None.
        warned: whether the user was told of the failure.
        price: the estimated costs; None before they were asked for.
        times: what runs took, where the choice is by that.
        pending: whether a thread was told to compile it: to keep that until it is asked for,
            `HELD`, or to have it run from then on, `NOW`.
        lock: held while it is compiled.
    """

    def __init__(self, is_mapped: bool) -> None:
        self.is_mapped = is_mapped
        self.price: Price | None = None
        self.lock = threading.RLock()
        self.executable: Executable | Segmented | None = None
        self.ready: Executable | Segmented | None = None
        self.drop()

    def drop(self) -> None:
        """Forgets what was compiled, and begins anew."""
        self.evidence = 0.0
        self.times = Times()
        self.executable = self.ready = None
        self.pending = 0
        self.failure: str | None = None
        self.warned = False

    @property
    def code(self) -> Executable | Segmented | None:
        """What was compiled, be it run or not yet."""
        return self.executable or self.ready


HELD, NOW = 1, 2


class Plan:
    """Says how one program object is run.

    Attributes:
        state: shared by equal programs.
        family: shared by the programs of one function.
        runs: whether it was run before.
    """

    __slots__ = ("_final", "family", "runs", "state")

    def __init__(self, final: Program | None, state: State, family: Family):
        self._final = final
        self.state = state
        self.family = family
        self.runs = False

    def final(self, program: Program) -> Program:
        """Returns the inlined and simplified form of the program that the plan hangs on."""
        return program if self._final is None else self._final


def plan_of(program: Program) -> Plan:
    """Returns the plan of a program, made at its first run."""
    plan: Any = program.memo.get("plan")
    if plan is None:
        final = simplify(runnable(program))
        memo = final.structure.memo
        state = memo.get("state")
        if state is None:
            state = memo.setdefault("state", State(bool(names_in(final))))
            track(state)
        made = Plan(None if final is program else final, state, family_of(program))
        plan = program.memo.setdefault("plan", made)
    return plan


# ---------------------------------------------------------------------------------- the decision


class Choice(NamedTuple):
    """Says how a run is done, and why.

    Attributes:
        executable: what to run; None to interpret.
        road: the same in a word, for `explain`.
        why: the reason.
        spent: the seconds that compiling would have saved so far.
        price: the seconds that it costs.
    """

    executable: Executable | Segmented | None
    road: str
    why: Why
    spent: float = 0.0
    price: float = 0.0


_PINNED = Choice(None, "interpreted", Why.PINNED)
_FAILED = Choice(None, "interpreted", Why.FAILED)
_NO_GAIN = Choice(None, "interpreted", Why.NO_GAIN)
_SLOWER = Choice(None, "interpreted", Why.SLOWER)
_WAITING = Choice(None, "interpreted", Why.WAITING)
_FORKED = Choice(None, "interpreted", Why.FORKED)
_MAPPED = Choice(None, "interpreted", Why.MAPPED)
OBSERVED = Choice(None, "interpreted", Why.OBSERVED)


def choose(
    plan: Plan, program: Program, arrays: Sequence[Any], host: bool, on_device: bool, spread: bool
) -> Choice:
    """Decides how a program is run that is not compiled yet, or that must not be.

    Args:
        plan: its plan.
        program: its final form.
        arrays: its arguments.
        host: whether all of them are NumPy arrays.
        on_device: whether one of them lies on an accelerator.
        spread: whether they lie on several devices, or are to.
    """
    execution, state = config.execution, plan.state
    if state.is_mapped:
        return _MAPPED
    if execution == "interpret":
        return _PINNED
    if state.failure is not None:
        _warn_once(state, program)
        return _FAILED
    if execution == "compile":
        return _compile(state, program, arrays, host, Choice(None, "compiled now", Why.PINNED))
    if background.is_forked() and not on_device:
        return _FORKED
    if spread:
        # one equation after the other would be as many programs for all the devices
        return _compile(state, program, arrays, host, Choice(None, "compiled now", Why.SPREAD))
    measured = execution == "measured" and not on_device
    if measured and state.times.is_slower:
        return _SLOWER
    prices = state.price = state.price or price_of(program)
    gain = prices.gain if host else gain_of_jax(program, prices)
    needed = prices.compiling
    if on_device:
        # There the interpreter dispatches every equation by itself: compiling is worth it at the
        # first call, unless this function has wasted it before.
        gain = prices.interpreted * _DISPATCH
        needed *= plan.family.factor - 1
    elif not gain:
        return _NO_GAIN
    elif plan.family.unproven:
        needed *= plan.family.factor
    if measured:  # `note` has added up what was measured
        needed, gain = needed * learnt(), 0.0
    spent = state.evidence = state.evidence + gain
    if spent <= needed * (PART if measured else 1.0 if on_device else _BEGIN):
        return Choice(None, "interpreted", Why.COLD, spent, needed)
    if measured and state.ready is None:
        if _submit(state, program, arrays, host, hold=False):
            plan.family.unproven += 1
        return _WAITING
    if not measured and spent <= needed:
        if not state.pending:
            _submit(state, program, arrays, host, hold=True)
        return _WAITING
    plan.family.unproven += 1
    why = Why.DEVICE if on_device else Why.PAYS
    found = Choice(None, "compiled now", why, spent, needed)
    return _compile(state, program, arrays, host, found)


def note(state: State, program: Program, choice: Choice | None, host: bool, seconds: float) -> None:
    """Notes what a run took, where the choice is by that.

    Args:
        state: that of the program.
        program: its final form.
        choice: how it was run; None where it was compiled before.
        host: whether all its arguments were NumPy arrays.
        seconds: what it took.
    """
    prices, times = state.price, state.times
    if choice is None:
        if host and times.of_compiled(seconds):
            state.executable = None
    elif choice.executable is None and prices is not None and times.of_interpreted(seconds):
        gain = prices.gain if host else gain_of_jax(program, prices)
        state.evidence += seconds * gain / (prices.compiled + gain)


_BEGIN = 0.5
"""The part of its price that compiling has to be worth before a thread begins with it.

What it makes is run when the evidence is whole, which depends on calls alone, not on when the
thread is done: so the same calls give the same bits.
"""

_DISPATCH = 30
"""How much longer an equation takes where it is dispatched to an accelerator by itself."""


def _compile(
    state: State, program: Program, arrays: Sequence[Any], host: bool, wanted: Choice
) -> Choice:
    """Compiles now, or waits for another thread that does; falls back where it fails."""
    try:
        executable = _build(state, program, arrays, host)
    except Exception as error:
        if "incompatible devices" in str(error):
            # these arrays are wrong, not the program: it says so where it is run
            return wanted._replace(executable=Executable(program))
        state.failure = f"{type(error).__name__}: {error}"
        _warn_once(state, program)
        return _FAILED
    return wanted._replace(executable=executable)


def compiled(program: Program, arrays: Sequence[Any], host: bool) -> Executable:
    """Returns what is compiled of a program, compiled now where it is not yet.

    Args:
        program: inlined and simplified, without calls of Python at its top.
        arrays: its arguments.
        host: whether all of them are NumPy arrays.
    """
    state = plan_of(program).state
    executable = state.executable or _build(state, program, arrays, host)
    assert isinstance(executable, Executable)
    return executable


def _build(
    state: State, program: Program, arrays: Sequence[Any], host: bool
) -> Executable | Segmented:
    """Makes the executable of a state, unless it has one; whole or not at all."""
    with state.lock:
        executable = state.executable
        if executable is None:
            executable = state.ready or _made(state, program, arrays, host)
            state.executable, state.ready, state.pending = executable, None, 0
            count("compiled")
            make_room(state)
    return executable


def _made(
    state: State, program: Program, arrays: Sequence[Any], host: bool
) -> Executable | Segmented:
    """Returns what is compiled now."""
    if is_split(program):
        executable = Segmented(program, _shared, whole=config.execution == "compile")
    else:
        executable = Executable(program)
    start, disk.reading.done = perf_counter(), False
    executable.prepare(arrays, host)
    if state.price is not None and not disk.reading.done:
        learn_price(state.price.compiling, perf_counter() - start)
    return executable


def _shared(program: Program) -> Executable:
    """Returns what is compiled of a block, or will be when it is run: one for all equal ones."""
    state = plan_of(program).state
    with state.lock:
        if state.executable is None:
            state.executable = Executable(program)
            make_room(state)
        found = state.executable
    return found if isinstance(found, Executable) else Executable(program)


def _warn_once(state: State, program: Program) -> None:
    if state.warned:
        return
    state.warned = True
    place = next((str(place) for place in program.locations if place is not None), "unknown")
    warnings.warn(
        f"{program.name}: XLA could not compile it, so it is interpreted from now on.\n"
        f"  first line: {place}\n"
        f"  error: {state.failure}\n"
        f'  Set ftrans.config.execution = "interpret" where that is meant.',
        RuntimeWarning,
        stacklevel=2,
    )


# ------------------------------------------------------------------------------- in the background

_submitting = threading.Lock()


def _submit(state: State, program: Program, arrays: Sequence[Any], host: bool, hold: bool) -> bool:
    """Has a thread compile; False where it was told to before.

    Args:
        state: that of the program.
        program: its final form.
        arrays: its arguments, which are not kept alive.
        host: whether all of them are NumPy arrays.
        hold: whether what is made is kept until it is asked for; else it is run from then on.
    """
    with _submitting:
        if state.pending and (hold or state.pending == NOW):
            return False
        forms = program.inputs if host else list(map(form_of, arrays))
        state.pending = HELD if hold else NOW
        told = False
        try:
            told = background.submit(functools.partial(_beside, state, program, forms, host, hold))
        finally:
            if not told and not hold:
                state.pending = 0  # the next call asks again; else the one that needs it compiles
    return told


def _beside(state: State, program: Program, arrays: Sequence[Any], host: bool, hold: bool) -> None:
    """Compiles in the background."""
    try:
        if not hold:
            _build(state, program, arrays, host)
            return
        with state.lock:
            if state.executable is None and state.ready is None:
                state.ready = _made(state, program, arrays, host)
                make_room(state)
    except BaseException as error:
        # Told by a warning when the program is called next. Who waits for what is held finds out
        # by trying once more, since it may have to do with the arrays.
        if not hold:
            state.failure = f"{type(error).__name__}: {error}"
    finally:
        if not hold:
            state.pending = 0
