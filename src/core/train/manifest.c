#include "train/manifest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/safetensors.h"
#include "train/checkpoint.h"

static const char statement_type[] = "https://in-toto.io/Statement/v1";
static const char predicate_type[] = "https://norma.invalid/training-checkpoint/v1";

char *nm_manifest_path(const char *run, int64_t update)
{
    return nm_format("%s/checkpoints/%08" PRId64 ".intoto.json", run, update);
}

static json_t *subject(int64_t update, const char *suffix, const char *digest)
{
    NM_AUTO_FREE char *name = nm_format("%08" PRId64 ".%s", update, suffix);
    return json_pack("{s:s, s:{s:s}}", "name", name, "digest", "sha256", digest);
}

/* Of the statement without this digest, compact and with sorted keys: the manifest of the newest checkpoint
 * is in no other one. */
static bool digest_of_statement(json_t *statement, char digest[NM_DIGEST_TEXT])
{
    NM_AUTO_FREE char *text = json_dumps(statement, JSON_COMPACT | JSON_SORT_KEYS);
    if (text)
        nm_digest_of_text(text, digest);
    return text != NULL;
}

nm_status nm_manifest_write(const nm_manifest *m, const char *path, nm_error *err)
{
    json_t *predicate =
        json_pack("{s:I, s:{s:s}, s:{s:I, s:s}, s:{s:s, s:s}, s:{s:s, s:s}, s:s}", "update",
                  (json_int_t)m->update, "config", "sha256", m->config, "log", "bytes",
                  (json_int_t)m->log_bytes, "sha256", m->log, "data", "train", m->data, "valid",
                  m->valid_data, "program", "version", m->version, "build", m->build, "level", m->level);
    if (*m->previous.digest)
        json_object_set_new(
            predicate, "previous",
            json_pack("{s:I, s:s}", "update", (json_int_t)m->previous.update, "sha256", m->previous.digest));
    json_auto_t *statement = json_pack("{s:s, s:[o, o], s:s, s:o}", "_type", statement_type, "subject",
                                       subject(m->update, "safetensors", m->model),
                                       subject(m->update, "state.safetensors", m->state), "predicateType",
                                       predicate_type, "predicate", predicate);
    NM_AUTO_FREE char *text = NULL;
    char digest[NM_DIGEST_TEXT];
    if (digest_of_statement(statement, digest)) {
        json_object_set_new(json_object_get(statement, "predicate"), "statement",
                            json_pack("{s:s}", "sha256", digest));
        text = json_dumps(statement, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    }
    return text ? nm_file_write(path, text, strlen(text), err)
                : nm_fail(err, NM_MEMORY, "%s: out of memory", path);
}

/* Copies a text that must fit; false: it does not. */
static bool take(char *to, size_t bytes, const char *text)
{
    return snprintf(to, bytes, "%s", text) < (int)bytes;
}

/* Reads the digest of the subject with this name. */
static bool take_subject(const json_t *subjects, int64_t update, const char *suffix, char *digest)
{
    NM_AUTO_FREE char *name = nm_format("%08" PRId64 ".%s", update, suffix);
    bool taken = false;
    for (size_t i = 0; i < json_array_size(subjects); i++) {
        const char *found, *text;
        if (!json_unpack(json_array_get(subjects, i), "{s:s, s:{s:s}}", "name", &found, "digest", "sha256",
                         &text) &&
            !strcmp(found, name))
            taken = take(digest, NM_DIGEST_TEXT, text);
    }
    return taken;
}

static bool parse(nm_manifest *m, json_t *statement)
{
    const char *type, *config, *log, *data, *valid, *version, *build, *level, *previous = "";
    json_int_t update, log_bytes, previous_update = 0;
    json_t *subjects, *before = NULL;
    if (json_unpack(
            statement, "{s:s, s:o, s:{s:I, s:{s:s}, s:{s:I, s:s}, s:{s:s, s:s}, s:{s:s, s:s}, s:s, s?o}}",
            "_type", &type, "subject", &subjects, "predicate", "update", &update, "config", "sha256", &config,
            "log", "bytes", &log_bytes, "sha256", &log, "data", "train", &data, "valid", &valid, "program",
            "version", &version, "build", &build, "level", &level, "previous", &before) ||
        strcmp(type, statement_type))
        return false;
    if (before && json_unpack(before, "{s:I, s:s}", "update", &previous_update, "sha256", &previous))
        return false;
    m->update = update;
    m->log_bytes = log_bytes;
    m->previous.update = previous_update;
    return take_subject(subjects, update, "safetensors", m->model) &&
           take_subject(subjects, update, "state.safetensors", m->state) &&
           take(m->config, sizeof m->config, config) && take(m->log, sizeof m->log, log) &&
           take(m->data, sizeof m->data, data) && take(m->valid_data, sizeof m->valid_data, valid) &&
           take(m->version, sizeof m->version, version) && take(m->build, sizeof m->build, build) &&
           take(m->level, sizeof m->level, level) &&
           take(m->previous.digest, sizeof m->previous.digest, previous);
}

static bool is_intact(json_t *statement)
{
    json_t *predicate = json_object_get(statement, "predicate");
    const char *stored;
    char digest[NM_DIGEST_TEXT], copy[NM_DIGEST_TEXT];
    if (json_unpack(predicate, "{s:{s:s}}", "statement", "sha256", &stored) ||
        !take(copy, sizeof copy, stored))
        return false;
    json_object_del(predicate, "statement");
    return digest_of_statement(statement, digest) && !strcmp(digest, copy);
}

nm_status nm_manifest_read(nm_manifest *manifest, const char *path, bool *found, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL;
    *manifest = (nm_manifest){0};
    NM_TRY(nm_file_read_optional(path, &text, err));
    *found = text != NULL;
    if (!text)
        return NM_OK;
    json_auto_t *statement = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const bool valid = statement && is_intact(statement) && parse(manifest, statement);
    return valid ? NM_OK : nm_fail(err, NM_FORMAT, "%s: not the manifest of a checkpoint, or damaged", path);
}

static nm_status check_file(const char *run, int64_t update, const char *suffix, const char *expected,
                            nm_error *err)
{
    NM_AUTO_FREE char *path = nm_format("%s/checkpoints/%08" PRId64 ".%s", run, update, suffix);
    char actual[NM_DIGEST_TEXT];
    bool found;
    NM_TRY(nm_file_find(path, &found, err));
    if (!found)
        return nm_fail(err, NM_FORMAT, "%s: missing", path);
    NM_TRY(nm_digest_of_file(path, actual, err));
    if (strcmp(actual, expected))
        return nm_fail(err, NM_FORMAT, "%s: not the file of its manifest (sha256 %.12s, there %.12s)", path,
                       actual, expected);
    return NM_OK;
}

/* Checkpoints before this one may have been removed. */
static nm_status check_previous(const nm_manifest *m, const char *run, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_manifest_path(run, m->previous.update);
    char actual[NM_DIGEST_TEXT];
    bool found = false;
    NM_TRY(*m->previous.digest ? nm_file_find(path, &found, err) : NM_OK);
    if (found)
        NM_TRY(nm_digest_of_file(path, actual, err));
    if (found && strcmp(actual, m->previous.digest))
        return nm_fail(err, NM_FORMAT, "%s: checkpoint %" PRId64 " follows another manifest", path,
                       m->update);
    return NM_OK;
}

nm_status nm_manifest_check(const nm_manifest *m, const char *run, int64_t update, nm_error *err)
{
    if (m->update != update)
        return nm_fail(err, NM_FORMAT, "%s/checkpoints/%08" PRId64 ".intoto.json: is of update %" PRId64, run,
                       update, m->update);
    NM_TRY(check_file(run, update, "safetensors", m->model, err));
    NM_TRY(check_file(run, update, "state.safetensors", m->state, err));
    return check_previous(m, run, err);
}

/* The configuration that the state of a checkpoint contains, heap, if it has the digest of its manifest;
 * otherwise NULL. */
static char *read_config(const char *run, const nm_manifest *m)
{
    char *path = nm_format("%s/checkpoints/%08" PRId64 ".state.safetensors", run, m->update), *text = NULL;
    char digest[NM_DIGEST_TEXT];
    nm_safetensors *file;
    if (nm_safetensors_open_metadata(&file, path, NM_IGNORED) == NM_OK) {
        const char *stored = nm_safetensors_metadata(file, "configuration");
        if (stored)
            nm_digest_of_text(stored, digest);
        if (stored && !strcmp(digest, m->config))
            text = nm_duplicate(stored);
        nm_safetensors_close(file);
    }
    free(path);
    return text;
}

/* The configuration of a checkpoint, heap, and the digest of that of the checkpoint before; NULL: a file is
 * damaged, or the checkpoint does not follow the one before. */
static char *find_config(const char *run, int64_t update, char before[NM_DIGEST_TEXT])
{
    nm_manifest m, previous;
    bool found;
    *before = 0;
    char *path = nm_manifest_path(run, update);
    bool valid = nm_manifest_read(&m, path, &found, NM_IGNORED) == NM_OK && found && m.update == update &&
                 check_previous(&m, run, NM_IGNORED) == NM_OK;
    free(path);
    if (!valid)
        return NULL;
    path = nm_manifest_path(run, m.previous.update);
    if (*m.previous.digest && nm_manifest_read(&previous, path, &found, NM_IGNORED) == NM_OK && found)
        memcpy(before, previous.config, sizeof previous.config);
    free(path);
    return read_config(run, &m);
}

nm_status nm_manifest_find_config(const char *run, char **text, int64_t *update, char before[NM_DIGEST_TEXT],
                                  nm_error *err)
{
    size_t n;
    char **paths;
    *text = NULL;
    *before = 0;
    NM_TRY(nm_checkpoint_list(run, &paths, &n, err));
    for (size_t i = n; i-- && !*text;) {
        *update = strtoll(strrchr(paths[i], '/') + 1, NULL, 10);
        *text = find_config(run, *update, before);
    }
    nm_checkpoint_list_free(paths, n);
    return NM_OK;
}
