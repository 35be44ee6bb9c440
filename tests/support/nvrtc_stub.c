/* libnvrtc of the stub (cuda_stub.h): checks sources and options, and "compiles" to a text that the stub's
 * driver accepts. */
#include "cuda_stub.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define F(type, name, parameters) STUB_EXPORT type name parameters;
NM_CUDA_NVRTC(F)
#undef F

struct _nvrtcProgram {
    char arch[32], code[64];
    bool failed;
};

const char *nvrtcGetErrorString(nvrtcResult code)
{
    return code == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_STUB";
}

nvrtcResult nvrtcVersion(int *major, int *minor)
{
    STUB(nvrtcVersion);
    *major = 13;
    *minor = 0;
    return 0;
}

nvrtcResult nvrtcGetNumSupportedArchs(int *count)
{
    STUB(nvrtcGetNumSupportedArchs);
    *count = 3;
    return 0;
}

nvrtcResult nvrtcGetSupportedArchs(int *archs)
{
    STUB(nvrtcGetSupportedArchs);
    memcpy(archs, (const int[]){75, 80, 90}, 3 * sizeof *archs);
    return 0;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int n_headers,
                               const char *const *headers, const char *const *include_names)
{
    STUB(nvrtcCreateProgram);
    bool has_kernels = false;
    for (int i = 0; i < n_headers; i++)
        has_kernels |= !strcmp(include_names[i], "backend/device/all.inc") && strstr(headers[i], "#include");
    if (!has_kernels ||
        !(strstr(source, "static_assert(sizeof(struct adam_args) ==") || strstr(source, "try_mma")) || !name)
        stub_panic("nvrtcCreateProgram without the kernels");
    *program = calloc(1, sizeof **program);
    stub_count(1);
    return 0;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program)
{
    const int code = stub_enter("nvrtcDestroyProgram");
    free(*program);
    stub_count(-1);
    return code;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int n_options, const char *const *options)
{
    const int code = stub_enter("nvrtcCompileProgram");
    program->failed = code != 0;
    bool contracts = true;
    for (int i = 0; i < n_options; i++) {
        if (!strncmp(options[i], "-arch=", 6))
            snprintf(program->arch, sizeof program->arch, "%s", options[i] + 6);
        contracts &= strcmp(options[i], "-fmad=false") != 0;
    }
    if (contracts || !*program->arch)
        stub_panic("options of nvrtcCompileProgram");
    snprintf(program->code, sizeof program->code, "STUB CODE %s", program->arch);
    return code;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes)
{
    STUB(nvrtcGetProgramLogSize);
    *bytes = program->failed ? 128 : 1;
    return 0;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log)
{
    STUB(nvrtcGetProgramLog);
    strcpy(log, program->failed ? "norma.cu(1): warning: w\nnorma.cu(2): error: e\n1 error detected" : "");
    return 0;
}

static nvrtcResult copy_size(nvrtcProgram program, size_t *bytes)
{
    *bytes = strlen(program->code) + 1;
    return 0;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes)
{
    STUB(nvrtcGetCUBINSize);
    if (strncmp(program->arch, "sm_", 3))
        stub_panic("machine code for a virtual architecture");
    return copy_size(program, bytes);
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *code)
{
    STUB(nvrtcGetCUBIN);
    strcpy(code, program->code);
    return 0;
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes)
{
    STUB(nvrtcGetPTXSize);
    return copy_size(program, bytes);
}

nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *code)
{
    STUB(nvrtcGetPTX);
    strcpy(code, program->code);
    return 0;
}
