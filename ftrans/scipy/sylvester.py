"""Sylvester's equation, square roots and polar factors by JAX, with derivatives that it lacks."""

from __future__ import annotations

import functools
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


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _unitary(A: Any, options: tuple[Any, ...]) -> jax.Array:
    side, method, eps, max_iterations = options
    return of_jax.polar(A, side, method=method, eps=eps, max_iterations=max_iterations)[0]


@_unitary.defjvp
def _unitary_jvp(options: tuple[Any, ...], primals: Any, tangents: Any) -> Any:
    unitary = _unitary(*primals, options)
    is_wide = unitary.shape[0] < unitary.shape[1]
    U, A, T = (x.mT.conj() if is_wide else x for x in (unitary, *primals, *tangents))
    P, inner = U.mT.conj() @ A, U.mT.conj() @ T
    P = (P + P.mT.conj()) / 2
    turn = solve_sylvester(P, P, inner - inner.mT.conj()).astype(U.dtype)
    away = jnp.linalg.solve(P, (T - U @ inner).mT.conj()).mT.conj()
    change = U @ turn + away
    return unitary, change.mT.conj() if is_wide else change


def polar(a: Any, side: str, *options: Any) -> tuple[jax.Array, jax.Array]:
    """Returns a unitary and a semidefinite factor of one matrix; derivatives ask for full rank."""
    U = _unitary(a, (side, *options))
    P = U.mT.conj() @ a if side == "right" else a @ U.mT.conj()
    return U, (P + P.mT.conj()) / 2
