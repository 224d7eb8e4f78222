"""Sylvester's equation and square roots of matrices by JAX, with derivatives that it lacks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as of_jax


def solve_sylvester(
    A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8
) -> jax.Array:
    """Solves `A @ X + X @ B = C`; its derivatives are solutions of such equations."""
    A, B, C = (x.astype(jnp.result_type(A, B, C, 1.0)) for x in map(jnp.asarray, (A, B, C)))

    def solve(A: Any, B: Any, C: Any) -> Any:
        return of_jax.solve_sylvester(A, B, C, method=method, tol=tol)

    return jax.lax.custom_linear_solve(
        lambda X: A @ X + X @ B,
        jnp.broadcast_to(C, jax.eval_shape(solve, A, B, C).shape),
        lambda _, C: solve(A, B, C),
        lambda _, C: solve(A.mT, B.mT, C),
    )


@jax.custom_jvp
def sqrtm(A: Any) -> jax.Array:
    """Returns the principal square root of one matrix, which is complex."""
    return of_jax.sqrtm(A)


@sqrtm.defjvp
def _sqrtm_jvp(primals: Any, tangents: Any) -> Any:
    root = sqrtm(*primals)
    return root, solve_sylvester(root, root, tangents[0].astype(root.dtype))
