/* The manifest of a checkpoint, checkpoints/N.intoto.json: an in-toto statement
 * (https://in-toto.io/Statement/v1) whose subjects are the model and the training state, and whose predicate
 * says from what they were computed. Each manifest has the digest of the one before. It finds accidents, not
 * forgeries; a signature of the folder finds those (docs/proofs.md). */
#pragma once

#include "base/digest.h"

typedef struct nm_manifest_link {
    int64_t update;
    char digest[NM_DIGEST_TEXT]; /* of the manifest of this checkpoint; "": there is none */
} nm_manifest_link;

typedef struct nm_manifest {
    int64_t update;
    char model[NM_DIGEST_TEXT], state[NM_DIGEST_TEXT];
    char config[NM_DIGEST_TEXT]; /* of config.ini */
    char log[NM_DIGEST_TEXT];    /* of the first log_bytes bytes of log.jsonl */
    int64_t log_bytes;
    char data[32], valid_data[32]; /* fingerprints, see nm_task */
    char version[32], build[NM_BUILD_TEXT];
    char level[16]; /* nm_backend_training_level */
    nm_manifest_link previous;
} nm_manifest;

/* RUN/checkpoints/N.intoto.json; heap. */
char *nm_manifest_path(const char *run, int64_t update);
/* NM_IO */
nm_status nm_manifest_write(const nm_manifest *manifest, const char *path, nm_error *err);
/* *found is false without an error if there is no such file.
 * NM_IO  the file cannot be read
 * NM_FORMAT  it is not such a statement */
nm_status nm_manifest_read(nm_manifest *manifest, const char *path, bool *found, nm_error *err);
/* Compares the digests with the files of the checkpoint `update` of the run.
 * NM_FORMAT  a file is another one, or is missing
 * NM_FORMAT  the manifest is of another update, or does not follow that of the checkpoint before, if that is
 *            present */
nm_status nm_manifest_check(const nm_manifest *manifest, const char *run, int64_t update, nm_error *err);

/* The text of config.ini with which the newest checkpoint that has a manifest was computed, heap; NULL: there
 * is none. *update: of this checkpoint; *before: the digest of the text of the checkpoint before, "":
 * unknown. Damaged checkpoints are skipped. */
nm_status nm_manifest_find_config(const char *run, char **text, int64_t *update, char before[NM_DIGEST_TEXT],
                                  nm_error *err);
