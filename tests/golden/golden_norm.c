/* Golden cases of family "norm": consecutive training and inference calls of one layer. Layers receive real
 * tokens only: rows with valid = 0 are removed before the call. If the source program counts padding rows,
 * they are kept; if it counts them for one statistic of a layer and not for another (nu and psi of
 * PowerNorm), the case is skipped. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"
#include "norma/norm_type.h"

typedef struct layer { /* of a case */
    const char *type;
    char settings[768];
    size_t used;
    nm_norm_site place;
    nm_norm *norm, *scaler;    /* scaler: see golden_padded_train; else NULL */
    bool counts_padding;       /* padding rows are in the statistics */
    bool counts_in_gradient;   /* padding rows are in the statistics of the gradient only */
    double accumulator_factor; /* nu of the paper is this factor times ema_gz of Norma */
    struct { /* of `progressive`, in steps of `interval` calls; interval 0: of other types */
        int64_t warmup, total, interval, first_call;
    } schedule;
} layer;

static void set(layer *made, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void set(layer *made, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(made->settings + made->used, sizeof made->settings - made->used, format, args);
    va_end(args);
    NM_ASSERT(length >= 0 && made->used + (size_t)length < sizeof made->settings);
    made->used += (size_t)length;
}

static bool contains(const char *text, const char *word)
{
    return strstr(text, word) != NULL;
}

static bool has_padding(const golden_case *test)
{
    size_t i, k;
    const json_t *step, *value;
    json_array_foreach(json_object_get(test->root, "steps"), i, step)
        json_array_foreach(json_object_get(json_object_get(step, "valid"), "data"), k,
                           value) if (json_number_value(value) == 0) return true;
    return false;
}

static void set_epsilon(golden_case *test, layer *made, double otherwise)
{
    set(made, "epsilon=%.17g ", golden_number(test, "eps", otherwise));
}

static void set_groups(golden_case *test, layer *made)
{
    made->place.groups = golden_whole(test, "groups", 1);
}

static const char *scaling_of(const golden_case *test)
{
    return golden_flag(test, "group_scaling")   ? "group"
           : golden_flag(test, "layer_scaling") ? "layer"
                                                : "none";
}

static golden_result choose_layer(golden_case *test, layer *made)
{
    made->type = "layer";
    set_epsilon(test, made, 1e-5);
    set(made, "unbiased=%d", contains(test->variant, "unbiased"));
    return GOLDEN_PASSED;
}

static golden_result choose_rms(golden_case *test, layer *made)
{
    made->type = "rms";
    set_epsilon(test, made, 1e-8);
    set(made, "epsilon_inside=%d", contains(test->variant, "in_sqrt") || contains(test->variant, "inside"));
    return GOLDEN_PASSED;
}

static golden_result choose_group_scaling(golden_case *test, layer *made)
{
    made->type = "rms";
    set_epsilon(test, made, 1e-5);
    set(made, "epsilon_inside=1 gain=0 groups=%d", golden_whole(test, "groups", 1));
    return GOLDEN_PASSED;
}

static golden_result choose_scale(golden_case *test, layer *made)
{
    const json_t *trainable = json_object_get(test->config, "trainable_g");
    made->type = "scale";
    set_epsilon(test, made, 1e-5);
    set(made, "trainable=%d", !trainable || golden_flag(test, "trainable_g"));
    return GOLDEN_PASSED;
}

static golden_result choose_fix(golden_case *test, layer *made)
{
    made->type = "fix";
    set_epsilon(test, made, 1e-12);
    return GOLDEN_PASSED;
}

/* One group is LayerNorm over an image. */
static golden_result choose_group2d(golden_case *test, layer *made)
{
    made->type = "group2d";
    set_epsilon(test, made, 1e-5);
    set(made, "groups=%d", golden_whole(test, "groups", 1));
    made->place.rows = golden_whole(test, "height", 0) * golden_whole(test, "width", 0);
    return made->place.rows > 0 ? GOLDEN_PASSED : golden_fail(test, "config: height or width");
}

static golden_result choose_group(golden_case *test, layer *made)
{
    made->type = "group";
    set_epsilon(test, made, 1e-5);
    set_groups(test, made);
    set(made, "groups=%d unbiased=%d", made->place.groups, contains(test->variant, "unbiased"));
    return GOLDEN_PASSED;
}

/* Settings of BatchNorm, PN-V and RBN. */
static golden_result set_batch(golden_case *test, layer *made)
{
    made->counts_padding =
        contains(golden_text(test, "pad_handling", ""), "stay in the count") && has_padding(test);
    if (made->counts_padding && (strcmp(made->type, "batch") || strcmp(scaling_of(test), "layer")))
        return golden_skip(
            test,
            "padding rows are counted in statistics of another layer than BatchNorm after layer scaling");
    set_epsilon(test, made, 1e-5);
    set_groups(test, made);
    set(made, "decay=%.17g clamp=%d scaling=%s ", 1 - golden_number(test, "momentum_new", 0.05),
        contains(golden_text(test, "eps_mode", ""), "clamp"),
        made->counts_padding ? "none" : scaling_of(test));
    return GOLDEN_PASSED;
}

static golden_result choose_batch(golden_case *test, layer *made)
{
    made->type = "batch";
    GOLDEN_TRY(set_batch(test, made));
    set(made, "unbiased_running=%d", !strncmp(golden_text(test, "running_var", ""), "unbiased", 8));
    return GOLDEN_PASSED;
}

static golden_result choose_pnv(golden_case *test, layer *made)
{
    made->type = "pnv";
    return set_batch(test, made);
}

static golden_result choose_rbn(golden_case *test, layer *made)
{
    static const char *const known[] = {"diff", "diff2", "reldiff"};
    const char *penalty = golden_text(test, "penalty_type", test->variant);
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        found |= !strcmp(penalty, known[i]);
    if (!found)
        return golden_skip(test, "penalty '%.60s' is not offered", penalty);
    made->type = "rbn";
    GOLDEN_TRY(set_batch(test, made));
    set(made, "unbiased_running=%d penalty=%s lambda=%.17g nu=%.17g",
        !strncmp(golden_text(test, "running_var", ""), "unbiased", 8), penalty,
        golden_number(test, "penalty_mean", 0), golden_number(test, "penalty_var", 0));
    return GOLDEN_PASSED;
}

static golden_result choose_power(golden_case *test, layer *made)
{
    bool paper = contains(test->variant, "paper");
    double backward = golden_number(test, "alpha_bkw", 0.9);
    if (!strcmp(golden_text(test, "nu_scope", ""), "all_rows") && has_padding(test))
        return golden_skip(test, "nu runs over padding rows (nu_scope all_rows), psi does not");
    made->type = "power";
    made->accumulator_factor = 1 - backward;
    set_epsilon(test, made, 1e-5);
    set_groups(test, made);
    set(made, "decay_forward=%.17g decay_backward=%.17g ", golden_number(test, "alpha_fwd", 0.9), backward);
    if (paper)
        set(made, "preset=paper");
    else
        set(made, "scaling=%s warmup=%d", scaling_of(test), golden_whole(test, "warmup_iters", 0));
    return GOLDEN_PASSED;
}

static golden_result choose_mabn(golden_case *test, layer *made)
{
    const json_t *limits = json_object_get(test->config, "r_clip");
    made->type = "mabn";
    set_epsilon(test, made, 1e-5);
    set(made, "window=%d warmup=%d decay=%.17g r_hold=%d ", golden_whole(test, "buffer_size", 16),
        golden_whole(test, "warmup_iters", 0), golden_number(test, "momentum_old", 0.98),
        golden_whole(test, "r_forced_to_one_until", 1000));
    if (json_is_number(json_array_get(limits, 1)))
        set(made, "r_limit=%.17g", json_number_value(json_array_get(limits, 1)));
    return GOLDEN_PASSED;
}

static golden_result choose_renorm(golden_case *test, layer *made)
{
    static const char r_schedule[] = "clip(1,3, 2/35000*n+25/35)",
                      d_schedule[] = "clip(0,5, 5/20000*n-25/20)";
    const json_t *limits = json_object_get(test->config, "limits");
    made->type = "renorm";
    set_epsilon(test, made, 1e-5);
    set(made, "eps_mode=%s decay=%.17g ",
        contains(golden_text(test, "eps_mode", ""), "added") ? "added" : "inside",
        1 - golden_number(test, "momentum_new", 0.01));
    if (json_array_size(limits) == 2)
        set(made, "r_max=%.17g d_max=%.17g ramp_start=0 r_ramp_end=0 d_ramp_end=0",
            json_number_value(json_array_get(limits, 0)), json_number_value(json_array_get(limits, 1)));
    else if (strcmp(golden_text(test, "r_max_schedule", r_schedule), r_schedule) ||
             strcmp(golden_text(test, "d_max_schedule", d_schedule), d_schedule))
        return golden_skip(test, "another schedule of the limits");
    return GOLDEN_PASSED;
}

static golden_result choose_ada(golden_case *test, layer *made)
{
    bool paper = !golden_flag(test, "unbiased");
    if (paper != contains(golden_text(test, "eps_mode", ""), "in_sqrt"))
        return golden_skip(test, "another combination of the variance and epsilon");
    made->type = "ada";
    set_epsilon(test, made, 1e-5);
    set(made, "variant=%s c=%.17g k=%.17g", paper ? "paper" : "official", golden_number(test, "C", 1),
        golden_number(test, "k", 0.1));
    return GOLDEN_PASSED;
}

static golden_result choose_prms(golden_case *test, layer *made)
{
    made->type = "prms";
    set_epsilon(test, made, 1e-8);
    set(made, "fraction=%.17g offset=%d", golden_number(test, "fraction", 0.0625),
        json_object_get(json_object_get(json_object_get(test->root, "init"), "params"), "offset") != NULL);
    return GOLDEN_PASSED;
}

/* Settings of RepBN. */
static void set_repbn(golden_case *test, layer *made, const char *epsilon)
{
    set(made, "epsilon=%.17g decay=%.17g unbiased_running=%d ", golden_number(test, epsilon, 1e-5),
        1 - golden_number(test, "momentum_new", 0.1),
        !strncmp(golden_text(test, "running_var", "unbiased"), "unbiased", 8));
}

static golden_result choose_repbn(golden_case *test, layer *made)
{
    made->type = "repbn";
    set_repbn(test, made, "eps");
    return GOLDEN_PASSED;
}

static golden_result read_counter(golden_case *test, const char *name, int64_t *value)
{
    const json_t *state = json_object_get(json_object_get(test->root, "init"), "state");
    const json_t *given = json_object_get(state, name);
    return given ? golden_counter(test, given, name, value) : GOLDEN_PASSED;
}

/* Steps before call n: every call whose number is a multiple of the interval completes one. */
static int64_t steps_before(const layer *made, int64_t call)
{
    return (call + made->schedule.interval - 1) / made->schedule.interval;
}

/* The source has three counters that a case may begin with: `warm`, the remaining warm-up, `iter`, the
 * remaining steps of lambda, and `num_step`, the call within an interval. Norma has one, of calls. */
static golden_result choose_progressive(golden_case *test, layer *made)
{
    int64_t warm = 0, left = 0, within = 0;
    made->type = "progressive";
    made->schedule.total = golden_whole(test, "total_step", 1);
    made->schedule.interval = golden_whole(test, "every", 1);
    GOLDEN_TRY(read_counter(test, "warm", &warm));
    GOLDEN_TRY(read_counter(test, "iter", &left));
    GOLDEN_TRY(read_counter(test, "num_step", &within));
    int64_t done = made->schedule.total - left;
    if (made->schedule.interval < 1 || done < 0 || (warm > 0 && done > 0))
        return golden_fail(test, "inconsistent counters warm, iter and num_step");
    int64_t missing = done - steps_before(made, within);
    made->schedule.first_call = within + (missing > 0 ? missing * made->schedule.interval : 0);
    made->schedule.warmup = steps_before(made, made->schedule.first_call) - done + warm;
    set_repbn(test, made, "batch_eps");
    set(made,
        "token_norm=%s token_epsilon=%.17g lambda_init=%.17g warmup=%lld lambda_steps=%lld interval=%lld "
        "shorten_lambda=0",
        golden_text(test, "token_norm", "layer"), golden_number(test, "token_eps", 1e-5),
        golden_number(test, "r0", 1), (long long)made->schedule.warmup, (long long)made->schedule.total,
        (long long)made->schedule.interval);
    return GOLDEN_PASSED;
}

/* Whether `name` is a counter of the source; sets *value to that of the layer. */
static bool schedule_counter(const layer *made, const char *name, int64_t *value)
{
    if (!made->schedule.interval)
        return false;
    int64_t calls = *nm_norm_counter(made->norm, "iters"),
            done = steps_before(made, calls) - made->schedule.warmup;
    int64_t left = made->schedule.total - (done > 0 ? done : 0);
    if (!strcmp(name, "warm"))
        *value = done < 0 ? -done : 0;
    else if (!strcmp(name, "iter"))
        *value = left > 0 ? left : 0;
    else if (!strcmp(name, "num_step"))
        *value = calls % made->schedule.interval;
    else
        return false;
    return true;
}

static golden_result choose_un(golden_case *test, layer *made)
{
    const json_t *limits = json_object_get(test->config, "r_clip");
    made->type = "un";
    made->counts_in_gradient =
        contains(golden_text(test, "pad_handling", ""), "backward mean only") && has_padding(test);
    set_epsilon(test, made, 1e-5);
    set(made, "window_forward=%d window_backward=%d warmup=%d decay=%.17g r_hold=%d outlier_filtration=%d ",
        golden_whole(test, "window_forward", 4), golden_whole(test, "window_backward", 4),
        golden_whole(test, "warmup_iters", 4000), golden_number(test, "momentum_old", 0.9),
        golden_whole(test, "r_forced_to_one_until", 1000), golden_flag(test, "outlier_filtration"));
    if (json_is_number(json_array_get(limits, 1)))
        set(made, "r_limit=%.17g", json_number_value(json_array_get(limits, 1)));
    return GOLDEN_PASSED;
}

static const struct {
    const char *method;
    golden_result (*choose)(golden_case *test, layer *made);
} methods[] = {
    {"layernorm", choose_layer},
    {"rmsnorm", choose_rms},
    {"group_scaling", choose_group_scaling},
    {"scalenorm", choose_scale},
    {"fixnorm", choose_fix},
    {"groupnorm", choose_group},
    {"groupnorm_image", choose_group2d},
    {"batchnorm", choose_batch},
    {"pnv", choose_pnv},
    {"rbn", choose_rbn},
    {"powernorm", choose_power},
    {"mabn", choose_mabn},
    {"batchrenorm", choose_renorm},
    {"ada", choose_ada},
    {"prms", choose_prms},
    {"repbn", choose_repbn},
    {"un", choose_un},
    {"progressive", choose_progressive},
};

/* Types whose golden files use the type's name as the method and its options as the configuration need no
 * function: settings are the entries of config that are options of the type, and `eps`. Other entries (d,
 * rows) are properties of the data. */
static golden_result choose_by_name(golden_case *test, layer *made)
{
    const nm_norm_type *type = nm_norm_type_find(test->method);
    if (!type)
        return golden_skip(test, "method '%.60s' is unknown", test->method);
    made->type = type->name;
    made->place.groups = golden_whole(test, "groups", 1);
    for (const nm_option *option = type->options; option->name; option++) {
        bool epsilon = !strcmp(option->name, "epsilon");
        const json_t *value = json_object_get(test->config, epsilon ? "eps" : option->name);
        if (json_is_number(value))
            set(made, "%s=%.17g ", option->name, json_number_value(value));
        else if (json_is_boolean(value))
            set(made, "%s=%d ", option->name, json_is_true(value));
        else if (json_is_string(value))
            set(made, "%s=%s ", option->name, json_string_value(value));
    }
    return GOLDEN_PASSED;
}

static golden_result choose(golden_case *test, layer *made)
{
    double width = golden_number(test, "d", 0);
    if (!(width >= 1 && width <= 65536))
        return golden_fail(test, "config.d is missing or out of range");
    made->place = (nm_norm_site){.name = "golden", .width = (int32_t)width, .groups = 1};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(methods[i].method, test->method))
            return methods[i].choose(test, made);
    return choose_by_name(test, made);
}

