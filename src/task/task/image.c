/* Image classification: folders of images or CIFAR-10's records, one class per image, accuracy as the score.
 * Pixels are standardized per channel with mean and standard deviation of the training images. In training,
 * an image is shifted by up to data.crop pixels, with zeros beyond its borders, and mirrored with probability
 * 1/2 (He et al. 2016, section 4.2). */
#include "task/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/random.h"
#include "data/prepare.h"
#include "text/classes.h"
#include "task/held_out.h"
#include "task/model_texts.h"
#include "train/train_options.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_image_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option image_options[] = {
    ROW(train, "", 0, 0,
        "Training images: a folder with one folder per class of .jpg, .jpeg or .png files, or a folder or "
        "file of the binary records of CIFAR-10."),
    ROW(valid, "", 0, 0,
        "Validation images, in the same form; of a folder of records, test_batch.bin; "
        "empty: the fraction data.valid_fraction of the training images."),
    ROW(test, "", 0, 0, "Test images of comparisons and baselines, in the same form; empty: none."),
    ROW(size, "32", 8, NM_IMAGE_MAX_SIZE,
        "Height and width in pixels to which images are scaled, by the mean over areas."),
    ROW(batch, "128", 1, 1 << 16,
        "Number of images in a batch; batch statistics are computed over all their positions."),
    ROW(crop, "4", 0, 64,
        "Augmentation: images are shifted by up to this number of pixels in training; 0: not."),
    ROW(mirror, "true", 0, 1, "Augmentation: half of the images are mirrored in training, left to right."),
    ROW(per_class, "0", 0, 1e9,
        "Maximum number of images of each class that are read, the first ones by name; 0: all."),
    ROW(valid_fraction, "0.1", 0, 0.99,
        "Fraction of the training images held out for validation; unused if data.valid is set."),
    ROW(valid_seed, "1", 0, 4294967295.0,
        "Random seed of the choice of held-out images, independent of train.seed."),
    {0}};
/* clang-format on */

static const char *const text_names[] = {"labels.txt", "standardization.txt"};

static nm_status read_split(nm_image_parts *parts, const nm_image_config *config, nm_split split,
                            nm_error *err)
{
    const char *const paths[] = {config->train, config->valid, config->test};
    const nm_image_source source = {.path = paths[split],
                                    .test = split != NM_SPLIT_TRAIN,
                                    .training = split == NM_SPLIT_TRAIN,
                                    .per_class = config->per_class};
    parts->sets[split].size = (int32_t)config->size;
    return *paths[split] ? nm_image_set_read(&parts->sets[split], &source, &parts->classes, err) : NM_OK;
}

/* Moves held-out images from the training to the validation set. */
static void hold_out(nm_image_parts *parts, const nm_image_config *config)
{
    nm_image_set *train = &parts->sets[NM_SPLIT_TRAIN], *valid = &parts->sets[NM_SPLIT_VALID];
    const size_t n = train->n, bytes = nm_image_bytes(train);
    train->n = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t label = train->labels[i];
        nm_image_set *to =
            nm_held_out(config->valid_seed, config->valid_fraction, (int64_t)i) ? valid : train;
        uint8_t *pixels = nm_image_set_add(to, label);
        memmove(pixels, train->pixels + bytes * i, bytes);
    }
}

static nm_image_standardization measure_pixels(const nm_image_set *set)
{
    nm_image_standardization s = {0};
    int64_t sums[NM_IMAGE_CHANNELS] = {0}, squares[NM_IMAGE_CHANNELS] = {0};
    const size_t n = set->n * (size_t)set->size * (size_t)set->size;
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < NM_IMAGE_CHANNELS; c++) {
            int64_t value = set->pixels[i * NM_IMAGE_CHANNELS + (size_t)c];
            sums[c] += value;
            squares[c] += value * value;
        }
    for (int c = 0; c < NM_IMAGE_CHANNELS; c++) {
        double mean = (double)sums[c] / (double)n, variance = (double)squares[c] / (double)n - mean * mean;
        s.mean[c] = mean / 255;
        s.deviation[c] = variance > 0 ? sqrt(variance) / 255 : 1;
    }
    return s;
}

