/* Launches of matrix products and linear layers. */
#include "backend/device/launch.h"

#include "backend/backend_private.h"

static void launch_gemm(nm_backend *b, const struct gemm_args *args)
{
    nm_device_launch(b, &nm_device_gemm, nm_device_blocks(args->c.rows, 64),
                     nm_device_blocks(args->c.cols, 64), args, sizeof *args);
}

static void device_gemm(nm_backend *b, const nm_gemm_args *args)
{
    const nm_mat x = args->a, y = args->b, c = args->c;
    NM_ASSERT((args->ta ? x.cols : x.rows) == c.rows && (args->tb ? y.rows : y.cols) == c.cols);
    NM_ASSERT((args->tb ? y.cols : y.rows) == (args->ta ? x.rows : x.cols));
    launch_gemm(b, &(struct gemm_args){.a = nm_device_mat(x),
                                       .b = nm_device_mat(y),
                                       .c = nm_device_mat(c),
                                       .alpha = (float)args->alpha,
                                       .beta = (float)args->beta,
                                       .ta = args->ta,
                                       .tb = args->tb});
}

static void device_linear(nm_backend *b, const nm_linear_args *args)
{
    NM_ASSERT(args->x.rows == args->y.rows && args->x.cols == args->weight.cols &&
              args->y.cols == args->weight.rows);
    if (nm_backend_linear_int8(b, args))
        return;
    launch_gemm(b, &(struct gemm_args){.a = nm_device_mat(args->x),
                                       .b = nm_device_mat(args->weight),
                                       .c = nm_device_mat(args->y),
                                       .bias = nm_device_address(args->bias),
                                       .drop = nm_device_drop(args->drop),
                                       .alpha = 1,
                                       .tb = true,
                                       .relu = args->act == NM_ACT_RELU});
}

static void device_linear_selected(nm_backend *b, const nm_linear_selected_args *args)
{
    NM_ASSERT(args->x.rows == args->y.rows && args->x.cols == args->weight.cols);
    LAUNCH(b, linear_selected, nm_device_blocks((int64_t)args->y.rows * args->y.cols, ROW_WARPS), 1,
           .x = nm_device_mat(args->x), .weight = nm_device_mat(args->weight), .y = nm_device_mat(args->y),
           .bias = nm_device_address(args->bias), .rows = nm_device_address(args->rows));
}

static void device_linear_grad_input(nm_backend *b, const nm_linear_grad_input_args *args)
{
    NM_CALL(b, gemm, .alpha = 1, .beta = args->add, .a = args->dy, .b = args->weight, .c = args->dx);
}

static void device_linear_grad_weight(nm_backend *b, const nm_linear_grad_weight_args *args)
{
    if (args->dw.data)
        NM_CALL(b, gemm, .ta = true, .alpha = 1, .beta = 1, .a = args->dy, .b = args->x, .c = args->dw);
    nm_device_add_columns(b, args->dy, args->db);
}

void nm_device_products(nm_kernels *k)
{
    k->gemm = device_gemm;
    k->linear = device_linear;
    k->linear_selected = device_linear_selected;
    k->linear_grad_input = device_linear_grad_input;
    k->linear_grad_weight = device_linear_grad_weight;
}
