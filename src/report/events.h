/* TensorBoard event files from log.jsonl: numbers as scalars, histograms as histograms, samples and the start record as
 * texts, with the tags of report/run.h. The same functions serve during training and afterwards: follow reads what was
 * appended to the log. */
#ifndef NM_EVENTS_H
#define NM_EVENTS_H

#include "report/run.h"

typedef struct nm_events nm_events;

/* Starts a new event file in folder, which is created; earlier event files of Norma there are removed, as they are from the
 * same log. NM_UNSUPPORTED if the program was built without protobuf-c; the message names the packages. */
nm_status nm_events_open(nm_events **events, const char *run_folder, const char *folder, nm_error *err);
/* Writes the complete lines that were appended to log.jsonl. A missing log counts as empty. */
nm_status nm_events_follow(nm_events *events, nm_error *err);
void nm_events_close(nm_events *events); /* may be NULL */

/* The checksum of the records; public for tests. */
uint32_t nm_crc32c(const void *data, size_t bytes);

#endif