static const char *our_name(const char *name)
{
    static const char *const names[][2] = {{"psi2", "running_phi"},          {"nu", "ema_gz"},
                                           {"token.weight", "token_weight"}, {"token.bias", "token_bias"},
                                           {"batch.weight", "weight"},       {"batch.bias", "bias"},
                                           {"batch.alpha", "alpha"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i][0]))
            return names[i][1];
    return name;
}

static double factor_of(const layer *made, const char *name)
{
    return !strcmp(name, "nu") ? made->accumulator_factor : 1;
}

static golden_result write_vector(golden_case *test, const char *name, const json_t *value, void *memory,
                                  int32_t length, double factor)
{
    golden_tensor tensor;
    if (!memory)
        return golden_fail(test, "init: the layer has no '%.60s'", name);
    GOLDEN_TRY(golden_read(test, value, name, &tensor));
    golden_result result = GOLDEN_PASSED;
    if (tensor.count != (size_t)length) {
        result = golden_fail(test, "init.%.60s: %zu numbers, the layer has %d", name, tensor.count, length);
    } else {
        for (size_t i = 0; i < tensor.count; i++)
            tensor.data[i] /= factor;
        void *reals = golden_reals(test, tensor.data, tensor.count);
        memcpy(memory, reals, tensor.count * nm_dtype_bytes(test->backend->dtype));
        free(reals);
    }
    golden_release(&tensor);
    return result;
}

