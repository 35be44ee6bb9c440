/* TensorBoard event files from log.jsonl: numbers become scalars, histograms stay histograms, samples and the
 * strings of the start record become texts, with the tags of report/run.h. nm_events_follow converts the
 * lines appended since its last call, so the functions serve both during and after training. */
#pragma once

#include "report/run.h"

typedef struct nm_events nm_events;

/* Starts a new event file in folder, which is created if necessary. Earlier event files of Norma in it are
 * removed, because they are from the same log. NM_UNSUPPORTED if the program was built without protobuf-c;
 * the message names the packages. NM_IO. On failure *events is NULL. */
nm_status nm_events_open(nm_events **events, const char *run_folder, const char *folder, nm_error *err);
/* Writes the complete lines that were appended to log.jsonl. A missing log counts as empty. NM_IO. */
nm_status nm_events_follow(nm_events *events, nm_error *err);
void nm_events_close(nm_events *events); /* may be NULL */

/* CRC-32C (Castagnoli), the checksum of the records; declared here for the tests. */
uint32_t nm_crc32c(const void *data, size_t bytes);
