/* Images: files, scaling, folders of classes, records of CIFAR-10, and batches of the task. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "small_images.h"
#include "support/remove_tree.h"
#include "task/image.h"
#include "train/train_options.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/norma-images-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

static void write_file(const char *name, const void *data, size_t bytes)
{
    nm_error err;
    char *path = nm_path_join(folder, name), *slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(nm_folder_create(path, &err), NM_OK);
    *slash = '/';
    assert_int_equal(nm_file_write(path, data, bytes, &err), NM_OK);
    free(path);
}

static void assert_pixel(const uint8_t *pixel, int red, int green, int blue, int tolerance)
{
    assert_in_range(pixel[0] + 255, red + 255 - tolerance, red + 255 + tolerance);
    assert_in_range(pixel[1] + 255, green + 255 - tolerance, green + 255 + tolerance);
    assert_in_range(pixel[2] + 255, blue + 255 - tolerance, blue + 255 + tolerance);
}

static void test_formats(void **state)
{
    (void)state;
    uint8_t pixels[2 * 2 * 3];
    nm_error err;
    assert_int_equal(nm_image_decode(small_png, sizeof small_png, "a.png", 2, pixels, &err), NM_OK);
    assert_pixel(pixels, 200, 40, 40, 0);
    assert_pixel(pixels + 9, 30, 60, 220, 0);
    assert_int_equal(nm_image_decode(small_jpeg, sizeof small_jpeg, "a.jpg", 2, pixels, &err), NM_OK);
    assert_pixel(pixels, 200, 40, 40, 24); /* JPEG blurs the border of the halves */
    assert_pixel(pixels + 9, 30, 60, 220, 24);
    assert_int_equal(nm_image_decode(small_cmyk, sizeof small_cmyk, "b.jpg", 2, pixels, &err), NM_OK);
    assert_pixel(pixels, 225, 49, 49, 0);
}

/* Every prefix, and every file with one changed byte, is an image or NM_FORMAT that names the file. */
static void test_damaged_files(void **state)
{
    (void)state;
    uint8_t pixels[2 * 2 * 3], copy[sizeof small_jpeg + sizeof small_png];
    const void *const files[] = {small_jpeg, small_png};
    const size_t bytes[] = {sizeof small_jpeg, sizeof small_png};
    nm_error err;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < bytes[k]; i++) {
            memcpy(copy, files[k], bytes[k]);
            nm_status cut = nm_image_decode(copy, i, "cut", 2, pixels, &err);
            if (i < bytes[k] / 2) {
                assert_int_equal(cut, NM_FORMAT);
                assert_non_null(strstr(err.text, "cut"));
            }
            copy[i] ^= 0x55;
            nm_status changed = nm_image_decode(copy, bytes[k], "changed", 2, pixels, &err);
            assert_true(changed == NM_OK || changed == NM_FORMAT);
        }
}

/* The mean over areas, also where they contain parts of pixels: 3 x 1 pixels to 2 x 2. */
static void test_scaling(void **state)
{
    (void)state;
    const uint8_t line[] = {0, 10, 100, 90, 10, 100, 240, 10, 100};
    uint8_t pixels[4 * 4 * 3];
    nm_image_scale(line, 1, 3, 2, pixels);
    for (int row = 0; row < 2; row++) {
        assert_pixel(pixels + 6 * row, 30, 10, 100, 0);      /* (0 + 90/2) / 1.5 */
        assert_pixel(pixels + 6 * row + 3, 190, 10, 100, 0); /* (90/2 + 240) / 1.5 */
    }
    nm_image_scale(line, 3, 1, 3, pixels);
    assert_pixel(pixels, 0, 10, 100, 0);
    assert_pixel(pixels + 3, 0, 10, 100, 0);
    assert_pixel(pixels + 9, 90, 10, 100, 0);
}

static nm_status read_set(nm_image_set *set, nm_counter *classes, const char *name, bool training,
                          int64_t per_class, nm_error *err)
{
    char *path = nm_path_join(folder, name);
    const nm_image_source source = {
        .path = path, .test = !training, .training = training, .per_class = per_class};
    set->size = 2;
    nm_status status = nm_image_set_read(set, &source, classes, err);
    free(path);
    return status;
}