static golden_result write_init(golden_case *test, layer *made)
{
    const json_t *init = json_object_get(test->root, "init");
    const char *name;
    json_t *value;
    int32_t length = 0;
    json_object_foreach(json_object_get(init, "params"), name, value)
    {
        void *memory = nm_norm_param(made->norm, our_name(name), &length);
        GOLDEN_TRY(write_vector(test, name, value, memory, length, 1));
    }
    json_object_foreach(json_object_get(init, "state"), name, value)
    {
        int64_t *counter = nm_norm_counter(made->norm, name), ignored;
        if (schedule_counter(made, name, &ignored))
            continue;
        if (counter) {
            GOLDEN_TRY(golden_counter(test, value, name, counter));
            continue;
        }
        void *memory = nm_norm_state(made->norm, our_name(name), &length);
        GOLDEN_TRY(write_vector(test, name, value, memory, length, factor_of(made, name)));
    }
    if (made->schedule.interval)
        *nm_norm_counter(made->norm, "iters") = made->schedule.first_call;
    return GOLDEN_PASSED;
}

static golden_result compare_vector(golden_case *test, const char *what, const json_t *value,
                                    const void *memory, int32_t length, double factor, double tolerance)
{
    golden_tensor tensor;
    GOLDEN_TRY(golden_read(test, value, what, &tensor));
    golden_result result = GOLDEN_PASSED;
    if (tensor.count != (size_t)length)
        result = golden_fail(test, "%s: %zu numbers, the layer has %d", what, tensor.count, length);
    for (size_t i = 0; i < tensor.count; i++)
        tensor.data[i] /= factor;
    if (result == GOLDEN_PASSED)
        result = golden_compare(test, what, memory, tensor.data, tensor.count, tolerance);
    golden_release(&tensor);
    return result;
}

