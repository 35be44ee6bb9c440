#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "convert/convert.h"
#include "convert/text_files.h"

#define FORMAT(name, help) &nm_format_##name,
const nm_foreign_format *const nm_foreign_formats[] = {NM_FOREIGN_FORMATS(FORMAT) NULL};

static char *names_of_formats(void)
{
    char *names = nm_duplicate("");
    for (size_t i = 0; nm_foreign_formats[i]; i++) {
        const nm_foreign_format *format = nm_foreign_formats[i];
        nm_format_append(&names, "%s%s%s", *names ? ", " : "", format->name,
                         format->write ? "" : " (read only)");
    }
    return names;
}

nm_status nm_foreign_format_find(const char *name, const nm_foreign_format **format, nm_error *err)
{
    for (size_t i = 0; nm_foreign_formats[i]; i++)
        if (!strcmp(nm_foreign_formats[i]->name, name)) {
            *format = nm_foreign_formats[i];
            return NM_OK;
        }
    NM_AUTO_FREE char *names = names_of_formats();
    return nm_fail(err, NM_USAGE, "unknown model format '%.100s'; available: %s", name, names);
}

static nm_status write_loaded(const nm_foreign_format *format, const nm_loaded_model *loaded,
                              const char *folder, nm_error *err)
{
    bool exists;
    nm_folder_lock lock = {0};
    NM_TRY(nm_file_find(folder, &exists, err));
    NM_TRY(nm_folder_create(folder, err));
    NM_TRY(nm_folder_lock_acquire(&lock, folder, err));
    nm_status status = format->write(loaded, folder, err);
    NM_THEN(status, nm_text_files_write(&loaded->task, folder, err));
    nm_folder_lock_release(&lock);
    if (status != NM_OK && !exists)
        rmdir(folder); /* fails if a file has been written */
    return status;
}

nm_status nm_convert_to(const nm_foreign_format *format, const char *model, const char *folder, nm_error *err)
{
    nm_loaded_model loaded;
    NM_AUTO_FREE char *file = NULL;
    if (!format->write)
        return nm_fail(err, NM_UNSUPPORTED, "the format %s can be read but not written", format->name);
    NM_TRY(nm_loaded_model_open_plain(&loaded, model, &file, err));
    nm_status status = write_loaded(format, &loaded, folder, err);
    if (status != NM_OK)
        nm_error_prefix(err, "%s", file);
    nm_loaded_model_close(&loaded);
    return status;
}

nm_status nm_convert_from(const nm_foreign_format *format, const nm_convert_settings *settings,
                          const char *path, const char *output, nm_error *err)
{
    if (!format->read)
        return nm_fail(err, NM_UNSUPPORTED, "the format %s can be written but not read", format->name);
    return format->read(path, settings, output, err);
}
