/* Launches of elementwise kernels, sums of products, and optimizers. */
#include "backend/device/launch.h"

/* The kernels have the numbers of these enumerations. */
_Static_assert((int)VEC_POW == (int)NM_VEC_POW && (int)VEC_CLIP == (int)NM_VEC_CLIP &&
                   (int)VEC_DIV == (int)NM_VEC_DIV && (int)VEC_RSQRT_CLAMP == (int)NM_VEC_RSQRT_CLAMP &&
                   (int)VEC_LINEAR == (int)NM_VEC_LINEAR,
               "operations of vec");
_Static_assert((int)INIT_UNIFORM == (int)NM_INIT_UNIFORM &&
                   (int)INIT_NORMAL_MEAN_ONE == (int)NM_INIT_NORMAL_MEAN_ONE,
               "kinds of initialization");
_Static_assert((int)DOT_BLOCK == (int)NM_DOT_BLOCK, "blocks of dot");
_Static_assert((int)PLAN_LOSS == (int)NM_PLAN_LOSS && (int)PLAN_SCALE == (int)NM_PLAN_SCALE, "plan");

void nm_launch_scale(nm_backend *b, const nm_scale_args *args)
{
    NM_ASSERT(nm_device_same_shape(args->x, args->y));
    LAUNCH(b, scale, nm_device_elements(args->x), 1, MAT(x), MAT(y), ADDRESS(factor), .alpha = args->alpha);
}

void nm_launch_add(nm_backend *b, const nm_add_args *args)
{
    NM_ASSERT(nm_device_same_shape(args->x, args->y));
    LAUNCH(b, scale, nm_device_elements(args->x), 1, MAT(x), MAT(y), ADDRESS(factor), .alpha = args->alpha,
           .add = true);
}

void nm_launch_add_dropout(nm_backend *b, const nm_add_dropout_args *args)
{
    NM_ASSERT(nm_device_same_shape(args->x, args->y) && nm_device_same_shape(args->f, args->y));
    LAUNCH(b, add_dropout, nm_device_elements(args->y), 1, MAT(x), MAT(f), MAT(y),
           .drop = nm_device_drop(args->drop));
}

void nm_launch_dropout(nm_backend *b, const nm_dropout_args *args)
{
    NM_ASSERT(nm_device_same_shape(args->x, args->y));
    LAUNCH(b, add_dropout, nm_device_elements(args->y), 1,
           .x = args->add ? nm_device_mat(args->y) : (struct dmat){0}, .f = nm_device_mat(args->x), MAT(y),
           .drop = nm_device_drop(args->drop));
}

void nm_launch_store_bf16(nm_backend *b, const nm_store_bf16_args *args)
{
    LAUNCH(b, store_bf16, nm_device_elements(args->x), 1, MAT(x), ADDRESS(y));
}

void nm_launch_load_bf16(nm_backend *b, const nm_load_bf16_args *args)
{
    LAUNCH(b, load_bf16, nm_device_elements(args->y), 1, MAT(y), ADDRESS(x));
}

void nm_launch_act_grad(nm_backend *b, const nm_act_grad_args *args)
{
    NM_ASSERT(nm_device_same_shape(args->y, args->dy) && nm_device_same_shape(args->y, args->dz));
    LAUNCH(b, act_grad, nm_device_elements(args->y), 1, MAT(y), MAT(dy), MAT(dz),
           .drop = nm_device_drop(args->drop), .relu = args->act == NM_ACT_RELU);
}

void nm_launch_map(nm_backend *b, const nm_map_args *args)
{
    NM_ASSERT(nm_device_same_shape(args->x, args->y));
    LAUNCH(b, map, nm_device_elements(args->x), 1, MAT(x), MAT(y), ADDRESS(alpha), ADDRESS(shift),
           ADDRESS(weight), ADDRESS(bias), .op = (int)args->op);
}

void nm_launch_map_grad(nm_backend *b, const nm_map_grad_args *args)
{
    enum { PLANES = 4 };
    const nm_map_args *forward = &args->forward;
    const nm_mat x = forward->x;
    NM_ASSERT(nm_device_same_shape(x, args->dy) && nm_device_same_shape(x, args->dx));
    const bool sums = args->d_weight || args->d_bias || args->d_alpha || args->d_shift;
    const dptr partial = sums ? nm_device_warp_partials(b, x, PLANES) : 0;
    LAUNCH(b, map_grad, nm_device_blocks(x.rows, ROWS_PER_PARTIAL), 1, .x = nm_device_mat(x), MAT(dy),
           MAT(dx), .alpha = nm_device_address(forward->alpha), .shift = nm_device_address(forward->shift),
           .weight = nm_device_address(forward->weight), .partial = partial, .op = (int)forward->op,
           .add = args->add);
    nm_device_add_plane(b, partial, x, PLANES, 0, x.cols, args->d_weight);
    nm_device_add_plane(b, partial, x, PLANES, 1, x.cols, args->d_bias);
    nm_device_add_plane(b, partial, x, PLANES, 2, 1, args->d_alpha);
    nm_device_add_plane(b, partial, x, PLANES, 3, 1, args->d_shift);
}

