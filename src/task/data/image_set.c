#include "data/image_set.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"

size_t nm_image_bytes(const nm_image_set *set)
{
    return (size_t)set->size * (size_t)set->size * NM_IMAGE_CHANNELS;
}

uint8_t *nm_image_set_add(nm_image_set *set, int32_t label)
{
    const size_t bytes = nm_image_bytes(set);
    NM_RESERVE(set->pixels, (set->n + 1) * bytes, set->pixels_capacity);
    NM_GROW(set->labels, set->n, set->labels_capacity);
    set->labels[set->n] = label;
    return set->pixels + bytes * set->n++;
}

void nm_image_set_release(nm_image_set *set)
{
    NM_FREE(set->pixels, set->labels, set->broken);
    *set = (nm_image_set){0};
}

static nm_status class_of(const nm_image_source *source, nm_counter *classes, const char *name,
                          int32_t *label, nm_error *err)
{
    size_t found = source->training ? nm_counter_add(classes, name, strlen(name), 1)
                                    : nm_counter_find(classes, name, strlen(name));
    if (found == SIZE_MAX)
        return nm_fail(err, NM_MISMATCH, "%s: the training data has no class %.100s", source->path, name);
    if (classes->n > NM_IMAGE_MAX_CLASSES)
        return nm_fail(err, NM_FORMAT, "%s: more than %d classes", source->path, NM_IMAGE_MAX_CLASSES);
    *label = (int32_t)found;
    return NM_OK;
}

