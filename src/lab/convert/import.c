#include "convert/import.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "convert/text_files.h"
#include "model/seq2seq.h"
#include "nn/positions.h"
#include "task/lm_task.h"
#include "task/translation.h"
#include "text/vocab.h"

nm_status nm_foreign_vocab_read(nm_foreign_vocab *vocab, const void *object, int64_t size, const char *path,
                                nm_error *err)
{
    const char *symbol;
    json_t *index;
    *vocab = (nm_foreign_vocab){.symbols = nm_allocate((size_t)size * sizeof(char *)),
                                .n = (int32_t)size,
                                .bos = -1,
                                .pad = -1,
                                .eos = -1,
                                .unk = -1,
                                .first = -1};
    json_object_foreach((json_t *)(uintptr_t)object, symbol, index)
    {
        json_int_t i = json_integer_value(index);
        if (!json_is_integer(index) || i < 0)
            return nm_fail(err, NM_FORMAT, "%s: '%.100s' has no index", path, symbol);
        if (i >= size)
            return nm_fail(err, NM_MISMATCH, "%s: '%.100s' has the index %lld, but the model has %lld tokens",
                           path, symbol, (long long)i, (long long)size);
        if (vocab->symbols[i])
            return nm_fail(err, NM_FORMAT, "%s: '%.100s' and '%.100s' have the same index", path,
                           vocab->symbols[i], symbol);
        vocab->symbols[i] = nm_duplicate(symbol);
    }
    return NM_OK;
}

int32_t nm_foreign_vocab_find(const nm_foreign_vocab *vocab, const char *symbol)
{
    for (int32_t i = 0; i < vocab->n; i++)
        if (vocab->symbols[i] && !strcmp(vocab->symbols[i], symbol))
            return i;
    return -1;
}

void nm_foreign_vocab_release(nm_foreign_vocab *vocab)
{
    for (int32_t i = 0; vocab->symbols && i < vocab->n; i++)
        free(vocab->symbols[i]);
    free(vocab->symbols);
    *vocab = (nm_foreign_vocab){0};
}

static bool is_translation(const nm_import *import)
{
    return import->loaded.task.type == &nm_task_translation;
}

/* Appends a line of a dictionary; an index without a symbol becomes an unused entry "madeupwordNNNN", as in
 * fairseq. */
static nm_status add_symbol(nm_buffer *text, const char *symbol, int32_t index, const char *path,
                            nm_error *err)
{
    char unused[32], count[4] = " 1\n";
    snprintf(unused, sizeof unused, "madeupword%04d", index);
    symbol = symbol ? symbol : unused;
    if (nm_vocab_has_padding_name(symbol))
        count[1] = '0';
    if (!*symbol || strpbrk(symbol, " \t\r\n\v\f"))
        return nm_fail(err, NM_UNSUPPORTED,
                       "%s: token %d is '%.50s': a dictionary cannot contain tokens with whitespace", path,
                       index, symbol);
    nm_buffer_append(text, symbol, strlen(symbol));
    nm_buffer_append(text, count, 3);
    return NM_OK;
}

nm_status nm_import_vocab(nm_import *import, const nm_foreign_vocab *vocab, bool target, const char *path)
{
    bool fairseq = vocab->first == vocab->eos;
    const int32_t special[] = {fairseq ? vocab->bos : vocab->pad, fairseq ? vocab->pad : vocab->first,
                               vocab->eos, vocab->unk};
    int32_t *ids = import->ids[target] = nm_allocate((size_t)(vocab->n + NM_VOCAB_N_SPECIAL) * sizeof *ids);
    int32_t n = 0;
    for (; n < NM_VOCAB_N_SPECIAL; n++) {
        if (special[n] >= vocab->n)
            return nm_fail(import->err, NM_MISMATCH,
                           "%s: the special token %d is not below %d, the number of tokens", path, special[n],
                           vocab->n);
        ids[n] = special[n];
    }
    nm_buffer text = {0};
    nm_buffer_clear(&text);
    nm_status status = NM_OK;
    for (int32_t i = 0; i < vocab->n && status == NM_OK; i++)
        if (i != special[0] && i != special[1] && i != special[2] && i != special[3]) {
            status = add_symbol(&text, vocab->symbols[i], i, path, import->err);
            ids[n++] = i;
        }
    nm_vocab *parsed = NULL;
    nm_vocab_order order = fairseq ? NM_VOCAB_FAIRSEQ : NM_VOCAB_TEARS;
    NM_THEN(status, nm_vocab_parse(text.data, text.bytes, path, order, &parsed, import->err));
    if (is_translation(import)) {
        nm_translation_parts *parts = import->loaded.task.parts;
        parts->texts[target ? NM_TEXT_TARGET : NM_TEXT_SOURCE] = text.data;
        *(target ? &parts->target_vocab : &parts->source_vocab) = parsed;
    } else {
        nm_lm_parts *parts = import->loaded.task.parts;
        parts->texts[NM_LM_DICTIONARY] = text.data;
        parts->vocab = parsed;
        for (int32_t id = 0; status == NM_OK && id < NM_VOCAB_N_SPECIAL; id++)
            parsed->omitted[id] = ids[id] < 0;
    }
    import->map_ids.ids[target ? NM_OF_TARGET_VOCAB : NM_OF_SOURCE_VOCAB] = ids;
    import->map_ids.size[target ? NM_OF_TARGET_VOCAB : NM_OF_SOURCE_VOCAB] = vocab->n;
    return status;
}

