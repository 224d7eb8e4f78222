"""`check_rules`: all checks, on all samples and on what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.custom.verify.batching import check_batches
from ftrans.custom.verify.call import Call
from ftrans.custom.verify.compiled import check_jit
from ftrans.custom.verify.derivatives import check_derivatives
from ftrans.custom.verify.properties import check_linear, check_parts, check_pure, check_unused
from ftrans.custom.verify.report import Report
from ftrans.custom.verify.second import check_higher
from ftrans.custom.verify.trial import Trial
from ftrans.func.staging import name_of
from ftrans.traceback import boundary

__all__ = ["check_rules"]


@boundary
def check_rules(F: Callable[..., Any], *samples: Any, order: int = 2) -> Report:
    """TODO"""
    import time, os

    report = Report(name_of(F))
    for sample in samples:
        args = sample if isinstance(sample, tuple) else (sample,)
        trial = Trial(Call(F, args), report, str(args))
        for c in (
            check_derivatives,
            check_linear,
            lambda t: check_pure(t, None),
            check_parts,
            check_unused,
            lambda t: check_higher(t, order),
            check_batches,
            check_jit,
        ):
            t = time.perf_counter()
            c(trial)
            if os.environ.get("T"):
                print("   ", getattr(c, "__name__", "?"), round((time.perf_counter() - t) * 1e3, 1))
    return report
