#include "cli/output_guard.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"

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

/* Whether the folder of the file was written by norma prepare. */
static bool is_beside_data(const char *path)
{
    const char *slash = strrchr(path, '/');
    NM_AUTO_FREE char *folder = slash ? nm_format("%.*s", (int)(slash - path) + 1, path) : nm_duplicate(".");
    NM_AUTO_FREE char *settings = nm_path_join(folder, "data.ini"),
                      *sums = nm_path_join(folder, "checksums.xxh128");
    return nm_file_may_exist(settings) && nm_file_may_exist(sums);
}

static nm_status check_file(const nm_command *command, const char *path, nm_error *err)
{
    NM_AUTO_FREE char *resolved = realpath(path, NULL); /* the target of a symbolic link is overwritten */
    const char *target = resolved ? resolved : path, *slash = strrchr(target, '/');
    const char *what = file_of_run(slash ? slash + 1 : target);
    if (!what && nm_ends_with(target, ".safetensors") && !command->writes_models)
        what = "a model";
    if (!what && is_beside_data(target))
        what = "a file of a data folder";
    const bool first = command->writes_first;
    return what ? nm_fail(err, NM_USAGE, "%s: %s%s is %s, which would be overwritten: %s", command->name,
                          first ? "the first argument is the output, and " : "", path, what,
                          first ? "name a new file before the models" : "choose another file")
                : NM_OK;
}

/* A new file with a name that is read from a data folder, such as codes, would change what the data is. */
static nm_status check_new_file(const nm_command *command, const char *path, nm_error *err)
{
    static const char *const beginnings[] = {"codes.bpe", "dict.", "units.", "sentencepiece."};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (!strncmp(name, beginnings[i], strlen(beginnings[i])) && is_beside_data(path))
            return nm_fail(err, NM_USAGE, "%s: %s would become a file of a data folder: choose another name",
                           command->name, path);
    return NM_OK;
}

static nm_status check_folder(const nm_command *command, const char *folder, nm_error *err)
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
                           "%s: %s is %s, whose files would be overwritten: choose another folder",
                           command->name, folder, signs[i].what);
    }
    return NM_OK;
}

static nm_status check_output(const nm_command *command, const char *path, nm_error *err)
{
    struct stat info;
    if (!*path || !strcmp(path, "-"))
        return NM_OK;
    if (stat(path, &info)) /* that it cannot be written is found later */
        return check_new_file(command, path, err);
    if (S_ISDIR(info.st_mode))
        return command->writes_data ? NM_OK : check_folder(command, path, err);
    return S_ISREG(info.st_mode) ? check_file(command, path, err) : NM_OK;
}

/* Whether the value of the option is written: every option "output", and those that the command lists. */
static bool names_output(const nm_command *command, const char *option)
{
    for (const char *const *listed = command->outputs; listed && *listed; listed++)
        if (!strcmp(*listed, option))
            return true;
    return nm_ends_with(option, ".output");
}

nm_status nm_guard_outputs(const nm_cli *cli, int argc, char **argv, nm_error *err)
{
    const nm_command *command = cli->command;
    nm_status status = NM_OK;
    char *option;
    for (size_t i = 0; status == NM_OK && (option = nm_options_path(cli->options, i)) != NULL; i++) {
        NM_AUTO_FREE char *path = names_output(command, option) ? nm_options_get(cli->options, option) : NULL;
        if (path)
            status = check_output(command, path, err);
        free(option);
    }
    NM_TRY(status);
    return command->writes_first && argc ? check_output(command, argv[0], err) : NM_OK;
}
