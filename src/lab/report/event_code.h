/* Serialization of TensorBoard events with protobuf-c, an optional library. Without it,
 * nm_event_code_available returns false and the other functions return NULL. The caller frees the returned
 * bytes. */
#pragma once

#include "report/run.h"

bool nm_event_code_available(void);
/* The first event of a file, with the version of the format; time: Unix time. */
uint8_t *nm_event_code_version(double time, size_t *bytes);
/* The values of `line`, a run read from one line of a log, as an event; NULL if it has none. start: Unix time
 * at which the run started. */
uint8_t *nm_event_code_line(const nm_report_run *line, double start, size_t *bytes);
