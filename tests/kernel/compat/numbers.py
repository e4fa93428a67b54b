import cmath
import decimal
import fractions
import math
import statistics

decimal.getcontext().prec = 50
assert str(decimal.Decimal(2).sqrt()) == "1.4142135623730950488016887242096980785696718753769"
assert fractions.Fraction(1, 3) + fractions.Fraction(1, 6) == fractions.Fraction(1, 2)
assert math.factorial(100) % 10**24 == 0
assert abs(cmath.exp(1j * math.pi) + 1) < 1e-12
assert statistics.median([3, 1, 2]) == 2
assert len(str(2**10000)) == 3011
