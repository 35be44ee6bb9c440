/* Xavier normal and SmallInit: Nguyen and Salazar 2019, section 2.3 and table 2. RBN's scheme is fairseq's
 * with PyTorch's defaults in the feed-forward layers of the encoder. The schemes that depend on the depth
 * multiply the initial values of values, output projections and feed-forward layers:
 *     deepnorm    Xavier normal;   encoder 0.87 (N^4 M)^(-1/16), decoder (12 M)^(-1/4), a single stack (8
 *                 L)^(-1/4)
 *     torchscale  PyTorch's linear layers, weights and biases; encoder 1.15 (N^4 M)^(-1/16), otherwise the
 *                 same factors
 *     subln       PyTorch's linear layers, weights and biases; encoder sqrt(ln(3 M) ln(2 N) / 3), decoder
 *                 sqrt(ln(3 M)), a
 *                 single stack sqrt(ln(2 L)); attention to the encoder has the factor 1
 *     tfixup      Xavier uniform;  encoder 0.67 N^(-1/4), decoder (9 M)^(-1/4), embeddings (9 N)^(-1/4) and
 *                 (9 M)^(-1/4);
 *                 queries and keys have the gain 1/sqrt(2)
 * admin has fairseq's initial values, and train/profile_init.c sets omega of the residual connections. */
#include "nn/init_scheme.h"

#include <math.h>

static const nm_init zeros = {NM_INIT_CONSTANT, 0}, xl_init = {NM_INIT_NORMAL, 0.02};

static nm_init xavier_normal(double fan_in, double fan_out)
{
    return (nm_init){.kind = NM_INIT_NORMAL, .scale = sqrt(2 / (fan_in + fan_out))};
}

static nm_init xavier_uniform(double fan_in, double fan_out, double gain)
{
    return (nm_init){.kind = NM_INIT_UNIFORM, .scale = gain * sqrt(6 / (fan_in + fan_out))};
}

static nm_init torch_linear(double fan_in)
{
    return (nm_init){.kind = NM_INIT_UNIFORM, .scale = 1 / sqrt(fan_in)};
}

nm_init nm_init_scaled(nm_init init, double factor)
{
    return (nm_init){init.kind, factor * init.scale};
}

static bool has_torch_linear(nm_init_scheme scheme)
{
    return scheme == NM_SCHEME_TORCHSCALE || scheme == NM_SCHEME_SUBLN;
}

static double root(double x, double n)
{
    return pow(x, 1 / n);
}

double nm_deepnorm_alpha(nm_depths depths, bool decoder)
{
    double n = depths.encoder, m = depths.decoder;
    if (!depths.encoder || !depths.decoder)
        return root(2 * (n + m), 4);
    return decoder ? root(3 * m, 4) : 0.81 * root(pow(n, 4) * m, 16);
}

/* encoder_gain: 0.87 or 1.15. */
static double deepnorm_beta(nm_depths depths, bool decoder, double encoder_gain)
{
    double n = depths.encoder, m = depths.decoder;
    if (!depths.encoder || !depths.decoder)
        return 1 / root(8 * (n + m), 4);
    return decoder ? 1 / root(12 * m, 4) : encoder_gain / root(pow(n, 4) * m, 16);
}

static double subln_gain(nm_depths depths, bool decoder)
{
    double n = depths.encoder, m = depths.decoder;
    if (!depths.encoder || !depths.decoder)
        return sqrt(log(2 * (n + m)));
    return decoder ? sqrt(log(3 * m)) : sqrt(log(3 * m) * log(2 * n) / 3);
}

nm_depth_factors nm_init_depth_factors(nm_init_scheme scheme, nm_depths depths, bool decoder)
{
    nm_depth_factors f = {1, 1, 1, 1, 1, has_torch_linear(scheme)};
    switch (scheme) {
    case NM_SCHEME_DEEPNORM:
    case NM_SCHEME_TORCHSCALE:
        f.value = f.projected = f.cross_value = f.cross_output =
            deepnorm_beta(depths, decoder, scheme == NM_SCHEME_DEEPNORM ? 0.87 : 1.15);
        return f;
    case NM_SCHEME_SUBLN:
        f.value = f.projected = subln_gain(depths, decoder);
        return f;
    case NM_SCHEME_TFIXUP:
        f.projected = f.cross_output =
            decoder ? 1 / root(9.0 * depths.decoder, 4) : 0.67 / root(depths.encoder, 4);
        /* cancels the gain of the initial values */
        f.value = f.cross_value = sqrt(2) * f.projected;
        f.embedding = 1 / root(9.0 * (decoder ? depths.decoder : depths.encoder), 4);
        return f;
    default:
        return f;
    }
}

nm_init nm_init_attention(nm_init_scheme scheme, nm_attention_widths widths, bool output)
{
    double d = widths.model;
    switch (scheme) {
    case NM_SCHEME_TORCH:
        return output ? torch_linear(widths.values) : xavier_uniform(d, widths.keys, 1);
    case NM_SCHEME_XAVIER_NORMAL:
    case NM_SCHEME_DEEPNORM:
        return xavier_normal(d, d);
    case NM_SCHEME_SMALL:
        return xavier_normal(d, 4 * d);
    case NM_SCHEME_XL:
        return xl_init;
    case NM_SCHEME_TORCHSCALE:
    case NM_SCHEME_SUBLN:
        return torch_linear(output ? widths.values : d);
    default:
        return xavier_uniform(d, d, output ? 1 : sqrt(0.5));
    }
}

/* fairseq uses PyTorch's default for the biases of q, k and v. */
nm_init nm_init_attention_bias(nm_init_scheme scheme, int32_t fan_in, bool output)
{
    bool uniform =
        !output && (scheme == NM_SCHEME_FAIRSEQ || scheme == NM_SCHEME_RBN || scheme == NM_SCHEME_ADMIN);
    return uniform || has_torch_linear(scheme) ? torch_linear(fan_in) : zeros;
}

/* Whether feed-forward layers have PyTorch's default initialization of linear layers. */
static bool is_torch_ffn(nm_init_scheme scheme, bool decoder)
{
    return scheme == NM_SCHEME_TORCH || (scheme == NM_SCHEME_RBN && !decoder) || has_torch_linear(scheme);
}

nm_init nm_init_ffn(nm_init_scheme scheme, bool decoder, double fan_in, double fan_out)
{
    if (is_torch_ffn(scheme, decoder))
        return torch_linear(fan_in);
    if (scheme == NM_SCHEME_XL)
        return xl_init;
    bool uniform = scheme == NM_SCHEME_FAIRSEQ || scheme == NM_SCHEME_RBN || scheme == NM_SCHEME_TFIXUP ||
                   scheme == NM_SCHEME_ADMIN;
    return uniform ? xavier_uniform(fan_in, fan_out, 1) : xavier_normal(fan_in, fan_out);
}

nm_init nm_init_ffn_bias(nm_init_scheme scheme, bool decoder, double fan_in)
{
    return is_torch_ffn(scheme, decoder) ? torch_linear(fan_in) : zeros;
}