static int visible(const struct dirent *entry)
{
    return *entry->d_name != '.';
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* NM_IO if that cannot be determined. A path that does not exist is no folder. */
static nm_status find_folder(const char *path, bool *is_folder, nm_error *err)
{
    struct stat info;
    const int failed = stat(path, &info) ? errno : 0;
    *is_folder = !failed && S_ISDIR(info.st_mode);
    if (failed && failed != ENOENT && failed != ENOTDIR)
        return nm_fail(err, nm_file_error_status(failed), "%s: %s", path, strerror(failed));
    return NM_OK;
}

static bool has_image_name(const char *name)
{
    static const char *const ends[] = {".jpg", ".jpeg", ".png"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (length > strlen(ends[i]) && !strcasecmp(name + length - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

static nm_status list_folder(const char *path, struct dirent ***entries, int *n, nm_error *err)
{
    *n = scandir(path, entries, visible, compare_names);
    return *n < 0 ? nm_fail(err, nm_file_error_status(errno), "%s: %s", path, strerror(errno)) : NM_OK;
}

static void count_broken(nm_image_set *set, const char *why)
{
    if (!set->n_broken++)
        set->broken = nm_duplicate(why);
}

/* A damaged file is counted; other errors end the reading. */
static nm_status read_file(nm_image_set *set, const char *path, int32_t label, nm_error *err)
{
    nm_error why = {0};
    nm_status status = nm_image_file_read(path, set->size, nm_image_set_add(set, label), &why);
    if (status == NM_OK)
        return NM_OK;
    set->n--;
    if (status != NM_FORMAT)
        return nm_fail(err, status, "%s", why.text);
    count_broken(set, why.text);
    return NM_OK;
}

static nm_status read_class(nm_image_set *set, const nm_image_source *source, const char *folder,
                            int32_t label, nm_error *err)
{
    struct dirent **entries;
    int n;
    int64_t taken = 0;
    NM_TRY(list_folder(folder, &entries, &n, err));
    nm_status status = NM_OK;
    for (int i = 0; i < n && status == NM_OK && (!source->per_class || taken < source->per_class); i++) {
        NM_AUTO_FREE char *path = nm_path_join(folder, entries[i]->d_name);
        if (!has_image_name(path)) {
            NM_AUTO_FREE char *why = nm_format("%s: no file .jpg, .jpeg or .png", path);
            count_broken(set, why);
            continue;
        }
        const size_t before = set->n;
        status = read_file(set, path, label, err);
        taken += set->n > before;
    }
    nm_free_list(entries, (size_t)n);
    return status;
}

static nm_status read_classes(nm_image_set *set, const nm_image_source *source, nm_counter *classes,
                              nm_error *err)
{
    struct dirent **entries;
    int n;
    NM_TRY(list_folder(source->path, &entries, &n, err));
    nm_status status = NM_OK;
    for (int i = 0; i < n && status == NM_OK; i++) {
        NM_AUTO_FREE char *folder = nm_path_join(source->path, entries[i]->d_name);
        int32_t label;
        bool is_class;
        status = find_folder(folder, &is_class, err);
        if (status == NM_OK && is_class)
            status = class_of(source, classes, entries[i]->d_name, &label, err);
        if (status == NM_OK && is_class)
            status = read_class(set, source, folder, label, err);
    }
    nm_free_list(entries, (size_t)n);
    return status;
}

/* The names of the classes, one per line, in the folder of the records; without such a file 0 to 9. */
static nm_status read_names(const char *folder, char **names, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, "batches.meta.txt");
    nm_status status = nm_file_read_optional(path, names, err);
    if (status == NM_OK && !*names)
        *names = nm_duplicate("0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    return status;
}

/* Line `number` of a text, heap; NULL: there is none, or it is empty. */
static char *line_at(const char *text, int number)
{
    for (; number > 0 && *text; number--) {
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    size_t length = strcspn(text, "\r\n");
    return length ? nm_format("%.*s", (int)length, text) : NULL;
}

static void read_record(nm_image_set *set, const uint8_t *record, int32_t label)
{
    enum { SIDE = 32, PLANE = SIDE * SIDE };
    uint8_t pixels[PLANE * NM_IMAGE_CHANNELS];
    for (int i = 0; i < PLANE; i++)
        for (int c = 0; c < NM_IMAGE_CHANNELS; c++)
            pixels[i * NM_IMAGE_CHANNELS + c] = record[1 + c * PLANE + i];
    nm_image_scale(pixels, SIDE, SIDE, set->size, nm_image_set_add(set, label));
}

/* The files of records of a source. */
typedef struct record_reader {
    nm_image_set *set;
    const nm_image_source *source;
    nm_counter *classes;
    const char *names;
    int64_t taken[256]; /* number of images of each class, over all files */
} record_reader;

static nm_status read_records(record_reader *self, const char *path, nm_error *err)
{
    NM_AUTO(nm_file_unmap) nm_file_map file = {0};
    const int64_t most = self->source->per_class;
    NM_TRY(nm_file_map_open(&file, path, err));
    const uint8_t *record = (const uint8_t *)file.data;
    nm_status status = NM_OK;
    if (!file.bytes || file.bytes % NM_IMAGE_RECORD)
        status = nm_fail(err, NM_FORMAT, "%s: %zu bytes are no records of %d bytes", path, file.bytes,
                         NM_IMAGE_RECORD);
    for (size_t i = 0; status == NM_OK && i < file.bytes / NM_IMAGE_RECORD; i++, record += NM_IMAGE_RECORD) {
        NM_AUTO_FREE char *name = line_at(self->names, *record);
        int32_t label = 0;
        if (!name)
            status =
                nm_fail(err, NM_FORMAT, "%s: record %zu has class %d, which has no name", path, i, *record);
        else
            status = class_of(self->source, self->classes, name, &label, err);
        if (status == NM_OK && (!most || self->taken[*record]++ < most))
            read_record(self->set, record, label);
    }
    return status;
}

/* The classes in the order of their numbers, also if the first records are of other classes. */
static void add_names(const char *names, nm_counter *classes)
{
    for (int i = 0; i < 256; i++) {
        NM_AUTO_FREE char *name = line_at(names, i);
        if (name)
            nm_counter_add(classes, name, strlen(name), 0);
    }
}

static nm_status read_record_files(record_reader *self, nm_error *err)
{
    const nm_image_source *source = self->source;
    static const char *const training[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                           "data_batch_4.bin", "data_batch_5.bin"};
    bool is_folder;
    NM_TRY(find_folder(source->path, &is_folder, err));
    if (!is_folder)
        return read_records(self, source->path, err);
    nm_status status = NM_OK;
    for (size_t i = 0; i < (source->test ? 1 : sizeof training / sizeof *training) && status == NM_OK; i++) {
        NM_AUTO_FREE char *path = nm_path_join(source->path, source->test ? "test_batch.bin" : training[i]);
        bool found = !i;
        if (i)
            status = nm_file_find(path, &found, err);
        if (status == NM_OK && found)
            status = read_records(self, path, err);
    }
    return status;
}

static nm_status read_cifar(nm_image_set *set, const nm_image_source *source, nm_counter *classes,
                            nm_error *err)
{
    bool is_folder;
    NM_TRY(find_folder(source->path, &is_folder, err));
    NM_AUTO_FREE char *names = NULL, *folder = nm_duplicate(source->path);
    char *slash = strrchr(folder, '/');
    if (!is_folder) {
        if (slash)
            slash[slash == folder] = 0;
        else
            strcpy(folder, ".");
    }
    nm_status status = read_names(folder, &names, err);
    if (status == NM_OK && source->training)
        add_names(names, classes);
    record_reader reader = {.set = set, .source = source, .classes = classes, .names = names};
    NM_THEN(status, read_record_files(&reader, err));
    return status;
}

static nm_status find_records(const char *path, bool *found, nm_error *err)
{
    static const char *const files[] = {"data_batch_1.bin", "test_batch.bin"};
    bool is_folder;
    NM_TRY(find_folder(path, &is_folder, err));
    *found = !is_folder && nm_ends_with(path, ".bin");
    for (size_t i = 0; i < 2 && is_folder && !*found; i++)
        NM_TRY(nm_file_find_in(path, files[i], found, err));
    return NM_OK;
}

nm_status nm_image_set_read(nm_image_set *set, const nm_image_source *source, nm_counter *classes,
                            nm_error *err)
{
    const size_t before = set->n, broken = set->n_broken;
    bool has_records;
    NM_TRY(find_records(source->path, &has_records, err));
    NM_TRY(has_records ? read_cifar(set, source, classes, err) : read_classes(set, source, classes, err));
    if (set->n == before && set->n_broken > broken)
        return nm_fail(err, NM_FORMAT, "%s: none of %zu files is a readable image; the first: %.300s",
                       source->path, set->n_broken - broken, set->broken);
    if (set->n == before)
        return nm_fail(
            err, NM_FORMAT,
            "%s: contains no images: expected a folder per class with files .jpg, .jpeg or .png, or the "
            "binary records of CIFAR-10",
            source->path);
    return NM_OK;
}