static golden_result compare_state(golden_case *test, layer *made, size_t index, const json_t *state)
{
    const char *name;
    json_t *value;
    char what[128];
    int32_t length = 0;
    json_object_foreach((json_t *)(uintptr_t)state, name, value)
    {
        snprintf(what, sizeof what, "step %zu: state_after.%.60s", index, name);
        int64_t scheduled;
        const int64_t *counter =
            schedule_counter(made, name, &scheduled) ? &scheduled : nm_norm_counter(made->norm, name);
        if (counter) {
            int64_t expected;
            GOLDEN_TRY(golden_counter(test, value, what, &expected));
            if (*counter != expected)
                return golden_fail(test, "%s: got %lld, expected %lld", what, (long long)*counter,
                                   (long long)expected);
            continue;
        }
        const void *memory = nm_norm_state(made->norm, our_name(name), &length);
        if (!memory)
            return golden_fail(test, "%s: the layer has none", what);
        GOLDEN_TRY(compare_vector(test, what, value, memory, length, factor_of(made, name),
                                  test->gradient_tolerance));
    }
    return GOLDEN_PASSED;
}

static golden_result compare_grads(golden_case *test, layer *made, size_t index, const json_t *grads)
{
    const char *name;
    json_t *value;
    char what[128];
    int32_t length = 0;
    json_object_foreach((json_t *)(uintptr_t)grads, name, value)
    {
        snprintf(what, sizeof what, "step %zu: dparams.%.60s", index, name);
        if (!nm_norm_param(made->norm, our_name(name), &length))
            return golden_fail(test, "%s: the layer has none", what);
        const void *memory = nm_norm_param_grad(made->norm, our_name(name), &length);
        if (memory) /* a fixed parameter has no gradient, but the file contains one */
            GOLDEN_TRY(compare_vector(test, what, value, memory, length, 1, test->gradient_tolerance));
    }
    return GOLDEN_PASSED;
}

