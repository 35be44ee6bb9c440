/* Launches of matrix products and linear layers. */
#include "backend/device/launch.h"

#include "backend/backend_private.h"
#include "backend/device/target.h"

/* c = drop(relu(alpha op(a) op(b) + bias)) + beta c, by the library of the target or by own kernels.
 * rounded: operands are rounded to bf16 if the backend computes in bf16. */
static void multiply(nm_backend *b, const struct gemm_args *args, bool rounded)
{
    const nm_backend_private *inside = nm_backend_inside(b);
    const int64_t down = nm_device_blocks(args->c.rows, 64), across = nm_device_blocks(args->c.cols, 64);
    rounded = rounded && b->bf16;
    NM_ASSERT(!args->drop.threshold || args->beta == 0);
    if (inside->target && inside->target->product(inside->device, args, rounded)) {
        if (args->drop.threshold)
            LAUNCH(b, add_dropout, nm_device_blocks((int64_t)args->c.rows * args->c.cols, EACH_ELEMENTS), 1,
                   .f = args->c, .y = args->c, .drop = args->drop);
        return;
    }
    if (rounded)
        LAUNCH(b, gemm_mma, down, across, .g = *args);
    else
        nm_device_launch(b, &nm_device_gemm, down, across, args, sizeof *args);
}

void nm_launch_gemm(nm_backend *b, const nm_gemm_args *args)
{
    const nm_mat x = args->a, y = args->b, c = args->c;
    NM_ASSERT((args->ta ? x.cols : x.rows) == c.rows && (args->tb ? y.rows : y.cols) == c.cols);
    NM_ASSERT((args->tb ? y.cols : y.rows) == (args->ta ? x.rows : x.cols));
    multiply(b,
             &(struct gemm_args){.a = nm_device_mat(x),
                                 .b = nm_device_mat(y),
                                 .c = nm_device_mat(c),
                                 .alpha = (float)args->alpha,
                                 .beta = (float)args->beta,
                                 .ta = args->ta,
                                 .tb = args->tb},
             false);
}

void nm_launch_linear(nm_backend *b, const nm_linear_args *args)
{
    NM_ASSERT(args->x.rows == args->y.rows && args->x.cols == args->weight.cols &&
              args->y.cols == args->weight.rows);
    if (nm_backend_linear_int8(b, args))
        return;
    multiply(b,
             &(struct gemm_args){.a = nm_device_mat(args->x),
                                 .b = nm_device_mat(args->weight),
                                 .c = nm_device_mat(args->y),
                                 ADDRESS(bias),
                                 .drop = nm_device_drop(args->drop),
                                 .alpha = 1,
                                 .tb = true,
                                 .relu = args->act == NM_ACT_RELU},
             true);
}

void nm_launch_linear_selected(nm_backend *b, const nm_linear_selected_args *args)
{
    NM_ASSERT(args->x.rows == args->y.rows && args->x.cols == args->weight.cols);
    LAUNCH(b, linear_selected, nm_device_blocks((int64_t)args->y.rows * args->y.cols, ROW_WARPS), 1, MAT(x),
           MAT(weight), MAT(y), ADDRESS(bias), ADDRESS(rows));
}

void nm_launch_linear_grad_input(nm_backend *b, const nm_linear_grad_input_args *args)
{
    NM_ASSERT(args->dy.rows == args->dx.rows && args->dx.cols == args->weight.cols &&
              args->dy.cols == args->weight.rows);
    multiply(b,
             &(struct gemm_args){.a = nm_device_mat(args->dy),
                                 .b = nm_device_mat(args->weight),
                                 .c = nm_device_mat(args->dx),
                                 .alpha = 1,
                                 .beta = args->add},
             true);
}

void nm_launch_linear_grad_weight(nm_backend *b, const nm_linear_grad_weight_args *args)
{
    NM_ASSERT(!args->dw.data || (args->dy.rows == args->x.rows && args->dy.cols == args->dw.rows &&
                                 args->x.cols == args->dw.cols));
    if (args->dw.data)
        multiply(b,
                 &(struct gemm_args){.a = nm_device_mat(args->dy),
                                     .b = nm_device_mat(args->x),
                                     .c = nm_device_mat(args->dw),
                                     .alpha = 1,
                                     .beta = 1,
                                     .ta = true},
                 true);
    nm_device_add_columns(b, args->dy, args->db);
}
