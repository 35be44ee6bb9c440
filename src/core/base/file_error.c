/* Statuses and texts for errno. */
#include "base/file_error.h"

#include <errno.h>
#include <string.h>

nm_status nm_file_error_status(int error)
{
    return error == ENOMEM ? NM_MEMORY : NM_IO;
}

nm_status nm_input_error_status(int error)
{
    return error == EBADMSG || error == EILSEQ ? NM_FORMAT : nm_file_error_status(error);
}

const char *nm_input_error_text(int error)
{
    if (error == EBADMSG)
        return "the compressed data is damaged or truncated";
    return error == EILSEQ ? "bytes that are not valid in the given encoding" : strerror(error);
}
