/* Golden cases of family "init": for each depth, the factors of the initial values, and alpha of DeepNorm's
 * residual connection. */
#include <math.h>
#include <string.h>

#include "golden.h"
#include "nn/init_scheme.h"

/* The factor of a parameter, for example "cross.v_proj.bias". */
static double factor_of(const nm_depth_factors *f, const char *name)
{
    bool cross = !strncmp(name, "cross.", 6);
    if (!strcmp(name, "embedding"))
        return f->embedding;
    if (strstr(name, ".bias") && !f->biases)
        return 1;
    if (strstr(name, "v_proj"))
        return cross ? f->cross_value : f->value;
    if (strstr(name, "out_proj"))
        return cross ? f->cross_output : f->projected;
    return strstr(name, ".fc1.") || strstr(name, ".fc2.") ? f->projected : 1;
}

static bool agree(double a, double b)
{
    return fabs(a - b) <= 1e-12 * (1 + fabs(b));
}

static golden_result check_side(golden_case *test, nm_init_scheme scheme, const json_t *row, const char *side,
                                nm_depths depths)
{
    bool decoder = !strcmp(side, "decoder");
    const nm_depth_factors factors = nm_init_depth_factors(scheme, depths, decoder);
    const json_t *alpha = json_object_get(json_object_get(row, "residual_alpha"), side);
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(row, side), name, value)
    {
        double got = factor_of(&factors, name), want = json_number_value(value);
        if (!json_is_number(value) || !agree(got, want))
            return golden_fail(test, "%d and %d layers, %s %.60s: got %.15g, expected %.15g", depths.encoder,
                               depths.decoder, side, name, got, want);
    }
    bool has_alpha = scheme == NM_SCHEME_DEEPNORM || scheme == NM_SCHEME_TORCHSCALE;
    double got = has_alpha ? nm_deepnorm_alpha(depths, decoder) : 1;
    if (alpha && !agree(got, json_number_value(alpha)))
        return golden_fail(test, "%d and %d layers, %s: alpha is %.15g, expected %.15g", depths.encoder,
                           depths.decoder, side, got, json_number_value(alpha));
    return GOLDEN_PASSED;
}

static golden_result run(golden_case *test)
{
    static const struct {
        const char *method, *variant; /* variant "": any */
        nm_init_scheme scheme;
    } schemes[] = {{"deepnorm", "torchscale", NM_SCHEME_TORCHSCALE},
                   {"deepnorm", "", NM_SCHEME_DEEPNORM},
                   {"subln", "", NM_SCHEME_SUBLN},
                   {"tfixup", "", NM_SCHEME_TFIXUP}};
    const json_t *rows = json_object_get(test->root, "rows");
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++) {
        if (strcmp(test->method, schemes[s].method) ||
            (*schemes[s].variant && strcmp(test->variant, schemes[s].variant)))
            continue;
        size_t index;
        json_t *row;
        json_array_foreach((json_t *)(uintptr_t)rows, index, row)
        {
            const nm_depths depths = {(int32_t)json_integer_value(json_object_get(row, "encoder_layers")),
                                      (int32_t)json_integer_value(json_object_get(row, "decoder_layers"))};
            if (depths.encoder)
                GOLDEN_TRY(check_side(test, schemes[s].scheme, row, "encoder", depths));
            if (depths.decoder)
                GOLDEN_TRY(check_side(test, schemes[s].scheme, row, "decoder", depths));
        }
        return json_array_size(rows) ? GOLDEN_PASSED : golden_fail(test, "no rows");
    }
    return golden_skip(test, "method '%.60s' is not offered", test->method);
}

const golden_family golden_init = {.name = "init", .run = run};
