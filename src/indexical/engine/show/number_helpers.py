"""Small functions of Python's numbers, which stand above what calls them, the same in every dialect."""

from __future__ import annotations

# The error of emitted code, which stands above all others.
REFUSED = "Refused"

HELPERS = {
    REFUSED: '''
class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""
''',
    "guarded": '''
def guarded(function, x):
    """A function of a number as IEEE has it: NaN off its domain, infinite where it overflows."""
    try:
        return function(x)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.inf
''',
    "logarithm": '''
def logarithm(x):
    """The logarithm of a number: -inf at 0, NaN below."""
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan
''',
    "logarithm_1p": '''
def logarithm_1p(x):
    """The logarithm of a number and 1: -inf at -1, NaN below."""
    return math.log1p(x) if x > -1 else -math.inf if x == -1 else math.nan
''',
    "divided": '''
def divided(a, b):
    """The quotient of two numbers, infinite or NaN where it is by 0."""
    if b:
        return a / b
    return math.copysign(math.inf, a) * math.copysign(1.0, b) if a == a and a else math.nan
''',
    "number_power": '''
def number_power(a, b):
    """A power of numbers, infinite or NaN where Python raises an error."""
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        return math.copysign(math.inf, a if b % 2 == 1 else 1) if a == 0 else math.nan
''',
    "number_remainder": '''
def number_remainder(a, b):
    """The remainder of two numbers with the sign of the first; NaN by 0, and of an infinity."""
    return math.fmod(a, b) if b and math.isfinite(a) else math.nan
''',
    "number_extreme": '''
def number_extreme(choose, *numbers):
    """The largest or the smallest of some numbers; NaN if one of them is."""
    return choose(numbers) if all(x == x for x in numbers) else math.nan
''',
    "number_rounded": '''
def number_rounded(function, x):
    """A number without its fraction; an infinity and NaN stay, and a zero keeps its sign."""
    return math.copysign(function(x), x) if math.isfinite(x) else x
''',
    "number_sigmoid": '''
def number_sigmoid(x):
    """1 / (1 + exp(-x)), without overflow."""
    small = math.exp(-abs(x))
    return (1.0 if x >= 0 else small) / (1 + small)
''',
    "number_silu": '''
def number_silu(x):
    """x times its sigmoid."""
    return x * number_sigmoid(x)
''',
    "number_gelu": '''
def number_gelu(x):
    """x · Φ(x)."""
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
''',
    "number_softplus": '''
def number_softplus(x):
    """log(1 + exp(x)), without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
''',
    "truncated": '''
def truncated(a, b):
    """A whole quotient, truncated toward zero."""
    if b == 0:
        raise Refused("IX505", "a whole number divided by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
''',
    "fitting": '''
def fitting(number):
    """A whole number that fits in 64 bits."""
    if not -(2**63) <= number < 2**63:
        raise Refused("IX505", "this whole number does not fit in 64 bits")
    return number
''',
    "whole_power": '''
def whole_power(a, b):
    """A whole power of a whole number."""
    if b < 0:
        raise Refused("IX505", "a whole number to a negative power is not whole")
    return a**b
''',
    "as_whole": '''
def as_whole(scalar):
    """A whole number as Python has it, of a number or of an array of one."""
    if int(scalar) != scalar:
        raise Refused("IX503", "a scalar is not a whole number")
    return int(scalar)
''',
}
