/* Compiles the device kernels as the backend cuda does, with a real NVRTC and without a GPU.
 *     compile_kernels [ARCH ...]      default: 80 90 100
 * Exit code: 0 all compile, 1 some do not, 77 NVRTC is not installed; with "cuda" in NORMA_PROMISED its
 * absence is a failure. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device/cuda.h"

/* Where the CUDA toolkit is not in the search path of the system */
static void load_toolkit(void)
{
    static const char *const folders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda/lib",
                                          "/usr/local/cuda/targets/x86_64-linux/lib",
                                          "/usr/local/cuda-13.0/lib"};
    char path[256];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        for (int version = 13; version >= 12; version--) {
            snprintf(path, sizeof path, "%s/libnvrtc.so.%d", folders[i], version);
            if (dlopen(path, RTLD_NOW))
                return;
        }
}

/* An ELF file with every kernel, or the text of PTX */
static bool is_complete(const char *code)
{
    return !memcmp(code, "\177ELF", 4) || strstr(code, ".visible .entry adam");
}

int main(int argc, char **argv)
{
    nm_cuda_nvrtc nvrtc;
    nm_error err;
    int failed = 0, major, minor;
    load_toolkit();
    if (nm_cuda_open_nvrtc(&nvrtc, &err) != NM_OK) {
        const char *promised = getenv("NORMA_PROMISED");
        printf("skipped: %s\n", err.text);
        return promised && strstr(promised, "cuda") ? 1 : 77;
    }
    nvrtc.nvrtcVersion(&major, &minor);
    static char *all[] = {"", "80", "90", "100"};
    if (argc == 1) {
        argc = sizeof all / sizeof *all;
        argv = all;
    }
    for (int i = 1; i < argc; i++) {
        char *code;
        if (nm_cuda_compile(&nvrtc, NULL, atoi(argv[i]), NULL, &code, &err) != NM_OK) {
            printf("sm_%s: %s\n", argv[i], err.text);
            failed = 1;
            continue;
        }
        printf("sm_%s: %d kernels by NVRTC %d.%d%s\n", argv[i], NM_CUDA_KERNELS, major, minor,
               is_complete(code) ? "" : ": no code");
        failed |= !is_complete(code);
        free(code);
    }
    return failed;
}
