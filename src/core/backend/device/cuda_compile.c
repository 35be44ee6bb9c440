/* Compiles the device kernels by NVRTC for the architecture of a GPU, and keeps the result in a folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "backend/device/cuda.h"
#include "backend/device/kernel_source.h"
#include "base/file.h"
#include "base/memory.h"

enum { MAX_SOURCES = 64 };

/* The file of compiled kernels: this, then the code. Readers compile again what is not complete. */
typedef struct cache_header {
    char magic[8];
    uint64_t bytes, hash;
} cache_header;
static const char cache_magic[8] = "NMCUDA1";

/* All kernels, and the sizes of their arguments on the host, which must be those of the compiler. */
static char *main_source(void)
{
    char *text = NULL;
    nm_format_append(&text, "#include \"backend/device/all.inc\"\n");
#define K(name)                                                                                              \
    nm_format_append(&text, "static_assert(sizeof(struct %s_args) == %zu, \"arguments of %s\");\n", #name,   \
                     sizeof(struct name##_args), #name);
    NM_DEVICE_KERNELS(K)
#undef K
    return text;
}

static int list_sources(const char **names, const char **texts)
{
    int n = 0;
    for (; nm_kernel_sources[n].name; n++) {
        NM_ASSERT(n < MAX_SOURCES);
        names[n] = nm_kernel_sources[n].name;
        texts[n] = nm_kernel_sources[n].text;
    }
    return n;
}

/* What the code depends on, but for the architecture and the version of NVRTC. */
static uint64_t hash_of_sources(const char *source, const char *const *options, int n_options)
{
    const char *names[MAX_SOURCES], *texts[MAX_SOURCES];
    const int n = list_sources(names, texts);
    uint64_t hash = XXH3_64bits(source, strlen(source));
    for (int i = 0; i < n; i++)
        hash = XXH3_64bits_withSeed(texts[i], strlen(texts[i]) + 1, hash);
    for (int i = 0; i < n_options; i++)
        hash = XXH3_64bits_withSeed(options[i], strlen(options[i]) + 1, hash);
    return hash;
}

/* The code of a complete file, heap, or NULL */
static char *read_cached(const char *path)
{
    char *text = NULL, *code = NULL;
    size_t bytes = 0;
    cache_header header;
    if (nm_file_read(path, &text, &bytes, NM_IGNORED) != NM_OK)
        return NULL;
    if (bytes > sizeof header) {
        memcpy(&header, text, sizeof header);
        const size_t n = bytes - sizeof header;
        if (!memcmp(header.magic, cache_magic, sizeof cache_magic) && header.bytes == n &&
            header.hash == XXH3_64bits(text + sizeof header, n)) {
            code = nm_allocate(n + 1);
            memcpy(code, text + sizeof header, n);
        }
    }
    free(text);
    return code;
}

/* Several processes may write the same file at the same time: each renames its own file. */
static void write_cached(const char *folder, const char *path, const char *code, size_t bytes)
{
    nm_file_writer writer = {0};
    cache_header header = {.bytes = bytes, .hash = XXH3_64bits(code, bytes)};
    memcpy(header.magic, cache_magic, sizeof header.magic);
    if (nm_folder_create(folder, NM_IGNORED) != NM_OK ||
        nm_file_writer_open(&writer, path, NM_IGNORED) != NM_OK)
        return;
    if (nm_file_append(&writer, &header, sizeof header, NM_IGNORED) == NM_OK &&
        nm_file_append(&writer, code, bytes, NM_IGNORED) == NM_OK)
        nm_file_writer_commit(&writer, NM_IGNORED);
    else
        nm_file_writer_abort(&writer);
}

#define NVRTC(call, ...)                                                                                     \
    do {                                                                                                     \
        const nvrtcResult code_ = nvrtc->call(__VA_ARGS__);                                                  \
        if (code_ != NVRTC_SUCCESS)                                                                          \
            return nm_fail(err, NM_DEVICE, "backend cuda: %s: %s", #call,                                    \
                           nvrtc->nvrtcGetErrorString(code_));                                               \
    } while (0)

/* *known: the architecture itself, or the newest older one, whose PTX the driver compiles */
static nm_status choose_arch(const nm_cuda_nvrtc *nvrtc, int arch, int *known, nm_error *err)
{
    int n = 0;
    *known = 0;
    NVRTC(nvrtcGetNumSupportedArchs, &n);
    NM_AUTO_FREE int *archs = nm_allocate(((size_t)n + 1) * sizeof *archs);
    const nvrtcResult code = nvrtc->nvrtcGetSupportedArchs(archs);
    for (int i = 0; i < n && code == NVRTC_SUCCESS; i++)
        if (archs[i] <= arch && archs[i] > *known)
            *known = archs[i];
    if (code != NVRTC_SUCCESS)
        return nm_fail(err, NM_DEVICE, "backend cuda: nvrtcGetSupportedArchs: %s",
                       nvrtc->nvrtcGetErrorString(code));
    if (!*known)
        return nm_fail(err, NM_UNSUPPORTED, "backend cuda: this NVRTC cannot compile for sm_%d", arch);
    return NM_OK;
}

/* The log's first line with an error */
static nm_status fail_compilation(const nm_cuda_nvrtc *nvrtc, nvrtcProgram program, nm_error *err)
{
    size_t bytes = 0;
    NVRTC(nvrtcGetProgramLogSize, program, &bytes);
    NM_AUTO_FREE char *log = nm_allocate(bytes + 1);
    nvrtc->nvrtcGetProgramLog(program, log);
    char *at = strstr(log, "error");
    while (at && at > log && at[-1] != '\n')
        at--;
    nm_fail(err, NM_UNSUPPORTED, "backend cuda: the kernels do not compile: %.*s",
            (int)strcspn(at ? at : log, "\n"), at ? at : log);
    return NM_UNSUPPORTED;
}

static nm_status get_code(const nm_cuda_nvrtc *nvrtc, nvrtcProgram program, bool machine, char **code,
                          size_t *bytes, nm_error *err)
{
    if (machine)
        NVRTC(nvrtcGetCUBINSize, program, bytes);
    else
        NVRTC(nvrtcGetPTXSize, program, bytes);
    *code = nm_allocate(*bytes + 1);
    if (machine)
        NVRTC(nvrtcGetCUBIN, program, *code);
    else
        NVRTC(nvrtcGetPTX, program, *code);
    return NM_OK;
}

static nm_status compile(const nm_cuda_nvrtc *nvrtc, const char *source, const char *const *options,
                         int n_options, bool machine, char **code, size_t *bytes, nm_error *err)
{
    const char *names[MAX_SOURCES], *texts[MAX_SOURCES];
    const int n = list_sources(names, texts);
    nvrtcProgram program = NULL;
    NVRTC(nvrtcCreateProgram, &program, source, "norma.cu", n, texts, names);
    const nvrtcResult result = nvrtc->nvrtcCompileProgram(program, n_options, options);
    nm_status status = result == NVRTC_SUCCESS ? get_code(nvrtc, program, machine, code, bytes, err)
                       : result == NVRTC_ERROR_COMPILATION
                           ? fail_compilation(nvrtc, program, err)
                           : nm_fail(err, NM_DEVICE, "backend cuda: nvrtcCompileProgram: %s",
                                     nvrtc->nvrtcGetErrorString(result));
    nvrtc->nvrtcDestroyProgram(&program);
    return status;
}

nm_status nm_cuda_compile(const nm_cuda_nvrtc *nvrtc, const char *source, int arch, const char *cache,
                          char **code, nm_error *err)
{
    int major, minor, known;
    char arch_option[32];
    *code = NULL;
    NVRTC(nvrtcVersion, &major, &minor);
    NM_TRY(choose_arch(nvrtc, arch, &known, err));
    const bool machine = known == arch;
    snprintf(arch_option, sizeof arch_option, "-arch=%s_%d", machine ? "sm" : "compute", known);
    /* No contraction: the bits of the emulator. -default-device: helper functions are device code. */
    const char *const options[] = {arch_option, "-fmad=false", "-default-device", "-std=c++17"};
    enum { N_OPTIONS = sizeof options / sizeof *options };
    NM_AUTO_FREE char *all = source ? NULL : main_source(), *path = NULL;
    source = source ? source : all;
    if (cache && *cache) {
        path = nm_format("%s/kernels-%s_%d-nvrtc%d.%d-%016llx.bin", cache, machine ? "sm" : "compute", known,
                         major, minor, (unsigned long long)hash_of_sources(source, options, N_OPTIONS));
        *code = read_cached(path);
    }
    nm_status status = NM_OK;
    if (!*code) {
        size_t bytes = 0;
        status = compile(nvrtc, source, options, N_OPTIONS, machine, code, &bytes, err);
        if (status == NM_OK && path)
            write_cached(cache, path, *code, bytes);
    }
    if (status != NM_OK) {
        free(*code);
        *code = NULL;
    }
    return status;
}
