/* What turns text into subwords, as files of a folder: the other program ignores them, and nm_text_files_read brings them back. */
#ifndef NM_TEXT_FILES_H
#define NM_TEXT_FILES_H

#include "task/tasks.h"

/* Writes data.ini, BPE codes, BPE units and SentencePiece models of a translation or language model to the folder. */
nm_status nm_text_files_write(const nm_task *task, const char *folder, nm_error *err);
/* Reads those that exist. */
nm_status nm_text_files_read(nm_task *task, const char *folder, nm_error *err);

#endif
