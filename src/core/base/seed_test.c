#include "base/seed_test.h"

#include <math.h>

#include "base/memory.h"
#include "base/summary.h"

/* Continued fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8), evaluated by Lentz's
 * method. */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double h = d;
    for (int m = 1; m < 500; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        const double terms[] = {even, odd};
        double factor = 1;
        for (int i = 0; i < 2; i++) {
            d = 1 + terms[i] * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + terms[i] / c;
            c = fabs(c) < tiny ? tiny : c;
            factor = c * d;
            h *= factor;
        }
        if (fabs(factor - 1) < 1e-15)
            break;
    }
    return h;
}

/* I_x(a, b) */
static double incomplete_beta(double a, double b, double x)
{
    if (x <= 0 || x >= 1)
        return x > 0;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                     : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double nm_student_cdf(double t, double df)
{
    if (isnan(t) || isnan(df))
        return NAN;
    /* Above 1e8 degrees of freedom the normal distribution differs from Student's by less than 2e-9. */
    double tail = df > 1e8 ? 0.5 * erfc(fabs(t) / sqrt(2))
                           : 0.5 * incomplete_beta(df / 2, 0.5, isinf(t) ? 0 : df / (df + t * t));
    return t > 0 ? 1 - tail : tail;
}

double nm_student_quantile(double p, double df)
{
    double low = -1, high = 1;
    while (nm_student_cdf(low, df) > p && low > -1e300)
        low *= 2;
    while (nm_student_cdf(high, df) < p && high < 1e300)
        high *= 2;
    for (int i = 0; i < 200 && high - low > 1e-13 * fmax(1, fabs(low)); i++) {
        double middle = 0.5 * (low + high);
        if (nm_student_cdf(middle, df) < p)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

/* Variance over the resamples k of sum_s weight_s r_sk, over the models s of one group (b is NULL) or two. */
static double resample_variance(const nm_seed_scores *a, const double *weights_a, const nm_seed_scores *b,
                                const double *weights_b)
{
    NM_AUTO_FREE double *sums = nm_allocate(a->n_resamples * sizeof *sums);
    for (size_t k = 0; k < a->n_resamples; k++) {
        for (size_t s = 0; s < a->n; s++)
            sums[k] += weights_a[s] * a->resamples[s][k];
        for (size_t s = 0; b && s < b->n; s++)
            sums[k] += weights_b[s] * b->resamples[s][k];
    }
    double deviation = nm_summary_of(sums, a->n_resamples).deviation;
    return deviation * deviation;
}

static double *equal_weights(size_t n, double sum)
{
    double *weights = nm_allocate(n * sizeof *weights);
    for (size_t s = 0; s < n; s++)
        weights[s] = sum / (double)n;
    return weights;
}

/* i2_g: interaction of seeds and segments. */
static double interaction_variance(const nm_seed_scores *g)
{
    double sum = 0;
    for (size_t s = 0; s < g->n; s++) {
        NM_AUTO_FREE double *weights = equal_weights(g->n, -1);
        weights[s] += 1;
        sum += resample_variance(g, weights, NULL, NULL);
    }
    return sum / (double)(g->n - 1);
}

/* s2_g / n_g: variance of the mean over seeds. */
static double seed_variance(const nm_seed_scores *g)
{
    double deviation = nm_summary_of(g->scores, g->n).deviation;
    return deviation * deviation / (double)g->n;
}

/* i2_g / n_g: the part of the variance over segments that seed_variance contains. */
static double interaction_of_mean(const nm_seed_scores *g)
{
    return interaction_variance(g) / (double)g->n;
}

static double mean_score(const nm_seed_scores *g)
{
    return nm_summary_of(g->scores, g->n).mean;
}

static nm_seed_difference test_of(double value, double variance, double df, double outside)
{
    nm_seed_difference d = {value, sqrt(variance), df, NAN, NAN, value == 0};
    double half = variance > 0 ? d.standard_error * nm_student_quantile(1 - outside / 2, df) : 0;
    if (variance > 0)
        d.p = 2 * nm_student_cdf(-fabs(value) / d.standard_error, df);
    d.low = value - half;
    d.high = value + half;
    return d;
}

nm_seed_difference nm_seed_test(const nm_seed_scores *a, const nm_seed_scores *b, double outside)
{
    nm_seed_difference d = {mean_score(a) - mean_score(b), NAN, NAN, NAN, NAN, NAN};
    if (a->n < 2 || b->n < 2)
        return d;
    NM_AUTO_FREE double *weights_a = equal_weights(a->n, 1), *weights_b = equal_weights(b->n, -1);
    double segments = resample_variance(a, weights_a, b, weights_b);
    double va = seed_variance(a), vb = seed_variance(b);
    double variance = va + vb + fmax(0, segments - interaction_of_mean(a) - interaction_of_mean(b));
    double spread = va * va / (double)(a->n - 1) + vb * vb / (double)(b->n - 1);
    double df = spread > 0 ? variance * variance / spread : INFINITY;
    return test_of(d.value, variance, df, outside);
}

nm_seed_difference nm_seed_mean_test(const nm_seed_scores *g, double outside)
{
    double mean = mean_score(g);
    if (g->n < 2)
        return (nm_seed_difference){mean, NAN, NAN, NAN, NAN, NAN};
    double seeds = seed_variance(g), variance = seeds;
    if (g->n_resamples) {
        NM_AUTO_FREE double *weights = equal_weights(g->n, 1);
        variance += fmax(0, resample_variance(g, weights, NULL, NULL) - interaction_of_mean(g));
    }
    double df = seeds > 0 ? variance * variance * (double)(g->n - 1) / (seeds * seeds) : INFINITY;
    return test_of(mean, variance, df, outside);
}

nm_interval nm_seed_interval(const nm_seed_scores *g, double outside)
{
    nm_bootstrap_config config = nm_bootstrap_default();
    config.outside = outside;
    config.n_resamples = (int)g->n_resamples;
    if (g->n < 2)
        return nm_bootstrap_interval_of(g->resamples[0], &config);
    nm_seed_difference d = nm_seed_mean_test(g, outside);
    return (nm_interval){d.value, d.low, d.high};
}

double nm_seed_equivalence(const nm_seed_difference *d, double margin)
{
    if (!(d->standard_error > 0))
        return d->standard_error == 0 ? !(fabs(d->value) < margin) : NAN;
    double above = nm_student_cdf((d->value - margin) / d->standard_error, d->df);
    double below = nm_student_cdf((-margin - d->value) / d->standard_error, d->df);
    return fmax(above, below);
}
