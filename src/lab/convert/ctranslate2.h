/* Constants of CTranslate2 folders, for reading and writing. */
#pragma once

#include "convert/convert.h"

/* Version of the format of model.bin, and revisions of the specifications of translation and language
 * models. */
enum { NM_CT2_BINARY_VERSION = 6, NM_CT2_SEQ2SEQ_REVISION = 7, NM_CT2_LM_REVISION = 8 };
/* Types of variables, with their codes in model.bin. */
enum {
    NM_CT2_FLOAT32,
    NM_CT2_INT8,
    NM_CT2_INT16,
    NM_CT2_INT32,
    NM_CT2_FLOAT16,
    NM_CT2_BFLOAT16,
    NM_CT2_N_TYPES
};
#define NM_CT2_SEQ2SEQ_SPEC "TransformerSpec"
#define NM_CT2_LM_SPEC      "TransformerDecoderSpec"

/* nm_foreign_format.read; settings are not used. */
nm_status nm_ctranslate2_read(const char *path, const nm_convert_settings *settings, const char *output,
                              nm_error *err);
