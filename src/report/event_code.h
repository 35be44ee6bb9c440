/* Serialization of TensorBoard events with protobuf-c; a separate file because protobuf-c is optional. */
#ifndef NM_EVENT_CODE_H
#define NM_EVENT_CODE_H

#include "report/run.h"

bool nm_event_code_available(void);
/* The first event of a file, with the version of the format; heap. */
uint8_t *nm_event_code_version(double time, size_t *bytes);
/* The values of a run that consists of one line of a log as an event; NULL if it has none. Heap. */
uint8_t *nm_event_code_line(const nm_report_run *line, double start, size_t *bytes);

#endif