static void set_texts(nm_image_parts *parts)
{
    const nm_image_standardization *s = &parts->standardization;
    parts->texts[NM_IMAGE_TEXT_LABELS] = nm_model_text_of_names(&parts->classes);
    parts->texts[NM_IMAGE_TEXT_STANDARDIZATION] =
        nm_format("%.17g %.17g %.17g\n%.17g %.17g %.17g\n", s->mean[0], s->mean[1], s->mean[2],
                  s->deviation[0], s->deviation[1], s->deviation[2]);
}

static uint64_t fingerprint(const nm_image_set *set)
{
    if (!set->n)
        return 0;
    uint64_t labels = XXH3_64bits(set->labels, set->n * sizeof *set->labels);
    return XXH3_64bits_withSeed(set->pixels, set->n * nm_image_bytes(set), labels);
}

static void set_batching(nm_image_parts *parts, const nm_task *task)
{
    const nm_image_config *config = task->config;
    size_t most = 0;
    for (int split = 0; split < NM_IMAGE_SPLITS; split++)
        most = parts->sets[split].n > most ? parts->sets[split].n : most;
    parts->offsets = nm_allocate((most + 1) * sizeof *parts->offsets);
    for (size_t i = 0; i <= most; i++)
        parts->offsets[i] = i;
    for (int split = 0; split < NM_IMAGE_SPLITS; split++) {
        parts->corpora[split] = (nm_corpus){.offsets = parts->offsets, .n = (int64_t)parts->sets[split].n};
        parts->batching[split] = (nm_batching){.source = &parts->corpora[split],
                                               .max_tokens = config->batch,
                                               .max_length = 1,
                                               .max_examples = config->batch,
                                               .seed = task->seed};
    }
}

static nm_image_sizes sizes_of(const nm_image_config *config)
{
    return (nm_image_sizes){(int32_t)config->size, (int32_t)config->size, NM_IMAGE_CHANNELS};
}

static nm_status image_open(nm_task *task, nm_error *err)
{
    const nm_image_config *config = task->config;
    nm_image_parts *parts = task->parts = nm_allocate(sizeof *parts);
    if (!*config->train)
        return nm_fail(err, NM_USAGE,
                       "data.train is not set: give a folder with one folder of images per class");
    parts->size = sizes_of(config);
    if (task->kept_entries_of)
        NM_TRY(nm_model_text_keep(task->kept_entries_of, text_names[NM_IMAGE_TEXT_LABELS], false,
                                  &parts->classes, err));
    for (nm_split split = NM_SPLIT_TRAIN; split <= NM_SPLIT_TEST; split++)
        NM_TRY(read_split(parts, config, split, err));
    if (parts->classes.n < 2)
        return nm_fail(err, NM_FORMAT, "%s: images of one class only, %s", config->train,
                       parts->classes.items[0].text);
    const size_t read = parts->sets[NM_SPLIT_TRAIN].n;
    if (!*config->valid)
        hold_out(parts, config);
    if (!parts->sets[NM_SPLIT_TRAIN].n)
        return nm_fail(err, NM_USAGE, "all %zu training images are held out: lower data.valid_fraction",
                       read);
    parts->standardization = measure_pixels(&parts->sets[NM_SPLIT_TRAIN]);
    set_texts(parts);
    set_batching(parts, task);
    parts->note =
        nm_format("%zu training images of %zu classes, scaled to %d x %d", parts->sets[NM_SPLIT_TRAIN].n,
                  parts->classes.n, parts->size.width, parts->size.height);
    task->size = (int64_t)read;
    task->fingerprint = fingerprint(&parts->sets[NM_SPLIT_TRAIN]);
    task->valid_fingerprint = fingerprint(&parts->sets[NM_SPLIT_VALID]);
    return NM_OK;
}