typedef struct rows { /* one [rows, width] tensor of a step without its padding rows */
    golden_tensor tensor;
    void *reals;
} rows;

enum { X, DY, Y, DX, N_ROWS };

static const char *const row_names[N_ROWS] = {"x", "dy", "y", "dx"};

typedef struct step {
    size_t index;
    const json_t *root;
    bool train;
    int32_t n;           /* real rows */
    golden_tensor valid; /* empty: all rows are real */
    rows of[N_ROWS];
    void *y, *dx; /* computed */
} step;

static void release_step(step *now)
{
    golden_release(&now->valid);
    for (int i = 0; i < N_ROWS; i++) {
        golden_release(&now->of[i].tensor);
        free(now->of[i].reals);
    }
    free(now->y);
    free(now->dx);
}

static golden_result read_rows(golden_case *test, step *now, int which, int32_t width)
{
    char what[64];
    golden_tensor *tensor = &now->of[which].tensor;
    snprintf(what, sizeof what, "step %zu: %s", now->index, row_names[which]);
    GOLDEN_TRY(golden_read(test, json_object_get(now->root, row_names[which]), what, tensor));
    if (tensor->rank != 2 || tensor->shape[1] != width ||
        (now->valid.data && tensor->shape[0] != (int64_t)now->valid.count))
        return golden_fail(test, "%s: not of the shape [rows, %d]", what, width);
    size_t kept = 0, columns = (size_t)width;
    for (size_t i = 0; i < (size_t)tensor->shape[0]; i++)
        if (!now->valid.data || now->valid.data[i] != 0)
            memmove(tensor->data + columns * kept++, tensor->data + columns * i, columns * sizeof(double));
    if (which != X && kept != (size_t)now->n)
        return golden_fail(test, "%s: %zu rows where x has %d", what, kept, now->n);
    now->n = (int32_t)kept;
    tensor->count = kept * columns;
    now->of[which].reals = golden_reals(test, tensor->data, tensor->count);
    return GOLDEN_PASSED;
}