static const nm_vocab *target_vocab(const nm_import *import)
{
    return is_translation(import) ? ((const nm_translation_parts *)import->loaded.task.parts)->target_vocab
                                  : ((const nm_lm_parts *)import->loaded.task.parts)->vocab;
}

/* Whether a token has no separate logit in the output of a translation model: tokens that the other toolkit
 * does not have, and <s> if it is the <pad> of the other toolkit, whose logit is that of <pad>. */
static bool is_excluded(const nm_import *import, int32_t id)
{
    const nm_vocab *vocab = target_vocab(import);
    const int32_t *ids = import->ids[1];
    return ids[id] < 0 || (id == vocab->bos && ids[id] == ids[vocab->pad]);
}

bool nm_import_excludes(const nm_import *import)
{
    if (!is_translation(import))
        return false; /* prepare.omit_symbols excludes them */
    for (int32_t id = 0; id < nm_vocab_size(target_vocab(import)); id++)
        if (is_excluded(import, id))
            return true;
    return false;
}

nm_status nm_import_dictionary(nm_import *import, const char *folder, const char *name, bool target)
{
    nm_translation_parts *parts = import->loaded.task.parts;
    char **text = &parts->texts[target ? NM_TEXT_TARGET : NM_TEXT_SOURCE], *path = nm_path_join(folder, name);
    nm_vocab **vocab = target ? &parts->target_vocab : &parts->source_vocab;
    nm_status status = nm_model_text_read(path, text, import->err);
    NM_THEN(status, nm_vocab_parse(*text, strlen(*text), path, NM_VOCAB_FAIRSEQ, vocab, import->err));
    for (int32_t id = 0; status == NM_OK && id < nm_vocab_size(*vocab); id++) {
        if (!id)
            import->ids[target] = nm_allocate((size_t)nm_vocab_size(*vocab) * sizeof **import->ids);
        import->ids[target][id] = id;
    }
    free(path);
    return status;
}

/* Whether the text of a language model may have several lines: a file is then one text. */
static bool keeps_newlines(const nm_import *import)
{
    const nm_lm_parts *parts = import->loaded.task.parts;
    if (is_translation(import))
        return false;
    return import->codes.text || (parts->spm.spm && nm_spm_keeps_newlines(parts->spm.spm));
}

/* Whether a translation model has a dictionary for each side. */
static bool has_two_dictionaries(const nm_import *import)
{
    const nm_translation_parts *parts = import->loaded.task.parts;
    return is_translation(import) && strcmp(parts->texts[NM_TEXT_SOURCE], parts->texts[NM_TEXT_TARGET]);
}

static char *settings_of(const nm_import *import, bool sentencepiece)
{
#define RULES(constant, word) [constant] = "pretokenizer = " word "\n",
    static const char *const rules[] = {NM_PRETOKENIZERS(RULES)};
#undef RULES
    const nm_import_codes *codes = &import->codes;
    const nm_vocab *vocab = target_vocab(import);
    NM_AUTO_FREE char *omitted = nm_vocab_omitted_names(vocab);
    char *text = nm_format(
        "[prepare]\nformat = %s\ntokenizer = %s\n%s%s%s%s%s%s%sbpe_merges = 0\nspecial_ids = %s\n",
        is_translation(import) ? "parallel" : "text",
        sentencepiece ? "sentencepiece"
        : codes->text ? "byte_level"
                      : "none",
        codes->text && codes->pretokenizer != NM_PRETOKENIZER_GPT2 ? rules[codes->pretokenizer] : "",
        keeps_newlines(import) ? "documents = file\n" : "", codes->lowercase ? "lowercase = true\n" : "",
        has_two_dictionaries(import) ? "joint = false\n" : "", *omitted ? "omit_symbols = " : "", omitted,
        *omitted ? "\n" : "", vocab->order == NM_VOCAB_FAIRSEQ ? "fairseq" : "tears");
    return text;
}