/* Number of images of the training data, including those that are held out. */
static nm_status image_measure(const void *config, int64_t *size, nm_error *err)
{
    const nm_image_config *c = config;
    nm_image_parts parts = {0};
    nm_status status = *c->train ? read_split(&parts, c, NM_SPLIT_TRAIN, err)
                                 : nm_fail(err, NM_USAGE, "data.train is not set");
    *size = (int64_t)parts.sets[NM_SPLIT_TRAIN].n;
    nm_image_set_release(&parts.sets[NM_SPLIT_TRAIN]);
    nm_counter_release(&parts.classes);
    return status;
}

static nm_status parse_standardization(nm_image_standardization *s, const nm_model_text *text, nm_error *err)
{
    int n = text->text ? sscanf(text->text, "%lf %lf %lf %lf %lf %lf", &s->mean[0], &s->mean[1], &s->mean[2],
                                &s->deviation[0], &s->deviation[1], &s->deviation[2])
                       : 0;
    bool valid = n == 6;
    for (int c = 0; c < NM_IMAGE_CHANNELS && valid; c++)
        valid = isfinite(s->mean[c]) && s->deviation[c] > 0 && isfinite(s->deviation[c]);
    return valid ? NM_OK
                 : nm_fail(err, NM_FORMAT, "%s: %s: expected three means and three positive deviations",
                           text->where, text->name);
}

static nm_status image_open_model(nm_task *task, const nm_safetensors *file, nm_error *err)
{
    nm_image_parts *parts = task->parts = nm_allocate(sizeof *parts);
    nm_model_text texts[NM_IMAGE_TEXTS];
    nm_model_texts_load(parts->texts, text_names, NM_IMAGE_TEXTS, file);
    for (int i = 0; i < NM_IMAGE_TEXTS; i++)
        texts[i] = (nm_model_text){nm_safetensors_path(file), text_names[i], parts->texts[i]};
    parts->size = sizes_of(task->config);
    NM_TRY(nm_model_text_names(&texts[NM_IMAGE_TEXT_LABELS], &parts->classes, err));
    if (parts->classes.n < 2 || parts->classes.n > NM_IMAGE_MAX_CLASSES)
        return nm_fail(err, NM_FORMAT, "%s: %s: %zu labels", texts[0].where, texts[0].name, parts->classes.n);
    return parse_standardization(&parts->standardization, &texts[NM_IMAGE_TEXT_STANDARDIZATION], err);
}

static void image_save(const nm_task *task, nm_safetensors_writer *writer)
{
    nm_model_texts_save(nm_image_parts_of(task)->texts, text_names, NM_IMAGE_TEXTS, writer);
}

static void image_close(nm_task *task)
{
    nm_image_parts *parts = task->parts;
    if (!parts)
        return;
    nm_model_texts_free(parts->texts, NM_IMAGE_TEXTS);
    for (int split = 0; split < NM_IMAGE_SPLITS; split++)
        nm_image_set_release(&parts->sets[split]);
    nm_counter_release(&parts->classes);
    NM_FREE(parts->offsets, parts->note, parts);
    task->parts = NULL;
}

static const char *image_note(const nm_task *task)
{
    return nm_image_parts_of(task)->note;
}

static char *image_data_warning(const nm_task *task)
{
    const nm_image_parts *parts = nm_image_parts_of(task);
    char *text = NULL;
    for (int split = 0; split < NM_IMAGE_SPLITS; split++) {
        const nm_image_set *set = &parts->sets[split];
        if (set->n_broken)
            nm_format_append(&text, "%s%zu %s file%s not readable and left out; the first: %s",
                             text ? "; " : "", set->n_broken, nm_prepare_split_names[split],
                             set->n_broken == 1 ? " is" : "s are", set->broken);
    }
    return text;
}

static nm_model_sizes image_sizes(const nm_task *task)
{
    const nm_image_parts *parts = nm_image_parts_of(task);
    return (nm_model_sizes){.target = (int32_t)parts->classes.n, .plan = task->plan, .more = &parts->size};
}

static const char *image_entry_name(const nm_task *task, const char *param, int axis, int32_t index)
{
    const nm_image_parts *parts = nm_image_parts_of(task);
    bool of_classes = axis ? !strcmp(param, "output.bias") : !strcmp(param, "output.weight");
    return of_classes && (size_t)index < parts->classes.n ? parts->classes.items[index].text : NULL;
}