static void test_folder_of_classes(void **state)
{
    (void)state;
    nm_image_set train = {0}, valid = {0};
    nm_counter classes = {0};
    nm_error err;
    write_file("train/zebra/1.png", small_png, sizeof small_png);
    write_file("train/cat/b.JPG", small_jpeg, sizeof small_jpeg);
    write_file("train/cat/a.png", small_png, sizeof small_png);
    write_file("train/cat/c.png", "no image", 8);
    write_file("train/cat/d.webp", "counted", 7);
    write_file("train/.hidden/1.png", small_png, sizeof small_png);
    assert_int_equal(read_set(&train, &classes, "train", true, 0, &err), NM_OK);
    assert_int_equal(train.n, 3);
    assert_int_equal(classes.n, 2);
    assert_string_equal(classes.items[0].text, "cat");
    assert_int_equal(train.labels[2], 1);
    assert_int_equal(train.n_broken, 2);
    assert_non_null(strstr(train.broken, "train/cat/c.png"));
    write_file("valid/cat/1.png", small_png, sizeof small_png);
    write_file("valid/dog/1.png", small_png, sizeof small_png);
    assert_int_equal(read_set(&valid, &classes, "valid", false, 0, &err), NM_MISMATCH);
    assert_non_null(strstr(err.text, "dog"));
    write_file("empty/cat/readme", "x", 1);
    assert_int_equal(read_set(&valid, &classes, "empty", false, 0, &err), NM_FORMAT);
    write_file("broken/cat/1.png", "x", 1);
    assert_int_equal(read_set(&valid, &classes, "broken", false, 0, &err), NM_FORMAT);
    assert_non_null(strstr(err.text, "none of 1"));
    assert_int_equal(read_set(&valid, &classes, "absent", false, 0, &err), NM_IO);
    nm_image_set_release(&train);
    assert_int_equal(read_set(&train, &classes, "train", true, 1, &err), NM_OK);
    assert_int_equal(train.n, 2);
    nm_image_set_release(&train);
    nm_image_set_release(&valid);
    nm_counter_release(&classes);
}

/* Record r: class r % 3, red 10 r, green 0, blue 255 - r. */
static void write_records(const char *name, int n)
{
    uint8_t *records = nm_allocate((size_t)n * NM_IMAGE_RECORD);
    for (int r = 0; r < n; r++) {
        uint8_t *record = records + (size_t)r * NM_IMAGE_RECORD;
        record[0] = (uint8_t)(r % 3);
        memset(record + 1, 10 * r, 1024);
        memset(record + 1 + 2048, 255 - r, 1024);
        record[1] = 7; /* the first pixel differs */
    }
    write_file(name, records, (size_t)n * NM_IMAGE_RECORD);
    free(records);
}

static void test_records(void **state)
{
    (void)state;
    nm_image_set train = {0}, test = {0};
    nm_counter classes = {0};
    nm_error err;
    write_records("cifar/data_batch_1.bin", 4);
    write_records("cifar/data_batch_2.bin", 2);
    write_records("cifar/test_batch.bin", 3);
    write_file("cifar/batches.meta.txt", "plane\ncar\nbird\n\n", 16);
    assert_int_equal(read_set(&train, &classes, "cifar", true, 0, &err), NM_OK);
    assert_int_equal(train.n, 6);
    assert_int_equal(classes.n, 3);
    assert_string_equal(classes.items[2].text, "bird");
    assert_int_equal(train.labels[2], 2);
    assert_pixel(train.pixels + 2 * 12 + 3, 20, 0, 253, 0);
    assert_int_equal(read_set(&test, &classes, "cifar", false, 0, &err), NM_OK);
    assert_int_equal(test.n, 3);
    nm_image_set first = {0};
    assert_int_equal(read_set(&first, &classes, "cifar", true, 1, &err), NM_OK);
    assert_int_equal(first.n, 3); /* of both files together */
    nm_image_set_release(&first);
    assert_int_equal(read_set(&first, &classes, "cifar", true, 2, &err), NM_OK);
    assert_int_equal(first.n, 5);
    nm_image_set_release(&first);
    write_records("bad.bin", 1);
    char *path = nm_path_join(folder, "bad.bin");
    assert_int_equal(truncate(path, NM_IMAGE_RECORD - 1), 0);
    free(path);
    assert_int_equal(read_set(&test, &classes, "bad.bin", false, 0, &err), NM_FORMAT);
    write_file("cifar/batches.meta.txt", "plane\n", 6);
    assert_int_equal(read_set(&test, &classes, "cifar", false, 0, &err), NM_FORMAT);
    assert_non_null(strstr(err.text, "no name"));
    nm_image_set_release(&train);
    nm_image_set_release(&test);
    nm_counter_release(&classes);
}

