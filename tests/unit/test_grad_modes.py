"""Grad modes: as contexts, decorators and calls; around generators, coroutines and threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import jax.tree_util as tree
import numpy as np
import pytest

from ftrans import Tensor, func, tensor
from ftrans.autograd import (
    enable_grad,
    grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from ftrans.errors import FtransError, GraphError, UnsupportedError
from tests.helpers import assert_close


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    """Sees to it that a test begins and ends with what is the default."""
    assert is_grad_enabled()
    yield
    still = is_grad_enabled()
    set_grad_enabled(True)
    assert still


def leaf(value: Any) -> Tensor:
    """Returns a leaf that requires grad."""
    return tensor(np.array(value, "float64"), requires_grad=True)


# ------------------------------------------------------------------------------ contexts


def test_gradients_are_recorded_by_default() -> None:
    assert is_grad_enabled()
    assert (leaf(1) * 2).requires_grad


def test_under_no_grad_results_do_not_require_grad() -> None:
    x = leaf(2)
    with no_grad():
        assert not is_grad_enabled()
        y = x * 2
        assert x.requires_grad
    assert is_grad_enabled()
    assert not y.requires_grad
    assert y.is_leaf


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x * 2,
        lambda x: 2 - x,
        lambda x: x @ x,
        lambda x: x[0],
        lambda x: x.view(2, 1),
        lambda x: x.sum(),
        lambda x: np.sin(x),
        lambda x: np.concatenate([x, x]),
        lambda x: x.clone(),
        lambda x: x.exp(),
        lambda x: x.sort().values,
        lambda x: x.unbind()[0],
        lambda x: x.to("float32"),
        lambda x: func.vmap(np.sin)(x),
        lambda x: x.where(x > 1, x * 2),
    ],
)
def test_every_kind_of_result(make: Any) -> None:
    x = leaf([1, 2])
    with no_grad():
        y = make(x)
    z = make(x)
    assert not y.requires_grad
    assert z.requires_grad
    assert_close(y, z.detach())


def test_no_context_is_bound() -> None:
    with no_grad() as bound:
        assert bound is None


def test_enable_grad_inside_no_grad() -> None:
    x = leaf(2)
    with no_grad():
        with enable_grad():
            assert is_grad_enabled()
            y = x * x
        assert not is_grad_enabled()
    y.backward()
    assert_close(x.grad, 4.0)


def test_nested_contexts() -> None:
    seen = []
    with no_grad():
        with no_grad():
            with enable_grad():
                with no_grad():
                    seen.append(is_grad_enabled())
                seen.append(is_grad_enabled())
            seen.append(is_grad_enabled())
        seen.append(is_grad_enabled())
    assert seen == [False, True, False, False]


def test_one_context_may_be_used_again_and_inside_of_itself() -> None:
    mode = no_grad()
    for _ in range(2):
        with mode:
            with mode:
                assert not is_grad_enabled()
            assert not is_grad_enabled()
        assert is_grad_enabled()


def test_an_exception_restores_the_mode() -> None:
    with pytest.raises(ZeroDivisionError), no_grad():
        raise ZeroDivisionError
    assert is_grad_enabled()
    with no_grad():
        with pytest.raises(ZeroDivisionError), enable_grad():
            raise ZeroDivisionError
        assert not is_grad_enabled()


def test_an_operation_that_raises_restores_the_mode() -> None:
    x = leaf([1, 2])
    with pytest.raises(FtransError, match="matmul"), no_grad():
        x @ np.ones((3, 3))
    (x * x).sum().backward()
    assert_close(x.grad, [2.0, 4.0])


def test_the_same_operation_in_and_out() -> None:
    x = leaf(3)
    for _ in range(4):
        a = x * x
        with no_grad():
            b = x * x
        y = a * b
        y.backward()
        assert_close(x.grad, 6 * 9.0)
        x.grad = None


def test_the_same_operation_in_and_out_of_one_line() -> None:
    x = leaf(3)

    def square() -> Tensor:
        return x * x

    for _ in range(4):
        with no_grad():
            b = square()
        a = square()
        assert not b.requires_grad
        (a * b).backward()
        assert_close(x.grad, 6 * 9.0)
        x.grad = None


def test_what_was_made_under_no_grad_is_a_constant() -> None:
    x = leaf(2)
    with no_grad():
        y = x * 2
    (y * x).backward()
    assert_close(x.grad, 4.0)


def test_what_is_pending_keeps_its_history_under_no_grad() -> None:
    x = leaf(2)
    y = x * x
    with no_grad():
        assert y.requires_grad
        z = y * 3
        y.item()
        assert y.requires_grad
    assert not z.requires_grad
    y.backward()
    assert_close(x.grad, 4.0)


def test_backward_under_no_grad() -> None:
    x = leaf(2)
    y = x * x
    with no_grad():
        y.backward()
    assert_close(x.grad, 4.0)
    assert not x.grad.requires_grad


def test_backward_under_no_grad_of_what_was_made_there_is_refused() -> None:
    x = leaf(2)
    with no_grad(), pytest.raises(GraphError, match="does not require grad"):
        (x * x).backward()


def test_create_graph_under_no_grad() -> None:
    x = leaf(2)
    y = x**3
    with no_grad():
        (first,) = grad(y, x, create_graph=True)
        assert not is_grad_enabled()
    assert_close(grad(first, x)[0], 12.0)


def test_create_graph_under_no_grad_of_what_was_looked_at() -> None:
    x = leaf(2)
    y = x**3
    y.item()
    with no_grad():
        (first,) = grad(y, x, create_graph=True)
    assert_close(grad(first, x)[0], 12.0)


def test_frozen_leaves_get_no_gradient() -> None:
    x, frozen = leaf(2), leaf(3)
    frozen.requires_grad_(False)
    (x * frozen).backward()
    assert frozen.grad is None
    assert_close(x.grad, 3.0)


def test_all_parameters_of_a_tree_are_frozen() -> None:
    parameters = {"w": leaf([1, 2]), "b": [leaf(3)]}
    leaves = tree.tree_leaves(parameters)
    for p in leaves:
        p.requires_grad_(False)
    assert len(leaves) == 2
    assert not any(p.requires_grad for p in leaves)


# ------------------------------------------------------------------------------ func


def test_func_ignores_no_grad_outside() -> None:
    with no_grad():
        found = func.grad(lambda x: x * x)(np.float64(3))
    assert_close(found, 6.0)


def test_func_ignores_no_grad_outside_for_tensors() -> None:
    x = leaf(3)
    with no_grad():
        found = func.grad(lambda x: x * x)(x)
    assert not found.requires_grad
    assert_close(found, 6.0)


# ------------------------------------------------------------------------------ set_grad_enabled


def test_a_call_sets_the_mode_at_once() -> None:
    set_grad_enabled(False)
    assert not is_grad_enabled()
    assert not (leaf(1) * 2).requires_grad
    set_grad_enabled(True)
    assert is_grad_enabled()
    assert (leaf(1) * 2).requires_grad


@pytest.mark.parametrize("mode", [False, True])
def test_set_grad_enabled_as_a_context(mode: bool) -> None:
    with set_grad_enabled(mode):
        assert is_grad_enabled() == mode
    assert is_grad_enabled()


def test_set_grad_enabled_as_a_context_inside_no_grad() -> None:
    with no_grad():
        with set_grad_enabled(True):
            assert is_grad_enabled()
        assert not is_grad_enabled()
        with set_grad_enabled(False):
            assert not is_grad_enabled()
        assert not is_grad_enabled()


def test_a_call_inside_a_context_ends_with_it() -> None:
    with no_grad():
        set_grad_enabled(True)
        assert is_grad_enabled()
    assert is_grad_enabled()
    with enable_grad():
        set_grad_enabled(False)
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_set_grad_enabled_as_a_decorator_changes_nothing_outside() -> None:
    @set_grad_enabled(False)
    def inside() -> bool:
        return is_grad_enabled()

    assert is_grad_enabled()
    assert not inside()
    assert is_grad_enabled()


def test_set_grad_enabled_as_a_decorator_under_no_grad() -> None:
    with no_grad():

        @set_grad_enabled(True)
        def inside() -> bool:
            return is_grad_enabled()

        assert not is_grad_enabled()
        assert inside()
        assert not is_grad_enabled()


def test_set_grad_enabled_takes_numbers() -> None:
    with set_grad_enabled(0):
        assert is_grad_enabled() is False


@pytest.mark.parametrize("mode", [False, True])
def test_one_context_of_set_grad_enabled_may_be_used_again(mode: bool) -> None:
    context = set_grad_enabled(mode)
    for _ in range(3):
        with context:
            assert is_grad_enabled() == mode
    assert is_grad_enabled()


def test_one_context_of_set_grad_enabled_may_be_used_inside_of_itself() -> None:
    context = set_grad_enabled(True)
    with context, context:
        assert is_grad_enabled()
    assert is_grad_enabled()


def test_set_grad_enabled_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), set_grad_enabled(False):
        raise ZeroDivisionError
    assert is_grad_enabled()


# ------------------------------------------------------------------------------ decorators


@no_grad()
def with_parentheses(x: Tensor, *, scale: float = 2.0) -> Tensor:
    """Is documented."""
    return x * scale


@no_grad
def without_parentheses(x: Tensor, *, scale: float = 2.0) -> Tensor:
    """Is documented."""
    return x * scale


@pytest.mark.parametrize("function", [with_parentheses, without_parentheses])
def test_decorators(function: Any) -> None:
    x = leaf(3)
    assert not function(x).requires_grad
    assert_close(function(x, scale=5.0), 15.0)
    assert is_grad_enabled()


@pytest.mark.parametrize("function", [with_parentheses, without_parentheses])
def test_decorators_keep_names_and_signatures(function: Any) -> None:
    assert function.__doc__ == "Is documented."
    assert function.__name__ in ("with_parentheses", "without_parentheses")
    assert list(inspect.signature(function).parameters) == ["x", "scale"]


def test_enable_grad_as_a_decorator() -> None:
    @enable_grad
    def first() -> bool:
        return is_grad_enabled()

    @enable_grad()
    def second() -> bool:
        return is_grad_enabled()

    with no_grad():
        assert first()
        assert second()
        assert not is_grad_enabled()


def test_decorated_functions_may_recurse() -> None:
    @no_grad()
    def count(n: int) -> int:
        assert not is_grad_enabled()
        return 0 if n == 0 else 1 + count(n - 1)

    assert count(5) == 5
    assert is_grad_enabled()


def test_decorated_functions_that_raise() -> None:
    @no_grad()
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert is_grad_enabled()


def test_decorated_methods() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = leaf(2)

        @no_grad()
        def predict(self, x: Any) -> Tensor:
            return self.w * x

        @staticmethod
        @no_grad
        def mode() -> bool:
            return is_grad_enabled()

        @classmethod
        @no_grad
        def mode_of_class(cls) -> bool:
            return is_grad_enabled()

    assert not Model().predict(3.0).requires_grad
    assert not Model.mode()
    assert not Model.mode_of_class()


def test_a_decorated_lambda() -> None:
    assert no_grad()(lambda: is_grad_enabled())() is False
    assert no_grad(lambda: is_grad_enabled())() is False


def test_decorators_in_layers() -> None:
    @no_grad()
    @enable_grad()
    def inner() -> bool:
        return is_grad_enabled()

    @enable_grad
    @no_grad
    def outer() -> bool:
        return is_grad_enabled()

    assert inner()
    assert not outer()


def test_a_decorated_function_under_a_transform() -> None:
    @enable_grad()
    def f(x: Any) -> Any:
        return x * x

    assert_close(func.grad(f)(np.float64(3)), 6.0)


# ------------------------------------------------------------------------------ generators


def test_generators_have_the_mode_only_while_they_run() -> None:
    @no_grad()
    def modes() -> Iterator[bool]:
        for _ in range(3):
            yield is_grad_enabled()

    seen = []
    for mode in modes():
        seen.append((mode, is_grad_enabled()))
    assert seen == [(False, True)] * 3
    assert is_grad_enabled()


def test_generators_without_parentheses() -> None:
    @no_grad
    def modes() -> Iterator[bool]:
        yield is_grad_enabled()

    assert list(modes()) == [False]


def test_generators_of_enable_grad_inside_no_grad() -> None:
    @enable_grad()
    def modes() -> Iterator[bool]:
        yield is_grad_enabled()
        yield is_grad_enabled()

    with no_grad():
        for mode in modes():
            assert mode
            assert not is_grad_enabled()


def test_generators_of_a_mode_that_is_also_entered_in_them() -> None:
    mode = no_grad()

    @mode
    def modes() -> Iterator[bool]:
        with mode:
            yield is_grad_enabled()

    generator = modes()
    assert next(generator) is False
    assert is_grad_enabled()
    assert list(generator) == []


def test_generators_of_set_grad_enabled() -> None:
    @set_grad_enabled(False)
    def modes() -> Iterator[bool]:
        yield is_grad_enabled()

    assert is_grad_enabled()
    assert list(modes()) == [False]


def test_generators_are_sent_values() -> None:
    @no_grad()
    def echo() -> Generator[Any, Any, str]:
        received = []
        while len(received) < 3:
            received.append((yield len(received)))
            assert not is_grad_enabled()
        return ",".join(received)

    generator = echo()
    assert next(generator) == 0
    assert generator.send("a") == 1
    assert generator.send("b") == 2
    with pytest.raises(StopIteration) as stopped:
        generator.send("c")
    assert stopped.value.value == "a,b,c"
    assert is_grad_enabled()


def test_generators_are_thrown_exceptions() -> None:
    @no_grad()
    def catching() -> Iterator[Any]:
        while True:
            try:
                yield is_grad_enabled()
            except KeyError as error:
                assert not is_grad_enabled()
                yield f"caught {error}"

    generator = catching()
    assert next(generator) is False
    assert generator.throw(KeyError("x")) == "caught 'x'"
    assert next(generator) is False
    with pytest.raises(ZeroDivisionError):
        generator.throw(ZeroDivisionError)
    assert is_grad_enabled()
    with pytest.raises(StopIteration):
        next(generator)


def test_generators_are_closed() -> None:
    seen = []

    @no_grad()
    def closing() -> Iterator[int]:
        try:
            yield 1
        finally:
            seen.append(is_grad_enabled())

    generator = closing()
    next(generator)
    generator.close()
    assert seen == [False]
    assert is_grad_enabled()


def test_generators_that_return_when_closed() -> None:
    @no_grad()
    def returning() -> Iterator[int]:
        try:
            yield 1
        except GeneratorExit:
            return

    generator = returning()
    next(generator)
    generator.close()
    assert is_grad_enabled()


def test_generators_that_do_not_stop_when_closed() -> None:
    @no_grad()
    def stubborn() -> Iterator[int]:
        try:
            yield 1
        except GeneratorExit:
            yield 2

    generator = stubborn()
    next(generator)
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        generator.close()
    assert is_grad_enabled()


def test_generators_that_are_dropped() -> None:
    @no_grad()
    def endless() -> Iterator[int]:
        while True:
            yield 1

    generator = endless()
    next(generator)
    del generator
    assert is_grad_enabled()


def test_generators_that_raise() -> None:
    @no_grad()
    def failing() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    generator = failing()
    next(generator)
    with pytest.raises(ZeroDivisionError):
        next(generator)
    assert is_grad_enabled()


def test_generators_that_delegate() -> None:
    @no_grad()
    def inner() -> Generator[bool, Any, str]:
        yield is_grad_enabled()
        return "done"

    def outer() -> Iterator[Any]:
        yield is_grad_enabled()
        yield (yield from inner())

    assert list(outer()) == [True, False, "done"]


def test_generators_in_turns() -> None:
    @no_grad()
    def off() -> Iterator[bool]:
        while True:
            yield is_grad_enabled()

    @enable_grad()
    def on() -> Iterator[bool]:
        while True:
            yield is_grad_enabled()

    first, second = off(), on()
    for _ in range(3):
        assert next(first) is False
        assert next(second) is True
    with no_grad():
        assert next(second) is True
        assert next(first) is False


def test_generator_functions_stay_generator_functions() -> None:
    @no_grad()
    def modes() -> Iterator[bool]:
        yield is_grad_enabled()

    assert inspect.isgeneratorfunction(modes)


def test_generators_begin_when_they_are_asked() -> None:
    seen = []

    @no_grad()
    def lazily() -> Iterator[int]:
        seen.append(1)
        yield 1

    generator = lazily()
    assert seen == []
    next(generator)
    assert seen == [1]


# ------------------------------------------------------------------------------ coroutines


def test_coroutines_have_the_mode_only_while_they_run() -> None:
    seen = []

    @no_grad()
    async def off(n: int) -> int:
        for _ in range(n):
            seen.append(("off", is_grad_enabled()))
            await asyncio.sleep(0)
        return n

    async def on(n: int) -> int:
        for _ in range(n):
            seen.append(("on", is_grad_enabled()))
            await asyncio.sleep(0)
        return -n

    async def main() -> list[int]:
        return list(await asyncio.gather(off(3), on(3)))

    assert asyncio.run(main()) == [3, -3]
    assert set(seen) == {("off", False), ("on", True)}
    assert is_grad_enabled()


def test_coroutines_that_raise() -> None:
    @no_grad
    async def failing() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(failing())
    assert is_grad_enabled()


def test_coroutines_that_are_cancelled() -> None:
    seen = []

    @no_grad()
    async def waiting() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            seen.append(is_grad_enabled())

    async def main() -> None:
        task = asyncio.ensure_future(waiting())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == [False]
    assert is_grad_enabled()


def test_coroutine_functions_stay_coroutine_functions() -> None:
    @no_grad()
    async def nothing() -> None:
        return None

    assert inspect.iscoroutinefunction(nothing)


def test_asynchronous_generators_are_declined() -> None:
    async def modes() -> AsyncIterator[bool]:
        with no_grad():
            inside = is_grad_enabled()
        yield inside
        yield is_grad_enabled()

    with pytest.raises(UnsupportedError, match=r"(?s)^no_grad:.*modes.*Write with no_grad\(\): in"):
        no_grad()(modes)

    async def main() -> list[bool]:
        return [mode async for mode in modes()]

    assert asyncio.run(main()) == [False, True]


# ------------------------------------------------------------------------------ threads


def in_thread(function: Any) -> Any:
    """Returns what a function returns in a thread of its own."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_modes_belong_to_threads() -> None:
    with no_grad():
        assert in_thread(is_grad_enabled) is True
        assert not is_grad_enabled()