void nm_image_values(const nm_image_standardization *s, const nm_image_set *set, size_t index, float *values)
{
    const size_t bytes = nm_image_bytes(set);
    const uint8_t *pixels = set->pixels + bytes * index;
    for (size_t i = 0; i < bytes; i++)
        values[i] = (float)((pixels[i] / 255.0 - s->mean[i % NM_IMAGE_CHANNELS]) /
                            s->deviation[i % NM_IMAGE_CHANNELS]);
}

/* Shifts and mirrors an image, with zeros beyond its borders. copy: memory of an image. */
static void augment(const nm_image_config *config, nm_random_words random, int32_t size, float *values,
                    float *copy)
{
    const int32_t reach = (int32_t)config->crop;
    const int32_t down = (int32_t)nm_random_below(random.w[0], (uint32_t)(2 * reach + 1)) - reach;
    const int32_t right = (int32_t)nm_random_below(random.w[1], (uint32_t)(2 * reach + 1)) - reach;
    const bool mirrored = config->mirror && random.w[2] >> 31;
    memcpy(copy, values, (size_t)(size * size * NM_IMAGE_CHANNELS) * sizeof *copy);
    for (int32_t y = 0; y < size; y++)
        for (int32_t x = 0; x < size; x++) {
            int32_t row = y + down, col = (mirrored ? size - 1 - x : x) + right;
            bool inside = row >= 0 && row < size && col >= 0 && col < size;
            for (int32_t c = 0; c < NM_IMAGE_CHANNELS; c++)
                values[(y * size + x) * NM_IMAGE_CHANNELS + c] =
                    inside ? copy[(row * size + col) * NM_IMAGE_CHANNELS + c] : 0;
        }
}

static int32_t *count_up(int32_t n, int32_t step, nm_arena *arena)
{
    int32_t *offsets = nm_arena_alloc(arena, ((size_t)n + 1) * sizeof *offsets);
    for (int32_t i = 0; i <= n; i++)
        offsets[i] = i * step;
    return offsets;
}

/* A batch of n images with these values and classes, memory of the arena. */
static nm_batch batch_of(const nm_image_sizes *size, int32_t n, const float *values, const int32_t *classes,
                         nm_arena *arena)
{
    const int32_t positions = size->height * size->width;
    return (nm_batch){
        .n = n,
        .n_targets = n,
        .tokens = n,
        .source = {.n_seqs = n,
                   .n_tokens = n * positions,
                   .longest = positions,
                   .offsets = count_up(n, positions, arena)},
        .target = {.n_seqs = n, .n_tokens = n, .longest = 1, .offsets = count_up(n, 1, arena)},
        .source_values = values,
        .source_width = size->channels,
        .target_out = classes,
    };
}

/* Folders have one class after the other: validation is shuffled, too, so that the statistics of its batches
 * are not those of a class. */
static nm_status image_epoch(nm_task *task, nm_split split, uint32_t epoch, bool shuffle, nm_batches *batches,
                             nm_error *err)
{
    nm_image_parts *parts = task->parts;
    if (!parts->sets[split].n)
        return nm_fail(err, NM_USAGE, "there are no %s images", nm_prepare_split_names[split]);
    shuffle = shuffle || split == NM_SPLIT_VALID;
    return nm_batches_create(batches, &parts->batching[split], epoch, shuffle, err);
}

static nm_batch image_batch(nm_task *task, nm_split split, const nm_batches *batches, int64_t i,
                            uint32_t step, bool training, nm_arena *arena)
{
    const nm_image_config *config = task->config;
    const nm_image_parts *parts = nm_image_parts_of(task);
    const nm_image_set *set = &parts->sets[split];
    const int64_t *examples = batches->order + batches->starts[i];
    const int32_t n = (int32_t)(batches->starts[i + 1] - batches->starts[i]);
    const size_t elements = nm_image_bytes(set);
    nm_arena_reset(arena);
    float *values = nm_arena_alloc(arena, (size_t)n * elements * sizeof *values);
    float *copy = nm_arena_alloc(arena, elements * sizeof *copy);
    int32_t *classes = nm_arena_alloc(arena, (size_t)n * sizeof *classes);
    for (int32_t k = 0; k < n; k++) {
        float *image = values + (size_t)k * elements;
        nm_image_values(&parts->standardization, set, (size_t)examples[k], image);
        classes[k] = set->labels[examples[k]];
        if (training && (config->crop || config->mirror))
            augment(config, nm_random4(task->seed, NM_RANDOM_WORD_DROPOUT, 0, step, (uint64_t)examples[k]),
                    set->size, image, copy);
    }
    nm_batch batch = batch_of(&parts->size, n, values, classes, arena);
    batch.index = examples;
    return batch;
}

