/* Pointwise functions, gated linear units, and their gradients. */
#include "kernel_checks.h"

typedef struct map_inputs {
    test_mat x, alpha, shift, weight, bias;
    nm_map_args args[2];
} map_inputs;

/* Arguments z from about -15 to 15, so that both branches of tanh and erf and their limits are covered. */
static double wide(pair *p, uint64_t index)
{
    return 5 * pair_normal(p, index);
}

static void map_init(pair *p, map_inputs *in, size z, nm_map_op op, bool affine)
{
    in->x = pair_make(p, z.rows, z.cols, z.gap, affine ? pair_normal : wide);
    in->alpha = pair_make(p, 1, 1, 0, positive);
    in->shift = random_vector(p, 1);
    in->weight = random_vector(p, z.cols);
    in->bias = random_vector(p, z.cols);
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        in->args[s] = (nm_map_args){.op = op, .x = in->x.m[s]};
        if (!affine)
            continue;
        in->args[s].alpha = in->alpha.m[s].data;
        in->args[s].shift = in->shift.m[s].data;
        in->args[s].weight = in->weight.m[s].data;
        in->args[s].bias = in->bias.m[s].data;
    }
}

void check_map(pair *p, size z)
{
    for (int op = 0; op < NM_MAP_OPS_COUNT; op++)
        for (int affine = 0; affine < 2; affine++) {
            map_inputs in;
            map_init(p, &in, z, (nm_map_op)op, affine);
            test_mat y = affine && z.gap ? in.x : pair_random(p, z.rows, z.cols, z.gap);
            for (int s = ACTUAL; s <= EXPECTED; s++) {
                in.args[s].y = y.m[s];
                p->on[s]->k.map(p->on[s], &in.args[s]);
            }
            mat_compare(p, "y", y, 16, affine ? 1 : 0.1);
            pair_close(p);
        }
}

void check_map_grad(pair *p, size z)
{
    for (int op = 0; op < NM_MAP_OPS_COUNT; op++)
        for (int affine = 0; affine < 2; affine++) {
            map_inputs in;
            map_init(p, &in, z, (nm_map_op)op, affine);
            test_mat dy = pair_random(p, z.rows, z.cols, z.gap);
            test_mat dx = affine && z.gap ? dy : pair_random(p, z.rows, z.cols, z.gap);
            test_mat d_alpha = random_vector(p, 1), d_shift = random_vector(p, 1);
            test_mat d_weight = random_vector(p, z.cols), d_bias = random_vector(p, z.cols);
            BOTH(p, map_grad, .forward = in.args[s], .dy = dy.m[s], .add = z.gap && !affine, .dx = dx.m[s],
                 .d_alpha = affine ? d_alpha.m[s].data : NULL, .d_shift = affine ? d_shift.m[s].data : NULL,
                 .d_weight = affine ? d_weight.m[s].data : NULL, .d_bias = affine ? d_bias.m[s].data : NULL);
            double rows = sqrt(z.rows), all = sqrt((double)z.rows * z.cols);
            mat_compare(p, "dx", dx, 32, 1);
            if (affine) {
                mat_compare(p, "d_alpha", d_alpha, 32, all);
                mat_compare(p, "d_shift", d_shift, 32, all);
                mat_compare(p, "d_weight", d_weight, 32, rows);
                mat_compare(p, "d_bias", d_bias, 32, rows);
            }
            pair_close(p);
        }
}

/* The two halves of a matrix, in either order. */
typedef struct gate_inputs {
    test_mat gate, x;
} gate_inputs;

static gate_inputs gate_init(pair *p, size z, bool gate_first)
{
    test_mat both = pair_make(p, z.rows, 2 * z.cols, z.gap, wide);
    return (gate_inputs){mat_slice(p, both, gate_first ? 0 : z.cols, z.cols),
                         mat_slice(p, both, gate_first ? z.cols : 0, z.cols)};
}

void check_gate(pair *p, size z)
{
    for (int op = 0; op < NM_MAP_OPS_COUNT; op++) {
        gate_inputs in = gate_init(p, z, op % 2);
        test_mat y = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, gate, .op = (nm_map_op)op, .gate = in.gate.m[s], .x = in.x.m[s], .y = y.m[s]);
        mat_compare(p, "y", y, 16, 4);
        pair_close(p);
    }
}

void check_gate_grad(pair *p, size z)
{
    for (int op = 0; op < NM_MAP_OPS_COUNT; op++) {
        gate_inputs in = gate_init(p, z, op % 2), grads = gate_init(p, z, op % 2);
        test_mat dy = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, gate_grad, .forward = {.op = (nm_map_op)op, .gate = in.gate.m[s], .x = in.x.m[s]},
             .dy = dy.m[s], .dgate = grads.gate.m[s], .dx = grads.x.m[s]);
        mat_compare(p, "dgate", grads.gate, 32, 5);
        mat_compare(p, "dx", grads.x, 32, 1);
        pair_close(p);
    }
}
