/* Matrix products by cuBLASLt. A row-major matrix is the transpose of a column-major one with the same
 * bytes, so c = op(a) op(b) is computed as c^T = op(b)^T op(a)^T.
 *
 * Bitwise identical on every run: the algorithm is cuBLASLt's first suggestion for shapes, types and
 * alignments, with a workspace of fixed size, and sums over parts of the inner dimension are a second pass
 * (no atomics). Another version of cuBLAS or another GPU may choose another algorithm. */
#include <stdlib.h>
#include <string.h>

#include "backend/device/cuda.h"
#include "backend/device/launch.h"
#include "base/memory.h"

/* What a plan depends on; without padding, because keys are compared as bytes. */
typedef struct plan_key {
    int64_t a_stride, b_stride, c_stride;
    int32_t a_rows, a_cols, b_rows, b_cols, c_rows, c_cols;
    int32_t ta, tb, bf16, epilogue;
    uint32_t a_alignment, b_alignment, c_alignment, pad;
} plan_key;

typedef struct nm_cuda_plan {
    plan_key key;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    bool possible; /* cuBLASLt has an algorithm */
} nm_cuda_plan;

static bool cublas_ok(nm_cuda_stream *s, cublasStatus_t code, const char *call)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return true;
    if (s->failure.status == NM_OK)
        nm_fail(&s->failure, NM_DEVICE, "cuBLASLt reported %s in %s",
                s->gpu->cublas.cublasLtGetStatusString(code), call);
    return false;
}
#define CUBLAS(s, call, ...)                                                                                 \
    nm_cuda_all((s)->failure.status == NM_OK && cublas_ok((s), (s)->gpu->cublas.call(__VA_ARGS__), #call))

nm_status nm_cublas_open(nm_cuda_stream *s, nm_error *err)
{
    if (!s->gpu->cublas.cublasLtCreate)
        NM_TRY(nm_cuda_open_cublas(&s->gpu->cublas, err));
    CUBLAS(s, cublasLtCreate, &s->cublas);
    nm_cuda_scratch(s, NM_CUDA_WORKSPACE_SLOT, NM_CUDA_WORKSPACE_BYTES);
    if (s->failure.status != NM_OK)
        *err = s->failure;
    return s->failure.status;
}

static void release_plan(nm_cuda_stream *s, nm_cuda_plan *plan)
{
    const nm_cuda_cublas *cublas = &s->gpu->cublas;
    if (plan->operation)
        cublas->cublasLtMatmulDescDestroy(plan->operation);
    if (plan->a)
        cublas->cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b)
        cublas->cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->c)
        cublas->cublasLtMatrixLayoutDestroy(plan->c);
}

void nm_cublas_close(nm_cuda_stream *s)
{
    for (size_t i = 0; i < s->n_plans; i++)
        release_plan(s, &s->plans[i]);
    free(s->plans);
    if (s->cublas)
        s->gpu->cublas.cublasLtDestroy(s->cublas);
}

/* The largest power of two up to 256 that divides an address and the bytes of a row */
static uint32_t alignment_of(dptr address, int64_t row_bytes)
{
    uint32_t alignment = 256;
    while (alignment > 1 && (address | (dptr)row_bytes) % alignment)
        alignment /= 2;
    return alignment;
}

static bool set_preferences(nm_cuda_stream *s, cublasLtMatmulPreference_t preference, const plan_key *key)
{
    const uint64_t workspace = NM_CUDA_WORKSPACE_BYTES;
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
#define SET(attribute, value)                                                                                \
    CUBLAS(s, cublasLtMatmulPreferenceSetAttribute, preference, attribute, &(value), sizeof(value))
    return SET(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
           SET(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction) &&
           SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->b_alignment) &&
           SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->a_alignment) &&
           SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key->c_alignment) &&
           SET(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->c_alignment);
#undef SET
}

/* cuBLASLt's A is b, its B is a. */
static bool describe(nm_cuda_stream *s, nm_cuda_plan *plan)
{
    const plan_key *key = &plan->key;
    const cudaDataType_t type = key->bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const cublasComputeType_t compute =
        s->gpu->tf32 && !key->bf16 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const int32_t transpose_a = key->tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                  transpose_b = key->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = (uint32_t)key->epilogue;
#define SET(attribute, value)                                                                                \
    CUBLAS(s, cublasLtMatmulDescSetAttribute, plan->operation, attribute, &(value), sizeof(value))
    return CUBLAS(s, cublasLtMatmulDescCreate, &plan->operation, compute, CUDA_R_32F) &&
           SET(CUBLASLT_MATMUL_DESC_TRANSA, transpose_a) && SET(CUBLASLT_MATMUL_DESC_TRANSB, transpose_b) &&
           SET(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) &&
           CUBLAS(s, cublasLtMatrixLayoutCreate, &plan->a, type, (uint64_t)key->b_cols, (uint64_t)key->b_rows,
                  key->b_stride) &&
           CUBLAS(s, cublasLtMatrixLayoutCreate, &plan->b, type, (uint64_t)key->a_cols, (uint64_t)key->a_rows,
                  key->a_stride) &&
           CUBLAS(s, cublasLtMatrixLayoutCreate, &plan->c, CUDA_R_32F, (uint64_t)key->c_cols,
                  (uint64_t)key->c_rows, key->c_stride);
#undef SET
}

