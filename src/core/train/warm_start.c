#include "train/warm_start.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash_map.h"
#include "train/checkpoint.h"
#include "model/model_file.h"
#include "train/train_options.h"

typedef struct warm_start {
    nm_model *model;
    const nm_task *task;
    const nm_safetensors *file;
    nm_options *options;            /* of the source */
    nm_task source;                 /* task of the source; type NULL: a source of another task */
    json_t *entries, *new, *unused; /* {"embed.weight": [copied, all]}; names of tensors */
    size_t n_copied, n_tensors;     /* numbers of copied and of all tensors of the model */
    const nm_safetensor **used;     /* [n_used] tensors of the file that were copied */
    size_t n_used;
} warm_start;

/* Opens the texts of a source of the same task, for the names of dictionary entries. */
static nm_status open_source(warm_start *self, nm_error *err)
{
    const char *name = nm_safetensors_metadata(self->file, "task"),
               *config = nm_safetensors_metadata(self->file, "config");
    const nm_task_type *type = self->task->type;
    if (!name || !config)
        return nm_model_file_not_a_model(self->file, err);
    if (strcmp(name, type->name))
        return NM_OK;
    self->options = nm_options_create();
    nm_train_options_add(self->options, type);
    NM_TRY(nm_options_read_saved(self->options, nm_safetensors_path(self->file), config, err));
    self->source =
        (nm_task){.type = type, .options = self->options, .config = nm_options_find(self->options, "data")};
    return type->open_model(&self->source, self->file, err);
}

static nm_status check_tensors(const nm_safetensors *file, nm_error *err)
{
    for (size_t i = 0; i < nm_safetensors_count(file); i++)
        if (nm_safetensors_at(file, i)->type == NM_TENSOR_I8 ||
            nm_safetensors_at(file, i)->type == NM_TENSOR_BF16)
            return nm_fail(
                err, NM_UNSUPPORTED,
                "%s: training cannot start from an int8 or bf16 model; use the one that was exported",
                nm_safetensors_path(file));
    return nm_model_file_check_finite(file, err);
}

static double element(const nm_safetensor *tensor, size_t i)
{
    float f32;
    double f64;
    if (tensor->type == NM_TENSOR_F64) {
        memcpy(&f64, (const char *)tensor->data + i * sizeof f64, sizeof f64);
        return f64;
    }
    memcpy(&f32, (const char *)tensor->data + i * sizeof f32, sizeof f32);
    return (double)f32;
}

/* A floating-point tensor of the file and its shape as a matrix; NULL if there is none. */
static const nm_safetensor *find_float(const warm_start *self, const char *name, int32_t *rows, int32_t *cols)
{
    const nm_safetensor *found = nm_safetensors_find(self->file, name);
    bool is_float = found && (found->type == NM_TENSOR_F32 || found->type == NM_TENSOR_F64);
    if (!is_float || found->rank > 2)
        return NULL;
    *rows = found->rank == 2 ? (int32_t)found->shape[0] : 1;
    *cols = found->rank ? (int32_t)found->shape[found->rank - 1] : 1;
    return found;
}

static uint32_t hash_name(const char *name)
{
    return (uint32_t)XXH3_64bits(name, strlen(name));
}

/* Index of the source's entry with this name, -1: none. */
static int32_t find_entry(const warm_start *self, const nm_hash_map *names, const char *param, int axis,
                          const char *name)
{
    size_t probe = 0;
    for (uint32_t i; (i = nm_hash_map_next(names, hash_name(name), &probe)) != NM_HASH_NONE;)
        if (!strcmp(self->source.type->entry_name(&self->source, param, axis, (int32_t)i), name))
            return (int32_t)i;
    return -1;
}

/* Returns from [n], heap: row or column of the source for row or column i of the parameter, -1: none. *named:
 * the axis has the entries of a dictionary, which are matched by name. NULL if an axis without names has
 * another length than in the source, or if the names of the source are unknown. */