static golden_result read_step(golden_case *test, step *now, int32_t width)
{
    const char *mode = json_string_value(json_object_get(now->root, "mode"));
    if (!mode || (strcmp(mode, "train") && strcmp(mode, "eval")))
        return golden_fail(test, "step %zu: mode is neither train nor eval", now->index);
    now->train = !strcmp(mode, "train");
    const json_t *valid = json_object_get(now->root, "valid");
    if (valid && !json_is_null(valid))
        GOLDEN_TRY(golden_read(test, valid, "valid", &now->valid));
    for (int i = 0; i < N_ROWS; i++)
        if (now->train || i == X || i == Y)
            GOLDEN_TRY(read_rows(test, now, i, width));
    now->y = golden_reals(test, NULL, now->of[X].tensor.count);
    now->dx = golden_reals(test, NULL, now->of[X].tensor.count);
    return GOLDEN_PASSED;
}

static golden_result compare_rows(golden_case *test, const step *now, int which, const void *got,
                                  double tolerance)
{
    char what[64];
    snprintf(what, sizeof what, "step %zu: %s", now->index, row_names[which]);
    return golden_compare(test, what, got, now->of[which].tensor.data, now->of[which].tensor.count,
                          tolerance);
}

static golden_rows rows_of(const layer *made, const step *now)
{
    return (golden_rows){.rows = now->n,
                         .width = made->place.width,
                         .x = now->of[X].reals,
                         .dy = now->of[DY].reals,
                         .y = now->y,
                         .dx = now->dx};
}

