/* The text processing and the search options of a model as files of a folder: settings, BPE codes and
 * subwords, SentencePiece models, [decode]. Other programs ignore these files; nm_text_files_read restores
 * them when such a folder is converted to a Norma model. */
#pragma once

#include "task/tasks.h"

/* Writes data.ini, BPE codes, counts of BPE subwords and SentencePiece models of a translation or language
 * model to the folder, and decode.ini of a translation model. NM_IO. */
nm_status nm_text_files_write(const nm_task *task, const char *folder, nm_error *err);
/* Reads the files that exist; decode.ini sets the options [decode]. NM_IO, NM_FORMAT, NM_USAGE. */
nm_status nm_text_files_read(nm_task *task, nm_options *options, const char *folder, nm_error *err);