static int32_t *match_axis(const warm_start *self, const char *param, int axis, int32_t n, int32_t n_source,
                           bool *named)
{
    const char *(*entry_name)(const nm_task *, const char *, int, int32_t) = self->task->type->entry_name;
    *named = entry_name && entry_name(self->task, param, axis, 0);
    if (*named ? !self->source.type : n != n_source)
        return NULL;
    int32_t *from = nm_allocate((size_t)n * sizeof *from);
    NM_AUTO(nm_hash_map_release) nm_hash_map names = {0};
    for (int32_t i = 0; *named && i < n_source; i++) {
        const char *name = entry_name(&self->source, param, axis, i);
        if (!name)
            break;
        if (find_entry(self, &names, param, axis, name) < 0) /* of equal names the first one counts */
            nm_hash_map_add(&names, hash_name(name), (uint32_t)i);
    }
    for (int32_t i = 0; i < n; i++) {
        const char *name = *named ? entry_name(self->task, param, axis, i) : NULL;
        from[i] = name ? find_entry(self, &names, param, axis, name) : i < n_source ? i : -1;
    }
    return from;
}

static int32_t count_matches(const int32_t *from, int32_t n)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        count += from[i] >= 0;
    return count;
}

/* With label smoothing, excluded tokens would have a loss of 1e9. They begin as rare ones instead. */
static double initial_value(double x)
{
    static const double RARE_LOGIT = -20;
    return x <= NM_EXCLUDED_LOGIT ? RARE_LOGIT : x;
}

/* Copies the elements whose row and column exist in the source. */
static void copy_elements(nm_backend *b, nm_tensor *to, const nm_safetensor *found, int32_t cols_source,
                          const int32_t *rows, const int32_t *cols)
{
    size_t unit = nm_dtype_bytes(b->dtype), width = (size_t)to->cols;
    NM_AUTO_FREE void *values = nm_allocate((size_t)to->rows * width * unit);
    nm_backend_download(b, values, to->data, (size_t)to->rows * width * unit);
    for (int32_t r = 0; r < to->rows; r++)
        for (int32_t c = 0; c < to->cols && rows[r] >= 0; c++)
            if (cols[c] >= 0)
                nm_dtype_set(
                    b->dtype, values, (size_t)r * width + (size_t)c,
                    initial_value(element(found, (size_t)rows[r] * (size_t)cols_source + (size_t)cols[c])));
    nm_backend_upload(b, to->data, values, (size_t)to->rows * width * unit);
}

static bool transfers(const warm_start *self, const char *name)
{
    const nm_task_type *type = self->task->type;
    return !type->transfers || type->transfers(self->task, self->source.type ? &self->source : NULL, name);
}

/* Returns whether at least one element was copied. */
static bool copy_param(warm_start *self, nm_tensor *to)
{
    int32_t rows_source, cols_source;
    const nm_safetensor *found = find_float(self, to->name, &rows_source, &cols_source);
    if (!found)
        return false;
    bool row_names, column_names, copied = false;
    NM_AUTO_FREE int32_t *rows = match_axis(self, to->name, 0, to->rows, rows_source, &row_names),
                         *cols = match_axis(self, to->name, 1, to->cols, cols_source, &column_names);
    if (rows && cols) {
        int32_t matching = row_names ? count_matches(rows, to->rows) : count_matches(cols, to->cols);
        copied = matching > 0;
        if (copied)
            copy_elements(self->model->backend, to, found, cols_source, rows, cols);
        if (row_names || column_names)
            json_object_set_new(self->entries, to->name,
                                json_pack("[i, i]", (int)matching, (int)(row_names ? to->rows : to->cols)));
    }
    if (copied)
        self->used[self->n_used++] = found;
    return copied;
}

static char *slot_name(const nm_norm *norm, const char *slot)
{
    return nm_format("%s.%s", norm->site.name, slot);
}

