#include "cli/compare_inputs.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/memory.h"
#include "train/checkpoint.h"

/* 0 if there is no such file; the command itself reports errors of reading. */
static uint64_t hash_file(const char *path)
{
    struct stat info;
    nm_file_map map;
    if (!path || stat(path, &info) || !S_ISREG(info.st_mode) ||
        nm_file_map_open(&map, path, NM_IGNORED) != NM_OK)
        return 0;
    uint64_t hash = XXH3_64bits(map.data ? map.data : "", map.bytes);
    nm_file_unmap(&map);
    return hash;
}

static uint64_t hash_models(const char *paths)
{
    uint64_t all = 0;
    for (char *path; (path = nm_path_list_next(&paths, NULL, NULL)); free(path)) {
        NM_AUTO_FREE char *file = nm_model_path(path);
        const uint64_t pair[] = {all, hash_file(file)};
        all = XXH3_64bits(pair, sizeof pair);
    }
    return all;
}

nm_status nm_cli_compare_inputs(nm_comm *comm, const char *models, const char *const *files, size_t n,
                                nm_error *err)
{
    if (comm->size == 1)
        return NM_OK;
    NM_AUTO_FREE uint64_t *hashes = nm_allocate((size_t)comm->size * (n + 1) * sizeof *hashes);
    uint64_t *own = hashes + (size_t)comm->rank * (n + 1);
    own[0] = hash_models(models);
    for (size_t i = 0; i < n; i++)
        own[i + 1] = hash_file(files[i]);
    NM_TRY(nm_comm_gather(comm, hashes, (n + 1) * sizeof *hashes, err));
    for (size_t i = n + 1; i < (size_t)comm->size * (n + 1); i++)
        if (hashes[i] != hashes[i % (n + 1)])
            return nm_fail(err, NM_MISMATCH, "%s: rank %zu reads a file with other contents than rank 0",
                           i % (n + 1) ? files[i % (n + 1) - 1] : models, i / (n + 1));
    return NM_OK;
}