/* No algorithm for a shape is not a failure: the plan is then impossible, and the own kernel is used. */
static void choose_algorithm(nm_cuda_stream *s, nm_cuda_plan *plan)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    memset(&result, 0, sizeof result);
    if (CUBLAS(s, cublasLtMatmulPreferenceCreate, &preference) &&
        set_preferences(s, preference, &plan->key)) {
        const cublasStatus_t code = s->gpu->cublas.cublasLtMatmulAlgoGetHeuristic(
            s->cublas, plan->operation, plan->a, plan->b, plan->c, plan->c, preference, 1, &result, &found);
        plan->possible = code == CUBLAS_STATUS_SUCCESS && found == 1 && result.state == CUBLAS_STATUS_SUCCESS;
        plan->algorithm = result.algo;
    }
    if (preference)
        s->gpu->cublas.cublasLtMatmulPreferenceDestroy(preference);
}

static nm_cuda_plan *find_plan(nm_cuda_stream *s, const plan_key *key)
{
    for (size_t i = 0; i < s->n_plans; i++)
        if (!memcmp(&s->plans[i].key, key, sizeof *key))
            return &s->plans[i];
    NM_GROW(s->plans, s->n_plans, s->plans_capacity);
    nm_cuda_plan *plan = &s->plans[s->n_plans++];
    *plan = (nm_cuda_plan){.key = *key};
    if (describe(s, plan))
        choose_algorithm(s, plan);
    return plan;
}

/* m in bf16, in scratch memory */
static struct dmat bf16_operand(nm_cuda_stream *s, int slot, struct dmat m)
{
    const int64_t n = (int64_t)m.rows * m.cols;
    const struct dmat out = {nm_cuda_scratch(s, slot, (size_t)n * 2), m.cols, m.rows, m.cols};
    const struct store_bf16_args args = {.x = m, .y = out.data};
    nm_cuda_launch(s, &nm_device_store_bf16, nm_device_blocks(n, EACH_ELEMENTS), 1, &args);
    return out;
}

static plan_key key_of(const struct gemm_args *args, struct dmat a, struct dmat b, bool bf16)
{
    const struct dmat c = args->c;
    const int64_t unit = bf16 ? 2 : 4;
    const int epilogue = args->relu && args->bias ? CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS
                         : args->relu             ? CUBLASLT_EPILOGUE_RELU
                         : args->bias             ? CUBLASLT_EPILOGUE_BIAS
                                                  : CUBLASLT_EPILOGUE_DEFAULT;
    return (plan_key){.a_stride = a.stride,
                      .b_stride = b.stride,
                      .c_stride = c.stride,
                      .a_rows = a.rows,
                      .a_cols = a.cols,
                      .b_rows = b.rows,
                      .b_cols = b.cols,
                      .c_rows = c.rows,
                      .c_cols = c.cols,
                      .ta = args->ta,
                      .tb = args->tb,
                      .bf16 = bf16,
                      .epilogue = epilogue,
                      .a_alignment = alignment_of(a.data, a.stride * unit),
                      .b_alignment = alignment_of(b.data, b.stride * unit),
                      .c_alignment = alignment_of(c.data, c.stride * 4)};
}

bool nm_cublas_product(void *device, const struct gemm_args *args, bool rounded)
{
    nm_cuda_stream *s = device;
    struct dmat a = args->a, b = args->b;
    if (s->gpu->own_gemm || a.rows == 0 || a.cols == 0 || b.rows == 0 || b.cols == 0)
        return false;
    /* cuBLASLt's epilogues would include beta c in the activation. */
    NM_ASSERT(args->beta == 0 || (!args->bias && !args->relu));
    if (rounded) {
        a = bf16_operand(s, NM_CUDA_OPERAND_SLOT, a);
        b = bf16_operand(s, NM_CUDA_OPERAND_SLOT + 1, b);
    }
    const plan_key key = key_of(args, a, b, rounded);
    nm_cuda_plan *plan = s->failure.status == NM_OK ? find_plan(s, &key) : NULL;
    if (s->failure.status != NM_OK)
        return true;
    if (!plan->possible)
        return false;
    if (args->bias)
        CUBLAS(s, cublasLtMatmulDescSetAttribute, plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
               &args->bias, sizeof args->bias);
    if (!nm_cuda_enter(s))
        return true;
    void *c = (void *)(uintptr_t)args->c.data,
         *workspace = (void *)(uintptr_t)s->scratch[NM_CUDA_WORKSPACE_SLOT].memory;
    s->last_kernel = "matrix product of cuBLASLt";
    CUBLAS(s, cublasLtMatmul, s->cublas, plan->operation, &args->alpha, (void *)(uintptr_t)b.data, plan->a,
           (void *)(uintptr_t)a.data, plan->b, &args->beta, c, plan->c, c, plan->c, &plan->algorithm,
           workspace, NM_CUDA_WORKSPACE_BYTES, s->stream);
    return true;
}
