/* Handling of mapped files that become shorter while they are read. */
#pragma once

/* Reading a page of a mapped file that was truncated, or that the device cannot read, raises SIGBUS. After
 * this call, that ends the program with a message that names the file and the exit code NM_IO. */
void nm_cli_handle_map_faults(void);
