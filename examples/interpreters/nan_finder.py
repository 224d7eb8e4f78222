"""Where a NaN comes from: the operations that make one out of numbers, and the lines they are from.

    print(find_nans(func.grad(loss))(params))

An operation of a derivative is from the line that it is the derivative of.
"""

import numpy as np

import ftrans


class NaNFinder(ftrans.Interpreter):
    def __init__(self):
        self.found = []

    def known(self, value):
        return value

    def default(self, operation, *values):
        result = operation.evaluate(*values)
        results = result if isinstance(result, list) else [result]
        if any(map(has_nan, results)) and not any(map(has_nan, values)):
            self.found.append(operation)
        return result


def has_nan(x):
    return bool(np.any(x != x))


def find_nans(func):
    def finding(*args, **kwargs):
        finder = NaNFinder()
        finder(func)(*args, **kwargs)
        lines = [f"{o.location}: {o.name} in `{o.location.source}`" for o in finder.found]
        return "\n".join(dict.fromkeys(lines))  # each once

    return finding
