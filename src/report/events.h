/* TensorBoard's event files out of log.jsonl: numbers as scalars, histograms as histograms, samples and what the run
 * stands on as texts, under the tags that report/run.h gives them. Live or afterwards is the same thing: follow reads what the log has got since. */
#ifndef NM_EVENTS_H
#define NM_EVENTS_H

#include "report/run.h"

typedef struct nm_events nm_events;

/* Begins a new event file in folder (created; event files that Norma left there are removed: they are of the same log).
 * NM_UNSUPPORTED when the program was built without protobuf-c; the message names the packages. */
nm_status nm_events_open(nm_events **events, const char *run_folder, const char *folder, nm_error *err);
/* Writes what log.jsonl has more, whole lines only. A log that does not exist yet has nothing. */
nm_status nm_events_follow(nm_events *events, nm_error *err);
void nm_events_close(nm_events *events); /* NULL is fine */

/* For tests: the checksum of its records. */
uint32_t nm_crc32c(const void *data, size_t bytes);

#endif
