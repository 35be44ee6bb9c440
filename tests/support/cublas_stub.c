/* libcublasLt of the stub (cuda_stub.h): column-major products with the bits of Norma's kernel in float;
 * in bf16 sums in double. */
#include "cuda_stub.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define F(type, name, parameters) STUB_EXPORT type name parameters;
NM_CUDA_CUBLAS(F)
#undef F

struct nm_cublas_operation {
    int compute, transpose[2];
    uint32_t epilogue;
    uint64_t bias;
};
struct nm_cublas_layout {
    int type;
    uint64_t rows, cols;
    int64_t ld;
};
struct nm_cublas_preference {
    uint64_t workspace;
    uint32_t reduction, alignment[4];
};
static const uint64_t algorithm_magic = 0xA160;

const char *cublasLtGetStatusString(cublasStatus_t code)
{
    return code == 13 ? "CUBLAS_STATUS_EXECUTION_FAILED" : "CUBLAS_STATUS_STUB";
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

#define CREATE(name, type, handle)                                                                           \
    STUB(name);                                                                                              \
    *(handle) = calloc(1, sizeof(type));                                                                     \
    stub_count(1)
/* Does its work even if it reports a failure */
#define DESTROY(name, handle)                                                                                \
    const int code = stub_enter(#name);                                                                      \
    free(handle);                                                                                            \
    stub_count(-1);                                                                                          \
    return code

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    CREATE(cublasLtCreate, int, (void **)handle);
    return 0;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    DESTROY(cublasLtDestroy, handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    CREATE(cublasLtMatmulDescCreate, struct nm_cublas_operation, operation);
    if (scale != CUDA_R_32F || (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32))
        stub_panic("types of a product");
    (*operation)->compute = compute;
    (*operation)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return 0;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation)
{
    DESTROY(cublasLtMatmulDescDestroy, operation);
}

static void read_value(void *to, size_t expected, const void *value, size_t bytes)
{
    if (bytes != expected)
        stub_panic("an attribute of %zu bytes, expected %zu", bytes, expected);
    memcpy(to, value, bytes);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes)
{
    STUB(cublasLtMatmulDescSetAttribute);
    if (attribute == CUBLASLT_MATMUL_DESC_TRANSA || attribute == CUBLASLT_MATMUL_DESC_TRANSB)
        read_value(&operation->transpose[attribute == CUBLASLT_MATMUL_DESC_TRANSB], 4, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE)
        read_value(&operation->epilogue, 4, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        read_value(&operation->bias, 8, value, bytes);
    else
        stub_panic("attribute %d of a product", attribute);
    return 0;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    CREATE(cublasLtMatrixLayoutCreate, struct nm_cublas_layout, layout);
    if (ld < (int64_t)rows || !rows || !cols)
        stub_panic("a matrix of %d rows with stride %d", (int)rows, (int)ld);
    **layout = (struct nm_cublas_layout){type, rows, cols, ld};
    return 0;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    DESTROY(cublasLtMatrixLayoutDestroy, layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    CREATE(cublasLtMatmulPreferenceCreate, struct nm_cublas_preference, preference);
    return 0;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    DESTROY(cublasLtMatmulPreferenceDestroy, preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    STUB(cublasLtMatmulPreferenceSetAttribute);
    const int alignment = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        read_value(&preference->workspace, 8, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        read_value(&preference->reduction, 4, value, bytes);
    else if (alignment >= 0 && alignment < 4)
        read_value(&preference->alignment[alignment], 4, value, bytes);
    else
        stub_panic("attribute %d of a preference", attribute);
    return 0;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    STUB(cublasLtMatmulAlgoGetHeuristic);
    if (!handle || !operation || !a || !b || c != d || wanted != 1 || a->type != b->type ||
        c->type != CUDA_R_32F)
        stub_panic("cublasLtMatmulAlgoGetHeuristic");
    if (!preference->workspace || preference->reduction != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        stub_panic("an algorithm with another order of sums on every run");
    memset(results, 0, sizeof *results);
    /* A product of one row has no algorithm, so that the own kernel computes it. */
    *found = c->cols > 1;
    results->state = *found ? 0 : 15;
    results->algo.data[0] = algorithm_magic;
    for (int i = 0; i < 4; i++)
        results->algo.data[1 + i] = preference->alignment[i];
    results->algo.data[5] = preference->workspace;
    return 0;
}

typedef struct product {
    struct nm_cublas_operation operation;
    struct nm_cublas_layout a, b, c;
    uint64_t a_data, b_data, c_data;
    float alpha, beta;
} product;

static struct dmat matrix_of(const struct nm_cublas_layout *layout, uint64_t data)
{
    return (struct dmat){data, layout->ld, (int)layout->cols, (int)layout->rows};
}

/* Element of a column-major operand of bf16 numbers */
static double bf16_at(const struct nm_cublas_layout *layout, const uint16_t *data, int transposed,
                      uint64_t row, uint64_t col)
{
    const uint64_t at = transposed ? row * (uint64_t)layout->ld + col : col * (uint64_t)layout->ld + row;
    const uint32_t bits = (uint32_t)data[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void run_bf16(const product *p)
{
    const uint64_t depth = p->operation.transpose[0] ? p->a.rows : p->a.cols;
    const uint16_t *a = stub_memory(p->a_data, 2 * p->a.rows), *b = stub_memory(p->b_data, 2 * p->b.rows);
    float *c = stub_memory(p->c_data, 4 * p->c.rows);
    for (uint64_t row = 0; row < p->c.rows; row++)
        for (uint64_t col = 0; col < p->c.cols; col++) {
            double sum = 0;
            for (uint64_t k = 0; k < depth; k++)
                sum += bf16_at(&p->a, a, p->operation.transpose[0], row, k) *
                       bf16_at(&p->b, b, p->operation.transpose[1], k, col);
            float *at = &c[col * (uint64_t)p->c.ld + row], z = p->alpha * (float)sum;
            if (p->operation.epilogue & CUBLASLT_EPILOGUE_BIAS)
                z += ((const float *)stub_memory(p->operation.bias, 4 * p->c.rows))[row];
            z = p->operation.epilogue & CUBLASLT_EPILOGUE_RELU && !(z > 0) ? 0 : z;
            *at = p->beta == 0 ? z : z + p->beta * *at;
        }
}

static void run_product(void *data)
{
    const product *p = data;
    if (p->a.type == CUDA_R_16BF) {
        run_bf16(p);
        return;
    }
    /* The same as row-major matrices: c^T = op(b)^T op(a)^T */
    const struct gemm_args args = {.a = matrix_of(&p->b, p->b_data),
                                   .b = matrix_of(&p->a, p->a_data),
                                   .c = matrix_of(&p->c, p->c_data),
                                   .bias =
                                       p->operation.epilogue & CUBLASLT_EPILOGUE_BIAS ? p->operation.bias : 0,
                                   .alpha = p->alpha,
                                   .beta = p->beta,
                                   .ta = p->operation.transpose[1],
                                   .tb = p->operation.transpose[0],
                                   .relu = (p->operation.epilogue & CUBLASLT_EPILOGUE_RELU) != 0};
    stub_run_gemm(&args);
}

static void check_alignment(const char *name, const void *data, uint64_t alignment)
{
    if (!alignment || (uintptr_t)data % alignment)
        stub_panic("matrix %s at %p is not aligned to %d bytes", name, data, (int)alignment);
}

static void check_shapes(const product *p)
{
    const uint64_t *t =
        (const uint64_t[]){(uint64_t)p->operation.transpose[0], (uint64_t)p->operation.transpose[1]};
    const uint64_t rows = t[0] ? p->a.cols : p->a.rows, depth = t[0] ? p->a.rows : p->a.cols;
    const uint64_t other = t[1] ? p->b.cols : p->b.rows, cols = t[1] ? p->b.rows : p->b.cols;
    if (rows != p->c.rows || cols != p->c.cols || depth != other)
        stub_panic("shapes of a product");
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              CUstream stream)
{
    STUB(cublasLtMatmul);
    product p = {.operation = *operation,
                 .a = *a_layout,
                 .b = *b_layout,
                 .c = *c_layout,
                 .a_data = (uintptr_t)a,
                 .b_data = (uintptr_t)b,
                 .c_data = (uintptr_t)d};
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    if (!handle || c != d || c_layout != d_layout || algorithm->data[0] != algorithm_magic ||
        workspace_bytes < algorithm->data[5])
        stub_panic("cublasLtMatmul");
    memset(stub_memory((uintptr_t)workspace, workspace_bytes), 0xEE, 64);
    check_alignment("A", a, algorithm->data[1]);
    check_alignment("B", b, algorithm->data[2]);
    check_alignment("C", c, algorithm->data[3]);
    check_shapes(&p);
    stub_enqueue(stream, run_product, &p, sizeof p);
    return 0;
}
