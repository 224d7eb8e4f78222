"""The benchmarks: how they measure, on a clock of our own, and that what they compare agrees."""

import json

import jax
import numpy as np
import pytest

import ftrans
from benchmarks import calibrate_policy, libraries, measure
from benchmarks.__main__ import main
from benchmarks.measure import Ratio
from benchmarks.models import chain, kepler, lstm, mixture, perceptron, transformer
from benchmarks.programs import PROGRAMS
from benchmarks.race import Against, agree, race
from benchmarks.report import as_json, line, markdown, summary
from benchmarks.result import Disagreement, Result, compilations, faster, time
from benchmarks.row import QUICK, Row, Settings
from benchmarks.rows import ROWS, recompiling


class Clock:
    """Tells a time that only tasks move on."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def __call__(self):
        return self.now

    def task(self, name, *seconds):
        """Returns a task that takes these seconds, one after the other, and the last ever after."""
        left = list(seconds)

        def work():
            self.calls.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]
            return 0.0

        return work


# ------------------------------------------------------------------------------------ measuring


def test_tasks_take_turns():
    clock = Clock()
    probes = {name: measure.timed(clock.task(name, 1.0), 2, clock) for name in "ABC"}
    assert measure.interleave(probes, 2, clock=clock) == {name: [1.0, 1.0] for name in "ABC"}
    assert "".join(clock.calls) == "AABBCC" * 2


def test_ratios_are_taken_within_rounds():
    # the machine slows down fourfold, which changes no ratio
    clock = Clock()
    slow = [1.0, 2.0, 4.0, 4.0]
    probes = {
        "A": measure.timed(clock.task("A", *slow), 1, clock),
        "B": measure.timed(clock.task("B", *(3 * s for s in slow)), 1, clock),
    }
    times = measure.interleave(probes, 4, clock=clock)
    assert measure.ratio(times["B"], times["A"]) == Ratio(3.0, 3.0, 3.0)


def test_spread_is_that_of_the_rounds():
    found = measure.ratio([1.0, 2.0, 3.0, 4.0, 50.0], [1.0] * 5)
    assert found == Ratio(3.0, 2.0, 4.0)


def test_rounds_stop_after_some_seconds_but_not_before_two():
    clock = Clock()
    probe = {"A": measure.timed(clock.task("A", 1.0), 1, clock)}
    assert len(measure.interleave(probe, 100, seconds=3.5, clock=clock)["A"]) == 4
    assert len(measure.interleave(probe, 100, seconds=0.0, clock=clock)["A"]) == 2
    assert len(measure.interleave(probe, 1, seconds=0.0, clock=clock)["A"]) == 1


def test_short_tasks_are_called_often_enough():
    clock = Clock()
    assert measure.calls_for(clock.task("A", 0.001), 0.5, clock) == 500
    assert measure.calls_for(clock.task("A", 3.0), 0.5, clock) == 1


def test_warm_up_lasts_so_long_and_calls_once_at_the_least():
    clock = Clock()
    measure.warm(clock.task("A", 1.0), 2.5, clock)
    assert len(clock.calls) == 3
    measure.warm(clock.task("A", 1.0), 0.0, clock)
    assert len(clock.calls) == 4


# ---------------------------------------------------------------------------------------- races

ROW = Row("sums", "Sums.", lambda row, settings: ())
FAST = Settings(rounds=2, fresh=1, sample=0.0, warm=0.0, limit=1.0, small=True)


def _absent():
    raise ModuleNotFoundError


def test_a_race_says_who_is_absent():
    rivals = [
        Against("here", lambda: lambda: 1.0, faster(0.0)),
        Against("elsewhere", _absent, faster(2.0)),
    ]
    here, elsewhere = race(ROW, FAST, "", lambda: lambda: 1.0, rivals)
    assert here.holds
    assert here.low <= here.value <= here.high
    assert elsewhere.value is None
    assert elsewhere.holds is None
    assert elsewhere.note == "not installed"


def test_a_race_divides_as_its_target_says(monkeypatch):
    clock = Clock()
    timed = measure.timed
    monkeypatch.setattr("benchmarks.race.timed", lambda task, calls: timed(task, calls, clock))
    monkeypatch.setattr("benchmarks.race.calls_for", lambda task, seconds: 1)
    monkeypatch.setattr("benchmarks.race.warm", lambda task, seconds: None)
    rivals = [
        Against("slow", lambda: clock.task("slow", 8.0), target) for target in (faster(4), time(1))
    ]
    as_speed, as_time = (
        next(race(ROW, FAST, "", lambda: clock.task("ours", 2.0), [rival])).value
        for rival in rivals
    )
    assert (as_speed, as_time) == (4.0, 0.25)


def test_a_race_is_not_run_where_results_differ():
    rivals = [Against("wrong", lambda: lambda: (1.0, np.ones(3)), faster(1))]
    with pytest.raises(Disagreement, match=r"^sums one: ftrans and wrong differ by 1 of"):
        list(race(ROW, FAST, "one", lambda: lambda: (1.0, np.zeros(3)), rivals))


def test_agreement_takes_structure_and_nan_into_account():
    agree("x", "peer", {"b": np.ones(2), "a": 1.0}, {"a": 1.0, "b": np.ones(2)})
    for other in ([np.ones(3)], [np.full(2, np.nan)], [np.ones(2), np.ones(2)]):
        with pytest.raises(Disagreement):
            agree("x", "peer", [np.ones(2)], other)


# --------------------------------------------------------------------------------------- reports


def test_targets_bound_from_their_side():
    shown = {"row": "r"}
    assert Result(**shown, target=faster(3), value=3.0).holds
    assert Result(**shown, target=faster(3), value=2.9).holds is False
    assert Result(**shown, target=time(1.05), value=1.06).holds is False
    assert Result(**shown, target=compilations(1), value=1).holds
    assert Result(**shown, target=faster(None), value=3.0).holds is None
    assert Result(**shown, target=faster(3)).holds is None


def test_results_are_close_where_quartiles_lie_about_the_bound():
    shown = {"row": "r", "target": faster(3)}
    assert Result.of(Ratio(3.1, 2.9, 3.2), **shown).is_close
    assert not Result.of(Ratio(3.1, 3.05, 3.2), **shown).is_close
    assert not Result(**shown, value=2.9).is_close
    assert not Result.of(Ratio(3.1, 2.9, 3.2), row="r", target=faster(None)).is_close


def test_reports():
    results = [
        Result.of(Ratio(12.34, 11.0, 13.5), row="sums", peer="JAX", target=faster(20)),
        Result(row="sums", case="counted", target=compilations(2), value=1),
    ]
    assert line(results[0]).split() == (
        ["sums", "JAX", "12.3", "times", "faster", "(11", "to", "13.5)", "at", "least", "20", "no"]
    )
    assert markdown([ROW], results).splitlines()[2:] == [
        "| `sums`: Sums. |  | JAX | 12.3 times faster (11 to 13.5) | at least 20 | no |",
        "|  | counted |  | 1 compilations | at most 2 | yes |",
    ]
    assert summary(results) == "1 of 2 targets hold."
    listed = json.loads(as_json(results))["results"]
    assert listed[0]["value"] == 12.34
    assert listed[1]["holds"] is True


def test_command_line(capsys, tmp_path):
    assert main(["--list"]) == 0
    assert [text.split()[0] for text in capsys.readouterr().out.splitlines()] == [
        row.name for row in ROWS
    ]
    with pytest.raises(SystemExit):
        main(["no-such-row"])
    file = tmp_path / "found.json"
    assert main(["lambdas", "--quick", "--json", str(file)]) == 0
    found = json.loads(file.read_text())["results"]
    assert [(r["row"], r["value"], r["holds"]) for r in found] == [("lambdas", 1, True)]


def test_names_of_rows_are_distinct():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert QUICK.rounds < Settings().rounds


# ------------------------------------------------------------------------------- the same results

LIBRARIES = libraries.ftrans, libraries.jax


def _both(program):
    """Asserts that ftrans and JAX give the same for a program of a library."""
    ours, theirs = (program(library()) for library in LIBRARIES)
    agree("program", "JAX", ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("transform", ["grad", "hessian"])
def test_chain(transform):
    x = chain.vector(3)
    _both(lambda lib: getattr(lib, transform)(lambda x: chain.chain(lib.numpy, x))(x))


def test_chain_has_as_many_operations_as_it_says():
    traced = ftrans.trace(lambda x: chain.chain(ftrans.numpy, x))(chain.vector(8))
    jaxpr = jax.make_jaxpr(lambda x: chain.chain(jax.numpy, x))(chain.vector(8))
    assert len(jaxpr.eqns) == 31
    assert 29 <= len(traced.equations) <= 31  # that the same was computed twice is seen


def test_long_chain_grows_with_its_length():
    traced = ftrans.trace(lambda x: chain.long_chain(ftrans.numpy, x, 50))(chain.vector(3))
    assert 45 <= len(traced.equations) <= 55


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(
            lambda lib: lib.jit(
                lib.value_and_grad(lambda p: transformer.loss(lib, p, transformer.batch(1)))
            )(transformer.parameters(1)),
            marks=pytest.mark.slow,
        ),
        lambda lib: lib.value_and_grad(lambda p: lstm.loss(lib, p, lstm.batch(4, 2)))(
            lstm.parameters()
        ),
        lambda lib: lib.jit(
            lib.value_and_grad(lambda p: mixture.loss(lib, p, mixture.points(7, 3)))
        )(mixture.parameters(2, 3)),
        lambda lib: kepler.simulate(lib, *kepler.bodies(3), np.float32(0.05)),
        lambda lib: lib.grad(
            lambda v: kepler.spread_after(lib, kepler.bodies(3)[0], v, kepler.bodies(3)[2], 3)
        )(kepler.bodies(3)[1]),
        lambda lib: lib.grad(
            lambda p: perceptron.loss(lib.numpy, p, *perceptron.batch(4, (5, 3, 2)))
        )(perceptron.parameters((5, 3, 2))),
    ],
    ids=["transformer", "lstm", "mixture", "kepler", "kepler-grad", "perceptron"],
)
def test_models(model):
    _both(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["perceptron", "convolutions", "hessian of 64"])
def test_programs(name):
    def run(lib):
        function, arguments = PROGRAMS[name](lib)
        return lib.jit(function)(*arguments)

    _both(run)


def test_newton_steps_differ_in_number():
    _both(lambda lib: recompiling.newton_slopes(lib, 5))


def test_learning_rates_train():
    assert recompiling.learning_rates(8) < recompiling.learning_rates(1)


def test_the_calibration_of_the_policy_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, function, arrays = next(calibrate_policy.cases())
    monkeypatch.setattr(calibrate_policy, "cases", lambda: [(name, function, arrays)])
    monkeypatch.setattr(calibrate_policy, "of_sessions", lambda: [])
    calibrate_policy.main()
    case, *summary = capsys.readouterr().out.splitlines()
    assert case.startswith(name)
    assert [line.partition(":")[0] for line in summary] == ["interpreted", "compiled", "compiling"]
    assert all(line.endswith("of 1") for line in summary)