/* Tensor of a running statistic or counter with n elements; NULL: none. */
static const nm_safetensor *find_slot(const warm_start *self, const nm_norm *norm, const char *slot, size_t n,
                                      bool counter)
{
    NM_AUTO_FREE char *name = slot_name(norm, slot);
    int32_t rows, cols;
    const nm_safetensor *found =
        counter ? nm_safetensors_find(self->file, name) : find_float(self, name, &rows, &cols);
    return found && found->count == n && (!counter || found->type == NM_TENSOR_I64) ? found : NULL;
}

static bool has_state(const nm_norm *norm, const char *name)
{
    for (int i = 0; i < norm->shape.n_state; i++)
        if (!strcmp(norm->shape.state[i].name, name))
            return true;
    return false;
}

/* Whether the source has, at this site, a running vector that the norm lacks. Then it has another type, whose
 * running vectors of the same name may be other statistics: running_var is the variance in batch, and the
 * mean square of scaled rows in pnv. */
static bool has_other_slots(const warm_start *self, const nm_norm *norm)
{
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        NM_AUTO_FREE char *section = nm_format("norm.%s", (*type)->name);
        nm_norm_shape shape = {0};
        if ((*type)->shape)
            (*type)->shape(nm_options_find(self->task->options, section), &norm->site, &shape);
        for (int i = 0; i < shape.n_state; i++) {
            NM_AUTO_FREE char *name = slot_name(norm, shape.state[i].name);
            bool other = !has_state(norm, shape.state[i].name) && nm_safetensors_find(self->file, name);
            if (other)
                return true;
        }
    }
    return false;
}

static bool has_slots(const warm_start *self, const nm_norm *norm)
{
    bool all = !norm->shape.n_state || !has_other_slots(self, norm);
    for (int i = 0; i < norm->shape.n_state; i++)
        all &= find_slot(self, norm, norm->shape.state[i].name, (size_t)norm->shape.state[i].length, false) !=
               NULL;
    for (int i = 0; i < norm->shape.n_counters; i++)
        all &= find_slot(self, norm, norm->shape.counters[i], 1, true) != NULL;
    return all;
}

static void note(warm_start *self, bool copied, const char *name)
{
    self->n_tensors++;
    self->n_copied += copied;
    if (!copied)
        json_array_append_new(self->new, json_string(name));
}

static void copy_norm(warm_start *self, nm_norm *norm)
{
    bool all = has_slots(self, norm);
    nm_backend *b = self->model->backend;
    for (int i = 0; i < norm->shape.n_state; i++) {
        const nm_norm_vector *slot = &norm->shape.state[i];
        const nm_safetensor *found = find_slot(self, norm, slot->name, (size_t)slot->length, false);
        NM_AUTO_FREE char *name = slot_name(norm, slot->name);
        note(self, all, name);
        if (!all)
            continue;
        size_t n = (size_t)slot->length, unit = nm_dtype_bytes(b->dtype);
        NM_AUTO_FREE void *values = nm_allocate(n * unit);
        for (size_t k = 0; k < n; k++)
            nm_dtype_set(b->dtype, values, k, element(found, k));
        nm_backend_upload(b, norm->state[i], values, n * unit);
        self->used[self->n_used++] = found;
    }
    for (int i = 0; i < norm->shape.n_counters && all; i++) {
        const nm_safetensor *found = find_slot(self, norm, norm->shape.counters[i], 1, true);
        memcpy(&norm->counters[i], found->data, sizeof norm->counters[i]);
        self->used[self->n_used++] = found;
    }
}

static void list_unused(warm_start *self)
{
    for (size_t i = 0; i < nm_safetensors_count(self->file); i++) {
        const nm_safetensor *tensor = nm_safetensors_at(self->file, i);
        bool used = false;
        for (size_t k = 0; k < self->n_used; k++)
            used |= self->used[k] == tensor;
        if (!used)
            json_array_append_new(self->unused, json_string(tensor->name));
    }
}