void nm_launch_gate(nm_backend *b, const nm_gate_args *args)
{
    NM_ASSERT(nm_device_same_shape(args->gate, args->y) && nm_device_same_shape(args->x, args->y));
    LAUNCH(b, gate, nm_device_elements(args->y), 1, MAT(gate), MAT(x), MAT(y), .op = (int)args->op);
}

void nm_launch_gate_grad(nm_backend *b, const nm_gate_grad_args *args)
{
    const nm_gate_args *forward = &args->forward;
    NM_ASSERT(nm_device_same_shape(forward->gate, args->dy) && nm_device_same_shape(forward->x, args->dy));
    NM_ASSERT(nm_device_same_shape(args->dgate, args->dy) && nm_device_same_shape(args->dx, args->dy));
    LAUNCH(b, gate_grad, nm_device_elements(args->dy), 1, .gate = nm_device_mat(forward->gate),
           .x = nm_device_mat(forward->x), MAT(dy), MAT(dgate), MAT(dx), .op = (int)forward->op);
}

void nm_launch_vec(nm_backend *b, const nm_vec_args *args)
{
    LAUNCH(b, vec, nm_device_blocks(args->n, 128), 1,
           .list = {{ADDRESS(a), ADDRESS(b), ADDRESS(c), ADDRESS(out), args->s, args->t, (i64)args->op}},
           .count = 1, .n = args->n);
}

void nm_launch_random_init(nm_backend *b, const nm_random_init_args *args)
{
    LAUNCH(b, random_init, nm_device_blocks((int64_t)args->n, EACH_THREADS), 1, ADDRESS(out),
           .n = (int64_t)args->n, .seed = args->seed, .scale = args->init.scale, .site = args->site,
           .kind = (int)args->init.kind);
}

void nm_launch_dot(nm_backend *b, const nm_dot_args *args)
{
    const int64_t blocks = nm_device_blocks((int64_t)args->n, DOT_BLOCK);
    const size_t bytes = ((size_t)blocks + 1) * sizeof(double);
    dptr sums = nm_device_scratch(b, NM_DEVICE_TOTALS, bytes), out = sums + (dptr)blocks * sizeof(double);
    LAUNCH(b, dot_blocks, blocks, 1, ADDRESS(a), ADDRESS(b), .blocks = sums, .n = (int64_t)args->n);
    if (args->total)
        LAUNCH(b, double_total, 1, 1, .x = sums, .out = nm_device_address(args->total), .n = blocks,
               .keep = args->keep, .factor = args->factor, .least = args->least, .eps = args->eps,
               .inverse_norm = args->inverse_norm);
    if (args->out) {
        LAUNCH(b, double_total, 1, 1, .x = sums, .out = out, .n = blocks, .factor = 1);
        NM_CALL(b, download, .device = (void *)(uintptr_t)out, .bytes = sizeof(double), .host = args->out);
    }
    if (args->blocks)
        NM_CALL(b, download, .device = (void *)(uintptr_t)sums, .bytes = (size_t)blocks * sizeof(double),
                .host = args->blocks);
}

void nm_launch_plan_update(nm_backend *b, const nm_plan_update_args *args)
{
    const size_t bytes = (size_t)args->passes * sizeof *args->ends;
    const dptr ends = nm_device_scratch(b, NM_DEVICE_ROWS, bytes);
    NM_ASSERT(args->passes > 0);
    NM_CALL(b, upload, .host = args->ends, .bytes = bytes, .device = (void *)(uintptr_t)ends);
    LAUNCH(b, plan_update, 1, 1, .ends = ends, ADDRESS(numbers), ADDRESS(plan), .targets = args->targets,
           .max_norm = args->max_norm, .max_loss = args->max_loss, .passes = args->passes);
}

/* The factors of ref_adam */
void nm_launch_adam(nm_backend *b, const nm_adam_args *args)
{
    const nm_adam *config = args->config;
    const double correction1 = 1 - pow(config->beta1, (double)config->step);
    const double root2 = sqrt(1 - pow(config->beta2, (double)config->step));
    const bool fairseq = config->variant == NM_ADAM_FAIRSEQ, coupled = config->variant == NM_ADAM_TORCH;
    LAUNCH(b, adam, nm_device_blocks((int64_t)args->n, EACH_THREADS), 1, ADDRESS(scale), ADDRESS(g),
           ADDRESS(p), ADDRESS(m), ADDRESS(v), .n = (int64_t)args->n, .beta1 = config->beta1,
           .beta2 = config->beta2, .keep = coupled ? 1 : 1 - config->lr * config->weight_decay,
           .rate = config->lr / correction1 * root2, .eps = fairseq ? config->eps : config->eps * root2,
           .decay = coupled ? config->weight_decay : 0, .grad_scale = config->grad_scale);
}

void nm_launch_sgd(nm_backend *b, const nm_sgd_args *args)
{
    LAUNCH(b, sgd, nm_device_blocks((int64_t)args->n, EACH_THREADS), 1, ADDRESS(scale), ADDRESS(g),
           ADDRESS(p), ADDRESS(v), .n = (int64_t)args->n, .lr = args->lr, .momentum = args->momentum,
           .grad_scale = args->grad_scale, .clip = args->clip, .weight_decay = args->weight_decay);
}
