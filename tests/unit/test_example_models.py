"""The models among the examples, in brief: what they compute against what is computed otherwise."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import assert_close

MODELS = Path(__file__).parents[2] / "examples" / "models"


def load(name: str) -> Any:
    pytest.importorskip("matplotlib", reason="examples draw")
    spec = importlib.util.spec_from_file_location(name, MODELS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "brief"),
    [
        ("gaussian_process", ["--points", "60"]),
        ("kalman_smoother", ["--steps", "80"]),
        ("spectral_solver", []),
        ("normalizing_flow", ["--steps", "400"]),
        ("hamiltonian", ["--draws", "300"]),
        ("transformer", ["--steps", "250"]),
    ],
)
def test_a_model_reaches_its_goal_and_draws_it(name: str, brief: list[str], tmp_path: Path) -> None:
    out = tmp_path / "figure.png"
    assert load(name).main([*brief, "--out", str(out)]) == 0
    assert out.stat().st_size > 10_000


def test_gaussian_process() -> None:
    module = load("gaussian_process")
    from scipy.stats import multivariate_normal

    t = np.linspace(0, 3, 7)
    y, theta = np.sin(t), np.log([0.8, 1.5, 2.0, 0.2])
    density = multivariate_normal(np.zeros(7), module.covariance(theta, t)).logpdf(y)
    assert_close(module.loss(theta, t, y), -density / 7, 1e-10)


def test_kalman_smoother() -> None:
    module = load("kalman_smoother")
    # all states at once are one Gaussian, of which some coordinates are seen
    steps, log_noise = 6, np.log([0.7, 0.3])
    _, seen = module.simulate(steps, np.random.default_rng(1))
    model, moved = module.dynamics(), module.push() @ module.push().T * 0.49
    spread, blocks = 4 * np.eye(4), []
    for _ in range(steps):
        spread = model @ spread @ model.T + moved
        blocks.append(spread)
    power = np.linalg.matrix_power
    whole = np.block(
        [
            [
                power(model, i - j) @ blocks[j] if i >= j else blocks[i] @ power(model, j - i).T
                for j in range(steps)
            ]
            for i in range(steps)
        ]
    )
    look = np.kron(np.eye(steps), module.SEEN)
    scale = look @ whole @ look.T + 0.09 * np.eye(2 * steps)
    expected = whole @ look.T @ np.linalg.solve(scale, seen.ravel())
    smooth, after = module.smoothed(log_noise, seen)
    assert_close(smooth, expected.reshape(steps, 4), 1e-9)
    assert_close(smooth[-1], after[-1], 1e-9)
    z = seen.ravel()
    density = z @ np.linalg.solve(scale, z) + np.linalg.slogdet(2 * np.pi * scale)[1]
    total, _ = module.filtered(log_noise, seen, np.zeros((steps, 4)))
    assert_close(total, -density / 2, 1e-9)


def test_spectral_solver() -> None:
    module = load("spectral_solver")
    x = module.grid(128)
    end, states = module.solve(module.initial(x))
    assert states.shape == (module.STEPS, 128)
    assert_close(end, module.exact(x), 3e-4)


def test_normalizing_flow() -> None:
    module = load("normalizing_flow")
    rng = np.random.default_rng(0)
    params = module.initialise(rng)
    for layer in params:
        layer[-1]["w"] = 10 * layer[-1]["w"]  # away from the identity that it begins as
    apart, back, mass = module.check(params, rng)
    assert apart < 1e-4
    assert back < 1e-3
    assert abs(mass - 1) < 0.1


def test_hamiltonian() -> None:
    module = load("hamiltonian")
    from scipy.stats import cauchy, norm

    q = np.random.default_rng(0).normal(size=10)
    mean, spread = 5 * q[0], np.exp(q[1])
    effects = mean + spread * q[2:]
    expected = (
        norm(0, 5).logpdf(mean)
        + cauchy(0, 5).logpdf(spread)
        + q[1]
        + norm(mean, spread).logpdf(effects).sum()
        + norm(effects, module.ERRORS).logpdf(module.EFFECTS).sum()
    )
    jacobian = 8 * np.log(spread)  # of the effects in the places
    origin = module.log_density(np.zeros(10))
    at_origin = (
        norm(0, 5).logpdf(0)
        + cauchy(0, 5).logpdf(1)
        + norm(0, 1).logpdf(np.zeros(8)).sum()
        + norm(0, module.ERRORS).logpdf(module.EFFECTS).sum()
    )
    assert_close(module.log_density(q) - origin, expected + jacobian - at_origin, 1e-10)
    # time runs back to where it began
    slope, _ = module.downhill(q)
    momentum = np.linspace(-1, 1, 10)
    there, after, slope, _ = module.leap(q, momentum, slope, 0.1, 5)
    back, before, _, _ = module.leap(there, -after, slope, 0.1, 5)
    assert_close(back, q, 1e-10)
    assert_close(before, -momentum, 1e-10)


def test_transformer() -> None:
    module = load("transformer")
    import ftrans

    params = module.initialise(ftrans.random.key(0))
    text = np.arange(20, dtype="int32")[None] % len(module.LETTERS)
    logits = module.predict(params, text)
    assert logits.shape == (1, 20, len(module.LETTERS))
    changed = np.concatenate([text[:, :12], text[:, 12:] + 3], 1)
    assert_close(module.predict(params, changed)[:, :12], logits[:, :12], 1e-5)
    rng = ftrans.random.default_rng(0)
    first, second = (module.predict(params, text, rng) for _ in range(2))
    assert np.abs(first - second).max() > 0.01, "another mask"
