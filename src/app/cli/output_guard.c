#include "cli/output_guard.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* The kind of file that has this name in a run folder; NULL: none. */
static const char *file_of_run(const char *name)
{
    const char *ending = name + strspn(name, "0123456789");
    if (!strcmp(name, "best.safetensors") || !strcmp(name, "last.safetensors"))
        return "the model of a run";
    if (!strcmp(name, "config.ini"))
        return "the configuration of a run";
    if (!strcmp(name, "log.jsonl"))
        return "the log of a run";
    if (ending > name && !strcmp(ending, ".safetensors"))
        return "the model of a run";
    if (ending > name && !strcmp(ending, ".state.safetensors"))
        return "the training state of a run";
    return NULL;
}

nm_status nm_guard_output_file(const char *path, const char *before, const char *remedy, nm_error *err)
{
    if (!nm_file_may_exist(path))
        return NM_OK;
    char *resolved = realpath(path, NULL); /* the target of a symbolic link is overwritten */
    const char *target = resolved ? resolved : path, *slash = strrchr(target, '/');
    const char *what = file_of_run(slash ? slash + 1 : target);
    free(resolved);
    return what ? nm_fail(err, NM_USAGE, "%s %s is %s, which would be overwritten: %s", before, path, what,
                          remedy)
                : NM_OK;
}

nm_status nm_guard_output_folder(const char *folder, const char *command, nm_error *err)
{
    static const struct {
        const char *name, *what;
    } signs[] = {{"config.ini", "the folder of a run"},
                 {"log.jsonl", "the folder of a run"},
                 {"checksums.xxh128", "a data folder"},
                 {"train.source.ids", "a data folder"},
                 {"train.text.ids", "a data folder"}};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        bool found;
        NM_TRY(nm_file_find_in(folder, signs[i].name, &found, err));
        if (found)
            return nm_fail(err, NM_USAGE,
                           "%s: %s is %s, whose files would be overwritten: choose another folder (-o "
                           "FOLDER)",
                           command, folder, signs[i].what);
    }
    return NM_OK;
}
