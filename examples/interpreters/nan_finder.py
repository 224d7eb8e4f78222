"""Where a NaN comes from: the operations that make one, or an infinity, and their lines.

    print(find_nans(func.grad(loss))(params))

An operation of a derivative is from the line that it is the derivative of.
"""

import numpy as np

import ftrans

KINDS = {"NaN": np.isnan, "infinity": np.isinf}


class NaNFinder(ftrans.Interpreter):
    def __init__(self):
        self.found = {}

    def known(self, value):
        return value

    def default(self, operation, *values):
        result = operation.evaluate(*values)
        results = result if isinstance(result, list) else [result]
        for kind, test in KINDS.items():
            if any(np.any(test(x)) for x in results) and not any(np.any(test(x)) for x in values):
                line = f"{operation.location}: {operation.name} makes {kind}"
                self.found[f"{line} in `{operation.location.source}`"] = kind  # each once
        return result


def find_nans(func):
    def finding(*args, **kwargs):
        finder = NaNFinder()
        finder(func)(*args, **kwargs)
        return "\n".join(finder.found) if "NaN" in finder.found.values() else ""

    return finding