void nm_import_settings(nm_import *import)
{
    bool translation = is_translation(import);
    nm_translation_parts *parts = import->loaded.task.parts;
    nm_lm_parts *lm_parts = import->loaded.task.parts;
    char **text = translation ? &parts->texts[NM_TEXT_SETTINGS] : &lm_parts->texts[NM_LM_SETTINGS],
         **codes = translation ? &parts->texts[NM_TEXT_CODES] : &lm_parts->texts[NM_LM_CODES];
    bool sentencepiece = (translation ? parts->spm[0].spm : lm_parts->spm.spm) != NULL;
    if (*text)
        return;
    *text = settings_of(import, sentencepiece);
    if (!sentencepiece && !*codes) {
        *codes = import->codes.text;
        import->codes.text = NULL;
    }
}

/* Whether the settings of the folder omit the special symbols that its vocabulary lacks. */
static nm_status check_omitted(const nm_import *import, const char *folder)
{
    const nm_lm_parts *parts = import->loaded.task.parts;
    const nm_vocab *vocab = parts->vocab;
    nm_vocab *stated = NULL;
    const nm_model_text settings = {folder, "data.ini", parts->texts[NM_LM_SETTINGS]},
                        dictionary = {folder, "dictionary", parts->texts[NM_LM_DICTIONARY]};
    nm_status status = nm_model_text_vocab(&dictionary, &settings, &stated, import->err);
    for (int32_t id = 0; status == NM_OK && id < NM_VOCAB_N_SPECIAL; id++)
        if (vocab->omitted[id] && !stated->omitted[id])
            status =
                nm_fail(import->err, NM_MISMATCH,
                        "%s: the vocabulary lacks %s, but prepare.omit_symbols of data.ini does not omit it",
                        folder, nm_vocab_symbol(vocab, id));
    nm_vocab_free(stated);
    return status;
}

nm_status nm_import_texts(nm_import *import, const char *folder)
{
    NM_TRY(nm_text_files_read(&import->loaded.task, import->loaded.options, folder, import->err));
    if (is_translation(import)) {
        const nm_translation_parts *parts = import->loaded.task.parts;
        if (!parts->spm[0].spm != !parts->spm[1].spm)
            return nm_fail(import->err, NM_MISMATCH,
                           "%s: has only one of source.spm and target.spm, and both are needed", folder);
    }
    nm_import_settings(import);
    return is_translation(import) ? NM_OK : check_omitted(import, folder);
}

nm_status nm_import_begin(nm_import *import, const nm_task_type *task, nm_error *err)
{
    *import = (nm_import){.err = err};
    nm_status status = nm_loaded_model_begin(&import->loaded, task, err);
    import->loaded.task.parts =
        nm_allocate(task == &nm_task_translation ? sizeof(nm_translation_parts) : sizeof(nm_lm_parts));
    return status;
}

nm_status nm_import_set(nm_import *import, const char *option, const char *format, ...)
{
    char value[128];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    return nm_options_set(import->loaded.options, option, value, NM_ORIGIN_COMMAND, import->err);
}

typedef struct position_table {
    double *values; /* [rows, d], heap */
    int64_t rows, d;
} position_table;

static nm_status read_positions(const nm_import *import, const nm_position_tensor *from,
                                position_table *table)
{
    enum { MAX_WIDTH = 65536 };
    int64_t shape[NM_TENSOR_MAX_RANK] = {0};
    int rank = 0;
    double *values = from->source->read(from->source->file, from->name, &rank, shape);
    if (!values || rank != 2 || shape[0] < 1 || shape[0] >= INT32_MAX || shape[1] < 1 ||
        shape[1] > MAX_WIDTH) {
        free(values);
        return nm_fail(import->err, NM_UNSUPPORTED, "%s: %s is not a position table that Norma supports",
                       from->source->path, from->name);
    }
    for (int64_t i = 0; i < shape[0] * shape[1]; i++)
        values[i] /= from->scale;
    *table = (position_table){values, shape[0], shape[1]};
    return NM_OK;
}

/* Sets *found if the table is that of this kind. */
static nm_status is_table_of(nm_import *import, const position_table *table, nm_position_kind kind,
                             double tolerance, bool *found)
{
    nm_mat known;
    NM_TRY(nm_positions_alloc(import->loaded.own, kind, (int32_t)table->rows, (int32_t)table->d, &known,
                              import->err));
    NM_AUTO_FREE double *values = nm_mat_values(import->loaded.own, known);
    *found = true;
    for (int64_t i = 0; i < table->rows * table->d; i++)
        *found &= fabs(values[i] - table->values[i]) < tolerance;
    nm_positions_dealloc(import->loaded.own, &known);
    return NM_OK;
}

