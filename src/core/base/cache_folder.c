#include "base/cache_folder.h"

#include <stdio.h>

static char folder[4096];

void nm_cache_folder_set(const char *path)
{
    snprintf(folder, sizeof folder, "%s", path);
}

const char *nm_cache_folder(void)
{
    return *folder ? folder : NULL;
}
