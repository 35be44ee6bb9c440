/* Creation of backends, their memory, and their description. */
#include "norma/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/backend_private.h"
#include "backend/cpu/cpu.h"
#include "backend/ref/ref.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/threads.h"

enum { HUGE_PAGE = 2 << 20, HUGE_MIN_BYTES = 2 * HUGE_PAGE };

typedef struct backend_row {
    const char *name;
    nm_status (*init)(nm_backend *backend, const nm_backend_options *options, nm_error *err);
} backend_row;

static const backend_row backend_rows[] = {{"ref", nm_ref_backend_init}, {"cpu", nm_cpu_backend_init}};

static const backend_row *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof backend_rows / sizeof *backend_rows; i++)
        if (name && strcmp(name, backend_rows[i].name) == 0)
            return &backend_rows[i];
    return NULL;
}

nm_status nm_backend_create(nm_backend **backend, const nm_backend_options *options, nm_error *err)
{
    *backend = NULL;
    const backend_row *row = find_row(options->name);
    if (!row)
        return nm_fail(err, NM_USAGE, "unknown backend '%s' (available: ref, cpu)",
                       options->name ? options->name : "");
    if (options->fenced && row->init != nm_ref_backend_init)
        return nm_fail(err, NM_UNSUPPORTED, "backend %s has no fenced mode; use backend ref", row->name);
    if (options->threads < 0)
        return nm_fail(err, NM_USAGE, "the number of threads is %d; it must be 0 (one per core) or more",
                       (int)options->threads);
    if (options->bf16 && options->dtype != NM_F32)
        return nm_fail(err, NM_UNSUPPORTED, "bf16 matrix multiplication requires float32");
    nm_backend *made = nm_allocate(sizeof *made);
    nm_backend_private *inside = nm_allocate(sizeof *inside);
    made->private_data = inside;
    made->name = row->name;
    made->isa = "base";
    made->dtype = options->dtype;
    made->bf16 = options->bf16;
    int32_t requested = options->threads ? options->threads : nm_machine_cpus();
    made->threads = nm_threads_available(requested);
    inside->lacks_threads = made->threads < requested;
    made->k = *nm_ref_kernels(options->dtype, options->bf16);
    nm_status status = row->init(made, options, err);
    if (status != NM_OK) {
        nm_backend_free(made);
        return status;
    }
    inside->active = made->k;
    *backend = made;
    return NM_OK;
}

nm_status nm_backend_create_worker(nm_backend **worker, const nm_backend *of, int32_t threads, nm_error *err)
{
    const nm_backend_private *main = nm_backend_inside(of);
    *worker = NULL;
    NM_ASSERT(threads > 0 && !of->dry_run);
    if (main->fenced || main->profiling.on || main->device)
        return nm_fail(err, NM_UNSUPPORTED,
                       "backend %s cannot have workers in fenced mode or while profiling is on", of->name);
    nm_backend *made = nm_allocate(sizeof *made);
    nm_backend_private *inside = nm_allocate(sizeof *inside);
    *made = *of;
    made->threads = threads;
    made->private_data = inside;
    inside->active = main->active;
    inside->main = main->main ? main->main : main;
    *worker = made;
    return NM_OK;
}

void nm_backend_free(nm_backend *backend)
{
    if (!backend)
        return;
    nm_backend_private *inside = nm_backend_inside(backend);
    if (inside->device_release)
        inside->device_release(inside->device);
    for (size_t i = 0; i < inside->n_regions; i++)
        munmap(inside->regions[i].base, inside->regions[i].bytes);
    for (int i = 0; i < NM_SCRATCH_SLOTS; i++)
        free(inside->scratch[i].base);
    free(inside->regions);
    free(inside->weights);
    free(inside);
    free(backend);
}

void nm_backend_upload(nm_backend *backend, void *device, const void *host, size_t bytes)
{
    NM_CALL(backend, upload, .host = host, .bytes = bytes, .device = device);
}

void nm_backend_download(nm_backend *backend, void *host, const void *device, size_t bytes)
{
    NM_CALL(backend, download, .device = device, .bytes = bytes, .host = host);
}

void nm_backend_copy(nm_backend *backend, void *to, const void *from, size_t bytes)
{
    NM_CALL(backend, copy, .from = from, .bytes = bytes, .to = to);
}

void nm_backend_zero(nm_backend *backend, void *data, size_t bytes)
{
    NM_CALL(backend, zero, .bytes = bytes, .data = data);
}

