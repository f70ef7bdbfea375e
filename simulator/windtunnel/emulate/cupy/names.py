"""Names of NumPy that CuPy has too."""

# ruff: noqa: SIM905  a text is easier to read and to search than a list of words

from __future__ import annotations

UFUNCS = tuple(
    """
    add subtract multiply divide true_divide floor_divide remainder mod fmod divmod power float_power negative
    positive absolute fabs sign rint conjugate exp exp2 expm1 log log2 log10 log1p sqrt cbrt square reciprocal sin
    cos tan arcsin arccos arctan arctan2 hypot sinh cosh tanh arcsinh arccosh arctanh degrees radians deg2rad
    rad2deg bitwise_and bitwise_or bitwise_xor bitwise_not invert left_shift right_shift bitwise_count greater
    greater_equal less less_equal not_equal equal logical_and logical_or logical_xor logical_not maximum minimum
    fmax fmin isfinite isinf isnan signbit copysign nextafter ldexp frexp modf floor ceil trunc logaddexp logaddexp2
    gcd lcm heaviside acos acosh asin asinh atan atan2 atanh bitwise_invert bitwise_left_shift bitwise_right_shift
    conj pow abs matmul
    """.split()
)
"""Universal functions."""
PLAIN = tuple(
    """
    all allclose amax amin angle any append apply_along_axis argmax argmin argpartition argsort around array_equal
    array_equiv array_split astype atleast_1d atleast_2d atleast_3d average bincount broadcast_arrays broadcast_to clip
    column_stack concat concatenate convolve corrcoef correlate count_nonzero cov cross cumprod cumsum cumulative_prod
    cumulative_sum delete diag diag_indices_from diagflat diagonal diff digitize dot dsplit dstack ediff1d einsum
    expand_dims fix flip fliplr flipud gradient histogram histogram2d histogramdd hsplit hstack i0 imag inner insert
    interp isclose iscomplex isin isreal kron lexsort matrix_transpose matvec max mean median meshgrid min moveaxis
    nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod
    nanquantile nanstd nansum nanvar outer packbits pad partition percentile permute_dims piecewise polyadd polyfit
    polymul polysub polyval prod ptp quantile ravel ravel_multi_index real real_if_close repeat reshape resize roll
    rollaxis rot90 round searchsorted select sinc sort sort_complex split squeeze stack std sum swapaxes take_along_axis
    tensordot tile trace transpose trapezoid tril triu trim_zeros unpackbits unravel_index unstack unwrap vander var
    vdot vecdot vecmat vsplit vstack where
    """.split()
)
"""Functions of whole arrays."""
METHODS = tuple(
    """
    all any argmax argmin argpartition argsort choose clip compress conj conjugate cumprod cumsum diagonal dot max mean
    min nonzero partition prod ptp ravel repeat round searchsorted squeeze std sum swapaxes trace var
    """.split()
)
"""Methods of arrays that are functions too."""
TYPES = tuple(
    """
    bool bool_ byte cdouble complex128 complex64 csingle double float16 float32 float64 half int16 int32 int64 int8 int_
    intc intp long longlong short single ubyte uint uint16 uint32 uint64 uint8 uintc uintp ulong ulonglong ushort
    """.split()
)
"""Types of elements, which are NumPy's."""
WITHOUT_ARRAYS = tuple(
    """
    base_repr binary_repr broadcast_shapes can_cast common_type complexfloating dtype e euler_gamma finfo floating
    format_float_positional format_float_scientific generic iinfo index_exp inexact inf integer isdtype isscalar
    issubdtype iterable min_scalar_type mintypecode nan newaxis number pi promote_types result_type s_ signedinteger
    unsignedinteger
    """.split()
)
"""Names that concern no arrays."""
DISTRIBUTIONS = tuple(
    """
    beta binomial chisquare dirichlet exponential f gamma geometric gumbel hypergeometric laplace logistic lognormal
    logseries multinomial multivariate_normal negative_binomial noncentral_chisquare noncentral_f pareto poisson power
    rayleigh standard_cauchy standard_exponential standard_gamma standard_t triangular vonmises wald weibull zipf
    """.split()
)
"""Distributions of random numbers."""
TRANSFORMS = tuple(
    """
    fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn hfft ihfft fftshift ifftshift
    """.split()
)
"""Functions of ``fft``."""
