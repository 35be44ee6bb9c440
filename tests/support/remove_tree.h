/* Removes a folder with its contents. */
#ifndef NM_REMOVE_TREE_H
#define NM_REMOVE_TREE_H

#include <ftw.h>
#include <stdio.h>

static inline int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

/* 0, or -1 with errno. */
static inline int remove_tree(const char *folder)
{
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