void nm_backend_read(nm_backend *backend, double *values, const void *device, size_t n)
{
    size_t bytes = n * nm_dtype_bytes(backend->dtype);
    void *host = nm_allocate(bytes + 1);
    nm_backend_download(backend, host, device, bytes);
    for (size_t i = 0; i < n; i++)
        values[i] = nm_dtype_get(backend->dtype, host, i);
    free(host);
}

void nm_backend_write(nm_backend *backend, void *device, const double *values, size_t n)
{
    size_t bytes = n * nm_dtype_bytes(backend->dtype);
    void *host = nm_allocate(bytes + 1);
    for (size_t i = 0; i < n; i++)
        nm_dtype_set(backend->dtype, host, i, values[i]);
    nm_backend_upload(backend, device, host, bytes);
    free(host);
}

/* Huge pages reduce the TLB misses of strided accesses to rows. */
static void advise_huge_pages(void *base, size_t bytes)
{
    if (bytes >= HUGE_MIN_BYTES)
        madvise(base, bytes, MADV_HUGEPAGE);
}

nm_status nm_backend_alloc(nm_backend *backend, size_t bytes, void **memory, nm_error *err)
{
    nm_backend_private *inside = nm_backend_inside(backend);
    *memory = NULL;
    size_t size = bytes ? bytes : 1; /* mmap rejects 0 bytes */
    int access = inside->fenced ? PROT_NONE : PROT_READ | PROT_WRITE;
    void *base = mmap(NULL, size, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return nm_fail(err, NM_MEMORY, "out of memory: cannot allocate %zu MiB for backend %s", bytes >> 20,
                       backend->name);
    advise_huge_pages(base, size);
    NM_GROW(inside->regions, inside->n_regions, inside->regions_capacity);
    inside->regions[inside->n_regions++] = (nm_region){base, size};
    *memory = base;
    return NM_OK;
}

static nm_region *find_region(nm_backend_private *inside, const void *memory)
{
    size_t i = 0;
    while (i < inside->n_regions && inside->regions[i].base != memory)
        i++;
    NM_ASSERT(i < inside->n_regions);
    return &inside->regions[i];
}

nm_status nm_backend_realloc(nm_backend *backend, size_t bytes, void **memory, nm_error *err)
{
    if (!*memory)
        return nm_backend_alloc(backend, bytes, memory, err);
    nm_region *region = find_region(nm_backend_inside(backend), *memory);
    NM_ASSERT(bytes >= region->bytes);
    void *base = mremap(region->base, region->bytes, bytes, MREMAP_MAYMOVE);
    if (base == MAP_FAILED)
        return nm_fail(err, NM_MEMORY, "out of memory: cannot allocate %zu MiB for backend %s", bytes >> 20,
                       backend->name);
    advise_huge_pages(base, bytes);
    *region = (nm_region){base, bytes};
    *memory = base;
    return NM_OK;
}

void nm_backend_dealloc(nm_backend *backend, void *memory)
{
    if (!memory)
        return;
    nm_backend_private *inside = nm_backend_inside(backend);
    nm_region *region = find_region(inside, memory);
    munmap(memory, region->bytes);
    *region = inside->regions[--inside->n_regions];
}

const void *nm_backend_view(const nm_backend *backend, const void *device)
{
    return nm_backend_inside(backend)->fenced ? NULL : device;
}

void *nm_backend_scratch(nm_backend *backend, int slot, size_t bytes)
{
    NM_ASSERT(slot >= 0 && slot < NM_SCRATCH_SLOTS);
    nm_backend_private *inside = nm_backend_inside(backend);
    nm_region *scratch = &inside->scratch[slot];
    bool huge = bytes >= HUGE_MIN_BYTES;
    size_t page = huge ? HUGE_PAGE : 4096, rounded = (bytes + page - 1) / page * page;
    if (backend->dry_run) {
        if (inside->scratch_requested[slot] < rounded)
            inside->scratch_requested[slot] = rounded;
        return scratch->base;
    }
    if (scratch->bytes < bytes) {
        free(scratch->base);
        scratch->base = aligned_alloc(page, rounded);
        if (!scratch->base)
            nm_out_of_memory(rounded);
        if (huge)
            madvise(scratch->base, rounded, MADV_HUGEPAGE);
        scratch->bytes = rounded;
    }
    return scratch->base;
}

static void register_packed(nm_backend *backend, nm_packed_weight entry)
{
    nm_backend_private *inside = nm_backend_inside(backend);
    NM_ASSERT(entry.packed && entry.weight.stride == entry.weight.cols);
    NM_GROW(inside->weights, inside->n_weights, inside->weights_capacity);
    inside->weights[inside->n_weights++] = entry;
}

void nm_backend_register_weight(nm_backend *backend, nm_mat weight, const void *packed)
{
    register_packed(backend, (nm_packed_weight){.weight = weight, .packed = packed});
}

void nm_backend_register_weight_int8(nm_backend *backend, nm_mat weight, const void *packed)
{
    register_packed(backend, (nm_packed_weight){.weight = weight, .packed = packed, .int8 = true});
}

void nm_backend_unregister_weight(nm_backend *backend, const void *packed)
{
    nm_backend_private *inside = nm_backend_inside(backend);
    size_t i = 0;
    while (i < inside->n_weights && inside->weights[i].packed != packed)
        i++;
    NM_ASSERT(i < inside->n_weights);
    inside->weights[i] = inside->weights[--inside->n_weights];
}

const nm_packed_weight *nm_backend_find_packed(const nm_backend *backend, nm_mat rows, int32_t *first)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    inside = inside->main ? inside->main : inside;
    uintptr_t address = (uintptr_t)rows.data;
    for (size_t i = 0; i < inside->n_weights; i++) {
        nm_mat whole = inside->weights[i].weight;
        uintptr_t begin = (uintptr_t)whole.data;
        size_t row_bytes = (size_t)whole.cols * nm_dtype_bytes(backend->dtype);
        if (address < begin || address - begin >= (size_t)whole.rows * row_bytes)
            continue;
        *first = (int32_t)((address - begin) / row_bytes);
        bool whole_rows =
            (address - begin) % row_bytes == 0 && rows.cols == whole.cols && rows.stride == whole.stride;
        return whole_rows && rows.rows <= whole.rows - *first ? &inside->weights[i] : NULL;
    }
    return NULL;
}