def test_a_call_in_a_thread_changes_nothing_elsewhere() -> None:
    def off() -> bool:
        set_grad_enabled(False)
        return is_grad_enabled()

    assert in_thread(off) is False
    assert is_grad_enabled()


def test_a_decorated_function_in_a_thread() -> None:
    @no_grad()
    def mode() -> bool:
        return is_grad_enabled()

    assert in_thread(mode) is False
    assert is_grad_enabled()


def test_one_context_in_several_threads() -> None:
    mode = no_grad()
    inside, leave = threading.Event(), threading.Event()

    def wait() -> bool:
        with mode:
            inside.set()
            leave.wait(10)
        return is_grad_enabled()

    found = []
    thread = threading.Thread(target=lambda: found.append(wait()))
    thread.start()
    inside.wait(10)
    with no_grad(), mode:
        leave.set()
        thread.join()
    assert found == [True]


def test_generators_that_go_from_thread_to_thread() -> None:
    @no_grad()
    def modes() -> Iterator[bool]:
        while True:
            yield is_grad_enabled()

    generator = modes()
    assert next(generator) is False
    assert in_thread(lambda: next(generator)) is False
    assert in_thread(is_grad_enabled) is True
    assert is_grad_enabled()


def test_what_is_recorded_elsewhere_has_the_mode_of_there() -> None:
    x = leaf(2)
    with no_grad():
        y = in_thread(lambda: x * x)
        z = x * x
    assert y.requires_grad
    assert not z.requires_grad
    y.backward()
    assert_close(x.grad, 4.0)


