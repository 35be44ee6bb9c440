/* Declarations shared by the files of the Hugging Face format: tensors (huggingface.c), writing, reading. */
#ifndef NM_HUGGINGFACE_H
#define NM_HUGGINGFACE_H

#include "convert/convert.h"
#include "convert/tensor_map.h"

/* Maps the tensors of M2M100 and Marian. With shared embeddings, the file has one matrix, the first entry of the map, to
 * which the class ties the others. */
void nm_huggingface_map_seq2seq(nm_tensor_map *map, nm_model *model);
/* Maps the tensors of GPT-2, whose names begin with prefix, without the positions and the output projection. */
void nm_huggingface_map_gpt2(nm_tensor_map *map, nm_model *model, const char *prefix);

/* nm_foreign_format.write and .read; settings are not used. */
nm_status nm_huggingface_write(const nm_loaded_model *loaded, const char *folder, nm_error *err);
nm_status nm_huggingface_read(const char *path, const nm_convert_settings *settings, const char *output,
                              nm_error *err);

#endif