static nm_batch image_largest(nm_task *task, nm_arena *arena)
{
    const nm_image_config *config = task->config;
    const nm_image_sizes *size = &nm_image_parts_of(task)->size;
    const size_t elements = (size_t)config->batch * (size_t)(size->height * size->width * size->channels);
    nm_arena_reset(arena);
    float *values = nm_arena_alloc(arena, elements * sizeof *values);
    int32_t *classes = nm_arena_alloc(arena, (size_t)config->batch * sizeof *classes);
    memset(values, 0, elements * sizeof *values);
    memset(classes, 0, (size_t)config->batch * sizeof *classes);
    return batch_of(size, (int32_t)config->batch, values, classes, arena);
}

static double *image_loss(nm_task *task, nm_model *model, nm_tape *tape, const nm_batch *batch, bool smoothed)
{
    (void)task;
    nm_model_output out = model->type->forward(model, tape, batch);
    nm_loss_spec spec = nm_train_loss(model->options, batch->target_out, smoothed);
    return nm_softmax_loss_of(tape, out.hidden, out.weight, out.bias, &spec);
}

int32_t nm_image_best(const double *probabilities, size_t classes)
{
    size_t best = 0;
    for (size_t k = 1; k < classes; k++)
        best = probabilities[k] > probabilities[best] ? k : best;
    return (int32_t)best;
}

static void softmax(size_t n, double *values)
{
    double top = -INFINITY, sum = 0;
    for (size_t k = 0; k < n; k++)
        top = fmax(top, values[k]);
    for (size_t k = 0; k < n; k++)
        sum += values[k] = exp(values[k] - top);
    for (size_t k = 0; k < n; k++)
        values[k] /= sum;
}

typedef struct finder {
    const nm_task *task;
    nm_model *model;
    nm_tape tape;
    nm_arena host;
} finder;

/* Images first .. first + n - 1 of the set. */
static nm_status run_images(finder *self, const nm_image_set *set, size_t first, int32_t n,
                            double *probabilities, nm_error *err)
{
    const nm_image_parts *parts = nm_image_parts_of(self->task);
    const size_t elements = nm_image_bytes(set), classes = parts->classes.n;
    NM_TRY(nm_check_stop(self->task->stop, err));
    nm_arena_reset(&self->host);
    float *values = nm_arena_alloc(&self->host, (size_t)n * elements * sizeof *values);
    for (int32_t i = 0; i < n; i++)
        nm_image_values(&parts->standardization, set, first + (size_t)i, values + (size_t)i * elements);
    nm_batch batch = batch_of(&parts->size, n, values, NULL, &self->host);
    nm_tape_start(&self->tape, false, 0, 0);
    nm_model_output out = self->model->type->forward(self->model, &self->tape, &batch);
    nm_tensor *logits = nm_linear(&self->tape, out.hidden, out.weight, out.bias, NM_ACT_NONE, 0);
    if (nm_tape_exhausted(&self->tape))
        return nm_fail(err, NM_MEMORY, "out of memory for a batch of %d images", n);
    nm_backend_read(self->model->backend, probabilities, logits->data, (size_t)n * classes);
    NM_TRY(nm_backend_check(self->model->backend, err));
    for (size_t i = 0; i < (size_t)n * classes; i++)
        if (!isfinite(probabilities[i]))
            return nm_fail(err, NM_DIVERGED, "the model's logits are not finite");
    for (int32_t i = 0; i < n; i++)
        softmax(classes, probabilities + (size_t)i * classes);
    return NM_OK;
}

