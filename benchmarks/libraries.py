"""The libraries that are compared, each as the names that the models use.

A model is written once and is handed one of these. Peers are imported when they are asked for, and
`ModuleNotFoundError` says that one is not installed.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["autograd", "ftrans", "jax", "torch"]


_TRANSFORMS = ("grad", "value_and_grad", "hessian", "vmap", "jit", "checkpoint")


def _transforms(lib: Any) -> dict[str, Any]:
    """Returns what ftrans and JAX call alike."""
    return {name: getattr(lib, name) for name in _TRANSFORMS}


@functools.cache
def ftrans() -> Any:
    """Returns ftrans; its arrays are NumPy's, and `device` puts them where compiled code is fed."""
    import jax.numpy as jnp

    import ftrans as lib
    from ftrans.primitives import conv_p

    def conv(x: Any, kernel: Any) -> Any:
        return conv_p(
            x,
            kernel,
            strides=(1, 1),
            padding=((1, 1), (1, 1)),
            lhs_dilation=(1, 1),
            rhs_dilation=(1, 1),
            feature_groups=1,
            batch_groups=1,
        )

    return SimpleNamespace(
        name="ftrans",
        numpy=lib.numpy,
        array=np.asarray,
        device=jnp.asarray,
        **_transforms(lib),
        scan=lib.scan,
        while_loop=lib.while_loop,
        conv=conv,
        gelu=lib.numpy.gelu,
        softmax=lib.numpy.softmax,
        logsumexp=lib.numpy.logsumexp,
    )


@functools.cache
def jax() -> Any:
    """Returns JAX."""
    import jax as lib
    import jax.numpy as jnp

    def conv(x: Any, kernel: Any) -> Any:
        return lib.lax.conv_general_dilated(x, kernel, (1, 1), ((1, 1), (1, 1)))

    return SimpleNamespace(
        name="jax",
        numpy=jnp,
        array=jnp.asarray,
        device=jnp.asarray,
        **_transforms(lib),
        scan=lib.lax.scan,
        while_loop=lib.lax.while_loop,
        conv=conv,
        gelu=functools.partial(lib.nn.gelu, approximate=False),
        softmax=lib.nn.softmax,
        logsumexp=lib.scipy.special.logsumexp,
    )


@functools.cache
def torch() -> Any:
    """Returns PyTorch, in eager mode, with `torch.func`'s transforms, and NumPy's names of it."""
    import torch as lib

    class Names:
        """Is the module, but for what is called otherwise in NumPy."""

        split = staticmethod(lib.tensor_split)
        take_along_axis = staticmethod(lambda x, i, axis: lib.take_along_dim(x, i.long(), axis))

        @staticmethod
        def where(condition: Any, x: Any, y: Any) -> Any:
            return lib.where(lib.as_tensor(condition), x, y)

        def __getattr__(self, name: str) -> Any:
            return getattr(lib, name)

    return SimpleNamespace(
        name="torch",
        numpy=Names(),
        array=lib.as_tensor,
        grad=lib.func.grad,
        hessian=lib.func.hessian,
        vmap=lib.func.vmap,
        gelu=lib.nn.functional.gelu,
        softmax=lambda x, axis: lib.softmax(x, axis),
        logsumexp=lambda x, axis: lib.logsumexp(x, axis),
    )


@functools.cache
def autograd() -> Any:
    """Returns HIPS autograd."""
    import autograd as lib
    import autograd.numpy as anp

    return SimpleNamespace(name="autograd", numpy=anp, array=np.asarray, grad=lib.grad)
