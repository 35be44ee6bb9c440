/* Creation of backends, transfers, and their description. */
#include "norma/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/backend_private.h"
#include "backend/device/target.h"
#include "backend/ref.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/threads.h"

typedef struct backend_row {
    const char *name;
    nm_status (*init)(nm_backend *backend, const nm_backend_options *options, nm_error *err);
    bool plain;  /* plain C: one thread, fenced mode */
    bool levels; /* has CPU levels */
} backend_row;

static const backend_row backend_rows[] = {{"ref", nm_ref_backend_init, true, false},
                                           {"cpu", nm_cpu_backend_init, false, true},
                                           {"emulated", nm_emulated_backend_init, false, false},
                                           {"cuda", nm_cuda_backend_init, false, false}};

static const backend_row *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof backend_rows / sizeof *backend_rows; i++)
        if (name && strcmp(name, backend_rows[i].name) == 0)
            return &backend_rows[i];
    return NULL;
}

nm_status nm_backend_require_kernels(const nm_kernels *kernels, const char *name, nm_error *err)
{
#define K(kernel)                                                                                            \
    if (!kernels->kernel)                                                                                    \
        return nm_fail(err, NM_UNSUPPORTED, "backend %s lacks the kernel %s", name, #kernel);
    NM_KERNELS(K)
#undef K
    return NM_OK;
}

nm_status nm_backend_create(nm_backend **backend, const nm_backend_options *options, nm_error *err)
{
    *backend = NULL;
    const backend_row *row = find_row(options->name);
    if (!row)
        return nm_fail(err, NM_USAGE, "unknown backend '%s' (available: ref, cpu, emulated, cuda)",
                       options->name ? options->name : "");
    if (options->fenced && !row->plain)
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
    inside->plain = row->plain;
    inside->levels = row->levels;
    made->isa = "base";
    made->dtype = options->dtype;
    made->bf16 = options->bf16;
    int32_t requested = options->threads ? options->threads : nm_machine_cpus();
    made->threads = nm_threads_available(requested);
    inside->lacks_threads = made->threads < requested;
    made->k = *nm_ref_kernels(options->dtype, options->bf16);
    nm_status status = row->init(made, options, err);
    NM_THEN(status, nm_backend_require_kernels(&made->k, made->name, err));
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
    nm_backend_private *main = nm_backend_inside(of);
    *worker = NULL;
    NM_ASSERT(threads > 0 && !of->dry_run);
    if (main->profiling.on)
        return nm_fail(err, NM_UNSUPPORTED, "backend %s cannot have workers while profiling is on", of->name);
    nm_backend *made = nm_allocate(sizeof *made);
    nm_backend_private *inside = nm_allocate(sizeof *inside);
    *made = *of;
    made->threads = threads;
    made->private_data = inside;
    inside->active = main->active;
    inside->plain = main->plain;
    inside->levels = main->levels;
    inside->fenced = main->fenced;
    inside->unfenced = main->unfenced;
    inside->main = main->main ? main->main : main;
    if (main->target) {
        nm_status status = main->target->create_worker(main->device, &inside->device, err);
        if (status != NM_OK) {
            nm_backend_free(made);
            return status;
        }
        inside->target = main->target;
    }
    *worker = made;
    return NM_OK;
}

void nm_backend_free(nm_backend *backend)
{
    if (!backend)
        return;
    NM_AUTO_FREE nm_backend_private *inside = nm_backend_inside(backend);
    if (inside->target)
        inside->target->close(inside->device);
    for (size_t i = 0; i < inside->n_regions; i++)
        munmap(inside->regions[i].base, inside->regions[i].bytes);
    for (int i = 0; i < NM_SCRATCH_SLOTS; i++)
        free(inside->scratch[i].base);
    NM_FREE(inside->regions, inside->weights, backend);
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
    NM_AUTO_FREE void *host = nm_allocate(bytes + 1);
    nm_backend_download(backend, host, device, bytes);
    for (size_t i = 0; i < n; i++)
        values[i] = nm_dtype_get(backend->dtype, host, i);
}

void nm_backend_write(nm_backend *backend, void *device, const double *values, size_t n)
{
    size_t bytes = n * nm_dtype_bytes(backend->dtype);
    NM_AUTO_FREE void *host = nm_allocate(bytes + 1);
    for (size_t i = 0; i < n; i++)
        nm_dtype_set(backend->dtype, host, i, values[i]);
    nm_backend_upload(backend, device, host, bytes);
}

const void *nm_backend_view(const nm_backend *backend, const void *device)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    return inside->fenced || inside->target ? NULL : device;
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

void nm_backend_describe(const nm_backend *backend, char *text, size_t bytes)
{
    const char *number = backend->bf16              ? "bf16 and float32"
                         : backend->dtype == NM_F64 ? "float64"
                                                    : "float32";
    if (nm_backend_inside(backend)->plain) {
        snprintf(text, bytes, "backend ref, %s, plain C, 1 thread%s", number,
                 nm_backend_inside(backend)->fenced ? ", fenced memory" : "");
        return;
    }
    snprintf(text, bytes, "backend %s, %s, level %s, %d thread%s", backend->name, number, backend->isa,
             (int)backend->threads, backend->threads == 1 ? "" : "s");
}

const char *nm_backend_training_level(const nm_backend *backend)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    if (inside->target)
        return inside->target->level(inside->device);
    if (!inside->levels)
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
    if (backend->threads <= nm_machine_cpus() || nm_backend_inside(backend)->target)
        return "";
    return "more threads than cores: expect lower throughput";
}