typedef struct opened {
    nm_options *options;
    nm_task task;
} opened;

/* Twelve images of two classes, of which a part is held out; valid: all are validation images, too. */
static void open_images(opened *o, const char *crop, const char *mirror, bool valid)
{
    nm_error err = {0};
    char *path = nm_path_join(folder, "images");
    const char *const settings[][2] = {{"data.train", path},
                                       {"data.size", "8"},
                                       {"data.batch", "4"},
                                       {"data.crop", crop},
                                       {"data.mirror", mirror},
                                       {"data.valid_fraction", "0.3"},
                                       {"data.valid", valid ? path : ""}};
    for (int i = 0; i < 12; i++) {
        char name[64];
        snprintf(name, sizeof name, "images/%s/%d.png", i % 2 ? "a" : "b", i);
        write_file(name, small_png, sizeof small_png);
    }
    o->options = nm_options_create();
    nm_train_options_add(o->options, &nm_task_image);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        assert_int_equal(nm_options_set(o->options, settings[i][0], settings[i][1], NM_ORIGIN_COMMAND, &err),
                         NM_OK);
    o->task = (nm_task){.type = &nm_task_image,
                        .options = o->options,
                        .config = nm_options_find(o->options, "data"),
                        .seed = 3};
    if (nm_task_image.open(&o->task, &err) != NM_OK)
        fail_msg("%s", err.text);
    free(path);
}

static void open_task(opened *o, const char *crop, const char *mirror)
{
    open_images(o, crop, mirror, false);
}

static void close_task(opened *o)
{
    nm_task_image.close(&o->task);
    nm_options_free(o->options);
}

static void test_standardization_and_split(void **state)
{
    (void)state;
    opened o;
    open_task(&o, "0", "false");
    const nm_image_parts *parts = o.task.parts;
    const nm_image_set *train = &parts->sets[NM_SPLIT_TRAIN];
    assert_int_equal(train->n + parts->sets[NM_SPLIT_VALID].n, 12);
    assert_in_range(parts->sets[NM_SPLIT_VALID].n, 1, 8);
    double sum[3] = {0}, square[3] = {0};
    float values[8 * 8 * 3];
    for (size_t i = 0; i < train->n; i++) {
        nm_image_values(&parts->standardization, train, i, values);
        for (int k = 0; k < 8 * 8 * 3; k++) {
            sum[k % 3] += (double)values[k];
            square[k % 3] += (double)values[k] * (double)values[k];
        }
    }
    for (int c = 0; c < 3; c++) {
        assert_true(fabs(sum[c]) < 1e-3);
        assert_true(fabs(square[c] / (64 * (double)train->n) - 1) < 1e-5);
    }
    close_task(&o);
}

/* Batches depend on seed, step and image only; validation batches are not augmented. */
static void test_augmentation(void **state)
{
    (void)state;
    opened o;
    nm_batches batches;
    nm_arena arena;
    nm_error err;
    enum { VALUES = 8 * 8 * 3 };
    float first[VALUES], plain[VALUES];
    open_task(&o, "2", "true");
    nm_arena_init(&arena, SIZE_MAX);
    assert_int_equal(nm_task_image.epoch(&o.task, NM_SPLIT_TRAIN, 0, true, &batches, &err), NM_OK);
    int changed = 0, zeros = 0;
    for (uint32_t step = 0; step < 20; step++) {
        nm_batch batch = nm_task_image.batch(&o.task, NM_SPLIT_TRAIN, &batches, 0, step, true, &arena);
        assert_int_equal(batch.source.n_tokens, batch.n * 64);
        memcpy(first, batch.source_values, sizeof first);
        batch = nm_task_image.batch(&o.task, NM_SPLIT_TRAIN, &batches, 0, step, true, &arena);
        assert_memory_equal(first, batch.source_values, sizeof first);
        batch = nm_task_image.batch(&o.task, NM_SPLIT_TRAIN, &batches, 0, step, false, &arena);
        memcpy(plain, batch.source_values, sizeof plain);
        changed += memcmp(first, plain, sizeof plain) != 0;
        for (int k = 0; k < VALUES; k++)
            zeros += first[k] == 0;
    }
    assert_in_range(changed, 15, 20);
    assert_in_range(zeros, 1, 20 * VALUES / 2);
    nm_batches_release(&batches);
    nm_arena_release(&arena);
    close_task(&o);
}

