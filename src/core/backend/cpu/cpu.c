/* Selects the CPU level and installs its kernels. */
#include "backend/cpu/cpu.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

typedef struct cpu_level {
    const char *name;
    bool (*present)(void);
    bool (*permitted)(void); /* by the operating system; NULL: always */
    void (*fill[NM_CPU_N_GROUPS])(nm_kernels *k);
    void (*fill_bf16[NM_CPU_N_BF16_GROUPS])(nm_kernels *k);
} cpu_level;

#define FILL(level, int8)                                                                                    \
    {                                                                                                        \
        nm_cpu_linear_##level, nm_cpu_elementwise_##level, nm_cpu_map_##level, nm_cpu_windows_##level,       \
            nm_cpu_rotate_##level, nm_cpu_attention_##level, nm_cpu_block_term_##level, nm_cpu_loss_##level, \
            nm_cpu_token_norm_##level, nm_cpu_seed_norm_##level, nm_cpu_feature_norm_##level,                \
            nm_cpu_optimizer_##level, nm_cpu_random_init_##level, nm_cpu_convolve_##level,                   \
            nm_cpu_int8_##int8                                                                               \
    }
#define FILL_BF16(level)                                                                                     \
    {                                                                                                        \
        nm_cpu_linear_bf16_##level, nm_cpu_attention_bf16_##level, nm_cpu_loss_bf16_##level                  \
    }

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static bool has_avx512_bf16(void)
{
    return has_vnni() && __builtin_cpu_supports("avx512bf16");
}

static bool has_amx(void)
{
    const uint32_t all = 1u << 22 | 1u << 24 | 1u << 25; /* bf16, tiles, int8 */
    uint32_t a, b, c, d = 0;
    return has_avx512_bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & all) == all;
}

/* Requests from Linux (5.16 or newer) the permission to use tiles, which it grants to the process. */
static bool tiles_permitted(void)
{
    const long request_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#elif defined(__aarch64__)
static bool has_dotprod(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}
#endif

static bool never(void)
{
    return false;
}
#define OTHER_CPU(level)                                                                                     \
    {                                                                                                        \
        .name = level, .present = never                                                                      \
    }

/* Best first. */
static const cpu_level levels[] = {
#if defined(__x86_64__)
    {"amx", has_amx, tiles_permitted, FILL(avx512, amx), FILL_BF16(amx)},
    {"avx512_bf16", has_avx512_bf16, NULL, FILL(avx512, vnni), FILL_BF16(dot)},
    {"vnni", has_vnni, NULL, FILL(avx512, vnni), FILL_BF16(avx512)},
    {"avx512", has_avx512, NULL, FILL(avx512, avx512), FILL_BF16(avx512)},
    {"avx2", has_avx2, NULL, FILL(avx2, avx2), FILL_BF16(avx2)},
#else
    OTHER_CPU("amx"),
    OTHER_CPU("avx512_bf16"),
    OTHER_CPU("vnni"),
    OTHER_CPU("avx512"),
    OTHER_CPU("avx2"),
#endif
#if defined(__aarch64__)
    {"dotprod", has_dotprod, NULL, FILL(neon, dotprod), FILL_BF16(neon)},
    {"neon", always, NULL, FILL(neon, neon), FILL_BF16(neon)},
#else
    OTHER_CPU("dotprod"),
    OTHER_CPU("neon"),
#endif
    {"base", always, NULL, FILL(base, base), FILL_BF16(base)},
};

static bool usable(const cpu_level *level)
{
    return level->present() && (!level->permitted || level->permitted());
}

static const cpu_level *find_level(const char *name)
{
    bool any = !name || strcmp(name, "auto") == 0;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (any ? usable(&levels[i]) : strcmp(name, levels[i].name) == 0)
            return &levels[i];
    return NULL;
}

bool nm_backend_bf16_is_faster(const char *isa)
{
    const cpu_level *level = find_level(isa);
    bool faster = false;
#if defined(__x86_64__)
    if (level && usable(level))
        faster =
            !strcmp(level->name, "amx") || (!strcmp(level->name, "avx512_bf16") && __builtin_cpu_is("amd"));
#else
    (void)level;
#endif
    return faster;
}

nm_status nm_cpu_backend_init(nm_backend *backend, const nm_backend_options *options, nm_error *err)
{
    if (options->dtype != NM_F32)
        return nm_fail(err, NM_UNSUPPORTED, "backend cpu supports float32 only; use backend ref for float64");
    const cpu_level *level = find_level(options->isa);
    if (!level)
        return nm_fail(err, NM_USAGE,
                       "unknown CPU level '%s' (available: auto, base, avx2, avx512, vnni, avx512_bf16, amx, "
                       "neon, dotprod)",
                       options->isa);
    if (!usable(level))
        return nm_fail(err, NM_UNSUPPORTED, "this %s does not support level %s; use auto",
                       level->present() ? "operating system" : "CPU", level->name);
    backend->isa = level->name;
    for (int i = 0; i < NM_CPU_N_GROUPS; i++)
        level->fill[i](&backend->k);
    for (int i = 0; options->bf16 && i < NM_CPU_N_BF16_GROUPS; i++)
        level->fill_bf16[i](&backend->k);
    return NM_OK;
}
