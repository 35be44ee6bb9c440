"""Statistics of the ledger (scripts/ledger.py), with the standard library only.

The test over seeds and test items is the one of src/core/base/seed_test.h: both are random effects. A
model's score comes with its scores on bootstrap resamples of the test set (draws), which have the same
segments for every model. With weights w_g on groups g of models (one group per variant and setting, sum of
w_g = 0 for a difference):

    estimate = sum over g of w_g mean_g
    s2_g     = variance of the scores of group g over its seeds
    i2_g     = seed x segment interaction, contained in s2_g
    v        = Var over draws of sum over g of w_g mean_g
    SE^2     = sum of w_g^2 s2_g / n_g  +  max(0, v - sum of w_g^2 i2_g / n_g)
    df       = SE^4 / sum of (w_g^2 s2_g / n_g)^2 / (n_g - 1)

Settings that a claim names are fixed: their differences are averaged with equal weights. Settings that
stand for others, as datasets do, are random: their differences take the place of the seeds
(over_settings)."""

import math
import statistics

# ---- distributions ----


def incomplete_beta(a, b, x):
    """I_x(a, b), by the continued fraction of Abramowitz and Stegun 26.5.8."""
    if x <= 0 or x >= 1:
        return float(x > 0)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x >= (a + 1) / (a + b + 2):
        return 1 - incomplete_beta_fraction(b, a, 1 - x) * front / b
    return incomplete_beta_fraction(a, b, x) * front / a


def incomplete_beta_fraction(a, b, x):
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    h = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 + term * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + term / c
            c = c if abs(c) > tiny else tiny
            h *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return h


def student_cdf(t, df):
    if df > 1e8:
        tail = 0.5 * math.erfc(abs(t) / math.sqrt(2))
    else:
        tail = 0.5 * incomplete_beta(df / 2, 0.5, df / (df + t * t))
    return 1 - tail if t > 0 else tail


def bisect(function, low, high):
    """The x at which the increasing function reaches 0."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return (low + high) / 2


def student_quantile(p, df):
    high = 1.0
    while student_cdf(high, df) < max(p, 1 - p):
        high *= 2
    return bisect(lambda t: student_cdf(t, df) - p, -high, high)


def binomial_interval(k, n, outside=0.05):
    """Clopper and Pearson's interval of a rate."""
    low = 0.0 if k == 0 else bisect(lambda p: incomplete_beta(k, n - k + 1, p) - outside / 2, 0, 1)
    high = 1.0 if k == n else bisect(lambda p: incomplete_beta(k + 1, n - k, p) - 1 + outside / 2, 0, 1)
    return low, high


def fisher_p(k1, n1, k2, n2):
    """Two-sided exact test of equal rates: the tables that are at most as probable as the one observed."""
    total = math.comb(n1 + n2, k1 + k2)
    probabilities = {
        k: math.comb(n1, k) * math.comb(n2, k1 + k2 - k) / total
        for k in range(max(0, k1 + k2 - n2), min(n1, k1 + k2) + 1)
    }
    return min(1.0, sum(p for p in probabilities.values() if p <= probabilities[k1] * (1 + 1e-9)))


# ---- means ----


def mean(values):
    return math.fsum(values) / len(values)


def variance(values):
    center = mean(values)
    return math.fsum((value - center) ** 2 for value in values) / (len(values) - 1)


def median(values):
    return statistics.median(values)


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    result = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for i in range(at, end + 1):
            result[order[i]] = (at + end) / 2
        at = end + 1
    return result


def correlation(x, y):
    mx, my = mean(x), mean(y)
    spread = math.sqrt(math.fsum((a - mx) ** 2 for a in x) * math.fsum((b - my) ** 2 for b in y))
    return math.fsum((a - mx) * (b - my) for a, b in zip(x, y)) / spread if spread else 0.0


def spearman(x, y):
    return correlation(ranks(x), ranks(y))


def slope(x, y):
    mx, my = mean(x), mean(y)
    return math.fsum((a - mx) * (b - my) for a, b in zip(x, y)) / math.fsum((a - mx) ** 2 for a in x)


# ---- effects ----


class Effect:
    """An estimate with its standard error and degrees of freedom."""

    def __init__(self, value, error, df, n):
        self.value, self.error, self.df, self.n = value, error, df, n
        half = error * student_quantile(0.975, df) if error else 0.0
        self.low, self.high = value - half, value + half
        self.p = 2 * student_cdf(-abs(value) / error, df) if error else float(value == 0)

    def equivalence(self, margin):
        """p of the two one-sided tests (Schuirmann 1987): small means that the effect is within the
        margin."""
        if not self.error:
            return float(abs(self.value) >= margin)
        return max(
            student_cdf((self.value - margin) / self.error, self.df),
            student_cdf((-margin - self.value) / self.error, self.df),
        )

    def beyond(self, bound, sign=1):
        """p of the two-sided test that sign times the effect lies above the bound, 1 if it is below."""
        distance = sign * (self.value - bound)
        if not self.error:
            return float(distance <= 0)
        return min(1.0, 2 * student_cdf(-distance / self.error, self.df))

    def seeds_for(self, size):
        """Seeds per variant with which an effect of this size is found at 5 % with 80 % power, with the
        present variances."""
        if not self.error:
            return self.n
        n = 2
        while n < 100000:
            error, df = self.error * math.sqrt(self.n / n), max(1.0, self.df * (n - 1) / max(1, self.n - 1))
            if abs(size) >= error * (student_quantile(0.975, df) + student_quantile(0.8, df)):
                return n
            n += max(1, n // 50)
        return n

    def text(self, digits=2):
        return f"{self.value:+.{digits}f} ({self.low:+.{digits}f} to {self.high:+.{digits}f})"


def over_seeds(values):
    """The mean of a quantity that each seed has once, as a paired difference: t over seeds."""
    return Effect(mean(values), math.sqrt(variance(values) / len(values)), len(values) - 1, len(values))


def contrast(groups):
    """groups: (weight, scores, draws), draws[s][k] the score of seed s on resample k; empty if there are
    none."""
    value, seeds, spread, interaction = 0.0, 0.0, 0.0, 0.0
    n_draws = min(len(draws[0]) if draws else 0 for _, _, draws in groups)
    sums = [0.0] * n_draws
    for weight, scores, draws in groups:
        n = len(scores)
        value += weight * mean(scores)
        part = weight**2 * variance(scores) / n
        seeds += part
        spread += part**2 / (n - 1)
        if n_draws:
            means = [mean([draw[k] for draw in draws]) for k in range(n_draws)]
            sums = [a + weight * b for a, b in zip(sums, means)]
            between = math.fsum(variance([draw[k] - means[k] for k in range(n_draws)]) for draw in draws) / (
                n - 1
            )
            interaction += weight**2 * between / n
    items = max(0.0, variance(sums) - interaction) if n_draws else 0.0
    total = seeds + items
    return Effect(
        value, math.sqrt(total), total**2 / spread if spread else math.inf, min(len(g[1]) for g in groups)
    )


def over_settings(differences):
    """differences: (value, draws) per setting, a random sample of settings. The spread over settings contains
    that of the seeds."""
    values = [setting[0] for setting in differences]
    return contrast([(1.0, values, [setting[1] for setting in differences])])


def holm(p_values):
    """Holm's correction, in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    result, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        result[i] = largest
    return result