bool nm_backend_has_packed(const nm_backend *backend, nm_mat rows)
{
    int32_t first;
    return nm_backend_find_packed(backend, rows, &first) != NULL;
}

bool nm_backend_linear_int8(nm_backend *backend, const nm_linear_args *args)
{
    int32_t first = 0;
    const nm_packed_weight *entry = nm_backend_find_packed(backend, args->weight, &first);
    if (!entry || !entry->int8)
        return false;
    NM_ASSERT(!args->drop || nm_dropout_threshold(args->drop->rate) == 0);
    NM_ASSERT(args->x.cols == args->weight.cols && args->y.cols == args->weight.rows);
    const nm_int8 rows = {entry->packed, entry->weight.rows, entry->weight.cols, first};
    NM_CALL(backend, linear_int8, .x = args->x, .weight = &rows, .bias = args->bias, .act = args->act,
            .y = args->y);
    return true;
}

void nm_backend_dry_run(nm_backend *backend, bool on)
{
    nm_backend_private *inside = nm_backend_inside(backend);
    if (on && !backend->dry_run)
        memset(inside->scratch_requested, 0, sizeof inside->scratch_requested);
    backend->dry_run = on;
    const nm_kernels *active = inside->profiling.on ? &inside->profiling.untimed : &inside->active;
    backend->k = on ? nm_dry_run_kernels(active) : inside->active;
}

size_t nm_backend_scratch_bytes(const nm_backend *backend)
{
    size_t bytes = 0;
    for (int i = 0; i < NM_SCRATCH_SLOTS; i++)
        bytes += nm_backend_inside(backend)->scratch_requested[i];
    return bytes;
}

void nm_backend_describe(const nm_backend *backend, char *text, size_t bytes)
{
    const char *number = backend->bf16              ? "bf16 and float32"
                         : backend->dtype == NM_F64 ? "float64"
                                                    : "float32";
    if (strcmp(backend->name, "ref") == 0) {
        snprintf(text, bytes, "backend ref, %s, plain C, 1 thread%s", number,
                 nm_backend_inside(backend)->fenced ? ", fenced memory" : "");
        return;
    }
    snprintf(text, bytes, "backend %s, %s, level %s, %d thread%s", backend->name, number, backend->isa,
             (int)backend->threads, backend->threads == 1 ? "" : "s");
}

const char *nm_backend_training_level(const nm_backend *backend)
{
    if (!strcmp(backend->name, "ref"))
        return backend->name;
    return strcmp(backend->isa, "base") ? "avx2" : "base";
}

bool nm_backend_lacks_threads(const nm_backend *backend)
{
    return nm_backend_inside(backend)->lacks_threads;
}

const char *nm_backend_warning(const nm_backend *backend)
{
    if (nm_backend_lacks_threads(backend))
        return "the system cannot start as many threads as requested: fewer are used";
    if (backend->threads <= nm_machine_cpus())
        return "";
    return "more threads than cores: expect lower throughput";
}
