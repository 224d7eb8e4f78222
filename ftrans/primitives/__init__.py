"""The primitives, each declared in one place with every rule that is known of it."""

from ftrans.primitives.arithmetic import add_p, mul_p, neg_p, sub_p
from ftrans.primitives.compare import eq_p, ge_p, gt_p, le_p, lt_p, ne_p
from ftrans.primitives.control import call_p, scan_p, switch_p, while_p
from ftrans.primitives.logic import and_p, not_p, or_p, shift_left_p, shift_right_p, xor_p
from ftrans.primitives.record import (
    LINEAR,
    Absent,
    Cost,
    Joint,
    Linear,
    New,
    Primitive,
    Recursive,
    Sample,
    registry,
    scalar,
    zero,
)
from ftrans.primitives.reduction import all_p, any_p, sum_p
from ftrans.primitives.select import convert_p, select_p, stop_gradient_p
from ftrans.primitives.shape import (
    broadcast_p,
    concatenate_p,
    iota_p,
    pad_p,
    reshape_p,
    rev_p,
    slice_p,
    transpose_p,
)