# -------------------------------------------------------------------------------- inference mode


def test_inference_mode_makes_inference_tensors() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    with inference_mode():
        assert is_inference_mode_enabled()
        assert not is_grad_enabled()
        y = x * 2
        made = tensor([1.0])
        assert y.is_inference()
        y.add_(1)
        assert y.is_inference()
        assert not x.is_inference()
    assert not is_inference_mode_enabled()
    assert is_grad_enabled()
    assert y.is_inference()
    assert made.is_inference()
    assert not y.requires_grad
    assert y.tolist() == [3.0, 5.0]
    assert y.is_inference()
    assert not (x * 2).is_inference()
    assert not tensor([1.0]).is_inference()


def test_normal_tensors_stay_what_they_are_in_inference_mode() -> None:
    a = tensor([1.0, 2.0])
    with inference_mode():
        a.add_(2)
        view = a[:1]
        assert not a.is_inference()
        assert not view.is_inference()
    assert not a.is_inference()
    assert a.tolist() == [3.0, 4.0]
    assert not view.is_inference()


def test_inference_tensors_have_right_gradients_later() -> None:
    """Where PyTorch refuses: its counts of writes are what inference mode leaves out."""
    x = tensor([1.0, 2.0], requires_grad=True)
    with inference_mode():
        y = x * 2
    (y * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    y.add_(1)
    assert y.tolist() == [3.0, 5.0]


def test_inference_mode_off_and_nested() -> None:
    x = tensor([1.0], requires_grad=True)
    with inference_mode():
        with inference_mode(False):
            assert not is_inference_mode_enabled()
            assert (x * 2).requires_grad
            assert not (x * 2).is_inference()
        assert is_inference_mode_enabled()
        with enable_grad():
            assert not (x * 2).requires_grad  # as in PyTorch
    assert (x * 2).requires_grad


def test_inference_mode_decorates() -> None:
    x = tensor([1.0], requires_grad=True)

    @inference_mode
    def plain() -> bool:
        return is_inference_mode_enabled() and (x * 2).is_inference()

    @inference_mode()
    def called() -> bool:
        return is_inference_mode_enabled()

    @inference_mode(mode=False)
    def off() -> bool:
        return is_inference_mode_enabled()

    @inference_mode()
    def generated() -> Any:
        yield is_inference_mode_enabled()
        yield is_inference_mode_enabled()

    assert plain()
    assert called()
    assert not off()
    for inside in generated():
        assert inside
        assert not is_inference_mode_enabled()


def test_inference_mode_belongs_to_its_thread_and_ends_with_an_exception() -> None:
    seen: list[bool] = []

    @inference_mode()
    def fails() -> None:
        thread = threading.Thread(target=lambda: seen.append(is_inference_mode_enabled()))
        thread.start()
        thread.join()
        raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert seen == [False]
    assert not is_inference_mode_enabled()
    assert is_grad_enabled()
