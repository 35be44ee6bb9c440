/* The folder in which results are kept that can be computed again, such as compiled GPU kernels. */
#pragma once

/* The program calls this once at its start, the library never. It is created when it is needed. */
void nm_cache_folder_set(const char *path);
/* NULL: none was set. */
const char *nm_cache_folder(void);
