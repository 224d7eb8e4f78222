"""The primitives, each declared in one place with every rule that is known of it."""

from ftrans.primitives.arithmetic import add_p, div_p, integer_pow_p, mul_p, neg_p, sub_p
from ftrans.primitives.compare import eq_p, ge_p, gt_p, le_p, lt_p, ne_p
from ftrans.primitives.complex import complex_p, conj_p, imag_p, real_p
from ftrans.primitives.control import call_p, scan_p, switch_p, while_p
from ftrans.primitives.cumulative import cumlogsumexp_p, cummax_p, cummin_p, cumprod_p, cumsum_p
from ftrans.primitives.elementary import (
    acos_p,
    acosh_p,
    asin_p,
    asinh_p,
    atan2_p,
    atan_p,
    atanh_p,
    cbrt_p,
    cos_p,
    cosh_p,
    exp2_p,
    exp_p,
    expm1_p,
    log1p_p,
    log_p,
    logistic_p,
    pow_p,
    rsqrt_p,
    sin_p,
    sinh_p,
    sqrt_p,
    tan_p,
    tanh_p,
)
from ftrans.primitives.logic import and_p, not_p, or_p, shift_left_p, shift_right_p, xor_p
from ftrans.primitives.magnitude import (
    abs_p,
    ceil_p,
    clamp_p,
    floor_p,
    is_finite_p,
    maximum_p,
    minimum_p,
    rem_p,
    round_p,
    sign_p,
)
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
from ftrans.primitives.reduction import (
    all_p,
    any_p,
    argmax_p,
    argmin_p,
    max_p,
    min_p,
    prod_p,
    sum_p,
)
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
from ftrans.primitives.special import (
    digamma_p,
    erf_inv_p,
    erf_p,
    erfc_p,
    lgamma_p,
    polygamma_p,
)
from ftrans.primitives.dot import dot_p
from ftrans.primitives.indexing import dynamic_slice_p, dynamic_update_slice_p, gather_p
from ftrans.primitives.scatter import (
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
)
from ftrans.primitives.sorting import sort_p
from ftrans.primitives.conv import conv_p