nm_status nm_image_probabilities(const nm_task *task, nm_model *model, const nm_image_set *set, size_t n,
                                 double *probabilities, nm_error *err)
{
    enum { BATCH_PIXELS = 1 << 17 }; /* maximum number of pixels per batch of several images */
    const nm_image_parts *parts = nm_image_parts_of(task);
    const size_t pixels = (size_t)(set->size * set->size),
                 most = pixels < BATCH_PIXELS ? BATCH_PIXELS / pixels : 1;
    finder self = {.task = task, .model = model};
    nm_status status = NM_OK;
    nm_tape_init_growing(&self.tape, model->backend);
    nm_arena_init(&self.host, SIZE_MAX);
    for (size_t first = 0; first < n && status == NM_OK; first += most) {
        size_t count = n - first < most ? n - first : most;
        status = run_images(&self, set, first, (int32_t)count, probabilities + first * parts->classes.n, err);
    }
    nm_arena_release(&self.host);
    nm_tape_release(&self.tape);
    return status;
}

void nm_image_count(const nm_image_parts *parts, nm_split split, const int32_t *predicted, size_t n,
                    nm_task_score *score)
{
    NM_AUTO(nm_confusion_release) nm_confusion confusion = nm_confusion_create((int32_t)parts->classes.n);
    int64_t *rows = nm_allocate((n + 1) * NM_ACCURACY_COUNTS * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        const int32_t gold = parts->sets[split].labels[i];
        nm_confusion_add(&confusion, gold, predicted[i]);
        rows[NM_ACCURACY_COUNTS * i] = gold == predicted[i];
        rows[NM_ACCURACY_COUNTS * i + 1] = 1;
    }
    *score = (nm_task_score){.name = "accuracy",
                             .title = "accuracy",
                             .value = nm_confusion_accuracy(&confusion),
                             .samples = nm_format("  macro-F1 %.2f\n", nm_confusion_macro_f1(&confusion)),
                             .counts = {rows, n, NM_ACCURACY_COUNTS},
                             .of_counts = nm_accuracy_of_counts};
    snprintf(score->signature, sizeof score->signature, "accuracy|classes:%zu|examples:%zu", parts->classes.n,
             n);
}

static nm_status image_score(nm_task *task, nm_model *model, nm_split split, int64_t examples,
                             nm_task_score *score, nm_error *err)
{
    const nm_image_parts *parts = nm_image_parts_of(task);
    const nm_image_set *set = &parts->sets[split];
    const size_t n = examples && (size_t)examples < set->n ? (size_t)examples : set->n,
                 classes = parts->classes.n;
    *score = (nm_task_score){0};
    if (!n)
        return nm_fail(err, NM_USAGE, "there are no images to score: set data.%s",
                       split == NM_SPLIT_TEST ? "test" : "valid");
    NM_AUTO_FREE double *probabilities = nm_allocate(n * classes * sizeof *probabilities);
    NM_AUTO_FREE int32_t *predicted = nm_allocate(n * sizeof *predicted);
    nm_status status = nm_image_probabilities(task, model, set, n, probabilities, err);
    for (size_t i = 0; i < n && status == NM_OK; i++)
        predicted[i] = nm_image_best(probabilities + i * classes, classes);
    if (status == NM_OK)
        nm_image_count(parts, split, predicted, n, score);
    return status;
}

static const nm_image_sizes assumed_size = {32, 32, NM_IMAGE_CHANNELS};

const nm_task_type nm_task_image = {
    .name = "image",
    .recipe = "image",
    .model = &nm_model_image,
    .options = image_options,
    .config_size = sizeof(nm_image_config),
    .mean_loss = true,
    .open = image_open,
    .open_model = image_open_model,
    .note = image_note,
    .data_warning = image_data_warning,
    .measure = image_measure,
    .size_unit = "images",
    .sizes = image_sizes,
    .assumed_sizes = &assumed_size,
    .entry_name = image_entry_name,
    .epoch = image_epoch,
    .batch = image_batch,
    .largest = image_largest,
    .loss = image_loss,
    .score = image_score,
    .save = image_save,
    .close = image_close,
};
