"""Functions of PyTorch under the transforms of ftrans, on the memory of the arrays by DLPack.

    erfcx = from_torch(torch.special.erfcx)
    func.hessian(lambda x: erfcx(x).sum())(x)

Its rule asks PyTorch for the pullback, which is a function of PyTorch again, and is wrapped in the
same way: so each order asks PyTorch for one more. A batch is asked of `torch.func.vmap`.
"""

import numpy as np
import torch

import ftrans


def from_torch(function, name=None):
    """Returns a function of arrays that calls one of tensors."""

    def call(*arrays):
        with torch.no_grad():
            return function(*[torch.from_dlpack(np.asarray(x)) for x in arrays])

    def out_type(*types):
        # on tensors without data, PyTorch only infers what it would return
        given = [torch.empty(t.shape, dtype=_dtype(t), device="meta") for t in types]
        found = function(*given)
        single = isinstance(found, torch.Tensor)
        types = [
            ftrans.ArrayType(tuple(t.shape), str(t.dtype).removeprefix("torch."))
            for t in ((found,) if single else found)
        ]
        return types[0] if single else tuple(types)

    def pull(primals, out, ct):
        def pullback(*tensors):
            *inputs, cotangent = tensors
            return torch.func.vjp(function, *inputs)[1](cotangent)

        return from_torch(pullback, f"pullback of {shown}")(*primals, ct)

    def batch(size, in_batched, *args):
        dims = tuple(0 if batched else None for batched in in_batched)
        return from_torch(torch.func.vmap(function, dims), shown)(*args), True

    shown = name or getattr(function, "__name__", "function")
    return ftrans.external(call, out_type, vmap_method=batch, vjp=pull, name=shown)


def _dtype(t):
    return getattr(torch, t.dtype.name)
