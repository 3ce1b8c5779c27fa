"""The normal distribution.

``statistics.NormalDist`` says the same, but ``statistics`` brings fractions, decimals and random
numbers with it, and takes as long to import as a small answer takes to make.
"""

from __future__ import annotations

import math

_CENTRAL = 0.425
"""Of the distance of a probability from one half, up to where the first fraction holds."""
_TAIL = 5.0
# M. J. Wichura, Algorithm AS 241: The Percentage Points of the Normal Distribution, Applied
# Statistics 37 (1988), PPND16: numerator and denominator, highest power first; exact to 1e-16.
_MIDDLE = (
    (2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4,
     4.5921953931549871457e+4, 1.3731693765509461125e+4, 1.9715909503065514427e+3,
     1.3314166789178437745e+2, 3.3871328727963666080e+0),
    (5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4,
     2.1213794301586595867e+4, 5.3941960214247511077e+3, 6.8718700749205790830e+2,
     4.2313330701600911252e+1, 1.0),
)  # fmt: skip
_NEAR = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
     1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
     4.63033784615654529590e+0, 1.42343711074968357734e+0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
     1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e+0,
     2.05319162663775882187e+0, 1.0),
)  # fmt: skip
_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
     2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
     5.46378491116411436990e+0, 6.65790464350110377720e+0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
     7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
     5.99832206555887937690e-1, 1.0),
)  # fmt: skip

_Fraction = tuple[tuple[float, ...], tuple[float, ...]]


def normal_quantile(probability: float) -> float:
    """Return the value that is exceeded with probability 1 - ``probability``.

    Raises:
        ValueError: it is not between 0 and 1.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability {probability} is not between 0 and 1")
    beside = probability - 0.5
    if abs(beside) <= _CENTRAL:
        return beside * _value(_MIDDLE, 0.180625 - beside * beside)
    depth = math.sqrt(-math.log(probability if beside <= 0.0 else 1.0 - probability))
    found = _value(_NEAR, depth - 1.6) if depth <= _TAIL else _value(_FAR, depth - _TAIL)
    return -found if beside < 0.0 else found


def normal_cdf(value: float) -> float:
    """Return the probability of less than ``value``."""
    return 0.5 * math.erfc(-value / math.sqrt(2.0))


def _value(fraction: _Fraction, at: float) -> float:
    above, below = (_polynomial(powers, at) for powers in fraction)
    return above / below


def _polynomial(coefficients: tuple[float, ...], at: float) -> float:
    total = 0.0
    for coefficient in coefficients:
        total = total * at + coefficient
    return total
