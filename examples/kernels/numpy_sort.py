"""NumPy's sort, with a rule for forward mode: all other derivatives are derived from that.

    sort(np.array([3.0, 1.0, 2.0]))
    func.hessian(lambda x: (weights * sort(x)).sum())(x)

The rule is linear in the tangents, and traced: so it is transposed, batched and differentiated.
"""

import numpy as np

import ftrans
import ftrans.numpy as fnp


def _sorted(x):
    order = np.argsort(x, axis=-1)
    return np.take_along_axis(x, order, axis=-1), order


def _rule(primals, tangents):
    values, order = _sort(*primals)
    return (values, order), (fnp.take_along_axis(tangents[0], order, axis=-1), None)


_sort = ftrans.external(
    _sorted,
    lambda x: (x, ftrans.ArrayType(x.shape, "int64")),
    vmap_method="broadcast_all",  # one call sorts a whole batch, since it sorts the last axis
    jvp=_rule,
)


def sort(x):
    return _sort(x)[0]