/* A folder has one class after the other; each batch of validation has both. */
static void test_validation_batches_mix_the_classes(void **state)
{
    (void)state;
    opened o;
    nm_batches batches;
    nm_arena arena;
    nm_error err;
    int mixed = 0, seen[12] = {0};
    open_images(&o, "0", "false", true);
    nm_arena_init(&arena, SIZE_MAX);
    assert_int_equal(nm_task_image.epoch(&o.task, NM_SPLIT_VALID, 0, false, &batches, &err), NM_OK);
    assert_int_equal(batches.n, 3);
    for (int64_t i = 0; i < batches.n; i++) {
        nm_batch batch = nm_task_image.batch(&o.task, NM_SPLIT_VALID, &batches, i, 0, false, &arena);
        int second = 0;
        for (int k = 0; k < batch.n; k++) {
            second += batch.target_out[k];
            seen[batch.index[k]]++;
        }
        mixed += second > 0 && second < batch.n;
    }
    assert_in_range(mixed, 2, 3);
    for (int k = 0; k < 12; k++)
        assert_int_equal(seen[k], 1);
    nm_batches_release(&batches);
    nm_arena_release(&arena);
    close_task(&o);
}

/* Whether `got` is the 8 x 8 image `plain`, shifted and then mirrored, with zeros beyond its borders. */
static bool is_shifted(const float *got, const float *plain, int down, int right, bool mirrored)
{
    for (int k = 0; k < 8 * 8 * 3; k++) {
        int y = k / 24 + down, x = (mirrored ? 7 - k / 3 % 8 : k / 3 % 8) + right;
        bool inside = y >= 0 && y < 8 && x >= 0 && x < 8;
        float expected = inside ? plain[(y * 8 + x) * 3 + k % 3] : 0;
        if (memcmp(&got[k], &expected, sizeof expected) != 0)
            return false;
    }
    return true;
}

/* Every augmented image is a shift by up to data.crop pixels, mirrored only with data.mirror; all kinds
 * occur. */
static void check_kinds(const char *mirror, int least_mirrored, int most_mirrored)
{
    enum { CROP = 2, STEPS = 40, VALUES = 8 * 8 * 3 };
    opened o;
    nm_batches batches;
    nm_arena arena;
    nm_error err;
    float got[VALUES];
    int n_mirrored = 0, n_shifts = 0;
    bool seen[2 * CROP + 1][2 * CROP + 1] = {{false}};
    open_task(&o, "2", mirror);
    nm_arena_init(&arena, SIZE_MAX);
    assert_int_equal(nm_task_image.epoch(&o.task, NM_SPLIT_TRAIN, 0, true, &batches, &err), NM_OK);
    for (uint32_t step = 0; step < STEPS; step++) {
        nm_batch batch = nm_task_image.batch(&o.task, NM_SPLIT_TRAIN, &batches, 0, step, true, &arena);
        memcpy(got, batch.source_values, sizeof got);
        batch = nm_task_image.batch(&o.task, NM_SPLIT_TRAIN, &batches, 0, step, false, &arena);
        int found = 0;
        for (int k = 0; k < 2 * (2 * CROP + 1) * (2 * CROP + 1); k++) {
            int down = k / 2 / (2 * CROP + 1), right = k / 2 % (2 * CROP + 1);
            if (!is_shifted(got, batch.source_values, down - CROP, right - CROP, k % 2))
                continue;
            found++;
            n_mirrored += k % 2;
            n_shifts += !seen[down][right];
            seen[down][right] = true;
        }
        assert_int_equal(found, 1);
    }
    assert_in_range(n_mirrored, least_mirrored, most_mirrored);
    assert_in_range(n_shifts, 12, 25);
    for (int i = 0; i <= 2 * CROP; i++) { /* up to CROP pixels in every direction */
        bool down = false, right = false;
        for (int k = 0; k <= 2 * CROP; k++) {
            down |= seen[i][k];
            right |= seen[k][i];
        }
        assert_true(down && right);
    }
    nm_batches_release(&batches);
    nm_arena_release(&arena);
    close_task(&o);
}

static void test_kinds_of_augmentation(void **state)
{
    (void)state;
    check_kinds("true", 10, 30);
    check_kinds("false", 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_folder_of_classes),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_standardization_and_split),
        cmocka_unit_test(test_augmentation),
        cmocka_unit_test(test_validation_batches_mix_the_classes),
        cmocka_unit_test(test_kinds_of_augmentation),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