/* Without real rows there is no call: state and gradients do not change. */
static golden_result train_call(golden_case *test, layer *made, const step *now, double *penalty)
{
    nm_error err = {0};
    golden_rows io = rows_of(made, now);
    nm_norm_zero_grads(made->norm);
    if (!now->n)
        return GOLDEN_PASSED;
    /* without `valid` all rows are real */
    int32_t pads = now->valid.data ? (int32_t)now->valid.count - now->n : 0;
    if (made->scaler)
        return golden_padded_train(test, made->scaler, made->norm, &io, pads);
    if (made->counts_in_gradient)
        return golden_padded_gradient_train(test, made->norm, &io, pads);
    if (nm_norm_forward(made->norm, now->n, io.x, io.y, &err) != NM_OK)
        return golden_fail(test, "step %zu: %s", now->index, err.text);
    *penalty = nm_norm_penalty(made->norm);
    if (nm_norm_backward(made->norm, io.dy, io.dx, &err) != NM_OK)
        return golden_fail(test, "step %zu: %s", now->index, err.text);
    return GOLDEN_PASSED;
}

static golden_result train_step(golden_case *test, layer *made, const step *now)
{
    double penalty = 0;
    GOLDEN_TRY(train_call(test, made, now, &penalty));
    GOLDEN_TRY(compare_rows(test, now, Y, now->y, test->value_tolerance));
    GOLDEN_TRY(compare_rows(test, now, DX, now->dx, test->gradient_tolerance));
    GOLDEN_TRY(compare_grads(test, made, now->index, json_object_get(now->root, "dparams")));
    const json_t *expected = json_object_get(now->root, "reg_loss");
    if (!json_is_number(expected))
        return GOLDEN_PASSED;
    double want = json_number_value(expected);
    void *got = golden_reals(test, &penalty, 1);
    char what[64];
    snprintf(what, sizeof what, "step %zu: reg_loss", now->index);
    golden_result result = golden_compare(test, what, got, &want, 1, test->value_tolerance);
    free(got);
    return result;
}

static golden_result infer_step(golden_case *test, layer *made, const step *now)
{
    nm_error err = {0};
    golden_rows io = rows_of(made, now);
    if (!now->n)
        return GOLDEN_PASSED;
    if (made->scaler)
        GOLDEN_TRY(golden_padded_infer(test, made->scaler, made->norm, &io));
    else if (nm_norm_infer(made->norm, now->n, now->of[X].reals, now->y, &err) != NM_OK)
        return golden_fail(test, "step %zu: %s", now->index, err.text);
    return compare_rows(test, now, Y, now->y, test->value_tolerance);
}

static golden_result run_step(golden_case *test, layer *made, size_t index, const json_t *root)
{
    step now = {.index = index, .root = root};
    golden_result result = read_step(test, &now, made->place.width);
    if (result == GOLDEN_PASSED)
        result = now.train ? train_step(test, made, &now) : infer_step(test, made, &now);
    if (result == GOLDEN_PASSED)
        result = compare_state(test, made, index, json_object_get(root, "state_after"));
    release_step(&now);
    return result;
}

static golden_result run_steps(golden_case *test, layer *made)
{
    const json_t *steps = json_object_get(test->root, "steps"), *root;
    size_t index;
    if (!json_array_size(steps))
        return golden_fail(test, "no steps");
    GOLDEN_TRY(write_init(test, made));
    json_array_foreach(steps, index, root) GOLDEN_TRY(run_step(test, made, index, root));
    return GOLDEN_PASSED;
}

static golden_result run(golden_case *test)
{
    layer made = {0};
    nm_error err = {0};
    GOLDEN_TRY(choose(test, &made));
    bool created =
        nm_norm_create(&made.norm, test->backend, made.type, made.settings, &made.place, &err) == NM_OK &&
        (!made.counts_padding ||
         nm_norm_create(&made.scaler, test->backend, "rms", "epsilon_inside=1 gain=0 epsilon=1e-5",
                        &made.place, &err) == NM_OK);
    golden_result result = created ? run_steps(test, &made) : golden_fail(test, "%s", err.text);
    nm_norm_free(made.scaler);
    nm_norm_free(made.norm);
    return result;
}

const golden_family golden_norm = {.name = "norm", .run = run, .computes = true};
const golden_family golden_image_norm = {.name = "image_norm", .run = run, .computes = true};
