/* Translation models of fairseq (architecture transformer and its variants, such as transformer_iwslt_de_en),
 * read from a folder with
 *     model.safetensors                    the tensors of the entry "model" of a checkpoint
 *     dict.source.txt, dict.target.txt     the dictionaries, which fairseq names dict.de.txt and so on
 *     codes.bpe                            the BPE codes, optional
 * The tensors do not determine the number of heads, which the user must specify. */
#include <string.h>

#include "base/file.h"
#include "convert/convert.h"
#include "convert/import.h"
#include "convert/torch_layers.h"
#include "model/seq2seq.h"

/* Whether a tensor is not a parameter: version numbers and constants. */
static bool ignored(const char *name)
{
    static const char *const list[] = {"encoder.version", "decoder.version",
                                       "encoder.embed_positions._float_tensor",
                                       "decoder.embed_positions._float_tensor"};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!strcmp(name, list[i]))
            return true;
    return false;
}

/* The number of layers "PREFIX.layers.N" in the file. */
static int32_t count_layers(const nm_safetensors *file, const char *prefix)
{
    char name[96];
    for (int32_t n = 0;; n++) {
        snprintf(name, sizeof name, "%s.layers.%d.fc1.weight", prefix, n);
        if (!nm_safetensors_find(file, name))
            return n;
    }
}

static bool are_equal(const nm_safetensor *a, const nm_safetensor *b)
{
    return a->type == b->type && a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes);
}

/* Derives sizes and variant of the model from its tensors. */
static nm_status set_options(nm_import *in, const nm_safetensors *file, int64_t heads, nm_error *err)
{
    const nm_safetensor *source = nm_safetensors_find(file, "encoder.embed_tokens.weight"),
                        *target = nm_safetensors_find(file, "decoder.embed_tokens.weight"),
                        *output = nm_safetensors_find(file, "decoder.output_projection.weight"),
                        *inner = nm_safetensors_find(file, "encoder.layers.0.fc1.weight");
    const char *path = nm_safetensors_path(file);
    if (!source || !target || !inner || source->rank != 2 || target->rank != 2 || inner->rank != 2)
        return nm_fail(err, NM_MISMATCH,
                       "%s: not a translation model of fairseq: no embeddings or feed-forward layers", path);
    bool pre = nm_safetensors_find(file, "encoder.layer_norm.weight") != NULL;
    bool all = are_equal(source, target), tied = !output || are_equal(target, output);
    if (source->shape[1] < 2 || source->shape[1] > 65536)
        return nm_fail(err, NM_MISMATCH, "%s: encoder.embed_tokens.weight has %lld columns", path,
                       (long long)source->shape[1]);
    NM_TRY(nm_import_set(in, "model.width", "%lld", (long long)source->shape[1]));
    NM_TRY(nm_import_set(in, "model.ff", "%lld", (long long)inner->shape[0]));
    NM_TRY(nm_import_set(in, "model.heads", "%lld", (long long)heads));
    NM_TRY(nm_import_set(in, "model.encoder_layers", "%d", (int)count_layers(file, "encoder")));
    NM_TRY(nm_import_set(in, "model.decoder_layers", "%d", (int)count_layers(file, "decoder")));
    NM_TRY(nm_import_set(in, "model.norm_position", "%s", pre ? "pre" : "post"));
    NM_TRY(nm_import_set(in, "model.norm", "layer"));
    NM_TRY(nm_import_set(in, "model.positions", "fairseq"));
    NM_TRY(nm_import_set(in, "model.output_bias", "false"));
    return nm_import_set(in, "model.share_embeddings", "%s", all && tied ? "all" : tied ? "decoder" : "none");
}

static nm_status load(nm_import *in, const nm_safetensors *file, const char *output)
{
    NM_AUTO(nm_tensor_map_release) nm_tensor_map map = {0};
    nm_tensor_source source = nm_tensor_source_safetensors(file);
    source.ignored = ignored;
    NM_TRY(nm_import_declare(in));
    const nm_seq2seq *s = nm_seq2seq_of(in->loaded.model);
    nm_tensor_map_add(&map, s->source_table, "encoder.embed_tokens.weight");
    nm_tensor_map_add(&map, s->target_table, "decoder.embed_tokens.weight");
    if (nm_safetensors_find(file, "decoder.output_projection.weight"))
        nm_tensor_map_add(&map, s->output_weight, "decoder.output_projection.weight");
    nm_torch_layers_add(&map, in->loaded.model, &s->encoder, "encoder");
    nm_torch_layers_add(&map, in->loaded.model, &s->decoder, "decoder");
    nm_status status = nm_import_load(in, &map, &source);
    return status == NM_OK ? nm_import_finish(in, output) : status;
}

static nm_status read_model(nm_import *in, const nm_safetensors *file, const nm_convert_settings *settings,
                            const char *folder, const char *output, nm_error *err)
{
    if (!settings->heads)
        return nm_fail(err, NM_USAGE,
                       "%s: the tensors of fairseq do not determine the number of attention heads: --heads N",
                       folder);
    NM_TRY(nm_import_begin(in, &nm_task_translation, err));
    NM_TRY(set_options(in, file, settings->heads, err));
    NM_TRY(nm_import_dictionary(in, folder, "dict.source.txt", false));
    NM_TRY(nm_import_dictionary(in, folder, "dict.target.txt", true));
    NM_TRY(nm_import_texts(in, folder));
    return load(in, file, output);
}

static nm_status read_fairseq(const char *path, const nm_convert_settings *settings, const char *output,
                              nm_error *err)
{
    NM_AUTO_FREE char *tensors = nm_path_join(path, "model.safetensors");
    NM_AUTO(nm_safetensors_release) nm_safetensors *file = NULL;
    nm_import in = {0};
    nm_status status = nm_safetensors_open(&file, tensors, err);
    NM_THEN(status, read_model(&in, file, settings, path, output, err));
    nm_import_release(&in);
    return status;
}

const nm_foreign_format nm_format_fairseq = {
    .name = "fairseq",
    .title = "fairseq folder",
    .read = read_fairseq,
    .uses_heads = true,
};
