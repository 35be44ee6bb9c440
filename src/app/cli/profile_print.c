#include "cli/profile_print.h"

#include "norma/backend.h"

static void print_line(const nm_training_profile *p, const nm_kernel_time *k, FILE *out)
{
    double updates = (double)p->updates;
    fprintf(out, "%-24s %10.1f %10.2f %6.1f %%", k->kernel, (double)k->calls / updates,
            1e3 * k->seconds / updates, 100 * k->seconds / p->seconds);
    if (k->flops > 0 && k->seconds > 0)
        fprintf(out, " %8.1f GFLOP/s", 1e-9 * k->flops / k->seconds);
    else if (k->bytes > 0 && k->seconds > 0)
        fprintf(out, " %8.1f GB/s", 1e-9 * k->bytes / k->seconds);
    fputc('\n', out);
}

void nm_profile_print(const nm_training_profile *profile, FILE *out)
{
    const nm_training_profile *p = profile;
    if (!p->updates)
        return;
    nm_kernel_time all = {.kernel = "all GEMM kernels"};
    double inside = 0, updates = (double)p->updates;
    fprintf(out, "profile of %lld updates, %.1f ms each, %.0f tokens/s\n%-24s %10s %10s %8s %8s\n",
            (long long)p->updates, 1e3 * p->seconds / updates, (double)p->tokens / p->seconds, "kernel",
            "calls", "ms", "time", "rate");
    for (int32_t i = 0; i < p->n_kernels; i++) {
        const nm_kernel_time *k = &p->kernels[i];
        print_line(p, k, out);
        inside += k->seconds;
        if (k->flops > 0) {
            all.calls += k->calls;
            all.seconds += k->seconds;
            all.flops += k->flops;
        }
    }
    fprintf(out, "%-24s %10s %10.2f %6.1f %%\n", "outside kernels", "", 1e3 * (p->seconds - inside) / updates,
            100 * (1 - inside / p->seconds));
    print_line(p, &all, out);
}