static nm_status make_record(const warm_start *self, const char *path, json_t **record, nm_error *err)
{
    nm_file_map map;
    char fingerprint[32];
    NM_TRY(nm_file_map_open(&map, path, err));
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, (uint64_t)XXH3_64bits(map.data, map.bytes));
    nm_file_unmap(&map);
    const char *update = nm_safetensors_metadata(self->file, "update"),
               *task = nm_safetensors_metadata(self->file, "task");
    *record = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:O, s:O, s:O}", "path", path, "fingerprint",
                        fingerprint, "task", task, "update", (json_int_t)(update ? atoll(update) : 0),
                        "tensors", (json_int_t)self->n_tensors, "copied", (json_int_t)self->n_copied,
                        "entries", self->entries, "new", self->new, "unused", self->unused);
    return NM_OK;
}

/* "a, b, c, d and 4 more"; heap. */
static char *list_names(const json_t *names)
{
    enum { LISTED = 4 };
    char *text = nm_duplicate("");
    size_t n = json_array_size(names);
    for (size_t i = 0; i < n && i < LISTED; i++)
        nm_list_append(&text, json_string_value(json_array_get(names, i)));
    if (n > LISTED)
        nm_format_append(&text, " and %zu more", n - LISTED);
    return text;
}

static char *summarize(const warm_start *self, const char *path)
{
    char *text = nm_format("initialized from %s: %zu of %zu tensors", path, self->n_copied, self->n_tensors);
    const char *name;
    json_t *counts;
    json_object_foreach(self->entries, name, counts)
    {
        nm_format_append(&text, "; %lld of %lld entries of %s",
                         (long long)json_integer_value(json_array_get(counts, 0)),
                         (long long)json_integer_value(json_array_get(counts, 1)), name);
    }
    const struct {
        const char *title;
        const json_t *names;
    } lists[] = {{"new", self->new}, {"unused", self->unused}};
    for (int i = 0; i < 2; i++) {
        if (!json_array_size(lists[i].names))
            continue;
        NM_AUTO_FREE char *names = list_names(lists[i].names);
        nm_format_append(&text, "; %s: %s", lists[i].title, names);
    }
    return text;
}

static nm_status run(warm_start *self, const char *path, json_t **record, char **summary, nm_error *err)
{
    const nm_params *params = &self->model->params;
    NM_TRY(check_tensors(self->file, err));
    NM_TRY(open_source(self, err));
    self->used = nm_allocate((nm_safetensors_count(self->file) + 1) * sizeof *self->used);
    for (size_t i = 0; i < params->n; i++)
        note(self,
             transfers(self, params->list[i]->tensor.name) && copy_param(self, &params->list[i]->tensor),
             params->list[i]->tensor.name);
    for (size_t i = 0; i < params->n_norms; i++)
        copy_norm(self, params->norms[i]);
    if (!self->n_copied)
        return nm_fail(err, NM_MISMATCH,
                       "model.init_from: %s has no tensor with a name and shape of this model", path);
    list_unused(self);
    NM_TRY(make_record(self, path, record, err));
    *summary = summarize(self, path);
    return NM_OK;
}

nm_status nm_warm_start(nm_model *model, const nm_task *task, const char *source, json_t **record,
                        char **summary, nm_error *err)
{
    nm_safetensors *file;
    NM_AUTO_FREE char *path = nm_model_path(source);
    nm_status status = nm_safetensors_open(&file, path, err);
    if (status == NM_OK) {
        warm_start self = {.model = model,
                           .task = task,
                           .file = file,
                           .entries = json_object(),
                           .new = json_array(),
                           .unused = json_array()};
        status = run(&self, path, record, summary, err);
        if (self.source.type)
            self.source.type->close(&self.source);
        nm_options_free(self.options);
        json_decref(self.entries);
        json_decref(self.new);
        json_decref(self.unused);
        free(self.used);
        nm_safetensors_close(file);
    }
    return status;
}
