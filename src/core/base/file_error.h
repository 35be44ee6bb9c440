/* Statuses and texts for the errno of files. */
#pragma once

#include "norma/status.h"

/* The status for an errno of a failed system call: NM_MEMORY for ENOMEM, otherwise NM_IO. */
nm_status nm_file_error_status(int error);

/* Reading a stream of nm_text_open has two other errors: EBADMSG for damaged compressed data, and EILSEQ for
 * bytes that are not valid in the encoding. NM_FORMAT for both, otherwise nm_file_error_status. */
nm_status nm_input_error_status(int error);
/* strerror, with descriptions of EBADMSG and EILSEQ. */
const char *nm_input_error_text(int error);