nm_status nm_import_positions(nm_import *import, const nm_position_tensor *positions)
{
    static const struct {
        const char *name;
        nm_position_kind kind;
    } kinds[] = {{"marian", NM_POSITIONS_MARIAN},
                 {"fairseq", NM_POSITIONS_FAIRSEQ},
                 {"tears", NM_POSITIONS_TEARS},
                 {"tensor2tensor", NM_POSITIONS_TENSOR2TENSOR}};
    enum { N_KINDS = sizeof kinds / sizeof *kinds };
    position_table table;
    bool found = false;
    size_t i = 0;
    NM_TRY(read_positions(import, positions, &table));
    nm_status status = NM_OK;
    for (; i < N_KINDS && !found && status == NM_OK; i++)
        status = is_table_of(import, &table, kinds[i].kind, positions->tolerance, &found);
    free(table.values);
    NM_TRY(status);
    return found ? nm_import_set(import, "model.positions", "%s", kinds[i - 1].name)
                 : nm_fail(import->err, NM_UNSUPPORTED, "%s: %s is not a position table that Norma supports",
                           positions->source->path, positions->name);
}

nm_status nm_import_lm_positions(nm_import *import, const nm_position_tensor *positions)
{
    position_table table;
    bool sinusoid, zero = true;
    NM_TRY(read_positions(import, positions, &table));
    nm_status status = is_table_of(import, &table, NM_POSITIONS_FAIRSEQ, positions->tolerance, &sinusoid);
    for (int64_t i = 0; i < table.rows * table.d; i++)
        zero &= table.values[i] == 0;
    free(table.values);
    NM_TRY(status);
    return nm_import_set(import, "model.positions", "%s", zero ? "none" : sinusoid ? "sinusoid" : "learned");
}

nm_status nm_import_declare(nm_import *import)
{
    const nm_task_type *task = import->loaded.task.type;
    nm_model_sizes sizes = task->sizes(&import->loaded.task);
    return nm_model_declare(&import->loaded.model, task->model, import->loaded.own, import->loaded.options,
                            &sizes, import->err);
}

/* A translation model computes its position table, so no tensor of the file limits its size. NM_MISMATCH if
 * it would be larger than the parameters (and than 2^22 elements). */
static nm_status check_positions(const nm_import *import, const nm_tensor_source *source)
{
    enum { ALWAYS = 1 << 22 };
    if (!is_translation(import))
        return NM_OK;
    const nm_seq2seq_config *config = nm_seq2seq_config_of(import->loaded.model);
    size_t table = (size_t)config->max_positions * (size_t)config->width,
           parameters = import->loaded.model->params.n_elements;
    return table <= (parameters > ALWAYS ? parameters : ALWAYS)
               ? NM_OK
               : nm_fail(import->err, NM_MISMATCH,
                         "%s: %lld positions of width %lld are more than the parameters of the model",
                         source->path, (long long)config->max_positions, (long long)config->width);
}

nm_status nm_import_load(nm_import *import, const nm_tensor_map *map, const nm_tensor_source *source)
{
    NM_TRY(nm_tensor_map_check(map, source, &import->map_ids, import->err));
    NM_TRY(check_positions(import, source));
    NM_TRY(nm_model_allocate(import->loaded.model, false, import->err));
    return nm_tensor_map_read(map, import->loaded.own, source, &import->map_ids, import->err);
}

nm_status nm_import_finish(nm_import *import, const char *path)
{
    const nm_param *bias = nm_params_find(&import->loaded.model->params, "output.bias");
    if (nm_import_excludes(import)) {
        NM_ASSERT(bias);
        NM_AUTO_FREE double *values = nm_param_values(import->loaded.own, &bias->tensor);
        for (int32_t id = 0; id < bias->tensor.cols; id++)
            if (is_excluded(import, id))
                values[id] = NM_EXCLUDED_LOGIT;
        nm_tensor_set(import->loaded.own, &bias->tensor, 0, values, (size_t)bias->tensor.cols);
    }
    return nm_loaded_model_write(&import->loaded, path, import->err);
}

void nm_import_release(nm_import *import)
{
    nm_loaded_model_close(&import->loaded);
    NM_FREE(import->codes.text, import->ids[0], import->ids[1]);
    *import = (nm_import){0};
}
