/* Handling of mapped files that become shorter while they are read. */
#ifndef NM_CLI_MAP_FAULT_H
#define NM_CLI_MAP_FAULT_H

/* Reading a page of a mapped file that was truncated, or that the device cannot read, raises SIGBUS. After
 * this call, that ends the program with a message that names the file and the exit code NM_IO. */
void nm_cli_handle_map_faults(void);

#endif
